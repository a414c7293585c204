"""An event store in one SQLite file, by aiosqlite.

A hop to aiosqlite's thread is the dearest thing after the sync itself, so every call is one hop,
and every hop is one whole transaction. No transaction is ever open while the event loop runs:
calls need no lock among each other, and a cancelled call leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, Self, TypeVar

import aiosqlite

from loom_conformance.spi import (
    FENCE_KEY,
    MAX_SEQUENCE,
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    EventStoreError,
    OutcomeUnknownError,
    StaleFenceError,
    check_envelope,
    check_key,
    decode_json,
    encode_json,
)

from ..lifecycle import Calls, finish, opened

T = TypeVar("T")

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)

RETRIED: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
"""Result codes that say: another connection is at work, try again."""


class Row(NamedTuple):
    """An envelope as `INSERT` binds it; the timestamp is in milliseconds since 1970."""

    execution_id: str
    sequence: int
    id: str
    kind: str
    timestamp: int
    payload: str
    metadata: str
    fence: int | None


class RowRefusedError(Exception):
    """The row that a constraint refused; the driver's error is the cause."""

    def __init__(self, row: Row) -> None:
        super().__init__(row)
        self.row = row


class AtomicConnection(sqlite3.Connection):
    """A connection whose `executemany` is one transaction: every row is written, or none is.

    aiosqlite runs it on its thread in one hop. The write lock is taken at the start: a deferred
    transaction that reads first cannot be retried when it finds the lock taken.
    """

    begin = "BEGIN IMMEDIATE"

    def executemany(self, sql: str, rows: Sequence[Row], /) -> sqlite3.Cursor:  # type: ignore[override]
        """Write `rows`, or none if a constraint or the statement's own condition refuses one."""
        self.execute(self.begin)
        try:
            cursor = self._insert(sql, rows)
            if cursor.rowcount == len(rows):
                self.commit()
            return cursor
        finally:
            if self.in_transaction:
                self.rollback()

    def _insert(self, sql: str, rows: Sequence[Row]) -> sqlite3.Cursor:
        reached = rows[0]

        def each() -> Iterator[Row]:
            nonlocal reached
            for row in rows:
                reached = row
                yield row

        try:
            return super().executemany(sql, each())
        except sqlite3.IntegrityError as error:
            raise RowRefusedError(reached) from error


class SQLiteEventStore:
    """One handle on a SQLite file; open it with `SQLiteEventStore.open(path)`.

    Any number of handles, of any number of processes, may share the file. Every acknowledged write
    is on the disk: write-ahead log with `synchronous=FULL`.
    """

    CONNECTION: type[sqlite3.Connection] = AtomicConnection

    SETTINGS = """
        PRAGMA journal_mode = WAL;
        PRAGMA synchronous = FULL;
    """

    SCHEMA = """
        CREATE TABLE IF NOT EXISTS envelopes (
            execution_id TEXT NOT NULL,
            sequence INTEGER NOT NULL,
            id TEXT NOT NULL UNIQUE,
            kind TEXT NOT NULL,
            timestamp INTEGER NOT NULL,
            payload TEXT NOT NULL,
            metadata TEXT NOT NULL,
            PRIMARY KEY (execution_id, sequence)
        ) WITHOUT ROWID;
        CREATE TABLE IF NOT EXISTS fences (
            execution_id TEXT NOT NULL PRIMARY KEY,
            token INTEGER NOT NULL
        ) WITHOUT ROWID;
    """

    # `IS` compares as wanted where either side is NULL: no token is right where there is no fence.
    INSERT = """
        INSERT INTO envelopes (execution_id, sequence, id, kind, timestamp, payload, metadata)
        SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
        WHERE (SELECT token FROM fences WHERE execution_id = ?1) IS ?8
    """

    READ = """
        SELECT sequence, id, kind, timestamp, payload, metadata FROM envelopes
        WHERE execution_id = ? AND sequence BETWEEN ? AND ? ORDER BY sequence
    """

    ACQUIRE = """
        INSERT INTO fences (execution_id, token) VALUES (?, 1)
        ON CONFLICT (execution_id) DO UPDATE SET token = token + 1
        RETURNING token
    """

    CURRENT = "SELECT token FROM fences WHERE execution_id = ?"

    def __init__(self, connection: aiosqlite.Connection, patience: float = 30.0) -> None:
        self._connection = connection
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
        try:
            # A short wait on the thread: `_patiently` does the long one, where others can go on.
            connection = await aiosqlite.connect(
                path, factory=cls.CONNECTION, isolation_level=None, timeout=0.25
            )
        except sqlite3.Error as error:
            raise EventStoreError(f"cannot open {path}: {error}") from error
        store = cls(connection, patience)
        try:
            await store._patiently(lambda: connection.executescript(cls.SETTINGS + cls.SCHEMA))
        except BaseException:
            await finish(connection.close())
            raise
        return store

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Store one envelope; return once it is on the disk."""
        row = self._encode(envelope)
        with self._calls:
            await self._write([row])

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        """Store all envelopes or none; return once all are on the disk."""
        rows = [self._encode(envelope) for envelope in envelopes]
        with self._calls:
            if rows:
                await self._write(rows)

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        """The execution's envelopes with `sequence >= first`, ascending."""
        return await self.read_range(execution_id, first, MAX_SEQUENCE)

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        """The execution's envelopes with `first <= sequence <= last`, ascending."""
        check_key("execution_id", execution_id)
        first, last = max(first, 0), min(last, MAX_SEQUENCE)
        with self._calls:
            if first > last:
                return []
            rows = await self._fetch(self.READ, (execution_id, first, last))
        return [self._decode(execution_id, row) for row in rows]

    async def acquire_fence(self, execution_id: str, /) -> int:
        """The execution's new current token; older ones are stale from now on."""
        check_key("execution_id", execution_id)
        with self._calls:
            ((token,),) = await self._fetch(self.ACQUIRE, (execution_id,))
        return int(token)

    async def close(self) -> None:
        """Settle what is in flight, end the thread and close the file."""
        if self._closing is None:
            self._calls.close()
            self._closing = asyncio.ensure_future(self._close())
        await finish(self._closing)

    async def _close(self) -> None:
        await self._calls.idle()
        await self._connection.close()

    async def _write(self, rows: Sequence[Row]) -> None:
        try:
            cursor = await self._patiently(lambda: self._connection.executemany(self.INSERT, rows))
        except RowRefusedError as refused:
            self._raise_conflict(refused)
        if cursor.rowcount != len(rows):
            await self._raise_stale(rows)

    def _raise_conflict(self, refused: RowRefusedError) -> NoReturn:
        row, cause = refused.row, refused.__cause__
        name = getattr(cause, "sqlite_errorname", None)
        if name == "SQLITE_CONSTRAINT_PRIMARYKEY":
            raise DuplicateSequenceError(row.execution_id, row.sequence) from cause
        if name == "SQLITE_CONSTRAINT_UNIQUE":
            raise DuplicateEnvelopeIdError(row.execution_id, row.id) from cause
        raise EventStoreError(f"envelope {row.id!r} was refused: {cause}") from cause

    async def _raise_stale(self, rows: Sequence[Row]) -> NoReturn:
        """Say which row's token is not the current one; the tokens only ever grow."""
        for execution_id, given in dict.fromkeys((row.execution_id, row.fence) for row in rows):
            found = await self._fetch(self.CURRENT, (execution_id,))
            current = found[0][0] if found else None
            if given != current:
                raise StaleFenceError(execution_id, given, current)
        # Another acquire handed out the very token that had been guessed.
        raise StaleFenceError(rows[0].execution_id, rows[0].fence, current)

    async def _fetch(self, sql: str, parameters: tuple[object, ...]) -> list[Any]:
        return list(
            await self._patiently(lambda: self._connection.execute_fetchall(sql, parameters))
        )

    async def _patiently(self, hop: Callable[[], Awaitable[T]]) -> T:
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
            except sqlite3.Error as error:
                self._raise_fault(error, patient=loop.time() < deadline)
            await asyncio.sleep(random.uniform(0.001, 0.01))
            self._calls.check()

    def _raise_fault(self, error: sqlite3.Error, *, patient: bool) -> None:
        """Raise what a driver's error means; return where the hop should be tried again."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in RETRIED:
            if patient:
                return
            raise EventStoreError(f"the file stayed locked for {self._patience} s") from error
        if code == sqlite3.SQLITE_IOERR:
            raise OutcomeUnknownError(f"the disk failed: {error}") from error
        raise EventStoreError(f"SQLite failed: {error}") from error

    def _encode(self, envelope: EventEnvelope) -> Row:
        check_envelope(envelope)
        return Row(
            envelope.execution_id,
            envelope.sequence,
            envelope.id,
            envelope.kind,
            (envelope.timestamp - EPOCH) // MILLISECOND,
            encode_json(envelope.payload),
            encode_json(envelope.metadata),
            envelope.metadata.get(FENCE_KEY),  # type: ignore[arg-type]  # checked: a token or None
        )

    def _decode(self, execution_id: str, row: Sequence[Any]) -> EventEnvelope:
        sequence, id_, kind, timestamp, payload, metadata = row
        return EventEnvelope(
            execution_id,
            sequence,
            id_,
            kind,
            EPOCH + timedelta(milliseconds=timestamp),
            decode_json(payload),
            decode_json(metadata),  # type: ignore[arg-type]  # it was encoded from an object
        )
