"""The workflow runtime: start, resume, recover (ADR 0103, D1 to D6).

Each decision is a method of its own, so that it can be pointed at, and replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NoReturn, cast

from ulid import ULID

from ..spi import (
    BatchEventStore,
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    EventStore,
    FencingEventStore,
    JsonValue,
    RangeEventStore,
    StaleFenceError,
    has_ability,
    is_error,
)
from .errors import (
    ExecutionAlreadyExistsError,
    ExecutionNotFoundError,
    StartFencedOutError,
    StorageWriteError,
    UnknownWorkflowError,
)
from .interface import Handle, RuntimeDeps
from .journal import ExecutionJournal
from .state import (
    EXECUTION_CANCELLED,
    EXECUTION_STARTED,
    TIMER_FIRED,
    Event,
    ExecutionState,
    load,
)
from .workflow import StepContext, Workflow, drive

CONFLICTS: Final = (DuplicateSequenceError, DuplicateEnvelopeIdError, StaleFenceError)
"""What at sequence 0 may mean that the execution exists, and must be confirmed (D2, L12)."""

AppendBatch = Callable[[Sequence[EventEnvelope]], Awaitable[None]]


class ExecutionHandle:
    """An execution that this runtime drives, or that it found at rest."""

    def __init__(self, execution_id: str, driven: asyncio.Future[ExecutionState]) -> None:
        self.execution_id = execution_id
        self._driven = driven

    async def finished(self) -> ExecutionState:
        """Wait until the drive ends; the state in which it left the execution.

        Raises:
            StorageWriteError: a write did not land and the drive was given up.
        """
        await asyncio.wait([self._driven])
        return self._driven.result()


def append_batch_of(store: EventStore) -> AppendBatch:
    """The store's `append_batch`, or appends one after the other where it has none."""
    if has_ability(store, "batch"):
        return cast(BatchEventStore, store).append_batch

    async def one_by_one(envelopes: Sequence[EventEnvelope]) -> None:
        for envelope in envelopes:
            await store.append(envelope)

    return one_by_one


def mint(now: datetime, random_bytes: Callable[[int], bytes]) -> str:
    """A ULID of this instant, as its canonical 26 characters."""
    milliseconds = round(now.timestamp() * 1000)
    return str(ULID.from_bytes(milliseconds.to_bytes(6, "big") + random_bytes(10)))


class WorkflowRuntime:
    """Starts executions, drives their bodies, and takes over what others left."""

    journal_class: type[ExecutionJournal] = ExecutionJournal

    def __init__(self, deps: RuntimeDeps) -> None:
        self.deps = deps
        self.store = deps.store
        self.workflows: Mapping[str, Workflow] = {flow.name: flow for flow in deps.workflows}
        self.drives: dict[str, asyncio.Task[ExecutionState]] = {}

    # --- start ------------------------------------------------------------------------------

    async def start(
        self,
        workflow: str,
        input: JsonValue = None,
        *,
        execution_id: str | None = None,
        fence: int | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
    ) -> ExecutionHandle:
        """Start an execution, once for an id that the caller chose (D5).

        Args:
            workflow: the name of a workflow of this runtime.
            input: what its body is given.
            execution_id: the caller's own id; without one a ULID is minted, which cannot collide
                and pays no barrier (D3).
            fence: the token to write under.
            metadata: what every envelope carries, such as a placement hint.

        Raises:
            ExecutionAlreadyExistsError: the chosen id is taken; nothing ran.
            StorageWriteError: the bootstrap is not durable, or nobody can say; nothing ran.
            UnknownWorkflowError: this runtime has no such workflow.
        """
        flow = self.workflow(workflow)
        started = Event(EXECUTION_STARTED, {"workflow": workflow, "input": input})
        if execution_id is None:
            minted = mint(self.deps.clock.now(), self.deps.random_bytes)
            journal = self.journal(minted, fence=fence, metadata=metadata)
            journal.commit(started)
        else:
            journal = self.journal(execution_id, fence=fence, metadata=metadata)
            await self.bootstrap(journal, started)
        return self.run(flow, journal)

    async def bootstrap(self, journal: ExecutionJournal, started: Event) -> None:
        """Make sequence 0 durable, and only then fold and tell it (D1)."""
        envelope = journal.bootstrap_envelope(started)
        try:
            await self.store.append(envelope)
        except Exception as error:  # noqa: BLE001 - a store may raise anything
            await self.refused(envelope, error)
        journal.adopt(envelope)

    async def refused(self, envelope: EventEnvelope, error: Exception) -> None:
        """Judge the refusal of a bootstrap; return if a second try made it durable (D2)."""
        if not self.is_conflict(error):
            self.fail(envelope, error)
        await self.confirm(envelope, error)
        try:
            await self.append_alone(envelope)
        except Exception as second:  # noqa: BLE001 - a store may raise anything
            await self.refused_again(envelope, error, second)

    async def refused_again(
        self, envelope: EventEnvelope, first: Exception, second: Exception
    ) -> NoReturn:
        """Judge the refusal of the single retry (D2, L20)."""
        if self.is_conflict(second):
            await self.confirm(envelope, second)
            if is_error(first, StaleFenceError) and is_error(second, StaleFenceError):
                fenced_out = StartFencedOutError(envelope.execution_id)
                fenced_out.__cause__ = second
                self.fail(envelope, fenced_out)
        self.fail(envelope, second)

    def is_conflict(self, error: Exception) -> bool:
        """Whether a refusal may mean that the execution exists: by class, else by name (D2)."""
        return is_error(error, *CONFLICTS)

    async def confirm(self, envelope: EventEnvelope, error: Exception) -> None:
        """Look whether a conflict is this execution's own; return if sequence 0 is absent (D2).

        Raises:
            ExecutionAlreadyExistsError: sequence 0 is there.
            StorageWriteError: it could not be read.
        """
        try:
            exists = await self.has_started(envelope.execution_id)
        except Exception as unread:  # noqa: BLE001 - a store may raise anything
            self.fail(envelope, unread)
        if exists:
            raise ExecutionAlreadyExistsError(envelope.execution_id) from error

    async def has_started(self, execution_id: str) -> bool:
        """Whether sequence 0 is readable, through the store that refused it (D2)."""
        if has_ability(self.store, "range"):
            found = await cast(RangeEventStore, self.store).read_range(execution_id, 0, 0)
        else:
            found = await self.store.read_from(execution_id, 0)
        return any(envelope.sequence == 0 for envelope in found)

    async def append_alone(self, envelope: EventEnvelope) -> None:
        """Append in a batch of its own, which a coalescing store flushes alone (D2, L12)."""
        await append_batch_of(self.store)([envelope])

    def fail(self, envelope: EventEnvelope, error: BaseException) -> NoReturn:
        """Report a bootstrap that is not durable, and refuse the start."""
        failure = StorageWriteError(envelope.execution_id, envelope.sequence)
        failure.__cause__ = error
        self.deps.on_storage_error(failure)
        raise failure

    # --- go on ------------------------------------------------------------------------------

    async def load_state(self, execution_id: str) -> ExecutionState | None:
        """The fold of what is durable, or `None` where nothing is."""
        return await load(self.store, execution_id)

    async def resume(
        self,
        execution_id: str,
        *,
        fence: int | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
    ) -> ExecutionHandle:
        """Drive an execution on from its log; one that sleeps or has ended is left at rest.

        Raises:
            ExecutionNotFoundError: it has no log.
        """
        state = await self.loaded(execution_id)
        if state.status != "running":
            return self.rest(state)
        journal = self.journal(execution_id, fence=fence, metadata=metadata, state=state)
        return self.run(self.workflow(state.workflow), journal)

    async def wake(
        self,
        execution_id: str,
        timer: str,
        *,
        fence: int | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
    ) -> ExecutionHandle | None:
        """Record that a timer fired, and drive the execution on once that is durable.

        Returns:
            `None` where the timer has fired before, or the execution has ended.

        Raises:
            ExecutionNotFoundError: it has no log.
            StorageWriteError: another node's record came first, or the storage failed.
        """
        state = await self.loaded(execution_id)
        if state.status != "sleeping" or timer in state.fired:
            return None
        journal = self.journal(execution_id, fence=fence, metadata=metadata, state=state)
        journal.commit(Event(TIMER_FIRED, {"timer": timer}))
        await journal.drain()
        return self.run(self.workflow(state.workflow), journal)

    async def cancel(self, execution_id: str, reason: str) -> ExecutionState:
        """Fence the execution, and end it unless it has ended; its final state.

        One that has no log is not fenced: that would stop an unfenced start.

        Raises:
            ExecutionNotFoundError: it has no log.
            StorageWriteError: the record did not land.
        """
        await self.loaded(execution_id)
        fence = await self.acquire_fence(execution_id)
        state = await self.loaded(execution_id)
        if state.ended:
            return state
        journal = self.journal(execution_id, fence=fence, state=state)
        journal.commit(Event(EXECUTION_CANCELLED, {"error": reason}))
        await journal.drain()
        return journal.state or state

    async def recover_abandoned(self, execution_ids: Iterable[str]) -> list[Handle]:
        """Drive on, each under a fresh fence, those that run with nobody driving them here.

        Whether another node drives one cannot be seen; if one does, the fence stops its writes.
        """
        handles: list[Handle] = []
        for execution_id in execution_ids:
            state = await self.load_state(execution_id)
            if state is None or state.status != "running" or execution_id in self.drives:
                continue
            handles.append(await self.take_over(state))
        return handles

    async def take_over(self, state: ExecutionState) -> ExecutionHandle:
        """Fence first, then read: what another node wrote before the fence counts."""
        fence = await self.acquire_fence(state.execution_id)
        return await self.resume(state.execution_id, fence=fence)

    async def acquire_fence(self, execution_id: str) -> int | None:
        """The execution's new current token, or `None` where the store does not fence."""
        if has_ability(self.store, "fencing"):
            return await cast(FencingEventStore, self.store).acquire_fence(execution_id)
        return None

    async def close(self) -> None:
        """Stop driving; the executions are left as they are, for recovery."""
        tasks = list(self.drives.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- parts ------------------------------------------------------------------------------

    def workflow(self, name: str) -> Workflow:
        """The workflow of this name.

        Raises:
            UnknownWorkflowError: this runtime has none.
        """
        try:
            return self.workflows[name]
        except KeyError:
            raise UnknownWorkflowError(name) from None

    def journal(
        self,
        execution_id: str,
        *,
        fence: int | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        state: ExecutionState | None = None,
    ) -> ExecutionJournal:
        """A journal on this runtime's store, clock and listeners."""
        return self.journal_class(
            self.store,
            execution_id,
            self.deps.clock,
            metadata=metadata,
            fence=fence,
            state=state,
            on_event=self.deps.on_event,
            on_commit=self.deps.on_commit,
            on_storage_error=self.deps.on_storage_error,
        )

    def run(self, workflow: Workflow, journal: ExecutionJournal) -> ExecutionHandle:
        """Drive a body in a task of its own."""
        execution_id = journal.execution_id
        task = asyncio.create_task(self._drive(workflow, journal), name=f"drive {execution_id}")
        self.drives[execution_id] = task
        task.add_done_callback(lambda done: self._driven(execution_id, done))
        return ExecutionHandle(execution_id, task)

    def rest(self, state: ExecutionState) -> ExecutionHandle:
        """The handle of an execution that nobody needs to drive."""
        at_rest: asyncio.Future[ExecutionState] = asyncio.get_running_loop().create_future()
        at_rest.set_result(state)
        return ExecutionHandle(state.execution_id, at_rest)

    async def loaded(self, execution_id: str) -> ExecutionState:
        """As `load_state`, for an execution that must be there.

        Raises:
            ExecutionNotFoundError: it has no log.
        """
        state = await self.load_state(execution_id)
        if state is None:
            raise ExecutionNotFoundError(execution_id)
        return state

    async def _drive(self, workflow: Workflow, journal: ExecutionJournal) -> ExecutionState:
        try:
            return await drive(workflow, StepContext(journal))
        finally:
            await journal.abandon()

    def _driven(self, execution_id: str, task: asyncio.Task[ExecutionState]) -> None:
        if self.drives.get(execution_id) is task:
            del self.drives[execution_id]
        if not task.cancelled():
            task.exception()  # the store's failure was told to on_storage_error already
