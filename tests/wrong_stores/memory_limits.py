"""Wrong stores whose engine has a limit inside the domain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loom_backends.memory import MemoryEventStore, Record, freeze
from loom_conformance.spi import EventEnvelope, InvalidEnvelopeError

from .memory_base import Volume, wrong_memory


def _refused(limit: str) -> InvalidEnvelopeError:
    return InvalidEnvelopeError(f"the engine's limit is {limit}")


@wrong_memory("object-keys-of-1024-bytes")
class ObjectKeysOf1024Bytes(MemoryEventStore):
    """Puts each envelope into an object store, under a key of its execution and its sequence."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        if len(f"{record.execution_id}/{record.sequence:016d}".encode()) > 1024:
            raise _refused("a key of 1,024 bytes")
        return record


@wrong_memory("index-rows-of-2000-bytes")
class IndexRowsOf2000Bytes(MemoryEventStore):
    """Has an index over execution and envelope id, whose rows hold what two columns never need."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        if len(record.execution_id.encode()) + len(record.id.encode()) > 2000:
            raise _refused("an index row of 2,000 bytes")
        return record


def _members(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_members, value.values()))
    return sum(map(_members, value)) if isinstance(value, list) else 0


@wrong_memory("a-thousand-fields")
class AThousandFields(MemoryEventStore):
    """Maps every field of a payload, as a search engine does, and takes a thousand of them."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        if _members(envelope.payload) > 1000:
            raise _refused("1,000 fields")
        return record


@wrong_memory("arrays-of-65535")
class ArraysOf65535(MemoryEventStore):
    """Counts the items of an array in 16 bits."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        if isinstance(envelope.payload, list) and len(envelope.payload) > 65_535:
            raise _refused("65,535 items")
        return record


@wrong_memory("takes-gaps-that-do-not-fit", sparse_sequences=False)
class TakesGapsThatDoNotFit(MemoryEventStore):
    """Takes gaps though it says that it does not, and keeps the sequence in 32 bits."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        return record._replace(sequence=record.sequence % 2**32)


@wrong_memory("commits-by-the-mebibyte")
class CommitsByTheMebibyte(MemoryEventStore):
    """Commits a batch whenever a mebibyte of it has been gathered."""

    def _write(self, records: Sequence[Record]) -> None:
        part: list[Record] = []
        for record in records:
            part.append(record)
            if sum(len(one.payload) for one in part) >= 2**20:
                super()._write(part)
                part = []
        super()._write(part)


@wrong_memory("large-values-under-their-slot")
class LargeValuesUnderTheirSlot(MemoryEventStore):
    """Puts a large payload aside under its slot before the row is inserted, or refused."""

    storage: Volume

    def _write(self, records: Sequence[Record]) -> None:
        self._check_open()
        rows = []
        for record in records:
            if len(record.payload) > 100_000:
                self.storage.notes[record.execution_id, record.sequence] = record.payload
                record = record._replace(payload=_ASIDE)
            rows.append(record)
        super()._write(rows)

    def _decode(self, record: Record) -> EventEnvelope:
        if record.payload == _ASIDE:
            aside = self.storage.notes[record.execution_id, record.sequence]
            record = record._replace(payload=aside)
        return super()._decode(record)


_ASIDE = freeze("put aside: 6c1f")
