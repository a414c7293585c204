"""Stores that are right until their process dies."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from loom_conformance.spi import EventEnvelope

from .faulty_base import PlainStore, Row, faulty
from .faulty_processes import WithoutIndexes, process_lock

_SHARED: dict[str, sqlite3.Connection] = {}
_UNCOMMITTED: dict[str, int] = {}


@faulty("acknowledges-before-commit")
class AcknowledgesBeforeCommit(PlainStore):
    """Shares a transaction among the calls of its process, and commits it after some of them.

    Each call is a savepoint of it, so that a refusal undoes its own part only. An idle turn of the
    event loop commits what is there, and so does closing.
    """

    EVERY: ClassVar[int] = 8

    def _connected(self, path: str) -> sqlite3.Connection:
        if path not in _SHARED:
            _SHARED[path] = super()._connected(path)
        return _SHARED[path]

    @contextmanager
    def _begun(self, connection: sqlite3.Connection) -> Iterator[None]:
        if self.path not in _SHARED:
            # The tables are being made.
            with super()._begun(connection):
                yield
            return
        if not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")
            _UNCOMMITTED[self.path] = 0
            asyncio.get_running_loop().call_later(0.03, self._flush)
        connection.execute("SAVEPOINT call")
        try:
            yield
        except BaseException:
            connection.execute("ROLLBACK TO call")
            raise
        finally:
            connection.execute("RELEASE call")
        _UNCOMMITTED[self.path] += 1
        if _UNCOMMITTED[self.path] >= self.EVERY:
            self._flush()

    def _flush(self) -> None:
        connection = _SHARED[self.path]
        if connection.in_transaction:
            connection.execute("COMMIT")

    async def close(self) -> None:
        """Commit; the connection stays with the other handles."""
        self.closed = True
        self._flush()


@faulty("batch-by-rows")
class BatchByRows(WithoutIndexes):
    """Checks a batch first and commits it row by row, while its own process waits and reads not."""

    async def _write(self, rows: Sequence[Row]) -> None:
        self._check_open()
        async with process_lock(self.path):
            self._check_open()
            with self._told(), self._begun(self.connection):
                self._check_fences(rows)
                self._check_unique(rows)
                self._insert(rows[:1])
            left = list(rows[1:])
            try:
                while left:
                    await asyncio.sleep(0)
                    self._insert_next(left)
            finally:
                # A cancelled caller does not tear the batch; only death does.
                while left:
                    self._insert_next(left)

    def _insert_next(self, left: list[Row]) -> None:
        with self._told(), self._begun(self.connection):
            self._insert(left[:1])
        del left[0]

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        """Read while no batch of this process is half written."""
        async with process_lock(self.path):
            return await super().read_range(execution_id, first, last)

    async def acquire_fence(self, execution_id: str, /) -> int:
        """Fence while no batch of this process is half written."""
        async with process_lock(self.path):
            return await super().acquire_fence(execution_id)

    async def close(self) -> None:
        """Close when no batch of this process is half written."""
        async with process_lock(self.path):
            await super().close()


@faulty("event-and-index-apart")
class EventAndIndexApart(PlainStore):
    """Writes the events in one transaction and their place in the log in another, later one."""

    SCHEMA: ClassVar[str] = (
        PlainStore.SCHEMA
        + """;
        CREATE TABLE IF NOT EXISTS heads (execution_id TEXT PRIMARY KEY, height INTEGER NOT NULL)
    """
    )

    async def _write(self, rows: Sequence[Row]) -> None:
        self._check_open()
        async with process_lock(self.path):
            self._check_open()
            with self._told(), self._begun(self.connection):
                self._check_fences(rows)
                self._insert(rows)
            try:
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            finally:
                # A cancelled caller does not part the two; only death does.
                with self._told(), self._begun(self.connection):
                    self._index(rows)

    def _index(self, rows: Sequence[Row]) -> None:
        self.connection.executemany(
            "INSERT INTO heads VALUES (?, ?) ON CONFLICT (execution_id)"
            " DO UPDATE SET height = max(height, excluded.height)",
            [(row[0], row[1]) for row in rows],
        )

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        found = self.connection.execute(
            "SELECT height FROM heads WHERE execution_id = ?", (execution_id,)
        ).fetchone()
        return super()._read(execution_id, first, min(last, found[0] if found else -1))

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        """Read between the writes of this process."""
        async with process_lock(self.path):
            return await super().read_range(execution_id, first, last)

    async def close(self) -> None:
        """Close between the writes of this process."""
        async with process_lock(self.path):
            await super().close()
