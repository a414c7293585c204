"""SQLite files as storages; an address is the path of one."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import ClassVar

from loom_conformance.backend import Backend

from .leases import SQLiteLeaseStore
from .store import SQLiteEventStore


class SQLiteBackend(Backend):
    """A directory of its own for each storage: the file has a log and an index beside it."""

    name = "sqlite"
    envelope_ids = "store"
    sparse_sequences = True
    durability: ClassVar[str] = (
        "write-ahead log with synchronous=FULL: an acknowledged write survives power loss"
        " where the disk honours a sync"
    )

    store: ClassVar[type[SQLiteEventStore]] = SQLiteEventStore
    """The class of the handles that it opens."""

    async def create(self) -> str:
        """Name a file in a new temporary directory; the first handle makes it."""
        return str(Path(tempfile.mkdtemp(prefix="loom-sqlite-")) / "store.db")

    async def connect(self, address: str) -> SQLiteEventStore:
        """Open a handle."""
        return await self.store.open(address)

    async def destroy(self, address: str) -> None:
        """Remove the file's directory."""
        await asyncio.to_thread(shutil.rmtree, Path(address).parent, ignore_errors=True)

    async def connect_leases(self, address: str) -> SQLiteLeaseStore:
        """Open a handle on the leases of a storage."""
        return await SQLiteLeaseStore.open(address)

    async def age_leases(self, address: str, seconds: float) -> None:
        """Move the end of every lease `seconds` back, which is the same as waiting so long."""
        leases = await self.connect_leases(address)
        try:
            await leases.age(seconds)
        finally:
            await leases.close()
