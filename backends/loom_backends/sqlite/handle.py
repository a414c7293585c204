"""A handle on one SQLite file, by aiosqlite: its connection, its patience and its end.

A hop to aiosqlite's thread is the dearest thing after the sync itself, so every call is one hop,
and every hop is one whole transaction. No transaction is ever open while the event loop runs:
calls need no lock among each other, and a cancelled call leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Self, TypeVar

import aiosqlite

from loom_conformance.spi import EventStoreError, OutcomeUnknownError

from ..lifecycle import Calls, finish, opened

T = TypeVar("T")

RETRIED: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
"""Result codes that say: another connection is at work, try again."""


WAIT_ON_THREAD: Final = 0.05
"""How long SQLite itself waits for a lock, in seconds; then others have their turn."""


class RowRefusedError(Exception):
    """The row of several that a constraint refused, and the driver's error."""

    def __init__(self, row: Any, error: sqlite3.IntegrityError) -> None:
        super().__init__(row, error)
        self.row = row
        self.error = error


class AtomicConnection(sqlite3.Connection):
    """A connection whose `executemany` is one transaction: every row is written, or none is.

    aiosqlite runs it on its thread in one hop. The write lock is taken at the start: a deferred
    transaction that reads first cannot be retried when it finds the lock taken.
    """

    begin = "BEGIN IMMEDIATE"

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]], /) -> sqlite3.Cursor:  # type: ignore[override]
        """Write `rows`, or none if a constraint or the statement's own condition refuses one."""
        self.execute(self.begin)
        try:
            cursor = self._insert(sql, rows)
            if cursor.rowcount == len(rows):
                self.commit()
            # An open cursor would be dropped on the event loop's thread and reset its statement
            # there, which the next call on this thread may be running (SQLITE_MISUSE).
            cursor.close()
            return cursor
        finally:
            if self.in_transaction:
                self.rollback()

    def _insert(self, sql: str, rows: Sequence[Sequence[Any]]) -> sqlite3.Cursor:
        reached = rows[0]

        def each() -> Iterator[Sequence[Any]]:
            nonlocal reached
            for row in rows:
                reached = row
                yield tuple(row)  # the driver binds a plain tuple faster than any other sequence

        try:
            return super().executemany(sql, each())
        except sqlite3.IntegrityError as error:
            raise RowRefusedError(reached, error) from error


class SQLiteHandle:
    """One handle on a SQLite file. Any number of them, in any number of processes, may share it."""

    CONNECTION: ClassVar[type[sqlite3.Connection]] = AtomicConnection

    SETTINGS: ClassVar[str] = """
        PRAGMA journal_mode = WAL;
        PRAGMA synchronous = FULL;
    """

    SCHEMA: ClassVar[str]
    """Statements that make the tables where they are not there."""

    def __init__(
        self, connection: aiosqlite.Connection, thread: threading.Thread, patience: float
    ) -> None:
        self._connection = connection
        self._thread = thread
        self._patience = patience
        self._calls = Calls()
        self._closing: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, path: str | Path, *, patience: float = 30.0) -> Self:
        """Open a handle, and set the file up if it is new.

        Args:
            path: the database file.
            patience: how long, in seconds, a call tries to get a lock that others hold.

        Raises:
            EventStoreError: the file cannot be opened, is no database, or stays locked.
        """
        return await opened(cls._open(path, patience))

    @classmethod
    async def _open(cls, path: str | Path, patience: float) -> Self:
        threads: list[threading.Thread] = []

        def factory(*arguments: Any, **options: Any) -> sqlite3.Connection:
            threads.append(threading.current_thread())
            return cls.CONNECTION(*arguments, **options)

        try:
            connection = await aiosqlite.connect(
                path, factory=factory, isolation_level=None, timeout=WAIT_ON_THREAD
            )
        except sqlite3.Error as error:
            threads[0].join()
            raise EventStoreError(f"cannot open {path}: {error}") from error
        handle = cls(connection, threads[0], patience)
        try:
            await handle._patiently(lambda: connection.executescript(cls.SETTINGS + cls.SCHEMA))
        except BaseException:
            await handle.close()
            raise
        return handle

    async def close(self) -> None:
        """Settle what is in flight, end the thread and close the file."""
        if self._closing is None:
            self._calls.close()
            self._closing = asyncio.ensure_future(self._close())
        await finish(self._closing)

    async def _close(self) -> None:
        await self._calls.idle()
        try:
            await self._connection.close()
        finally:
            # It has nothing left to do, so this takes no time; after it, no thread is left behind.
            self._thread.join()

    async def _fetch(self, sql: str, *parameters: object, writing: bool = False) -> list[Any]:
        """Run one statement, which is a transaction of its own, and fetch all its rows."""
        rows = await self._patiently(
            lambda: self._connection.execute_fetchall(sql, parameters), writing=writing
        )
        return list(rows)

    async def _patiently(self, hop: Callable[[], Awaitable[T]], *, writing: bool = False) -> T:
        """Do one hop; again, while another connection holds the lock."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        while True:
            try:
                return await hop()
            except asyncio.CancelledError:
                # The thread carries on with what it was given: wait, so that it is settled.
                with contextlib.suppress(sqlite3.Error, ValueError):
                    await finish(self._connection.execute_fetchall("SELECT 1"))
                raise
            except sqlite3.IntegrityError:
                raise
            except sqlite3.Error as error:
                if not self._is_busy(error):
                    raise self._fault(error, writing=writing) from error
                if loop.time() > deadline:
                    raise EventStoreError(
                        f"the file stayed locked for {self._patience} s"
                    ) from error
            await asyncio.sleep(random.uniform(0.001, 0.01))
            self._calls.check()

    def _is_busy(self, error: sqlite3.Error) -> bool:
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in RETRIED

    def _fault(self, error: sqlite3.Error, *, writing: bool) -> EventStoreError:
        """What a driver's error means."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if writing and code == sqlite3.SQLITE_IOERR:
            return OutcomeUnknownError(f"the disk failed during a write: {error}")
        return EventStoreError(f"SQLite failed: {error}")
