"""What the races put around a handle: records, faults, copied errors, death."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from ..contract.operations import AcquireFence, Append, AppendBatch, Operation, ReadFrom, ReadRange
from ..lab.history import perform
from ..spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    EventStore,
    EventStoreError,
    StaleFenceError,
    has_ability,
)

T = TypeVar("T")


class Around:
    """Hands every call to another store; has the optional abilities that the other has.

    Subclasses change `call`, through which every call but `close` goes.
    """

    append_batch: Callable[[Iterable[EventEnvelope]], Awaitable[None]]
    read_range: Callable[[str, int, int], Awaitable[Sequence[EventEnvelope]]]
    acquire_fence: Callable[[str], Awaitable[int]]

    def __init__(self, store: EventStore) -> None:
        self.store: Final = store
        if has_ability(store, "batch"):
            self.append_batch = self._append_batch
        if has_ability(store, "range"):
            self.read_range = self._read_range
        if has_ability(store, "fencing"):
            self.acquire_fence = self._acquire_fence

    async def call(self, operation: Operation, run: Callable[[], Awaitable[T]]) -> T:
        """Make one call of the store."""
        return await run()

    async def make(self, operation: Operation) -> Any:
        """Make a call that stands in words already: one is worded once, on however many stores."""
        return await self.call(operation, lambda: self._beneath(operation))

    def _beneath(self, operation: Operation) -> Awaitable[Any]:
        if isinstance(self.store, Around):
            return self.store.make(operation)
        return perform(self.store, operation)

    async def append(self, envelope: EventEnvelope, /) -> None:
        """As the store's."""
        await self.make(Append(envelope))

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        """As the store's."""
        found: Sequence[EventEnvelope] = await self.make(ReadFrom(execution_id, first))
        return found

    async def close(self) -> None:
        """As the store's."""
        await self.store.close()

    async def _append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        await self.make(AppendBatch(envelopes))

    async def _read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        found: Sequence[EventEnvelope] = await self.make(ReadRange(execution_id, first, last))
        return found

    async def _acquire_fence(self, execution_id: str, /) -> int:
        token: int = await self.make(AcquireFence(execution_id))
        return token


def envelopes_of(operation: Operation) -> tuple[EventEnvelope, ...]:
    """What an operation is to write."""
    return operation.envelopes if isinstance(operation, Append | AppendBatch) else ()


class Recorded(Around):
    """Takes down every call and how it ended, when it has ended."""

    def __init__(
        self,
        store: EventStore,
        take: Callable[[Operation, Any, BaseException | None], None],
    ) -> None:
        super().__init__(store)
        self.take = take

    async def call(self, operation: Operation, run: Callable[[], Awaitable[T]]) -> T:
        """Make the call and take it down."""
        try:
            value = await run()
        except BaseException as error:
            self.take(operation, None, error)
            raise
        self.take(operation, value, None)
        return value


class Failing(Around):
    """A storage that is dead whenever a certain sequence is to be written."""

    def __init__(self, store: EventStore, sequence: int) -> None:
        super().__init__(store)
        self.sequence = sequence

    async def call(self, operation: Operation, run: Callable[[], Awaitable[T]]) -> T:
        """Make the call unless it writes the sequence.

        Raises:
            EventStoreError: it does; nothing was written.
        """
        if any(each.sequence == self.sequence for each in envelopes_of(operation)):
            raise EventStoreError("the storage is not reachable")
        return await run()


class CopiedErrors(Around):
    """A store that was built against another copy of the contract's errors."""

    async def call(self, operation: Operation, run: Callable[[], Awaitable[T]]) -> T:
        """Make the call; a conflict comes out as an error of the other copy."""
        try:
            return await run()
        except (DuplicateSequenceError, DuplicateEnvelopeIdError, StaleFenceError) as error:
            copied = _OTHER_COPY[type(error).__name__](str(error))
            for name, value in vars(error).items():
                setattr(copied, name, value)
            raise copied from None


class _OtherRoot(Exception):
    pass


_OTHER_COPY: Final[dict[str, type[Exception]]] = {
    kind.__name__: type(kind.__name__, (_OtherRoot,), {})
    for kind in (DuplicateSequenceError, DuplicateEnvelopeIdError, StaleFenceError)
}


class Life:
    """How long a node lives: so many store calls and effects, or for ever."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.dead = False

    def spend(self) -> None:
        """Begin one more call or effect.

        Raises:
            asyncio.CancelledError: the node is dead, or dies now; whatever task this is, it ends.
        """
        if self.left == 0:
            self.dead = True
        if self.dead:
            raise asyncio.CancelledError("the node died")
        if self.left is not None:
            self.left -= 1


class Mortal(Around):
    """The store of a node that may die."""

    def __init__(self, store: EventStore, life: Life) -> None:
        super().__init__(store)
        self.life = life

    async def call(self, operation: Operation, run: Callable[[], Awaitable[T]]) -> T:
        """Make the call if the node lives."""
        self.life.spend()
        return await run()
