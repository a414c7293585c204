"""Backends that forget writes which they acknowledged, and one that breaks down."""

from __future__ import annotations

from loom_backends.memory import MemoryBackend, MemoryEventStore
from loom_backends.sqlite import SQLiteBackend, SQLiteEventStore
from loom_conformance.spi import EventEnvelope, EventStoreError

SPARED = 7
"""One in so many sequences is acknowledged and not stored."""


class LossyMemoryStore(MemoryEventStore):
    """A handle on a storage in memory that forgets."""

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Store one envelope, or pretend to."""
        if envelope.sequence % SPARED != SPARED - 1:
            await super().append(envelope)


class LossyMemory(MemoryBackend):
    """Storages in memory that forget."""

    name = "lossy-memory"

    async def connect(self, address: str) -> MemoryEventStore:
        """Open a handle."""
        sound = await super().connect(address)
        return LossyMemoryStore(sound.storage)


class LossySQLiteStore(SQLiteEventStore):
    """A handle on a SQLite file that forgets."""

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Store one envelope, or pretend to."""
        if envelope.sequence % SPARED != SPARED - 1:
            await super().append(envelope)


class LossySQLite(SQLiteBackend):
    """SQLite files that forget."""

    name = "lossy-sqlite"
    store = LossySQLiteStore


class BreaksDown(MemoryBackend):
    """Storages in memory on which only so many handles can be opened."""

    name = "breaks-down"
    handles = 2

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0

    async def connect(self, address: str) -> MemoryEventStore:
        """Open a handle, or fail for good."""
        self.opened += 1
        if self.opened > self.handles:
            raise EventStoreError("the storage broke down")
        return await super().connect(address)
