"""SQLite stores whose batch is not one step, or whose transaction is not one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from loom_backends.sqlite import SQLiteEventStore
from loom_backends.sqlite.handle import AtomicConnection
from loom_backends.sqlite.store import Row
from loom_conformance.spi import EventEnvelope

from .sqlite_base import StepwiseStore, wrong_sqlite


class AutocommitConnection(AtomicConnection):
    """In `isolation_level=None` a `with connection` block begins no transaction."""

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]], /) -> sqlite3.Cursor:  # type: ignore[override]
        """Write `rows`, each of which commits by itself."""
        with self:
            cursor = self._insert(sql, rows)
            cursor.close()
            return cursor


@wrong_sqlite("sqlite-autocommit-batch")
class AutocommitBatch(SQLiteEventStore):
    """Writes the rows of a batch one after the other, in autocommit mode."""

    CONNECTION = AutocommitConnection


class ScriptConnection(AtomicConnection):
    """Brings a register of executions up to date by a script, inside the transaction."""

    REGISTER = """
        CREATE TABLE IF NOT EXISTS register (execution_id TEXT PRIMARY KEY);
        INSERT OR IGNORE INTO register SELECT DISTINCT execution_id FROM envelopes
        WHERE execution_id IN (SELECT execution_id FROM fences);
    """

    def _insert(self, sql: str, rows: Sequence[Sequence[Any]]) -> sqlite3.Cursor:
        cursor = super()._insert(sql, rows)
        self.executescript(self.REGISTER)  # which commits what is open
        return cursor


@wrong_sqlite("sqlite-script-commits")
class ScriptCommits(SQLiteEventStore):
    """Runs a script before it looks how many rows passed their fence: `executescript` commits."""

    CONNECTION = ScriptConnection


@wrong_sqlite("sqlite-chunked-batch")
class ChunkedBatch(SQLiteEventStore):
    """Commits a large batch in chunks."""

    CHUNK = 500

    async def _write(self, rows: Sequence[Row]) -> None:
        for start in range(0, len(rows), self.CHUNK):
            await super()._write(rows[start : start + self.CHUNK])


@wrong_sqlite("sqlite-batch-one-by-one")
class BatchOneByOne(SQLiteEventStore):
    """Appends the envelopes of a batch one after the other, each durable by itself."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        """Append them in order, up to the first that is refused."""
        for envelope in envelopes:
            await self.append(envelope)


@wrong_sqlite("sqlite-batch-counted-first")
class BatchCountedFirst(SQLiteEventStore):
    """Runs through the batch to see whether there is anything in it, and again to write it."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        """Store what a second run through the iterable gives."""
        if sum(1 for _ in envelopes):
            await super().append_batch(envelopes)


@wrong_sqlite("sqlite-empty-batch")
class EmptyBatch(SQLiteEventStore):
    """Takes it that a batch has a first envelope."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        """Store all envelopes or none, in one transaction."""
        rows = [self._encode(envelope) for envelope in envelopes]
        with self._calls:
            await self._write(rows)


class LeftOpenConnection(AtomicConnection):
    """Begins a transaction unless one is open, and rolls back none."""

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]], /) -> sqlite3.Cursor:  # type: ignore[override]
        """Write `rows` and commit them; after an error the transaction stays open."""
        if not self.in_transaction:
            self.execute(self.begin)
        cursor = self._insert(sql, rows)
        if cursor.rowcount == len(rows):
            self.commit()
        else:
            self.rollback()
        cursor.close()
        return cursor


@wrong_sqlite("sqlite-left-open", deadline=2.0)
class LeftOpen(SQLiteEventStore):
    """Leaves the transaction of a refused write open, for the next write to commit."""

    CONNECTION = LeftOpenConnection


@wrong_sqlite("sqlite-unlocked-steps")
class UnlockedSteps(StepwiseStore):
    """Has no lock: calls on one connection run into each other's transactions."""

    async def _fetch(self, sql: str, *parameters: object, writing: bool = False) -> list[Any]:
        return await SQLiteEventStore._fetch(self, sql, *parameters, writing=writing)

    async def _write(self, rows: Sequence[Row]) -> None:
        await self._transact(rows)

    async def _begin(self) -> None:
        if not self._connection.in_transaction:
            await super()._begin()
