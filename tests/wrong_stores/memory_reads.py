"""Wrong stores about what a reader sees."""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from typing import Any

from loom_backends.memory import Log, MemoryEventStore, Record
from loom_conformance.spi import FENCE_KEY, MAX_SEQUENCE, EventEnvelope, EventStoreError

from .memory_base import SuspendingStore, Volume, turn, wrong_memory


@wrong_memory("insertion-order")
class InsertionOrder(MemoryEventStore):
    """Reads without ORDER BY: the rows come as they were inserted."""

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        super()._read(execution_id, first, last)
        log = self.storage.logs.get(execution_id, Log())
        return [self._decode(one) for one in log.records.values() if first <= one.sequence <= last]


@wrong_memory("sorts-as-text")
class SortsAsText(MemoryEventStore):
    """Keeps sequences as text, so that 10 comes before 2."""

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        found = super()._read(execution_id, first, last)
        return sorted(found, key=lambda envelope: str(envelope.sequence))


@wrong_memory("sorts-by-time")
class SortsByTime(MemoryEventStore):
    """Orders by timestamp instead of by sequence."""

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        found = super()._read(execution_id, first, last)
        return sorted(found, key=lambda envelope: envelope.timestamp)


@wrong_memory("newest-first")
class NewestFirst(MemoryEventStore):
    """Reads backwards, as an index that descends gives the rows."""

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        return super()._read(execution_id, first, last)[::-1]


@wrong_memory("first-is-exclusive")
class FirstIsExclusive(MemoryEventStore):
    """Takes `first` for the last sequence that was seen: `>` where `>=` is meant."""

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        return self._read(execution_id, first + 1 if first > 0 else 0, MAX_SEQUENCE)


@wrong_memory("first-is-an-offset")
class FirstIsAnOffset(MemoryEventStore):
    """Uses `first` as an offset in the result, which is wrong where sequences have gaps."""

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        return self._read(execution_id, 0, MAX_SEQUENCE)[max(0, first) :]


@wrong_memory("negative-first-is-a-slice")
class NegativeFirstIsASlice(MemoryEventStore):
    """Cuts a list by `first`: a negative one counts from the end."""

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        found = self._read(execution_id, 0, MAX_SEQUENCE)
        return found[first:] if first < 0 else [one for one in found if one.sequence >= first]


@wrong_memory("unknown-execution-is-none")
class UnknownExecutionIsNone(MemoryEventStore):
    """Returns `None` for an execution that it does not know."""

    async def read_from(self, execution_id: str, first: int = 0, /) -> Any:
        found = self._read(execution_id, first, MAX_SEQUENCE)
        return found if execution_id in self.storage.logs else None


@wrong_memory("past-the-end-is-an-error")
class PastTheEndIsAnError(MemoryEventStore):
    """Raises where `first` lies past the end of the log."""

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        found = self._read(execution_id, first, MAX_SEQUENCE)
        if not found and execution_id in self.storage.logs:
            raise IndexError(f"sequence {first} does not exist")
        return found


@wrong_memory("reads-one-page")
class ReadsOnePage(MemoryEventStore):
    """Reads one page of 1,000 and never the next."""

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        return super()._read(execution_id, first, last)[:1000]


@wrong_memory("hands-out-a-generator")
class HandsOutAGenerator(MemoryEventStore):
    """Returns a generator, which is empty when it is read a second time."""

    async def read_from(self, execution_id: str, first: int = 0, /) -> Any:
        return self._walk(self._read(execution_id, first, MAX_SEQUENCE))

    def _walk(self, found: Iterable[EventEnvelope]) -> Generator[EventEnvelope, None, None]:
        yield from found


@wrong_memory("later-slot-visible-first", sparse_sequences=False)
class LaterSlotVisibleFirst(SuspendingStore):
    """Hands slots out at insert and shows them at commit, so that 101 may be seen before 100.

    It refuses gaps, and counts a slot whose transaction is still open.
    """

    storage: Volume

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        self._write(records)
        if len(records) == 1 and records[0].sequence % 2:
            self.storage.notes[records[0].id] = True
            for _ in range(12):
                await turn()
            del self.storage.notes[records[0].id]

    def _check_unique(self, records: Iterable[Record]) -> None:
        given = list(records)
        super()._check_unique(given)
        ends: dict[str, int] = {}
        for record in given:
            log = self.storage.logs.get(record.execution_id, Log())
            following = ends.get(record.execution_id, len(log.sequences))
            if record.sequence != following:
                raise EventStoreError(f"{record.sequence} leaves a gap after {following - 1}")
            ends[record.execution_id] = following + 1

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        found = super()._read(execution_id, first, last)
        return [one for one in found if one.id not in self.storage.notes]


@wrong_memory("dirty-reads")
class DirtyReads(SuspendingStore):
    """Inserts, looks for conflicts a turn later and takes its rows back: readers saw them."""

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        for record in records:
            self._check_fence(record)
        free = [one for one in records if not self._taken(one)]
        self._insert_all(free)
        for _ in range(5):
            await turn()
        if len(free) < len(records):
            for record in free:
                log = self.storage.logs[record.execution_id]
                log.sequences.remove(record.sequence)
                del log.records[record.sequence]
                self.storage.ids.discard(record.id)
            self._check_unique(records)

    def _taken(self, record: Record) -> bool:
        log = self.storage.logs.get(record.execution_id, Log())
        return record.sequence in log.records or record.id in self.storage.ids

    def _insert_all(self, records: Iterable[Record]) -> None:
        given = list(records)
        self._check_unique(given)
        for record in given:
            self._insert(record)


@wrong_memory("pages-by-offset")
class PagesByOffset(SuspendingStore):
    """Reads pages from the newest row backwards by offset: a row that comes in shifts them all."""

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        newest = self._read(execution_id, first, MAX_SEQUENCE)[::-1][:1]
        await turn()
        older = self._read(execution_id, first, MAX_SEQUENCE)[::-1][1:]
        return [*newest, *older][::-1]


@wrong_memory("keeps-the-callers-payload")
class KeepsTheCallersPayload(MemoryEventStore):
    """Keeps the caller's own payload object beside the record, and reads that."""

    storage: Volume

    def __init__(self, storage: Volume) -> None:
        super().__init__(storage)
        self._given: dict[Record, Any] = {}

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        self._given[record] = envelope.payload
        return record

    def _insert(self, record: Record) -> None:
        super()._insert(record)
        self.storage.notes[record] = self._given.pop(record)

    def _decode(self, record: Record) -> EventEnvelope:
        envelope = super()._decode(record)
        return replace(envelope, payload=self.storage.notes[record])


@wrong_memory("hands-out-its-cache")
class HandsOutItsCache(MemoryEventStore):
    """Decodes each row once and hands the same object out to every reader."""

    storage: Volume

    def _decode(self, record: Record) -> EventEnvelope:
        if record not in self.storage.notes:
            self.storage.notes[record] = super()._decode(record)
        decoded: EventEnvelope = self.storage.notes[record]
        return decoded


@wrong_memory("encodes-after-an-await")
class EncodesAfterAnAwait(MemoryEventStore):
    """Encodes the payload a turn after the call was made."""

    async def append(self, envelope: EventEnvelope, /) -> None:
        self._check_open()
        await turn()
        await super().append(envelope)

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        given = list(envelopes)
        self._check_open()
        await turn()
        await super().append_batch(given)


@wrong_memory("reads-ten-thousand")
class ReadsTenThousand(MemoryEventStore):
    """Reads what the engine's window of 10,000 holds and no more."""

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        return super()._read(execution_id, first, last)[:10_000]


@wrong_memory("first-in-32-bits")
class FirstIn32Bits(MemoryEventStore):
    """Binds the bounds of a read as 32-bit integers, and cuts larger ones."""

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        return super()._read(execution_id, min(first, 2**31 - 1), last)


@wrong_memory("own-reads-are-dirty")
class OwnReadsAreDirty(SuspendingStore):
    """Reads on the connection that is writing, and sees what is not committed yet."""

    def __init__(self, storage: Volume) -> None:
        super().__init__(storage)
        self._uncommitted: list[Record] = []

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        mine: list[Record] = []
        try:
            for record in records:
                mine.append(record)
                self._uncommitted.append(record)
                await turn()
            self._write(records)
        finally:
            self._uncommitted = [one for one in self._uncommitted if one not in mine]

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        found = super()._read(execution_id, first, last)
        known = {(one.sequence, one.id) for one in found}
        dirty = [
            self._decode(one)
            for one in self._uncommitted
            if one.execution_id == execution_id
            and first <= one.sequence <= last
            and (one.sequence, one.id) not in known
        ]
        return sorted([*found, *dirty], key=lambda one: one.sequence)


@wrong_memory("one-page-from-the-middle")
class OnePageFromTheMiddle(MemoryEventStore):
    """Pages a read from the start, and answers one from elsewhere by a page of 5,000."""

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        found = self._read(execution_id, first, MAX_SEQUENCE)
        return found[:5000] if first > 0 else found


@wrong_memory("pads-to-ten-digits")
class PadsToTenDigits(MemoryEventStore):
    """Keeps sequences as text of ten padded digits, in whose order eleven come before two."""

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        def key(place: int) -> str:
            return f"{max(0, place):010d}"

        whole = super()._read(execution_id, 0, MAX_SEQUENCE)
        found = [one for one in whole if key(first) <= key(one.sequence) <= key(last)]
        return sorted(found, key=lambda one: key(one.sequence)) if first <= last else []


@wrong_memory("keeps-the-prefix-it-read")
class KeepsThePrefixItRead(MemoryEventStore):
    """Keeps on the handle what it read of an execution, and asks only for what comes after."""

    def __init__(self, storage: Volume) -> None:
        super().__init__(storage)
        self._seen: dict[str, list[EventEnvelope]] = {}

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        seen = self._seen.setdefault(execution_id, [])
        after = seen[-1].sequence + 1 if seen else 0
        seen += self._read(execution_id, after, MAX_SEQUENCE)
        return [copy.deepcopy(one) for one in seen if one.sequence >= first]


class _KeepsObjects(MemoryEventStore):
    """Keeps `_kept` of what it was given beside the record, and hands out `_kept` of that."""

    storage: Volume

    def __init__(self, storage: Volume) -> None:
        super().__init__(storage)
        self._given: dict[Record, EventEnvelope] = {}

    def _kept(self, envelope: EventEnvelope) -> EventEnvelope:
        raise NotImplementedError

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        self._given[record] = self._kept(envelope)
        return record

    def _insert(self, record: Record) -> None:
        super()._insert(record)
        self.storage.notes[record] = self._given.pop(record)

    def _decode(self, record: Record) -> EventEnvelope:
        return self._kept(self.storage.notes[record])


@wrong_memory("copies-metadata-shallowly")
class CopiesMetadataShallowly(_KeepsObjects):
    """Copies the metadata by `dict()`, and shares what lies in them with the caller."""

    def _kept(self, envelope: EventEnvelope) -> EventEnvelope:
        payload = copy.deepcopy(envelope.payload)
        return replace(envelope, payload=payload, metadata=dict(envelope.metadata))


@wrong_memory("keeps-the-callers-list")
class KeepsTheCallersList(_KeepsObjects):
    """Copies a payload that is an object, and keeps one that is a list as the caller's own."""

    def _kept(self, envelope: EventEnvelope) -> EventEnvelope:
        copied = copy.deepcopy(envelope)
        return replace(copied, payload=envelope.payload) if _is_list(envelope) else copied


def _is_list(envelope: EventEnvelope) -> bool:
    return isinstance(envelope.payload, list)


@wrong_memory("hands-out-its-own-list")
class HandsOutItsOwnList(MemoryEventStore):
    """Hands the list out in which the execution is kept, with fresh envelopes in it."""

    storage: Volume

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        stored = self._read(execution_id, 0, MAX_SEQUENCE)
        known, rows = self.storage.notes.get(execution_id, (0, []))
        if len(stored) != known:
            rows[:] = stored
            self.storage.notes[execution_id] = len(stored), rows
        log = self.storage.logs.get(execution_id, Log())
        rows[:] = [self._decode(log.records[one.sequence]) for one in rows]
        return rows if first <= 0 else [one for one in rows if one.sequence >= first]


@wrong_memory("looks-for-the-token-late")
class LooksForTheTokenLate(MemoryEventStore):
    """Encodes the row when the call is made, and takes the token from the caller's dict later."""

    async def append(self, envelope: EventEnvelope, /) -> None:
        await self.append_batch([envelope])

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        given = [(self._encode(one), one.metadata) for one in envelopes]
        await turn()
        self._write([record._replace(fence=found.get(FENCE_KEY)) for record, found in given])  # type: ignore[arg-type]
