"""Runtimes that fence, wake, dispatch or recover wrongly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...runtime import (
    Dispatch,
    Event,
    ExecutionAlreadyExistsError,
    ExecutionHandle,
    ExecutionJournal,
    ExecutionState,
    Handle,
    Leases,
    LocalDispatcher,
    LocalWorkerRuntime,
    Schedule,
    SupervisingDispatcher,
    Timer,
    TimerService,
    WorkflowRuntime,
    is_superseded,
)
from ...runtime.state import EXECUTION_CANCELLED, TIMER_FIRED
from ...runtime.timers import lease_name
from ...spi import JsonValue, is_error

# --- Schedules and timers -----------------------------------------------------------------------


class FencingStart(TimerService):
    """Acquires a fence for a start, when fires are fenced."""

    async def begin(self, schedule: Schedule, occurrence: str) -> Handle:
        execution_id = schedule.execution_id(occurrence)
        fence = await self.runtime.acquire_fence(execution_id) if self.fenced else None
        return await self.runtime.start(
            schedule.workflow, schedule.input, execution_id=execution_id, fence=fence
        )


class LostRaceIsAnError(TimerService):
    """Tells `on_error` that another node started the occurrence."""

    def lost_the_race(self, error: Exception) -> bool:
        return False


class LeaseLookedAt(TimerService):
    """Looks whether the lease is free, and does not keep it."""

    async def wake_under_lease(self, timer: Timer, leases: Leases) -> ExecutionState | None:
        name = lease_name(timer)
        if not await leases.store.claim(name, leases.holder, leases.ttl):
            return None
        await leases.store.release(name, leases.holder)
        return await self.wake(timer)


class LeaseReleasedEarly(TimerService):
    """Releases the lease once the execution is woken, while its body runs."""

    async def wake_under_lease(self, timer: Timer, leases: Leases) -> ExecutionState | None:
        name = lease_name(timer)
        if not await leases.store.claim(name, leases.holder, leases.ttl):
            return None
        try:
            fence = await self.runtime.acquire_fence(timer.execution_id) if self.fenced else None
            handle = await self.runtime.wake(timer.execution_id, timer.name, fence=fence)
        finally:
            await leases.store.release(name, leases.holder)
        return None if handle is None else await handle.finished()


# --- Workers and dispatchers --------------------------------------------------------------------


class FenceAfterLook(LocalWorkerRuntime):
    """Looks whether the execution exists, and fences then."""

    async def allocate(self, dispatch: Dispatch) -> Handle:
        state = await self.runtime.load_state(dispatch.execution_id)
        fence = await self.runtime.acquire_fence(dispatch.execution_id)
        if state is not None:
            return await self.runtime.resume(
                dispatch.execution_id, fence=fence, metadata=dispatch.metadata
            )
        return await self.begin(dispatch, fence)


class RetryOnAnyFailure(LocalDispatcher):
    """Counts a superseded dispatch as a failed attempt."""

    def superseded(self, error: Exception) -> bool:
        return False


class RetryOnExisting(LocalDispatcher):
    """Counts only a stale fence as superseded, and tries again when the execution exists."""

    def superseded(self, error: Exception) -> bool:
        return is_superseded(error) and not is_error(error, ExecutionAlreadyExistsError)


class SupervisorRetriesOnAnyFailure(SupervisingDispatcher):
    """Counts a superseded dispatch as a failed attempt, in the background."""

    def superseded(self, error: Exception) -> bool:
        return False


# --- Going on -----------------------------------------------------------------------------------


class RecoversFromItsLook(WorkflowRuntime):
    """Takes over from the state it saw before its fence."""

    async def take_over(self, state: ExecutionState) -> ExecutionHandle:
        fence = await self.acquire_fence(state.execution_id)
        journal = self.journal(state.execution_id, fence=fence, state=state)
        return self.run(self.workflow(state.workflow), journal)


class RecoversUnfenced(WorkflowRuntime):
    """Takes over without a fence."""

    async def take_over(self, state: ExecutionState) -> ExecutionHandle:
        return await self.resume(state.execution_id)


class CancelsUnfenced(WorkflowRuntime):
    """Ends an execution without a fence, in competition with whoever drives it."""

    async def cancel(self, execution_id: str, reason: str) -> ExecutionState:
        state = await self.loaded(execution_id)
        if state.ended:
            return state
        journal = self.journal(execution_id, state=state)
        journal.commit(Event(EXECUTION_CANCELLED, {"error": reason}))
        await journal.drain()
        return journal.state or state


class RunsStepsAgain(WorkflowRuntime):
    """Forgets recorded steps when it drives an execution on."""

    def journal(
        self,
        execution_id: str,
        *,
        fence: int | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        state: ExecutionState | None = None,
    ) -> ExecutionJournal:
        forgetful = None if state is None else replace(state, steps={})
        return super().journal(execution_id, fence=fence, metadata=metadata, state=forgetful)


class WakesBeforeDurable(WorkflowRuntime):
    """Runs the body on before the record of the timer is durable."""

    async def wake(
        self,
        execution_id: str,
        timer: str,
        *,
        fence: int | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
    ) -> ExecutionHandle | None:
        state = await self.loaded(execution_id)
        if state.status != "sleeping" or timer in state.fired:
            return None
        journal = self.journal(execution_id, fence=fence, metadata=metadata, state=state)
        journal.commit(Event(TIMER_FIRED, {"timer": timer}))
        return self.run(self.workflow(state.workflow), journal)


class DeafJournal(ExecutionJournal):
    """Forgets that a write failed, and writes on."""

    async def drain(self) -> None:
        try:
            await super().drain()
        except Exception:  # noqa: BLE001 - this is the fault
            self.failure = None


class DeafToFailedWrites(WorkflowRuntime):
    """Runs on after a write that did not land."""

    journal_class = DeafJournal
