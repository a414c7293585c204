"""Wrong stores about slots and acknowledgements."""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Iterable, Sequence
from typing import Any

from loom_backends.memory import Log, MemoryEventStore, MemoryStorage, Record
from loom_conformance.spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    EventStoreError,
    StaleFenceError,
)

from .memory_base import (
    KeyedStore,
    PrivateMemory,
    SuspendingStore,
    Volume,
    turn,
    wrong_memory,
)
from .registry import wrong


class _Unique(MemoryEventStore):
    """Which rows of a write are free, for stores that answer conflicts in ways of their own."""

    def _slot_taken(self, record: Record) -> bool:
        log = self.storage.logs.get(record.execution_id)
        return log is not None and record.sequence in log.records

    def _id_taken(self, record: Record) -> bool:
        return record.id in self.storage.ids


@wrong_memory("ignores-conflicts")
class IgnoresConflicts(_Unique):
    """Skips a row that is taken, as `ON CONFLICT DO NOTHING` does, and acknowledges it."""

    def _write(self, records: Sequence[Record]) -> None:
        self._check_open()
        for record in records:
            self._check_fence(record)
        for record in records:
            if not self._slot_taken(record) and not self._id_taken(record):
                self._insert(record)


@wrong_memory("upsert-replaces")
class UpsertReplaces(_Unique):
    """Replaces the rows that are in the way, as `INSERT OR REPLACE` does."""

    def _check_unique(self, records: Iterable[Record]) -> None:
        """Nothing is refused."""

    def _insert(self, record: Record) -> None:
        if self._id_taken(record):
            for log in self.storage.logs.values():
                for sequence in [s for s, old in log.records.items() if old.id == record.id]:
                    del log.records[sequence]
                    log.sequences.remove(sequence)
        if self._slot_taken(record):
            log = self.storage.logs[record.execution_id]
            self.storage.ids.discard(log.records.pop(record.sequence).id)
            log.sequences.remove(record.sequence)
        super()._insert(record)


@wrong_memory("equal-is-a-retry")
class EqualIsARetry(_Unique):
    """Takes an envelope equal to the stored one for a retry, and acknowledges it."""

    def _check_unique(self, records: Iterable[Record]) -> None:
        super()._check_unique([record for record in records if not self._is_stored(record)])

    def _insert(self, record: Record) -> None:
        if not self._is_stored(record):
            super()._insert(record)

    def _is_stored(self, record: Record) -> bool:
        log = self.storage.logs.get(record.execution_id, Log())
        return log.records.get(record.sequence) == record


@wrong_memory("check-then-insert")
class CheckThenInsert(MemoryEventStore):
    """Looks for conflicts first and inserts a turn later, with no unique index behind it."""

    async def append(self, envelope: EventEnvelope, /) -> None:
        await self._store([self._encode(envelope)])

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        await self._store([self._encode(envelope) for envelope in envelopes])

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        for record in records:
            self._check_fence(record)
        self._check_unique(records)
        await turn()
        for record in records:
            self._check_fence(record)
        for record in records:
            self._insert(record)


@wrong_memory("last-writer-wins-a-race")
class LastWriterWinsARace(SuspendingStore):
    """Has the check, but in the application: of two that pass it together the later replaces."""

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        for record in records:
            self._check_fence(record)
        self._check_unique(records)
        await turn()
        for record in records:
            self._check_fence(record)
            log = self.storage.logs.setdefault(record.execution_id, Log())
            if record.sequence not in log.records:
                insort(log.sequences, record.sequence)
            log.records[record.sequence] = record
            self.storage.ids.add(record.id)


@wrong_memory("renumbers")
class Renumbers(MemoryEventStore):
    """Stores every envelope at the execution's next number, whatever its caller asked for."""

    def _write(self, records: Sequence[Record]) -> None:
        self._check_open()
        for record in records:
            self._check_fence(record)
            log = self.storage.logs.get(record.execution_id, Log())
            following = log.sequences[-1] + 1 if log.sequences else 0
            placed = record._replace(sequence=following)
            self._check_unique([placed])
            self._insert(placed)


@wrong_memory("inserts-at-the-current-version")
class InsertsAtTheCurrentVersion(SuspendingStore):
    """Checks the caller's number, and a turn later inserts at the number that is next then."""

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        for record in records:
            self._check_fence(record)
        self._check_unique(records)
        await turn()
        for record in records:
            self._check_fence(record)
        for record in records:
            log = self.storage.logs.get(record.execution_id, Log())
            following = log.sequences[-1] + 1 if log.sequences else 0
            placed = record._replace(sequence=following)
            super()._check_unique([placed])
            self._insert(placed)


@wrong_memory("slots-share-joined-keys")
class SlotsShareJoinedKeys(MemoryEventStore):
    """Keeps one unique key a slot, the two parts joined without a mark."""

    def _check_unique(self, records: Iterable[Record]) -> None:
        super()._check_unique(records)
        for record in records:
            if any(self._is_taken(name, number) for name, number in _splits(record)):
                raise DuplicateSequenceError(record.execution_id, record.sequence)

    def _is_taken(self, execution_id: str, sequence: int) -> bool:
        log = self.storage.logs.get(execution_id)
        return log is not None and sequence in log.records


def _splits(record: Record) -> Iterable[tuple[str, int]]:
    """The slots that share the joined key."""
    joined = f"{record.execution_id}{record.sequence}"
    for place in range(1, len(joined)):
        number = joined[place:]
        if number.isascii() and number.isdigit() and str(int(number)) == number:
            yield joined[:place], int(number)


@wrong_memory("zero-is-no-sequence")
class ZeroIsNoSequence(_Unique):
    """Checks the slot only `if sequence`, so a second sequence 0 replaces the first."""

    def _check_unique(self, records: Iterable[Record]) -> None:
        given = list(records)
        super()._check_unique([record for record in given if record.sequence])
        super()._check_unique(
            [record for record in given if not record.sequence and not self._slot_taken(record)]
        )

    def _insert(self, record: Record) -> None:
        if self._slot_taken(record):
            self.storage.logs[record.execution_id].records[record.sequence] = record
            self.storage.ids.add(record.id)
        else:
            super()._insert(record)


@wrong_memory("counter-before-insert")
class CounterBeforeInsert(MemoryEventStore):
    """Moves an in-memory counter before the write is checked, and never back."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._next: dict[str, int] = {}

    def _write(self, records: Sequence[Record]) -> None:
        self._check_open()
        for record in records:
            if record.sequence < self._next.get(record.execution_id, 0):
                super()._write([record])  # a stale token or a taken slot is told as such
                raise DuplicateSequenceError(record.execution_id, record.sequence)
            self._next[record.execution_id] = record.sequence + 1
        super()._write(records)


@wrong_memory("batch-needs-a-header")
class BatchNeedsAHeader(MemoryEventStore):
    """Updates a header in a batch: a new execution has none, and nothing of it is stored."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        records = [self._encode(envelope) for envelope in envelopes]
        self._check_open()
        for record in records:
            self._check_fence(record)
        self._check_unique(records)
        known = set(self.storage.logs)
        for record in records:
            if record.execution_id in known:
                self._insert(record)


@wrong_memory("unknown-execution-is-an-error")
class UnknownExecutionIsAnError(MemoryEventStore):
    """Raises "no such execution" where an empty log is meant."""

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        found = super()._read(execution_id, first, last)
        if not found and execution_id not in self.storage.logs:
            raise EventStoreError(f"no such execution: {execution_id!r}")
        return found


@wrong_memory("acknowledges-before-it-writes")
class AcknowledgesBeforeItWrites(MemoryEventStore):
    """Acknowledges at once and lets a background task write a moment later."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._behind: set[asyncio.Task[None]] = set()

    def _write(self, records: Sequence[Record]) -> None:
        self._check_open()
        for record in records:
            self._check_fence(record)
        self._check_unique(records)
        task = asyncio.get_running_loop().create_task(self._later(records))
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)

    async def _later(self, records: Sequence[Record]) -> None:
        for _ in range(20):
            await turn()
        super()._write(records)


@wrong_memory("caches-its-reads")
class CachesItsReads(MemoryEventStore):
    """Serves reads from a cache that only the handle's own writes clear."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._cache: dict[tuple[str, int, int], list[EventEnvelope]] = {}

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        self._check_open()
        key = execution_id, first, last
        if key not in self._cache:
            self._cache[key] = super()._read(execution_id, first, last)
        return [self._decode(self._copied(one)) for one in self._cache[key]]

    def _copied(self, envelope: EventEnvelope) -> Record:
        return self._encode(envelope)

    def _write(self, records: Sequence[Record]) -> None:
        super()._write(records)
        written = {record.execution_id for record in records}
        self._cache = {key: kept for key, kept in self._cache.items() if key[0] not in written}


@wrong("every-handle-a-database")
class EveryHandleADatabase(PrivateMemory):
    """Opens a database of its own for every handle, as each connection to `:memory:` does."""

    name = "memory"

    async def connect(self, address: str) -> Any:
        return MemoryEventStore(MemoryStorage())


@wrong_memory("sequence-in-32-bits")
class SequenceIn32Bits(KeyedStore):
    """Keeps the sequence in a column of 32 bits, where a larger one wraps round."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        return record._replace(sequence=(record.sequence + 2**31) % 2**32 - 2**31)


@wrong_memory("sequence-as-a-double")
class SequenceAsADouble(MemoryEventStore):
    """Takes the sequence through a float of 32 bits' precision on its way to the column."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        if record.sequence < 2**24:
            return record
        exponent = record.sequence.bit_length() - 24
        return record._replace(sequence=record.sequence >> exponent << exponent)


@wrong_memory("caches-the-version", sparse_sequences=False)
class CachesTheVersion(MemoryEventStore):
    """Keeps the version that it wrote last, and refuses a write that does not follow it."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._written: dict[str, int] = {}

    def _check_unique(self, records: Iterable[Record]) -> None:
        given = list(records)
        super()._check_unique(given)
        ends: dict[str, int] = {}
        for record in given:
            log = self.storage.logs.get(record.execution_id, Log())
            last = self._written.get(record.execution_id, len(log.sequences) - 1)
            last = ends.get(record.execution_id, last)
            if record.sequence != last + 1:
                raise EventStoreError(f"expected version {last + 1}, not {record.sequence}")
            ends[record.execution_id] = record.sequence

    def _insert(self, record: Record) -> None:
        super()._insert(record)
        self._written[record.execution_id] = record.sequence


@wrong_memory("remembers-refused-ids")
class RemembersRefusedIds(MemoryEventStore):
    """Notes envelope ids as taken before the write is refused for something else."""

    storage: Volume

    def _check_unique(self, records: Iterable[Record]) -> None:
        given = list(records)
        for record in given:
            if record.id in self.storage.notes:
                raise DuplicateEnvelopeIdError(record.execution_id, record.id)
        fresh = [record.id for record in given if record.id not in self.storage.ids]
        self.storage.notes.update(dict.fromkeys(fresh))
        super()._check_unique(given)
        for name in fresh:
            self.storage.notes.pop(name, None)


@wrong("storages-share-a-table")
class StoragesShareATable(PrivateMemory):
    """Leaves the storage out of its keys: every storage is the same table."""

    async def connect(self, address: str) -> Any:
        return MemoryEventStore(next(iter(self.storages.values())))


@wrong_memory("token-opens-taken-slots")
class TokenOpensTakenSlots(_Unique):
    """Puts `where fence = ...` in place of "must not exist": the token's holder overwrites."""

    def _check_unique(self, records: Iterable[Record]) -> None:
        super()._check_unique([record for record in records if record.fence is None])

    def _insert(self, record: Record) -> None:
        if record.fence is not None and self._slot_taken(record):
            self.storage.logs[record.execution_id].records[record.sequence] = record
        else:
            super()._insert(record)


@wrong_memory("duplicate-under-a-fence-is-stale")
class DuplicateUnderAFenceIsStale(MemoryEventStore):
    """Takes every failed conditional write to a fenced execution for a stale token."""

    def _check_unique(self, records: Iterable[Record]) -> None:
        given = list(records)
        try:
            super()._check_unique(given)
        except (DuplicateSequenceError, DuplicateEnvelopeIdError) as error:
            fence = self.storage.fences.get(error.execution_id)
            if fence is None:
                raise
            raise StaleFenceError(error.execution_id, fence, fence) from error
