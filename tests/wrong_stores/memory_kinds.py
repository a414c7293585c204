"""Wrong stores that take a kind for an order."""

from __future__ import annotations

from collections.abc import Sequence

from loom_backends.memory import Log, MemoryEventStore, Record
from loom_conformance.spi import EventStoreError

from .memory_base import wrong_memory

COMPLETED = "EXECUTION_COMPLETED"


@wrong_memory("seals-what-is-completed")
class SealsWhatIsCompleted(MemoryEventStore):
    """Takes no more for an execution whose last event says that it is completed."""

    def _check_unique(self, records: Sequence[Record]) -> None:  # type: ignore[override]
        super()._check_unique(records)
        for record in records:
            log = self.storage.logs.get(record.execution_id, Log())
            if log.sequences and log.records[log.sequences[-1]].kind == COMPLETED:
                raise EventStoreError(f"{record.execution_id} is completed")


@wrong_memory("frees-the-ids-of-the-completed")
class FreesTheIdsOfTheCompleted(MemoryEventStore):
    """Has a partial unique index, over the ids of executions that go on."""

    def _insert(self, record: Record) -> None:
        super()._insert(record)
        if record.kind == COMPLETED:
            for one in self.storage.logs[record.execution_id].records.values():
                self.storage.ids.discard(one.id)


@wrong_memory("drops-the-fence-of-the-completed")
class DropsTheFenceOfTheCompleted(MemoryEventStore):
    """Cleans up the fence with the execution's end."""

    def _insert(self, record: Record) -> None:
        super()._insert(record)
        if record.kind == COMPLETED:
            self.storage.fences.pop(record.execution_id, None)
