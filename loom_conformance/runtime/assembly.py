"""How the parts are put together: replace one, and the rest goes on with yours."""

from __future__ import annotations

from ..clock import Clock
from .dispatch import LocalDispatcher, LocalWorkerRuntime, SupervisingDispatcher
from .interface import Dispatcher, Leases, Runtime, RuntimeDeps, Timers, Worker
from .journal import ErrorListener, ignore
from .kernel import WorkflowRuntime
from .timers import TimerService


class Assembly:
    """The kit's runtime. Override what you make yourself; each part needs only its protocol.

    One assembly serves many nodes: a part holds the state of one node, an assembly none.
    """

    def runtime(self, deps: RuntimeDeps) -> Runtime:
        """One node's runtime."""
        return WorkflowRuntime(deps)

    def timers(
        self,
        runtime: Runtime,
        clock: Clock,
        *,
        fenced: bool = False,
        leases: Leases | None = None,
        on_error: ErrorListener = ignore,
    ) -> Timers:
        """One node's timer service."""
        return TimerService(runtime, clock, fenced=fenced, leases=leases, on_error=on_error)

    def worker(self, runtime: Runtime) -> Worker:
        """One node's worker."""
        return LocalWorkerRuntime(runtime)

    def dispatcher(
        self, worker: Worker, *, max_attempts: int = 1, on_error: ErrorListener = ignore
    ) -> Dispatcher:
        """A dispatcher on a worker of the same process."""
        return LocalDispatcher(worker, max_attempts=max_attempts, on_error=on_error)

    def supervising_dispatcher(
        self,
        worker: Worker,
        clock: Clock,
        *,
        max_attempts: int = 3,
        on_error: ErrorListener = ignore,
    ) -> Dispatcher:
        """A dispatcher that pauses between attempts."""
        return SupervisingDispatcher(worker, clock, max_attempts=max_attempts, on_error=on_error)
