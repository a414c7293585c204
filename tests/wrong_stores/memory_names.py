"""Wrong stores that take one name for another in one place, and are right in all others."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from uuid import UUID

from loom_backends.memory import MemoryEventStore, MemoryStorage, Record
from loom_conformance.spi import DuplicateSequenceError, EventEnvelope, StaleFenceError, check_key

from .memory_base import KeyedStore, wrong_memory


@wrong_memory("ids-by-their-crc")
class IdsByTheirCrc(KeyedStore):
    """Keeps the unique index on a 32-bit hash of the id."""

    def _id_key(self, record: Record) -> str:
        return str(zlib.crc32(record.id.encode()))


@wrong_memory("fences-of-all-storages")
class FencesOfAllStorages(MemoryEventStore):
    """Keeps fences in a table that all storages share."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        storage.fences = _FENCES


_FENCES: dict[str, int] = {}


@wrong_memory("fences-under-uuids")
class FencesUnderUuids(KeyedStore):
    """Keeps fences under a key that is read as a UUID wherever it can be."""

    def _fence_key(self, execution_id: str) -> str:
        try:
            return str(UUID(execution_id))
        except ValueError:
            return execution_id


@wrong_memory("fences-among-the-heads")
class FencesAmongTheHeads(MemoryEventStore):
    """Counts an execution's events under its id, and its tokens beside them under `<id>:fence`."""

    async def acquire_fence(self, execution_id: str, /) -> int:
        check_key("execution_id", execution_id)
        self._check_open()
        heads = self.storage.fences
        token = heads.get(f"{execution_id}:fence", 0) + 1
        heads[f"{execution_id}:fence"] = token
        return token

    def _check_fence(self, record: Record) -> None:
        current = self.storage.fences.get(f"{record.execution_id}:fence")
        if record.fence != current:
            raise StaleFenceError(record.execution_id, record.fence, current)

    def _insert(self, record: Record) -> None:
        super()._insert(record)
        heads = self.storage.fences
        heads[record.execution_id] = heads.get(record.execution_id, 0) + 1


@wrong_memory("range-by-like")
class RangeByLike(MemoryEventStore):
    """Compares the execution's id by LIKE in ranges, which folds case and knows wildcards."""

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        self._check_open()
        check_key("execution_id", execution_id)
        like = {"%": ".*", "_": "."}
        pattern = "".join(like.get(one, re.escape(one)) for one in execution_id)
        alike = re.compile(pattern, re.IGNORECASE | re.DOTALL | re.ASCII).fullmatch
        found = [
            envelope
            for name in list(self.storage.logs)
            if alike(name)
            for envelope in self._read(name, first, last)
        ]
        return sorted(found, key=lambda envelope: envelope.sequence)


@wrong_memory("twins-by-folded-names")
class TwinsByFoldedNames(MemoryEventStore):
    """Looks for two envelopes of one slot in a batch by names that it strips and folds."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        records = [self._encode(envelope) for envelope in envelopes]
        self._check_open()
        for record in records:
            self._check_fence(record)
        seen: set[tuple[str, int]] = set()
        for record in records:
            slot = record.execution_id.lower().strip(), record.sequence
            if slot in seen:
                raise DuplicateSequenceError(record.execution_id, record.sequence)
            seen.add(slot)
        self._write(records)
