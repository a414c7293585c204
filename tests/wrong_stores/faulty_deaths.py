"""Stores that are right until a handle is closed, or its process dies."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from loom_conformance.spi import DuplicateSequenceError, EventEnvelope

from .faulty_base import PlainStore, Row, faulty
from .faulty_processes import EARLY, WORK, WithoutIndexes, process_lock

_SHARED: dict[str, sqlite3.Connection] = {}
_UNCOMMITTED: dict[str, int] = {}


@faulty("acknowledges-before-commit", load=False)
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


@faulty("gives-its-fences-back", load=False)
class GivesItsFencesBack(PlainStore):
    """Takes a fence for a lock: whoever closes their handle gives up those that it acquired."""

    def __init__(self, path: str) -> None:
        self.acquired: set[str] = set()
        super().__init__(path)

    def _acquire(self, execution_id: str) -> int:
        self.acquired.add(execution_id)
        return super()._acquire(execution_id)

    async def close(self) -> None:
        """Release the fences, and close."""
        if self.closed:
            return
        with self._told(), self._begun(self.connection):
            self.connection.executemany(
                "DELETE FROM fences WHERE execution_id = ?", [(one,) for one in self.acquired]
            )
        await super().close()


@faulty("batch-by-rows", load=False)
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


@faulty("reserves-its-slot-first")
class ReservesItsSlotFirst(PlainStore):
    """Takes a slot in one transaction, writes in a later one, and gives it back when that fails.

    A process that dies in between leaves a slot that nothing fills and nobody gets, and another
    one is told that a slot is taken which nothing shows yet.
    """

    SCHEMA: ClassVar[str] = (
        PlainStore.SCHEMA
        + """;
        CREATE TABLE IF NOT EXISTS slots (
            execution_id TEXT NOT NULL, sequence INTEGER NOT NULL,
            PRIMARY KEY (execution_id, sequence)
        ) WITHOUT ROWID
    """
    )

    async def _write(self, rows: Sequence[Row]) -> None:
        self._check_open()
        async with process_lock(self.path):
            self._check_open()
            with self._told(), self._begun(self.connection):
                self._check_fences(rows)
                self._reserve(rows)
            try:
                await asyncio.sleep(WORK if rows and rows[-1][1] < EARLY else 0)
                with self._told(), self._begun(self.connection):
                    self._check_fences(rows)
                    self._insert(rows)
            except BaseException:
                # A cancelled caller leaves nothing behind; only death does.
                with self._told(), self._begun(self.connection):
                    self._give_back(rows)
                raise

    def _reserve(self, rows: Sequence[Row]) -> None:
        for row in rows:
            try:
                self.connection.execute("INSERT INTO slots VALUES (?, ?)", row[:2])
            except sqlite3.IntegrityError as error:
                raise DuplicateSequenceError(row[0], row[1]) from error

    def _give_back(self, rows: Sequence[Row]) -> None:
        self.connection.executemany(
            "DELETE FROM slots WHERE execution_id = ? AND sequence = ?", [row[:2] for row in rows]
        )

    async def close(self) -> None:
        """Close between the writes of this process."""
        async with process_lock(self.path):
            await super().close()
