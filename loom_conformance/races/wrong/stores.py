"""Stores and coalescers that break one promise each, around any handle of any backend."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from ...contract.operations import AcquireFence, Append, AppendBatch, Operation
from ...spi import (
    FENCE_KEY,
    BatchEventStore,
    DuplicateSequenceError,
    EventEnvelope,
    EventStore,
    EventStoreError,
)
from ..scene import Wrap
from ..stores import Around

T = TypeVar("T")

_SMUGGLED = "wrong-store.given"
"""The metadata key under which a wrong store keeps the token that it should have refused."""


class LaxFences(Around):
    """Lets writes through that the wrapped store would refuse for their token.

    The wrapped store is given the current token, and readers are given back what was written.
    """

    def __init__(self, store: EventStore, current: dict[str, int], *, missing: bool) -> None:
        super().__init__(store)
        self.current = current
        self.missing = missing

    async def call(self, operation: Operation, run: Callable[[], Awaitable[T]]) -> T:
        """Make the call as the wrapped store would accept it."""
        if isinstance(operation, Append):
            return cast(T, await self.store.append(self._passing(operation.envelope)))
        if isinstance(operation, AppendBatch):
            batch = [self._passing(envelope) for envelope in operation.envelopes]
            return cast(T, await cast(BatchEventStore, self.store).append_batch(batch))
        value: Any = await run()
        if isinstance(operation, AcquireFence):
            self.current[operation.execution_id] = value
            return cast(T, value)
        return cast(T, [_as_written(envelope) for envelope in value])

    def _passing(self, envelope: EventEnvelope) -> EventEnvelope:
        current = self.current.get(envelope.execution_id)
        given = envelope.metadata.get(FENCE_KEY)
        if current is None or given == current or (given is None) != self.missing:
            return envelope
        metadata = {**envelope.metadata, FENCE_KEY: current, _SMUGGLED: given}
        return replace(envelope, metadata=metadata)


def _as_written(envelope: EventEnvelope) -> EventEnvelope:
    if _SMUGGLED not in envelope.metadata:
        return envelope
    metadata = dict(envelope.metadata)
    given = metadata.pop(_SMUGGLED)
    del metadata[FENCE_KEY]
    if given is not None:
        metadata[FENCE_KEY] = given
    return replace(envelope, metadata=metadata)


def takes_missing_tokens() -> Wrap:
    """Handles that accept a write without a token once the execution has one."""
    current: dict[str, int] = {}
    return lambda store: LaxFences(store, current, missing=True)


def takes_stale_tokens() -> Wrap:
    """Handles that accept a write under a token that is not the current one any more."""
    current: dict[str, int] = {}
    return lambda store: LaxFences(store, current, missing=False)


class SwallowsConflicts(Around):
    """Answers a write to a taken slot with success, and writes nothing."""

    async def call(self, operation: Operation, run: Callable[[], Awaitable[T]]) -> T:
        """Make the call; a taken slot is no error."""
        try:
            return await run()
        except DuplicateSequenceError:
            return cast(T, None)


class HidesFirst(Around):
    """Reads an execution from its second envelope on."""

    async def call(self, operation: Operation, run: Callable[[], Awaitable[T]]) -> T:
        """Make the call; a range of one is empty, as where an end is taken for exclusive."""
        value: Any = await run()
        if isinstance(value, Sequence) and len(value) == 1 and hasattr(operation, "last"):
            return cast(T, [])
        return cast(T, value)


class AcknowledgesInnocents:
    """A coalescer that rejects only the caller whose write was refused, though none was stored."""

    def __init__(self, store: EventStore) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Append with the flush; an error that names another execution is kept from the caller."""
        try:
            await self.store.append(envelope)
        except EventStoreError as error:
            if getattr(error, "execution_id", None) == envelope.execution_id:
                raise

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        """As the coalescer's."""
        return await self.store.read_from(execution_id, first)

    async def close(self) -> None:
        """As the coalescer's."""
        await self.store.close()
