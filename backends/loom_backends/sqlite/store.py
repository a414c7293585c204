"""An event store in one SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, NoReturn

from loom_conformance.spi import (
    FENCE_KEY,
    MAX_SEQUENCE,
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    EventStoreError,
    StaleFenceError,
    check_envelope,
    check_key,
    decode_json,
    encode_json,
)

from .handle import RowRefusedError, SQLiteHandle

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


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


class SQLiteEventStore(SQLiteHandle):
    """One handle on a SQLite file; open it with `SQLiteEventStore.open(path)`.

    Any number of handles, of any number of processes, may share the file. Every acknowledged write
    is on the disk: write-ahead log with `synchronous=FULL`.
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
        SELECT execution_id, sequence, id, kind, timestamp, payload, metadata
        FROM (
            SELECT ? AS execution_id, ? AS sequence, ? AS id, ? AS kind,
                ? AS timestamp, ? AS payload, ? AS metadata, ? AS fence
        ) AS new
        WHERE (SELECT token FROM fences WHERE execution_id = new.execution_id) IS fence
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
        return await self._read(execution_id, first, MAX_SEQUENCE)

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        """The execution's envelopes with `first <= sequence <= last`, ascending."""
        return await self._read(execution_id, first, last)

    async def acquire_fence(self, execution_id: str, /) -> int:
        """The execution's new current token; older ones are stale from now on."""
        check_key("execution_id", execution_id)
        with self._calls:
            ((token,),) = await self._fetch(self.ACQUIRE, execution_id, writing=True)
        return int(token)

    async def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        check_key("execution_id", execution_id)
        first, last = max(first, 0), min(last, MAX_SEQUENCE)
        with self._calls:
            if first > last:
                return []
            rows = await self._fetch(self.READ, execution_id, first, last)
        return [self._decode(execution_id, row) for row in rows]

    async def _write(self, rows: Sequence[Row]) -> None:
        """Write the rows as one transaction, and say why if they were refused."""
        connection = self._connection
        try:
            if len(rows) == 1:
                # One statement is a transaction of its own.
                cursor = await self._patiently(
                    lambda: connection.execute(self.INSERT, rows[0]), writing=True
                )
            else:
                cursor = await self._patiently(
                    lambda: connection.executemany(self.INSERT, rows), writing=True
                )
        except RowRefusedError as refused:
            raise self._conflict(refused.row, refused.error) from refused.error
        except sqlite3.IntegrityError as error:
            raise self._conflict(rows[0], error) from error
        if cursor.rowcount != len(rows):
            await self._raise_stale(rows)

    def _conflict(self, row: Row, error: sqlite3.IntegrityError) -> EventStoreError:
        """What a constraint says by refusing a row."""
        if error.sqlite_errorname == "SQLITE_CONSTRAINT_PRIMARYKEY":
            return DuplicateSequenceError(row.execution_id, row.sequence)
        if error.sqlite_errorname == "SQLITE_CONSTRAINT_UNIQUE":
            return DuplicateEnvelopeIdError(row.execution_id, row.id)
        return EventStoreError(f"envelope {row.id!r} was refused: {error}")

    async def _raise_stale(self, rows: Sequence[Row]) -> NoReturn:
        """Say which row's token is not the current one; the tokens only ever grow."""
        for execution_id, given in dict.fromkeys((row.execution_id, row.fence) for row in rows):
            found = await self._fetch(self.CURRENT, execution_id)
            current = found[0][0] if found else None
            if given != current:
                raise StaleFenceError(execution_id, given, current)
        # Another acquire handed out the very token that had been guessed.
        raise StaleFenceError(rows[0].execution_id, rows[0].fence, current)

    def _encode(self, envelope: EventEnvelope) -> Row:
        check_envelope(envelope)
        since = envelope.timestamp - EPOCH
        return Row(
            envelope.execution_id,
            envelope.sequence,
            envelope.id,
            envelope.kind,
            since.days * 86_400_000 + since.seconds * 1_000 + since.microseconds // 1_000,
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
