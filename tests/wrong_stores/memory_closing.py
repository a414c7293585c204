"""Wrong stores that answer falsely, or not at all, as they close and afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from loom_backends.memory import MemoryEventStore, MemoryStorage, Record
from loom_conformance.spi import (
    MAX_SEQUENCE,
    EventEnvelope,
    EventStoreError,
    OutcomeUnknownError,
)

from .memory_base import Volume, turn, wrong_memory
from .memory_liveness import FEW

T = TypeVar("T")


class QueuedStore(MemoryEventStore):
    """The reference with a queue that answers a call a turn after it came; it is correct."""

    async def _queued(self, call: Callable[[], T]) -> T:
        self._check_open()
        await turn()
        return call()


@wrong_memory("close-drops-reads", deadline=2.0, paths=FEW)
class CloseDropsReads(QueuedStore):
    """Drops the queue of waiting reads at `close`: nobody ever answers them."""

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        return await self._queued(lambda: self._read(execution_id, first, MAX_SEQUENCE))

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        return await self._queued(lambda: self._read(execution_id, first, last))

    async def _queued(self, call: Callable[[], T]) -> T:
        self._check_open()
        await turn()
        if self.closed:
            await asyncio.Event().wait()
        return call()


@wrong_memory("close-drops-acquires", deadline=2.0, paths=FEW)
class CloseDropsAcquires(MemoryEventStore):
    """Drops the acquires that wait at `close`: nobody ever answers them."""

    async def acquire_fence(self, execution_id: str, /) -> int:
        self._check_open()
        await turn()
        if self.closed:
            await asyncio.Event().wait()
        return await super().acquire_fence(execution_id)


@wrong_memory("close-forgets-acquires")
class CloseForgetsAcquires(MemoryEventStore):
    """Answers an acquire in flight at `close` with a token that it never stores."""

    async def acquire_fence(self, execution_id: str, /) -> int:
        self._check_open()
        await turn()
        if self.closed:
            return self.storage.fences.get(execution_id, 0) + 1
        return await super().acquire_fence(execution_id)


@wrong_memory("close-empties-reads")
class CloseEmptiesReads(QueuedStore):
    """Answers a read in flight at `close` with what it has by then, which is nothing."""

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        return await self._queued(
            lambda: [] if self.closed else self._read(execution_id, first, MAX_SEQUENCE)
        )


@wrong_memory("nothing-to-do-after-close")
class NothingToDoAfterClose(MemoryEventStore):
    """Answers an empty batch and an empty range before it looks whether it is open."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        batch = list(envelopes)
        if batch:
            await super().append_batch(batch)

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        return [] if first > last else await super().read_range(execution_id, first, last)


@wrong_memory("every-close-is-counted")
class EveryCloseIsCounted(MemoryEventStore):
    """Counts the users of a shared pool, and takes one off at every `close` of one handle."""

    storage: Volume

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self.storage.notes["users"] = self.storage.notes.get("users", 0) + 1

    async def close(self) -> None:
        await super().close()
        self.storage.notes["users"] -= 1

    def _check_open(self) -> None:
        super()._check_open()
        if self.storage.notes["users"] < 1:
            raise EventStoreError("the connection pool is closed")


@wrong_memory("close-commits-what-is-open")
class CloseCommitsWhatIsOpen(MemoryEventStore):
    """Closes the connection in a transaction, which its engine takes for a commit."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._open: list[list[Record]] = []

    async def append(self, envelope: EventEnvelope, /) -> None:
        await self._row_by_row([self._encode(envelope)])

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        await self._row_by_row([self._encode(envelope) for envelope in envelopes])

    async def _row_by_row(self, records: Sequence[Record]) -> None:
        self._check_open()
        transaction: list[Record] = []
        self._open.append(transaction)
        try:
            for record in records:
                transaction.append(record)
                await turn()
                if self.closed:
                    raise OutcomeUnknownError("the connection was closed in the transaction")
            self._write(transaction)
        finally:
            self._open = [one for one in self._open if one is not transaction]

    async def close(self) -> None:
        if not self.closed:
            for transaction in self._open:
                with suppress(EventStoreError):
                    self._write(transaction)
        await super().close()
