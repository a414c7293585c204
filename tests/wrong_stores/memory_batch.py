"""Wrong stores whose batches are not one step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from loom_backends.memory import Log, MemoryEventStore, Record
from loom_conformance.spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    EventStoreError,
)

from .memory_base import SuspendingStore, Volume, turn, wrong_memory


@wrong_memory("commits-row-by-row")
class CommitsRowByRow(MemoryEventStore):
    """Has a transaction block that is none: each row is committed by itself."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        records = [self._encode(envelope) for envelope in envelopes]
        self._check_open()
        for record in records:
            self._write([record])


@wrong_memory("commits-in-chunks")
class CommitsInChunks(MemoryEventStore):
    """Writes 500 rows a transaction, to stay under the limit of parameters."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        records = [self._encode(envelope) for envelope in envelopes]
        self._check_open()
        for start in range(0, len(records), 500):
            self._write(records[start : start + 500])


@wrong_memory("writes-the-first-chunk-only")
class WritesTheFirstChunkOnly(MemoryEventStore):
    """Writes the first 64 rows of a batch and acknowledges them all."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        records = [self._encode(envelope) for envelope in envelopes]
        for record in records:
            self._check_fence(record)
        self._check_unique(records)
        self._write(records[:64])


@wrong_memory("limit-of-parameters")
class LimitOfParameters(MemoryEventStore):
    """Makes one statement of the batch, which may have 65,535 parameters and needs 7 a row."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        records = [self._encode(envelope) for envelope in envelopes]
        if len(records) * 7 > 65_535:
            raise EventStoreError("the number of query arguments cannot exceed 65535")
        self._write(records)


@wrong_memory("transaction-an-execution")
class TransactionAnExecution(MemoryEventStore):
    """Opens one transaction an execution."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        records = [self._encode(envelope) for envelope in envelopes]
        self._check_open()
        for name in dict.fromkeys(record.execution_id for record in records):
            self._write([record for record in records if record.execution_id == name])


@wrong_memory("batch-becomes-a-dict")
class BatchBecomesADict(MemoryEventStore):
    """Turns the batch into a dict by slot, so that the last envelope of a slot wins."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        records = [self._encode(envelope) for envelope in envelopes]
        self._write(list({(one.execution_id, one.sequence): one for one in records}.values()))


@wrong_memory("checks-the-stored-only")
class ChecksTheStoredOnly(MemoryEventStore):
    """Compares each envelope of a batch with what is stored, not with the batch itself."""

    def _check_unique(self, records: Iterable[Record]) -> None:
        for record in records:
            super()._check_unique([record])

    def _insert(self, record: Record) -> None:
        log = self.storage.logs.setdefault(record.execution_id, Log())
        if record.sequence in log.records:
            log.records[record.sequence] = record
        else:
            super()._insert(record)


@wrong_memory("checks-the-first-only")
class ChecksTheFirstOnly(MemoryEventStore):
    """Checks the version against the first envelope of a batch; the others replace."""

    def _check_unique(self, records: Iterable[Record]) -> None:
        super()._check_unique(list(records)[:1])

    def _insert(self, record: Record) -> None:
        log = self.storage.logs.setdefault(record.execution_id, Log())
        if record.sequence in log.records:
            log.records[record.sequence] = record
        else:
            super()._insert(record)


@wrong_memory("drops-what-conflicts")
class DropsWhatConflicts(MemoryEventStore):
    """Leaves the conflicting rows of a batch out, stores the others, and acknowledges."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        records = [self._encode(envelope) for envelope in envelopes]
        self._check_open()
        for record in records:
            self._check_fence(record)
        for record in records:
            try:
                self._check_unique([record])
            except (DuplicateSequenceError, DuplicateEnvelopeIdError):
                continue
            self._insert(record)


@wrong_memory("rows-become-visible-one-by-one")
class RowsBecomeVisibleOneByOne(SuspendingStore):
    """Checks a batch as one, and lets readers see its rows as they are inserted."""

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        await turn()
        for record in records:
            self._check_fence(record)
        self._check_unique(records)
        for record in records:
            self.storage.ids.add(record.id)
            log = self.storage.logs.setdefault(record.execution_id, Log())
            log.records[record.sequence] = record
        for number, record in enumerate(records):
            self.storage.logs[record.execution_id].sequences.append(record.sequence)
            self.storage.logs[record.execution_id].sequences.sort()
            if number % 10 == 9:
                await turn()


@wrong_memory("executions-become-visible-one-by-one")
class ExecutionsBecomeVisibleOneByOne(SuspendingStore):
    """Shows a batch's part of one execution a turn before its part of another."""

    storage: Volume

    async def _store(self, records: Sequence[Record]) -> None:
        await super()._store(records)
        names = list(dict.fromkeys(record.execution_id for record in records))
        hidden = {record.id: True for record in records if record.execution_id != names[0]}
        self.storage.notes.update(hidden)
        if hidden:
            await turn()
            await turn()
        for name in hidden:
            del self.storage.notes[name]

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        found = super()._read(execution_id, first, last)
        return [one for one in found if one.id not in self.storage.notes]


@wrong_memory("empty-batch-is-an-error")
class EmptyBatchIsAnError(MemoryEventStore):
    """Reads the first envelope of a batch without a look at its length."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        records = [self._encode(envelope) for envelope in envelopes]
        if not records:
            raise EventStoreError('syntax error at end of input: "VALUES"')
        self._write(records)


@wrong_memory("walks-a-batch-twice")
class WalksABatchTwice(MemoryEventStore):
    """Checks a batch in one pass and writes it in a second one, in which a generator is empty."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        self._check_open()
        records = [self._encode(envelope) for envelope in envelopes]
        for record in records:
            self._check_fence(record)
        self._check_unique(records)
        self._write([self._encode(envelope) for envelope in envelopes])


@wrong_memory("wants-the-length-of-a-batch")
class WantsTheLengthOfABatch(MemoryEventStore):
    """Asks the batch for its length."""

    async def append_batch(self, envelopes: Any, /) -> None:
        if len(envelopes):
            await super().append_batch(envelopes)


@wrong_memory("takes-lists-only")
class TakesListsOnly(MemoryEventStore):
    """Indexes into the batch, which a mapping's keys and an iterator do not allow."""

    async def append_batch(self, envelopes: Any, /) -> None:
        if isinstance(envelopes, list | tuple):
            await super().append_batch([envelopes[place] for place in range(len(envelopes))])
        else:
            await super().append_batch([envelopes[0]])


@wrong_memory("deletes-to-undo")
class DeletesToUndo(SuspendingStore):
    """Undoes a refused batch by deleting its slots, and with them another writer's rows."""

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        await turn()
        try:
            self._write(records)
        except DuplicateSequenceError:
            if len(records) > 1 and self.storage.notes.get("last") is not None:
                self._undo(records)
            raise
        self.storage.notes["last"] = {(one.execution_id, one.sequence) for one in records}
        await turn()
        self.storage.notes["last"] = None

    storage: Volume

    def _undo(self, records: Sequence[Record]) -> None:
        for record in records:
            if (record.execution_id, record.sequence) in self.storage.notes["last"]:
                log = self.storage.logs[record.execution_id]
                if record.sequence in log.records:
                    self.storage.ids.discard(log.records.pop(record.sequence).id)
                    log.sequences.remove(record.sequence)


@wrong_memory("batch-checks-no-ids")
class BatchChecksNoIds(MemoryEventStore):
    """Looks at slots alone in a batch: a taken envelope id is stored again."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        records = [self._encode(envelope) for envelope in envelopes]
        known = {record.id for record in records} & self.storage.ids
        self.storage.ids -= known
        try:
            self._write(
                [record._replace(id=f"{n}\x00{record.id}") for n, record in enumerate(records)]
            )
        finally:
            self.storage.ids |= known | {record.id for record in records}

    def _decode(self, record: Record) -> EventEnvelope:
        return super()._decode(record._replace(id=record.id.rpartition("\x00")[2]))


@wrong_memory("beyond-the-limit-in-part", max_batch=100)
class BeyondTheLimitInPart(MemoryEventStore):
    """Declares a largest batch of 100, and stores the first hundred of a larger one."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        records = [self._encode(envelope) for envelope in envelopes]
        self._write(records[:100])
        if len(records) > 100:
            raise ValueError(f"a batch of {len(records)}; the limit is 100")


@wrong_memory("no-limit-kept", max_batch=100)
class NoLimitKept(MemoryEventStore):
    """Declares a largest batch of 100, and takes larger ones."""


@wrong_memory("ids-of-a-batch-by-execution")
class IdsOfABatchByExecution(MemoryEventStore):
    """Notices two equal ids in a batch only where they are of one execution."""

    def _check_unique(self, records: Iterable[Record]) -> None:
        given = list(records)
        for name in dict.fromkeys(record.execution_id for record in given):
            super()._check_unique([record for record in given if record.execution_id == name])


@wrong_memory("packet-of-4-mib")
class PacketOf4MiB(MemoryEventStore):
    """Sends a batch as one packet, which may hold 4 MiB."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        records = [self._encode(envelope) for envelope in envelopes]
        if sum(len(record.payload) for record in records) > 4 * 2**20:
            raise EventStoreError("packet for query is too large")
        self._write(records)


@wrong_memory("rollback-takes-a-neighbour-along")
class RollbackTakesANeighbourAlong(SuspendingStore):
    """Shares one transaction among the writes in flight, and rolls all of it back for one."""

    storage: Volume

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        await turn()
        undo: list[Record] = self.storage.notes.setdefault("undo", [])
        try:
            self._write(records)
        except (DuplicateSequenceError, DuplicateEnvelopeIdError):
            for record in undo:
                log = self.storage.logs[record.execution_id]
                if log.records.get(record.sequence) is record:
                    del log.records[record.sequence]
                    log.sequences.remove(record.sequence)
                    self.storage.ids.discard(record.id)
            undo.clear()
            raise
        undo += records
        await turn()
        for record in records:
            if record in undo:
                undo.remove(record)


@wrong_memory("counts-the-callers-list-again")
class CountsTheCallersListAgain(MemoryEventStore):
    """Compares its rows with the length of the caller's list once they are written."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        batch = envelopes if isinstance(envelopes, list) else list(envelopes)
        records = [self._encode(envelope) for envelope in batch]
        self._check_open()
        await turn()
        self._write(records)
        if len(records) != len(batch):
            raise EventStoreError(f"{len(records)} rows were written, and not {len(batch)}")
