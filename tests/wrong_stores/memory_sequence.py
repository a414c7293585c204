"""Wrong stores that lose the refusal of a taken slot."""

from __future__ import annotations

from collections.abc import Sequence

from loom_backends.memory import MemoryEventStore, Record

from .memory_base import wrong_memory


@wrong_memory("ignores-conflicts")
class IgnoresConflicts(MemoryEventStore):
    """Skips a row that is taken, as `ON CONFLICT DO NOTHING` does, and acknowledges it."""

    def _write(self, records: Sequence[Record]) -> None:
        self._check_open()
        for record in records:
            self._check_fence(record)
        for record in records:
            if self._is_free(record):
                self._insert(record)

    def _is_free(self, record: Record) -> bool:
        log = self.storage.logs.get(record.execution_id)
        slot_taken = log is not None and record.sequence in log.records
        return not slot_taken and record.id not in self.storage.ids
