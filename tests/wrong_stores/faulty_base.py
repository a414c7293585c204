"""A store over the standard library's `sqlite3`, short enough to be spoilt in one place.

Its calls run on the event loop's own thread, each in one transaction without an await, so that
within one process nothing comes in between: what is wrong with the stores that are made from it
shows only when several processes write, when one of them dies, or when the file fails.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeVar

from loom_conformance.spi import (
    FENCE_KEY,
    MAX_SEQUENCE,
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    EventStoreError,
    StaleFenceError,
    StoreClosedError,
    check_envelope,
    check_key,
    decode_json,
    encode_json,
)

from .registry import backend_of, variant, wrong
from .sqlite_base import PATHS, InMemoryFiles

S = TypeVar("S", bound=type[Any])

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = tuple[Any, ...]


class PlainStore:
    """One handle: a connection of its own, write-ahead log, `synchronous=FULL`, a busy time-out."""

    SETTINGS: ClassVar[str] = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"

    SCHEMA: ClassVar[str] = """
        CREATE TABLE IF NOT EXISTS envelopes (
            execution_id TEXT NOT NULL, sequence INTEGER NOT NULL, id TEXT NOT NULL UNIQUE,
            kind TEXT NOT NULL, timestamp INTEGER NOT NULL, payload TEXT NOT NULL,
            metadata TEXT NOT NULL, PRIMARY KEY (execution_id, sequence)
        ) WITHOUT ROWID;
        CREATE TABLE IF NOT EXISTS fences (execution_id TEXT PRIMARY KEY, token INTEGER NOT NULL);
    """

    PATIENCE: ClassVar[float] = 5.0

    def __init__(self, path: str) -> None:
        self.path = path
        self.closed = False
        self.connection = self._connected(path)

    def _connected(self, path: str) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, timeout=self.PATIENCE)
        try:
            connection.executescript(self.SETTINGS)
            with self._begun(connection):
                for statement in self.SCHEMA.split(";"):
                    connection.execute(statement)
        except sqlite3.Error as error:
            connection.close()
            raise EventStoreError(f"cannot open {path}: {error}") from error
        return connection

    @classmethod
    async def open(cls, path: str) -> Any:
        """Open a handle."""
        for _ in range(200):
            try:
                return cls(path)
            except EventStoreError as error:
                # Another process is turning the write-ahead log on.
                if "locked" not in str(error):
                    raise
                await asyncio.sleep(0.01)
        return cls(path)

    # --- The calls -----------------------------------------------------------------------------

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Store one envelope."""
        await self._write([_encoded(envelope)])

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        """Store all envelopes or none."""
        await self._write([_encoded(envelope) for envelope in envelopes])

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        """The envelopes from `first` on."""
        return await self.read_range(execution_id, first, MAX_SEQUENCE)

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        """The envelopes from `first` to `last`."""
        self._check_open()
        check_key("execution_id", execution_id)
        await asyncio.sleep(0)
        with self._told():
            # SQLite takes no integer of more than 64 bits.
            first = min(max(first, 0), MAX_SEQUENCE + 1)
            return self._read(execution_id, first, max(min(last, MAX_SEQUENCE), -1))

    async def acquire_fence(self, execution_id: str, /) -> int:
        """A new current token."""
        self._check_open()
        check_key("execution_id", execution_id)
        await asyncio.sleep(0)
        with self._told(), self._begun(self.connection):
            return self._acquire(execution_id)

    async def close(self) -> None:
        """Close the connection."""
        self.closed = True
        self.connection.close()

    # --- Their parts ---------------------------------------------------------------------------

    async def _write(self, rows: Sequence[Row]) -> None:
        self._check_open()
        await asyncio.sleep(0)
        self._check_open()
        with self._told(), self._begun(self.connection):
            self._check_fences(rows)
            self._insert(rows)

    def _check_fences(self, rows: Sequence[Row]) -> None:
        for row in rows:
            current = self._current(row[0])
            if row[7] != current:
                raise StaleFenceError(row[0], row[7], current)

    def _current(self, execution_id: str) -> int | None:
        found = self.connection.execute(
            "SELECT token FROM fences WHERE execution_id = ?", (execution_id,)
        ).fetchone()
        return found[0] if found else None

    def _insert(self, rows: Sequence[Row]) -> None:
        for row in rows:
            try:
                self.connection.execute(
                    "INSERT INTO envelopes VALUES (?, ?, ?, ?, ?, ?, ?)", row[:7]
                )
            except sqlite3.IntegrityError as error:
                raise self._conflict(row, error) from error

    def _conflict(self, row: Row, error: sqlite3.IntegrityError) -> EventStoreError:
        if error.sqlite_errorname == "SQLITE_CONSTRAINT_PRIMARYKEY":
            return DuplicateSequenceError(row[0], row[1])
        return DuplicateEnvelopeIdError(row[0], row[2])

    def _acquire(self, execution_id: str) -> int:
        ((token,),) = self.connection.execute(
            "INSERT INTO fences VALUES (?, 1)"
            " ON CONFLICT (execution_id) DO UPDATE SET token = token + 1 RETURNING token",
            (execution_id,),
        ).fetchall()
        return int(token)

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        rows = self.connection.execute(
            "SELECT * FROM envelopes WHERE execution_id = ? AND sequence BETWEEN ? AND ?"
            " ORDER BY sequence",
            (execution_id, first, last),
        ).fetchall()
        return [_decoded(row) for row in rows]

    def _check_open(self) -> None:
        if self.closed:
            raise StoreClosedError

    @contextmanager
    def _begun(self, connection: sqlite3.Connection) -> Iterator[None]:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Tell the driver's errors as the contract's."""
        try:
            yield
        except sqlite3.Error as error:
            raise EventStoreError(f"SQLite failed: {error}") from error


def _encoded(envelope: EventEnvelope) -> Row:
    check_envelope(envelope)
    return (
        envelope.execution_id,
        envelope.sequence,
        envelope.id,
        envelope.kind,
        (envelope.timestamp - EPOCH) // timedelta(milliseconds=1),
        encode_json(envelope.payload),
        encode_json(envelope.metadata),
        envelope.metadata.get(FENCE_KEY),
    )


def _decoded(row: Row) -> EventEnvelope:
    execution_id, sequence, id_, kind, timestamp, payload, metadata = row
    at = EPOCH + timedelta(milliseconds=timestamp)
    more: Any = decode_json(metadata)
    return EventEnvelope(execution_id, sequence, id_, kind, at, decode_json(payload), more)


class PlainFiles(InMemoryFiles):
    """Opens handles that are no `SQLiteEventStore`."""

    store: ClassVar[type[Any]]

    async def connect(self, address: str) -> Any:
        """Open a handle."""
        return await self.store.open(address)


variant("sqlite-on-the-loop", paths=PATHS)(backend_of(PlainStore, PlainFiles))


def faulty(
    claim: str,
    *,
    base: type[Any] = PlainFiles,
    deadline: float = 10.0,
    paths: tuple[str, ...] = PATHS,
    load: bool = True,
    **declarations: Any,
) -> Callable[[S], S]:
    """Enter a store's class as the wrong store of a claim that needs load or faults to show."""

    def enter(store: S) -> S:
        made = backend_of(store, base, **declarations)
        wrong(claim, deadline=deadline, paths=paths, depth="default", load=load)(made)
        return store

    return enter
