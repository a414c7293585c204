"""SQLite stores that open, wait, close or are cancelled wrongly."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from loom_backends.lifecycle import finish
from loom_backends.sqlite import SQLiteEventStore
from loom_backends.sqlite.store import Row
from loom_conformance.spi import EventStoreError

from .sqlite_base import InMemoryFiles, StepwiseStore, changed, wrong_sqlite


@wrong_sqlite("sqlite-no-patience")
class NoPatience(StepwiseStore):
    """Gives up at once where another connection has locked the file."""

    def _is_busy(self, error: sqlite3.Error) -> bool:
        return False


@wrong_sqlite("sqlite-deferred-transaction")
class DeferredTransaction(StepwiseStore):
    """Reads in a deferred transaction and then writes: the lock cannot be had any more."""

    BEGIN = "BEGIN"
    SETTINGS = SQLiteEventStore.SETTINGS


@wrong_sqlite("sqlite-set-up-once")
class SetUpOnce(SQLiteEventStore):
    """Looks whether the tables are there, and makes them if not: two handles do both."""

    SCHEMA = ""
    TABLES = changed(SQLiteEventStore.SCHEMA, ("CREATE TABLE IF NOT EXISTS", "CREATE TABLE"))

    @classmethod
    async def _open(cls, path: str | Path, patience: float) -> Self:
        handle = await super()._open(path, patience)
        try:
            if not await handle._fetch("SELECT 1 FROM sqlite_master WHERE name = 'envelopes'"):
                await asyncio.sleep(0.02)  # a migration's scripts are read from their files
                await handle._connection.executescript(cls.TABLES)
        except sqlite3.Error as error:
            await handle.close()
            raise EventStoreError(f"cannot set up {path}: {error}") from error
        return handle


class PrivateMemoryBackend(InMemoryFiles):
    """Addresses that every connection takes for a new and empty database."""

    async def create(self) -> str:
        """The address by which SQLite makes a database in memory."""
        return ":memory:"

    async def destroy(self, address: str) -> None:
        """There is nothing to remove."""


@wrong_sqlite("sqlite-memory-of-its-own", base=PrivateMemoryBackend)
class MemoryOfItsOwn(SQLiteEventStore):
    """Has a database in memory for each handle."""


@wrong_sqlite("sqlite-closes-once")
class ClosesOnce(SQLiteEventStore):
    """Raises when it is closed again."""

    async def close(self) -> None:
        """End the thread and close the file."""
        self._calls.check()
        await super().close()


@wrong_sqlite("sqlite-driver-error-after-close")
class DriverErrorAfterClose(SQLiteEventStore):
    """Leaves it to the driver to say that it is closed."""

    async def _close(self) -> None:
        self._calls.closed = False
        await super()._close()


@wrong_sqlite("sqlite-lock-kept-on-cancel", deadline=3.0)
class LockKeptOnCancel(StepwiseStore):
    """Releases its lock after an error, and not after a cancellation."""

    async def _write(self, rows: Sequence[Row]) -> None:
        await self._turn.acquire()
        try:
            await self._transact(rows)
        except Exception:
            self._turn.release()
            raise
        self._turn.release()


@wrong_sqlite("sqlite-open-after-cancel")
class OpenAfterCancel(StepwiseStore):
    """Rolls back after an error, and not after a cancellation."""

    async def _transact(self, rows: Sequence[Row]) -> None:
        try:
            await self._begin()
            await self._check_fences(rows)
            await self._insert(rows)
            await self._commit()
        except Exception as error:
            await finish(self._connection.rollback())
            if isinstance(error, sqlite3.Error):
                raise self._fault(error, writing=True) from error
            raise
