"""Schedules and timers, with and without leases (ADR 0103, D4 and L12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..clock import Clock
from ..spi import is_error
from .errors import ExecutionAlreadyExistsError
from .interface import Handle, Leases, Runtime, Schedule, Timer
from .journal import ErrorListener, ignore
from .state import ExecutionState


class TimerService:
    """Starts the occurrences of schedules, and wakes executions whose timers are due.

    Any number of nodes may run one on the same store.
    """

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        *,
        fenced: bool = False,
        leases: Leases | None = None,
        on_error: ErrorListener = ignore,
    ) -> None:
        """A service of one node.

        Args:
            runtime: starts and wakes.
            clock: paces renewals.
            fenced: whether a fire acquires a fence. A start never does (L12).
            leases: without them a fire on several nodes is at least once per wake.
            on_error: is told what made a start or a fire fail.
        """
        self.runtime = runtime
        self.clock = clock
        self.fenced = fenced
        self.leases = leases
        self.on_error = on_error

    async def start_occurrence(self, schedule: Schedule, occurrence: str) -> Handle | None:
        """Start an occurrence; `None` if it has been started, here or elsewhere, or it failed."""
        try:
            if await self.looks_started(schedule.execution_id(occurrence)):
                return None
            return await self.begin(schedule, occurrence)
        except Exception as error:  # noqa: BLE001 - one occurrence must not stop the service
            if not self.lost_the_race(error):
                self.on_error(error)
            return None

    async def looks_started(self, execution_id: str) -> bool:
        """A cheap look that saves most refused starts, and closes no window (D4)."""
        return await self.runtime.load_state(execution_id) is not None

    async def begin(self, schedule: Schedule, occurrence: str) -> Handle:
        """Start without a fence, in either mode (L12)."""
        return await self.runtime.start(
            schedule.workflow, schedule.input, execution_id=schedule.execution_id(occurrence)
        )

    def lost_the_race(self, error: Exception) -> bool:
        """Whether another node started the occurrence first, which is no error (D4)."""
        return is_error(error, ExecutionAlreadyExistsError)

    async def fire(self, timer: Timer) -> ExecutionState | None:
        """Wake the execution and wait until its drive ends.

        Returns:
            The state it was left in, or `None` if this node did not wake it: another holds the
            lease, the timer has fired before, or the fire failed and `on_error` was told.
        """
        try:
            if self.leases is None:
                return await self.wake(timer)
            return await self.wake_under_lease(timer, self.leases)
        except Exception as error:  # noqa: BLE001 - one timer must not stop the service
            self.on_error(error)
            return None

    async def wake(self, timer: Timer) -> ExecutionState | None:
        """Fence if fires are fenced, then resume."""
        fence = await self.runtime.acquire_fence(timer.execution_id) if self.fenced else None
        handle = await self.runtime.wake(timer.execution_id, timer.name, fence=fence)
        return None if handle is None else await handle.finished()

    async def wake_under_lease(self, timer: Timer, leases: Leases) -> ExecutionState | None:
        """Own the fire before it begins, until the drive it began has ended."""
        name = lease_name(timer)
        if not await leases.store.claim(name, leases.holder, leases.ttl):
            return None
        try:
            async with self.renewing(name, leases):
                return await self.wake(timer)
        finally:
            await leases.store.release(name, leases.holder)

    @asynccontextmanager
    async def renewing(self, name: str, leases: Leases) -> AsyncIterator[None]:
        """Keep a claimed lease alive."""
        if leases.renew_every is None:
            yield
            return
        task = asyncio.create_task(
            self._renew(name, leases, leases.renew_every), name=f"renew {name}"
        )
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _renew(self, name: str, leases: Leases, pause: float) -> None:
        while True:
            await self.clock.sleep(pause)
            try:
                if not await leases.store.renew(name, leases.holder, leases.ttl):
                    return
            except Exception as error:  # noqa: BLE001 - the lease runs out; the fence still holds
                self.on_error(error)
                return


def lease_name(timer: Timer) -> str:
    """The lease that a node must hold to fire a timer of this execution."""
    return f"fire:{timer.execution_id}"
