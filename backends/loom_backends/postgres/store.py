"""An event store in one PostgreSQL schema.

An execution has a row in `executions` from its first write or fence on. A write takes that row's
lock in the shared mode, which gives it the newest token whatever its snapshot is; `acquire_fence`
takes it in the exclusive mode. Where the row is not there yet the write makes it, and a unique key
keeps out everyone else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, Final, NamedTuple

import asyncpg

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

from .handle import PostgresHandle

ATTEMPTS: Final = 10
"""How often a write is tried that others overtake; the second attempt sees what the first met."""


class Row(NamedTuple):
    """An envelope as `APPEND` binds it."""

    execution_id: str
    sequence: int
    id: str
    kind: str
    timestamp: datetime
    payload: str
    metadata: str
    fence: int | None


SLOT: Final = itemgetter(0, 1)
WRITER: Final = itemgetter(0, 7)
"""What of a row says which place it takes, and with which token."""


class RacedError(Exception):
    """Another transaction made the execution's row meanwhile; the next statement sees it."""


class PostgresEventStore(PostgresHandle):
    """One handle on a schema; open it with `PostgresEventStore.connect(dsn)`."""

    # One implicit transaction, under a lock: two sessions may both find that a table is missing.
    SCHEMA = """
        SELECT pg_advisory_xact_lock(hashtext(current_schema()));
        CREATE TABLE IF NOT EXISTS envelopes (
            execution_id text COLLATE "C" NOT NULL,
            sequence bigint NOT NULL,
            id text COLLATE "C" NOT NULL,
            kind text NOT NULL,
            timestamp timestamptz NOT NULL,
            payload text NOT NULL,
            metadata text NOT NULL,
            CONSTRAINT envelope_slot PRIMARY KEY (execution_id, sequence),
            CONSTRAINT envelope_id UNIQUE (id)
        );
        CREATE TABLE IF NOT EXISTS executions (
            execution_id text COLLATE "C" PRIMARY KEY,
            token bigint
        );
    """

    IS_SET_UP = "SELECT to_regclass('executions') IS NOT NULL"

    # No row comes back where `made` met a row that is newer than the snapshot.
    APPEND = """
        WITH seen AS (
            SELECT token FROM executions WHERE execution_id = $1 FOR SHARE
        ), made AS (
            INSERT INTO executions (execution_id) SELECT $1 WHERE NOT EXISTS (SELECT FROM seen)
            ON CONFLICT DO NOTHING RETURNING token
        ), execution AS (
            SELECT token FROM seen UNION ALL SELECT token FROM made
        ), written AS (
            INSERT INTO envelopes (execution_id, sequence, id, kind, timestamp, payload, metadata)
            SELECT $1, $2, $3, $4, $5, $6, $7 FROM execution
            WHERE token IS NOT DISTINCT FROM $8::bigint
        )
        SELECT token FROM execution
    """

    # The same for many: nothing is written unless every writer ($8, $9) has the current token.
    APPEND_BATCH = """
        WITH writer AS (
            SELECT * FROM unnest($8::text[], $9::bigint[]) AS writer (execution_id, given)
        ), seen AS (
            SELECT execution_id, token FROM executions WHERE execution_id = ANY ($8)
            ORDER BY execution_id FOR SHARE
        ), made AS (
            INSERT INTO executions (execution_id)
            SELECT DISTINCT execution_id FROM writer
            WHERE execution_id NOT IN (SELECT execution_id FROM seen) ORDER BY execution_id
            ON CONFLICT DO NOTHING RETURNING execution_id, token
        ), execution AS (
            SELECT execution_id, token FROM seen UNION ALL SELECT execution_id, token FROM made
        ), refused AS (
            SELECT execution_id, given, token, execution.execution_id IS NULL AS raced
            FROM writer LEFT JOIN execution USING (execution_id)
            WHERE execution.execution_id IS NULL OR token IS DISTINCT FROM given
        ), written AS (
            INSERT INTO envelopes (execution_id, sequence, id, kind, timestamp, payload, metadata)
            SELECT * FROM unnest(
                $1::text[], $2::bigint[], $3::text[], $4::text[],
                $5::timestamptz[], $6::text[], $7::text[]
            ) WHERE NOT EXISTS (SELECT FROM refused)
        )
        SELECT execution_id, given, token, raced FROM refused
    """

    TAKEN_SLOT = """
        SELECT execution_id, sequence FROM envelopes
        JOIN unnest($1::text[], $2::bigint[]) AS wanted (execution_id, sequence)
        USING (execution_id, sequence) LIMIT 1
    """

    TAKEN_ID = "SELECT id FROM envelopes WHERE id = ANY ($1) LIMIT 1"

    READ = """
        SELECT sequence, id, kind, timestamp, payload, metadata FROM envelopes
        WHERE execution_id = $1 AND sequence BETWEEN $2 AND $3 ORDER BY sequence
    """

    ACQUIRE = """
        INSERT INTO executions (execution_id, token) VALUES ($1, 1)
        ON CONFLICT (execution_id) DO UPDATE SET token = coalesce(executions.token, 0) + 1
        RETURNING token
    """

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Store one envelope; return once it is committed."""
        row = self._encode(envelope)
        with self._calls:
            await self._write([row])

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        """Store all envelopes or none; return once all are committed."""
        rows = [self._encode(envelope) for envelope in envelopes]
        # One order for all writers: two that meet wait for each other, and never in a circle.
        rows.sort(key=SLOT)
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
            records = await self._fetch(self.ACQUIRE, execution_id, writing=True)
        return int(records[0][0])

    async def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        check_key("execution_id", execution_id)
        first, last = max(first, 0), min(last, MAX_SEQUENCE)
        with self._calls:
            if first > last:
                return []
            records = await self._fetch(self.READ, execution_id, first, last)
        return [self._decode(execution_id, record) for record in records]

    async def _write(self, rows: Sequence[Row]) -> None:
        """Write the rows as one step, again where the attempt was overtaken by another's."""
        for _ in range(ATTEMPTS):
            try:
                if len(rows) == 1:
                    return await self._write_one(rows[0])
                return await self._write_many(rows)
            except RacedError as error:
                overtaken: Exception = error
            except asyncpg.UniqueViolationError as error:
                await self._raise_conflict(rows, error)
                overtaken = error
        raise EventStoreError(f"a write was overtaken {ATTEMPTS} times") from overtaken

    async def _write_one(self, row: Row) -> None:
        records = await self._fetch(self.APPEND, *row, writing=True)
        if not records:
            raise RacedError
        current = records[0][0]
        if current != row.fence:
            raise StaleFenceError(row.execution_id, row.fence, current)

    async def _write_many(self, rows: Sequence[Row]) -> None:
        *columns, _ = zip(*rows, strict=True)
        writers = dict.fromkeys(map(WRITER, rows))
        refused = await self._fetch(
            self.APPEND_BATCH, *columns, *zip(*writers, strict=True), writing=True
        )
        for execution_id, given, current, raced in refused:
            if not raced:
                raise StaleFenceError(execution_id, given, current)
        if refused:
            raise RacedError

    async def _raise_conflict(
        self, rows: Sequence[Row], error: asyncpg.UniqueViolationError
    ) -> None:
        """Say which row's slot or id is taken; return where what was in the way is gone."""
        if error.constraint_name == "envelope_slot":
            taken = await self._taken([row[:2] for row in rows], self.TAKEN_SLOT)
            if taken is not None:
                raise DuplicateSequenceError(*taken) from error
        elif error.constraint_name == "envelope_id":
            taken = await self._taken([row[2:3] for row in rows], self.TAKEN_ID)
            if taken is not None:
                row = next(row for row in reversed(rows) if row.id == taken[0])
                raise DuplicateEnvelopeIdError(row.execution_id, row.id) from error
        else:
            raise EventStoreError(f"PostgreSQL refused a write: {error}") from error

    async def _taken(self, keys: Sequence[tuple[Any, ...]], query: str) -> Sequence[Any] | None:
        """The key that is twice in the batch, or else the one that the table has."""
        if len(keys) == 1:
            return keys[0]
        seen: set[tuple[Any, ...]] = set()
        for key in keys:
            if key in seen:
                return key
            seen.add(key)
        records = await self._fetch(query, *zip(*keys, strict=True))
        return tuple(records[0]) if records else None

    def _encode(self, envelope: EventEnvelope) -> Row:
        check_envelope(envelope)
        return Row(
            envelope.execution_id,
            envelope.sequence,
            envelope.id,
            envelope.kind,
            envelope.timestamp,
            encode_json(envelope.payload),
            encode_json(envelope.metadata),
            envelope.metadata.get(FENCE_KEY),  # type: ignore[arg-type]  # checked: a token or None
        )

    def _decode(self, execution_id: str, record: Sequence[Any]) -> EventEnvelope:
        sequence, id_, kind, timestamp, payload, metadata = record
        return EventEnvelope(
            execution_id,
            sequence,
            id_,
            kind,
            timestamp,
            decode_json(payload),
            decode_json(metadata),  # type: ignore[arg-type]  # it was encoded from an object
        )
