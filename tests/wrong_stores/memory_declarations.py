"""Stores that are declared to be what they are not."""

from __future__ import annotations

from collections.abc import Iterable

from loom_backends.memory import MemoryEventStore, Record
from loom_conformance.spi import EventEnvelope, EventStore, EventStoreError

from .memory_base import PrivateMemory, Volume, wrong_memory
from .registry import wrong


@wrong("memory-declared-to-last", paths=("append", "batch-middle"))
class MemoryDeclaredToLast(PrivateMemory):
    """Keeps everything in the process, opens an empty storage elsewhere, and says that it lasts."""

    outlives_process = True

    async def connect(self, address: str) -> EventStore:  # type: ignore[override]
        store: EventStore = MemoryEventStore(self.storages.setdefault(address, Volume()))
        return store


@wrong_memory("gaps-declared-and-refused")
class GapsDeclaredAndRefused(MemoryEventStore):
    """Is declared to accept gaps, and refuses them."""

    def _check_unique(self, records: Iterable[Record]) -> None:
        given = list(records)
        super()._check_unique(given)
        ends: dict[str, int] = {}
        for record in given:
            log = self.storage.logs.get(record.execution_id)
            following = ends.get(record.execution_id, len(log.sequences) if log else 0)
            if record.sequence != following:
                raise EventStoreError(f"expected version {following}, not {record.sequence}")
            ends[record.execution_id] = following + 1


@wrong_memory("mixed-batches-declared-and-refused")
class MixedBatchesDeclaredAndRefused(MemoryEventStore):
    """Is declared to take batches over several executions, and refuses them."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        given = list(envelopes)
        if len({envelope.execution_id for envelope in given}) > 1:
            raise EventStoreError("a batch holds one execution here")
        await super().append_batch(given)


@wrong_memory("limit-declared-too-high", max_batch=1000)
class LimitDeclaredTooHigh(MemoryEventStore):
    """Is declared to take batches of up to 1,000, and takes 500."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        given = list(envelopes)
        if len(given) > 500:
            raise ValueError(f"a batch of {len(given)}; the limit is 500")
        await super().append_batch(given)
