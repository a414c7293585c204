"""Runtimes that start wrongly: earlier behaviour, and slips that a rewrite of `start` invites."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, NoReturn

from ...runtime import (
    Event,
    ExecutionAlreadyExistsError,
    ExecutionHandle,
    ExecutionJournal,
    ExecutionState,
    Runtime,
    RuntimeDeps,
    StartFencedOutError,
    StorageWriteError,
    TimerService,
    WorkflowRuntime,
)
from ...runtime.kernel import CONFLICTS
from ...spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    JsonValue,
    StaleFenceError,
    is_error,
)
from .parts import WithTimers

# --- D1 -----------------------------------------------------------------------------------------


class EnqueuedBootstrap(WorkflowRuntime):
    """Only enqueues sequence 0, and runs the body on the next line."""

    async def bootstrap(self, journal: ExecutionJournal, started: Event) -> None:
        journal.commit(started)


class NeverLooks(TimerService):
    """Starts an occurrence without looking whether it was started."""

    async def looks_started(self, execution_id: str) -> bool:
        return False


class EnqueuedWithoutLook(WithTimers):
    """`EnqueuedBootstrap`, and nobody looks before starting."""

    def __init__(self) -> None:
        super().__init__(NeverLooks)

    def runtime(self, deps: RuntimeDeps) -> Runtime:
        return EnqueuedBootstrap(deps)


class ToldBeforeDurable(WorkflowRuntime):
    """Folds and tells sequence 0 before its append has returned."""

    async def bootstrap(self, journal: ExecutionJournal, started: Event) -> None:
        envelope = journal.bootstrap_envelope(started)
        journal.adopt(envelope)
        try:
            await self.store.append(envelope)
        except Exception as error:  # noqa: BLE001 - a store may raise anything
            await self.refused(envelope, error)


class LateJournal(ExecutionJournal):
    """Holds sequence 0 back until there is more to write."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.held: deque[EventEnvelope] = deque()

    def commit(self, event: Event) -> EventEnvelope:
        if self.state is None:
            envelope = self.bootstrap_envelope(event)
            self.adopt(envelope)
            self.held.append(envelope)
            return envelope
        self.enqueue(*self.held)
        self.held.clear()
        return super().commit(event)


class BootstrapAfterEffect(EnqueuedBootstrap):
    """Writes sequence 0 together with the first step's record, after its effect."""

    journal_class = LateJournal


class HandleThenFailure(WorkflowRuntime):
    """Returns a handle from a start that the storage refused; its run then fails."""

    async def start(
        self,
        workflow: str,
        input: JsonValue = None,
        *,
        execution_id: str | None = None,
        fence: int | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
    ) -> ExecutionHandle:
        try:
            return await super().start(
                workflow, input, execution_id=execution_id, fence=fence, metadata=metadata
            )
        except StorageWriteError as failure:
            run: asyncio.Future[ExecutionState] = asyncio.get_running_loop().create_future()
            run.set_exception(failure)
            return ExecutionHandle(failure.execution_id, run)


# --- D2 -----------------------------------------------------------------------------------------


class TrustingConflict(WorkflowRuntime):
    """Takes a conflict at its word, without reading back."""

    async def has_started(self, execution_id: str) -> bool:
        return True


class ConflictByErrorId(WorkflowRuntime):
    """Decides by the execution id that the error carries, without reading back."""

    async def confirm(self, envelope: EventEnvelope, error: Exception) -> None:
        if getattr(error, "execution_id", None) == envelope.execution_id:
            raise ExecutionAlreadyExistsError(envelope.execution_id) from error


class RetryThroughAppend(WorkflowRuntime):
    """Retries through `append`, where two starts share a flush again."""

    async def append_alone(self, envelope: EventEnvelope) -> None:
        await self.store.append(envelope)


class NoRetry(WorkflowRuntime):
    """Gives up when a conflict turns out to be someone else's."""

    async def append_alone(self, envelope: EventEnvelope) -> None:
        raise DuplicateSequenceError(envelope.execution_id, envelope.sequence)


class RetriesTwice(WorkflowRuntime):
    """Tries a third time."""

    async def append_alone(self, envelope: EventEnvelope) -> None:
        try:
            await super().append_alone(envelope)
        except CONFLICTS:
            await super().append_alone(envelope)


class ConfirmsOnce(WorkflowRuntime):
    """Does not read back again when its retry meets a conflict."""

    async def refused_again(
        self, envelope: EventEnvelope, first: Exception, second: Exception
    ) -> NoReturn:
        if is_error(first, StaleFenceError) and is_error(second, StaleFenceError):
            fenced_out = StartFencedOutError(envelope.execution_id)
            fenced_out.__cause__ = second
            self.fail(envelope, fenced_out)
        self.fail(envelope, second)


class RunsUnconfirmed(WorkflowRuntime):
    """Runs the body when the read-back shows nothing."""

    async def append_alone(self, envelope: EventEnvelope) -> None:
        return None


class ConfirmsEveryFailure(WorkflowRuntime):
    """Treats every failure of the bootstrap as a conflict, and so tries again."""

    def is_conflict(self, error: Exception) -> bool:
        return True


class IsinstanceAlone(WorkflowRuntime):
    """Does not know a conflict whose class is a second copy."""

    def is_conflict(self, error: Exception) -> bool:
        return isinstance(error, CONFLICTS)


class SilentFailure(WorkflowRuntime):
    """Refuses a start without telling `on_storage_error`."""

    def fail(self, envelope: EventEnvelope, error: BaseException) -> NoReturn:
        failure = StorageWriteError(envelope.execution_id, envelope.sequence)
        raise failure from error


class StaleIsNoConflict(WorkflowRuntime):
    """Takes a stale fence at sequence 0 for a failure of the storage."""

    def is_conflict(self, error: Exception) -> bool:
        return is_error(error, DuplicateSequenceError, DuplicateEnvelopeIdError)


class FencedOutIsStale(WorkflowRuntime):
    """Reports a start that a dead holder fenced out as a plain stale write."""

    async def refused_again(
        self, envelope: EventEnvelope, first: Exception, second: Exception
    ) -> NoReturn:
        if self.is_conflict(second):
            await self.confirm(envelope, second)
        self.fail(envelope, second)
