"""Backends over memory stores with one thing changed."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from loom_backends.memory import (
    Log,
    MemoryBackend,
    MemoryEventStore,
    MemoryLeaseStore,
    MemoryStorage,
    Record,
)
from loom_conformance.spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    EventStore,
    StaleFenceError,
    check_key,
)

from .registry import COALESCED_PATHS, PLAIN_PATHS, variant, wrong

S = TypeVar("S", bound=type[Any])


async def turn() -> None:
    """Give way to the event loop once, as every real driver does."""
    await asyncio.sleep(0)


@dataclass(slots=True)
class Volume(MemoryStorage):
    """A storage as the wrong stores have it.

    Attributes:
        gone: whether it was removed under its handles.
        notes: what its handles share beside logs, ids and fences.
    """

    gone: bool = False
    notes: dict[Any, Any] = field(default_factory=dict)


class SuspendingStore(MemoryEventStore):
    """The reference with one turn of the event loop before each write, as any driver has.

    The value is taken before the turn, and the write itself is one step: it is correct.
    """

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Store one envelope."""
        await self._store([self._encode(envelope)])

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        """Store all envelopes or none."""
        await self._store([self._encode(envelope) for envelope in envelopes])

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        await turn()
        self._write(records)


class KeyedStore(MemoryEventStore):
    """The reference with the keys that it compares by as methods to override; it is correct."""

    def _log_key(self, execution_id: str) -> str:
        return execution_id

    def _slot_key(self, sequence: int) -> int:
        return sequence

    def _id_key(self, record: Record) -> str:
        return record.id

    def _fence_key(self, execution_id: str) -> str:
        return execution_id

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        self._check_open()
        check_key("execution_id", execution_id)
        log = self.storage.logs.get(self._log_key(execution_id), Log())
        low, high = bisect_left(log.sequences, first), bisect_right(log.sequences, last)
        return [self._decode(log.records[sequence]) for sequence in log.sequences[low:high]]

    async def acquire_fence(self, execution_id: str, /) -> int:
        """The current token under the execution id's key."""
        return await super().acquire_fence(self._fence_key(execution_id))

    def _check_fence(self, record: Record) -> None:
        current = self.storage.fences.get(self._fence_key(record.execution_id))
        if record.fence != current:
            raise StaleFenceError(record.execution_id, record.fence, current)

    def _check_unique(self, records: Iterable[Record]) -> None:
        slots: set[tuple[str, int]] = set()
        ids: set[str] = set()
        for record in records:
            slot = self._log_key(record.execution_id), self._slot_key(record.sequence)
            log = self.storage.logs.get(slot[0])
            if slot in slots or (log is not None and slot[1] in log.records):
                raise DuplicateSequenceError(record.execution_id, record.sequence)
            key = self._id_key(record)
            if key in ids or key in self.storage.ids:
                raise DuplicateEnvelopeIdError(record.execution_id, record.id)
            slots.add(slot)
            ids.add(key)

    def _insert(self, record: Record) -> None:
        log = self.storage.logs.setdefault(self._log_key(record.execution_id), Log())
        sequence = self._slot_key(record.sequence)
        log.records[sequence] = record
        log.sequences.insert(bisect_left(log.sequences, sequence), sequence)
        self.storage.ids.add(self._id_key(record))


class PrivateMemory(MemoryBackend):
    """A memory backend with a table of storages of its own, so that addresses repeat."""

    store: type[Any] = MemoryEventStore
    leases: type[MemoryLeaseStore] = MemoryLeaseStore

    def __init__(self) -> None:
        self.storages: dict[str, Volume] = {}
        self._made = 0

    async def create(self) -> str:
        """Make an empty storage."""
        self._made += 1
        address = f"storage-{self._made}"
        self.storages[address] = Volume()
        return address

    async def connect(self, address: str) -> EventStore:  # type: ignore[override]
        """Open a handle of this backend's kind."""
        handle: EventStore = self.store(self.storages[address])
        return handle

    async def destroy(self, address: str) -> None:
        """Forget a storage."""
        storage = self.storages.pop(address, None)
        if storage is not None:
            storage.gone = True

    async def connect_leases(self, address: str) -> MemoryLeaseStore:
        """Open a handle on the leases of a storage."""
        return self.leases(self.storages[address])

    async def age_leases(self, address: str, seconds: float) -> None:
        """Move the end of every lease `seconds` back."""
        for lease in self.storages[address].leases.values():
            lease.ends -= seconds


def memory(store: type[Any], **declarations: Any) -> type[PrivateMemory]:
    """A memory backend whose handles are of a class, with other declarations where given."""
    members = {"store": store, "__module__": store.__module__, **declarations}
    return type(f"{store.__name__}Backend", (PrivateMemory,), members)


def wrong_memory(
    claim: str,
    *,
    deadline: float = 10.0,
    paths: tuple[str, ...] = PLAIN_PATHS + COALESCED_PATHS,
    **declarations: Any,
) -> Callable[[S], S]:
    """Enter a memory store's class as the wrong store of a claim."""

    def enter(store: S) -> S:
        wrong(claim, deadline=deadline, paths=paths)(memory(store, **declarations))
        return store

    return enter


def correct_memory(
    name: str, *, advice: tuple[str, ...] = (), **declarations: Any
) -> Callable[[S], S]:
    """Enter a memory store's class as a correct variant."""

    def enter(store: S) -> S:
        variant(name, advice=advice)(memory(store, **declarations))
        return store

    return enter
