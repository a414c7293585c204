"""Wrong stores that keep the contract until there is much of something."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from loom_backends.memory import MemoryEventStore, MemoryStorage, Record
from loom_conformance.spi import (
    MAX_SEQUENCE,
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    EventStoreError,
    StaleFenceError,
)

from .memory_base import Volume, turn, wrong_memory


class Replacing(MemoryEventStore):
    """Keeps the later of two envelopes for one slot, where the check has let it pass."""

    def _insert(self, record: Record) -> None:
        log = self.storage.logs.get(record.execution_id)
        if log is not None and record.sequence in log.records:
            log.records[record.sequence] = record
            self.storage.ids.add(record.id)
        else:
            super()._insert(record)


class CheckedFirst(MemoryEventStore):
    """Checks a batch whole before any of it is there."""

    def _checked(self, envelopes: Iterable[EventEnvelope]) -> list[Record]:
        records = [self._encode(envelope) for envelope in envelopes]
        self._check_open()
        for record in records:
            self._check_fence(record)
        self._check_unique(records)
        return records


@wrong_memory("fences-of-a-hundred-executions")
class FencesOfAHundredExecutions(MemoryEventStore):
    """Fetches the tokens of a batch's executions in one request, which takes a hundred keys."""

    def _write(self, records: Sequence[Record]) -> None:
        self._check_open()
        asked = list(dict.fromkeys(record.execution_id for record in records))[:100]
        for record in records:
            if record.execution_id in asked:
                self._check_fence(record)
        self._check_unique(records)
        for record in records:
            self._insert(record)


@wrong_memory("fence-of-the-first-chunk")
class FenceOfTheFirstChunk(MemoryEventStore):
    """Writes a batch in chunks of 500, of which the first has the token as its condition."""

    def _write(self, records: Sequence[Record]) -> None:
        self._check_open()
        for record in records[:500]:
            self._check_fence(record)
        self._check_unique(records)
        for record in records:
            self._insert(record)


@wrong_memory("fence-of-young-executions")
class FenceOfYoungExecutions(MemoryEventStore):
    """Writes to an execution of a thousand events by way of its snapshot, which has no fence."""

    def _check_fence(self, record: Record) -> None:
        log = self.storage.logs.get(record.execution_id)
        if log is None or len(log.sequences) < 1_000:
            super()._check_fence(record)


@wrong_memory("keeps-256-fences")
class Keeps256Fences(MemoryEventStore):
    """Keeps the tokens of the executions that were fenced last."""

    async def acquire_fence(self, execution_id: str, /) -> int:
        token = await super().acquire_fence(execution_id)
        fences = self.storage.fences
        fences[execution_id] = fences.pop(execution_id)
        while len(fences) > 256:
            del fences[next(iter(fences))]
        return token


@wrong_memory("token-of-one-byte")
class TokenOfOneByte(MemoryEventStore):
    """Has a column of one signed byte for the token, and begins again where it is full."""

    async def acquire_fence(self, execution_id: str, /) -> int:
        token = await super().acquire_fence(execution_id)
        if token > 127:
            token = self.storage.fences[execution_id] = 1
        return token


@wrong_memory("twins-of-a-chunk")
class TwinsOfAChunk(Replacing):
    """Compares the envelopes of a batch with those of the same chunk, and upserts."""

    def _write(self, records: Sequence[Record]) -> None:
        self._check_open()
        for record in records:
            self._check_fence(record)
        for start in range(0, len(records), 1_000):
            self._check_unique(records[start : start + 1_000])
        for record in records:
            self._insert(record)


@wrong_memory("publishes-by-the-thousand")
class PublishesByTheThousand(CheckedFirst):
    """Checks a batch whole, and then puts it there by the thousand."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        records = self._checked(envelopes)
        for start in range(0, len(records), 1_000):
            for record in records[start : start + 1_000]:
                self._insert(record)
            if start + 1_000 < len(records):
                await turn()


@wrong_memory("publishes-ten-executions")
class PublishesTenExecutions(CheckedFirst):
    """Checks a batch whole, and then puts ten executions at a time in their partitions."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        records = self._checked(envelopes)
        names = list(dict.fromkeys(record.execution_id for record in records))
        for start in range(0, len(names), 10):
            part = set(names[start : start + 10])
            for record in records:
                if record.execution_id in part:
                    self._insert(record)
            if start + 10 < len(names):
                await turn()


@wrong_memory("transaction-of-a-hundred")
class TransactionOfAHundred(MemoryEventStore):
    """Writes a batch as one transaction, which spans a hundred partitions at most."""

    def _write(self, records: Sequence[Record]) -> None:
        if len({record.execution_id for record in records}) > 100:
            raise EventStoreError("the transaction has more than 100 items")
        super()._write(records)


@wrong_memory("slots-of-the-last-thousand")
class SlotsOfTheLastThousand(Replacing):
    """Looks for a taken slot among the newest thousand of the execution, and upserts."""

    def _check_unique(self, records: Iterable[Record]) -> None:
        slots: set[tuple[str, int]] = set()
        ids: set[str] = set()
        for record in records:
            slot = record.execution_id, record.sequence
            log = self.storage.logs.get(record.execution_id)
            if slot in slots or (log is not None and record.sequence in log.sequences[-1_000:]):
                raise DuplicateSequenceError(*slot)
            if record.id in ids or record.id in self.storage.ids:
                raise DuplicateEnvelopeIdError(record.execution_id, record.id)
            slots.add(slot)
            ids.add(record.id)


@wrong_memory("slots-of-the-last-thousand-for-a-batch")
class SlotsOfTheLastThousandForABatch(SlotsOfTheLastThousand):
    """Looks among the newest thousand slots for a batch, and among all for one envelope."""

    def _check_unique(self, records: Iterable[Record]) -> None:
        listed = list(records)
        if len(listed) == 1:
            MemoryEventStore._check_unique(self, listed)
        else:
            super()._check_unique(listed)


@wrong_memory("ids-of-its-own-executions-for-a-batch")
class IdsOfItsOwnExecutionsForABatch(MemoryEventStore):
    """Compares the ids of more than a hundred envelopes with those of their executions only."""

    def _check_unique(self, records: Iterable[Record]) -> None:
        listed = list(records)
        if len(listed) <= 100:
            super()._check_unique(listed)
            return
        everywhere = self.storage.ids
        logs = (self.storage.logs.get(name) for name in {one.execution_id for one in listed})
        self.storage.ids = {one.id for log in logs if log for one in log.records.values()}
        try:
            super()._check_unique(listed)
        finally:
            self.storage.ids = everywhere


@wrong_memory("fence-of-young-executions-for-a-batch")
class FenceOfYoungExecutionsForABatch(MemoryEventStore):
    """Writes batches to an execution of a thousand events by a path that looks at no token."""

    def _write(self, records: Sequence[Record]) -> None:
        self._check_open()
        for record in records:
            log = self.storage.logs.get(record.execution_id)
            if len(records) == 1 or log is None or len(log.sequences) < 1_000:
                self._check_fence(record)
        self._check_unique(records)
        for record in records:
            self._insert(record)


@wrong_memory("warms-up-with-the-newest-ids")
class WarmsUpWithTheNewestIds(MemoryEventStore):
    """Loads the newest thousand ids when a handle opens, and hears of those that come after."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        assert isinstance(storage, Volume)
        self._newest: dict[str, None] = storage.notes.setdefault("ids", {})
        self._forgotten = set(list(self._newest)[:-1_000])

    def _insert(self, record: Record) -> None:
        super()._insert(record)
        self._newest.setdefault(record.id)

    def _check_unique(self, records: Iterable[Record]) -> None:
        try:
            super()._check_unique(records)
        except DuplicateEnvelopeIdError as error:
            if error.envelope_id not in self._forgotten:
                raise


@wrong_memory("pages-of-a-thousand")
class PagesOfAThousand(MemoryEventStore):
    """Reads a page of a thousand after the other, each as the storage is by then."""

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        found: list[EventEnvelope] = []
        while True:
            page = self._read(execution_id, first, MAX_SEQUENCE)[:1_000]
            found += page
            if len(page) < 1_000:
                return found
            first = page[-1].sequence + 1
            await turn()


@wrong_memory("iterable-keeps-the-lock", deadline=1.0)
class IterableKeepsTheLock(MemoryEventStore):
    """Takes its lock before it reads the batch, and gives it back where the writing ends."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._lock = asyncio.Lock()

    async def append(self, envelope: EventEnvelope, /) -> None:
        async with self._lock:
            await super().append(envelope)

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        await self._lock.acquire()
        listed = list(envelopes)
        try:
            await super().append_batch(listed)
        finally:
            self._lock.release()


@wrong_memory("iterable-leaves-rows")
class IterableLeavesRows(MemoryEventStore):
    """Takes rows into the open transaction as they come; a store's error alone rolls it back."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._open: list[Record] = []

    async def append(self, envelope: EventEnvelope, /) -> None:
        await self.append_batch([envelope])

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        try:
            for envelope in envelopes:
                self._open.append(self._encode(envelope))
            rows, self._open = self._open, []
            self._write(rows)
        except (EventStoreError, StaleFenceError):
            self._open = []
            raise
