"""Assemblies in which one part is another class than the kit's."""

from __future__ import annotations

from ...clock import Clock
from ...runtime import (
    Assembly,
    Dispatcher,
    Leases,
    LocalDispatcher,
    LocalWorkerRuntime,
    Runtime,
    RuntimeDeps,
    SupervisingDispatcher,
    TimerService,
    Worker,
    WorkflowRuntime,
)
from ...runtime.journal import ErrorListener, ignore


class WithRuntime(Assembly):
    """The kit's parts around another runtime class."""

    def __init__(self, runtime_class: type[WorkflowRuntime]) -> None:
        self.runtime_class = runtime_class

    def runtime(self, deps: RuntimeDeps) -> Runtime:
        return self.runtime_class(deps)


class WithTimers(Assembly):
    """The kit's parts beside another timer service."""

    def __init__(self, timers_class: type[TimerService]) -> None:
        self.timers_class = timers_class

    def timers(
        self,
        runtime: Runtime,
        clock: Clock,
        *,
        fenced: bool = False,
        leases: Leases | None = None,
        on_error: ErrorListener = ignore,
    ) -> TimerService:
        return self.timers_class(runtime, clock, fenced=fenced, leases=leases, on_error=on_error)


class WithWorker(Assembly):
    """The kit's parts beside another worker."""

    def __init__(self, worker_class: type[LocalWorkerRuntime]) -> None:
        self.worker_class = worker_class

    def worker(self, runtime: Runtime) -> Worker:
        return self.worker_class(runtime)


class WithDispatcher(Assembly):
    """The kit's parts beside another dispatcher."""

    def __init__(self, dispatcher_class: type[LocalDispatcher]) -> None:
        self.dispatcher_class = dispatcher_class

    def dispatcher(
        self, worker: Worker, *, max_attempts: int = 1, on_error: ErrorListener = ignore
    ) -> Dispatcher:
        return self.dispatcher_class(worker, max_attempts=max_attempts, on_error=on_error)


class WithSupervisor(Assembly):
    """The kit's parts beside another supervising dispatcher."""

    def __init__(self, dispatcher_class: type[SupervisingDispatcher]) -> None:
        self.dispatcher_class = dispatcher_class

    def supervising_dispatcher(
        self,
        worker: Worker,
        clock: Clock,
        *,
        max_attempts: int = 3,
        on_error: ErrorListener = ignore,
    ) -> Dispatcher:
        return self.dispatcher_class(worker, clock, max_attempts=max_attempts, on_error=on_error)
