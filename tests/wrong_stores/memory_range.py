"""Wrong stores whose ranges are cut elsewhere than the contract says."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from loom_backends.memory import MemoryEventStore, Record
from loom_conformance.spi import MAX_SEQUENCE, EventEnvelope, EventStoreError

from .memory_base import Volume, wrong_memory


@wrong_memory("range-is-half-open")
class RangeIsHalfOpen(MemoryEventStore):
    """Leaves the last envelope out, as a slice does."""

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        return self._read(execution_id, first, last - 1)


@wrong_memory("last-is-a-count")
class LastIsACount(MemoryEventStore):
    """Takes `last` for the number of envelopes that are wanted."""

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        return self._read(execution_id, first, MAX_SEQUENCE)[: last + 1]


@wrong_memory("reversed-range-is-an-error")
class ReversedRangeIsAnError(MemoryEventStore):
    """Raises where `first` is greater than `last`."""

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        if first > last:
            raise EventStoreError(f"an empty range: {first} to {last}")
        return self._read(execution_id, first, last)


@wrong_memory("reversed-range-is-turned-round")
class ReversedRangeIsTurnedRound(MemoryEventStore):
    """Exchanges the ends where `first` is greater than `last`."""

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        return self._read(execution_id, min(first, last), max(first, last))


@wrong_memory("range-of-one-page")
class RangeOfOnePage(MemoryEventStore):
    """Answers a range by one page of 1,000."""

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        return self._read(execution_id, first, last)[:1000]


@wrong_memory("range-by-position")
class RangeByPosition(MemoryEventStore):
    """Cuts the range by place in the log, which differs from the sequence where there are gaps."""

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        return self._read(execution_id, 0, MAX_SEQUENCE)[max(0, first) : last + 1]


@wrong_memory("range-beyond-the-end-is-an-error")
class RangeBeyondTheEndIsAnError(MemoryEventStore):
    """Raises where `last` lies beyond the end."""

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        whole = self._read(execution_id, 0, MAX_SEQUENCE)
        if whole and last > whole[-1].sequence:
            raise EventStoreError(f"sequence {last} does not exist")
        return self._read(execution_id, first, last)


@wrong_memory("range-without-metadata")
class RangeWithoutMetadata(MemoryEventStore):
    """Decodes rows for a range by another function, which leaves the metadata out."""

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        return [
            EventEnvelope(
                one.execution_id, one.sequence, one.id, one.kind, one.timestamp, one.payload
            )
            for one in self._read(execution_id, first, last)
        ]


@wrong_memory("range-is-unordered")
class RangeIsUnordered(MemoryEventStore):
    """Orders `read_from` and forgot the ORDER BY of the range."""

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        self._check_open()
        self._read(execution_id, first, last)
        log = self.storage.logs.get(execution_id)
        rows = log.records.values() if log is not None else ()
        return [self._decode(row) for row in rows if first <= row.sequence <= last]


@wrong_memory("remembers-its-ranges")
class RemembersItsRanges(MemoryEventStore):
    """Remembers a range by its arguments until the handle itself writes."""

    def __init__(self, storage: Volume) -> None:
        super().__init__(storage)
        self._known: dict[tuple[str, int, int], list[EventEnvelope]] = {}

    def _write(self, records: Sequence[Record]) -> None:
        super()._write(records)
        self._known.clear()

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        found = self._read(execution_id, first, last)
        return copy.deepcopy(self._known.setdefault((execution_id, first, last), found))


@wrong_memory("range-hands-out-its-cache")
class RangeHandsOutItsCache(MemoryEventStore):
    """Decodes a row of a range once, and hands the same object to whoever asks for it again."""

    def __init__(self, storage: Volume) -> None:
        super().__init__(storage)
        self._rows: dict[str, EventEnvelope] = {}

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        found = self._read(execution_id, first, last)
        return [self._rows.setdefault(f"{execution_id}/{one.sequence}", one) for one in found]


@wrong_memory("range-end-overflows")
class RangeEndOverflows(MemoryEventStore):
    """Binds the end of a range as it comes, and the driver's OverflowError reaches the caller."""

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        if last >= 2**63:
            raise OverflowError("Python int too large to convert to SQLite INTEGER")
        return self._read(execution_id, first, last)
