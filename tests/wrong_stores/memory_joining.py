"""Wrong stores in which one call takes the answer of another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from loom_backends.memory import Log, MemoryEventStore, MemoryStorage, Record
from loom_conformance.spi import (
    MAX_SEQUENCE,
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    check_key,
)

from .memory_base import turn, wrong_memory


@wrong_memory("equal-writes-share-a-flight")
class EqualWritesShareAFlight(MemoryEventStore):
    """Joins a write that equals one under way, and tells both callers the same."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._flying: dict[Record, asyncio.Task[None]] = {}

    async def append(self, envelope: EventEnvelope, /) -> None:
        record = self._encode(envelope)
        self._check_open()
        flight = self._flying.get(record)
        if flight is None:
            flight = self._flying[record] = asyncio.ensure_future(self._send(record))
            flight.add_done_callback(lambda _: self._flying.pop(record, None))
        await asyncio.shield(flight)

    async def _send(self, record: Record) -> None:
        await turn()
        self._write([record])


@wrong_memory("an-equal-winner-is-oneself")
class AnEqualWinnerIsOneself(MemoryEventStore):
    """Takes an equal row, where none was before its write, for the trace of its own first try."""

    async def append(self, envelope: EventEnvelope, /) -> None:
        record = self._encode(envelope)
        self._check_open()
        before = self._there(record)
        await turn()
        try:
            self._write([record])
        except (DuplicateSequenceError, DuplicateEnvelopeIdError):
            if before is not None or self._there(record) != record:
                raise

    def _there(self, record: Record) -> Record | None:
        return self.storage.logs.get(record.execution_id, Log()).records.get(record.sequence)


@wrong_memory("equal-reads-share-a-query")
class EqualReadsShareAQuery(MemoryEventStore):
    """Joins a read to an equal one under way, which may have looked before the last write."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._asked: dict[tuple[str, int], asyncio.Task[list[Record]]] = {}

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        check_key("execution_id", execution_id)
        self._check_open()
        key = execution_id, first
        query = self._asked.get(key)
        if query is None:
            query = self._asked[key] = asyncio.ensure_future(self._query(execution_id, first))
            query.add_done_callback(lambda _: self._asked.pop(key, None))
        return [self._decode(record) for record in await asyncio.shield(query)]

    async def _query(self, execution_id: str, first: int) -> list[Record]:
        log = self.storage.logs.get(execution_id, Log())
        found = [log.records[sequence] for sequence in log.sequences if sequence >= first]
        for _ in range(3):
            await turn()
        return found


@wrong_memory("remembers-that-there-was-no-more")
class RemembersThatThereWasNoMore(MemoryEventStore):
    """Keeps the answer that nothing lies beyond a sequence until the handle itself writes."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._ends: set[tuple[str, int]] = set()

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        self._check_open()
        if (execution_id, first) in self._ends:
            return []
        found = self._read(execution_id, first, MAX_SEQUENCE)
        if first > 0 and not found and execution_id in self.storage.logs:
            self._ends.add((execution_id, first))
        return found

    def _insert(self, record: Record) -> None:
        super()._insert(record)
        self._ends = {end for end in self._ends if end[0] != record.execution_id}
