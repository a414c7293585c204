"""PostgreSQL stores that lose a slot, an id, or a part of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from loom_backends.postgres import PostgresEventStore
from loom_backends.postgres.handle import Session
from loom_backends.postgres.store import Row
from loom_conformance.spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
)

from .postgres_base import CrashableServer, StepwiseStore, wrong_postgres
from .sqlite_base import changed

SLOT_KEY = "CONSTRAINT envelope_slot PRIMARY KEY (execution_id, sequence),"
ID_KEY = ",\n            CONSTRAINT envelope_id UNIQUE (id)"


@wrong_postgres("postgres-upsert")
class Upsert(StepwiseStore):
    """Replaces the envelope that is there."""

    PUT = f"""
        {StepwiseStore.PUT} ON CONFLICT (execution_id, sequence) DO UPDATE SET id = excluded.id,
            kind = excluded.kind, timestamp = excluded.timestamp,
            payload = excluded.payload, metadata = excluded.metadata
    """


@wrong_postgres("postgres-do-nothing")
class DoNothing(StepwiseStore):
    """Skips the row that is taken and does not look at the count."""

    PUT = f"{StepwiseStore.PUT} ON CONFLICT DO NOTHING"


@wrong_postgres("postgres-check-then-insert")
class CheckThenInsert(StepwiseStore):
    """Looks in one statement whether slot and id are free and inserts in another; no key holds."""

    SCHEMA = changed(
        PostgresEventStore.SCHEMA,
        (SLOT_KEY, ""),
        ("metadata text NOT NULL,", "metadata text NOT NULL"),
        ("CONSTRAINT envelope_id UNIQUE (id)", ""),
    ) + (
        "CREATE INDEX IF NOT EXISTS by_slot ON envelopes (execution_id, sequence);"
        "CREATE INDEX IF NOT EXISTS by_id ON envelopes (id);"
    )

    TAKEN = """
        SELECT place, old.id IS NOT NULL FROM unnest($1::text[], $2::bigint[], $3::text[])
            WITH ORDINALITY AS new (execution_id, sequence, id, place)
        LEFT JOIN envelopes AS old USING (execution_id, sequence)
        LEFT JOIN envelopes AS other ON other.id = new.id
        WHERE old.id IS NOT NULL OR other.id IS NOT NULL
        ORDER BY place LIMIT 1
    """

    async def _insert(self, session: Session, rows: Sequence[Row]) -> None:
        executions, sequences, ids, *_ = zip(*rows, strict=True)
        for place, slot_is_taken in await session.fetch(self.TAKEN, executions, sequences, ids):
            raise self._refusal(rows[place - 1], slot_is_taken)
        slots, names = set[tuple[str, int]](), set[str]()
        for row in rows:
            if row[:2] in slots or row.id in names:
                raise self._refusal(row, row[:2] in slots)
            slots.add(row[:2])
            names.add(row.id)
        await super()._insert(session, rows)

    def _refusal(self, row: Row, slot_is_taken: bool) -> Exception:
        if slot_is_taken:
            return DuplicateSequenceError(row.execution_id, row.sequence)
        return DuplicateEnvelopeIdError(row.execution_id, row.id)


@wrong_postgres("postgres-current-version")
class CurrentVersion(StepwiseStore):
    """Stores at the execution's current version and not at the one that its caller gave."""

    PUT = changed(
        StepwiseStore.PUT,
        (
            "VALUES ($1, $2,",
            """SELECT $1, coalesce((
                SELECT max(sequence) + 1 FROM envelopes WHERE execution_id = $1
            ), 0 * $2::bigint),""",
        ),
        ("$7)", "$7"),
    )


@wrong_postgres("postgres-no-transaction")
class NoTransaction(StepwiseStore):
    """Inserts the rows of a batch one after the other, each committed by itself."""

    async def _transact(self, session: Session, rows: Sequence[Row]) -> None:
        await self._check_fences(session, rows)
        for row in rows:
            await session.execute(self.PUT, *row[:7])


@wrong_postgres("postgres-chunked-batch")
class ChunkedBatch(PostgresEventStore):
    """Writes a large batch in chunks, each a transaction."""

    CHUNK = 1000

    async def _write(self, rows: Sequence[Row]) -> None:
        for start in range(0, len(rows), self.CHUNK):
            await super()._write(rows[start : start + self.CHUNK])


@wrong_postgres("postgres-too-many-parameters")
class TooManyParameters(StepwiseStore):
    """Makes one statement with seven parameters a row, of which there may be 32,767."""

    INTO, VALUES = StepwiseStore.PUT.split("VALUES")

    async def _insert(self, session: Session, rows: Sequence[Row]) -> None:
        places = (
            f"({', '.join(f'${7 * number + place}' for place in range(1, 8))})"
            for number in range(len(rows))
        )
        values = [value for row in rows for value in row[:7]]
        await session.execute(f"{self.INTO} VALUES {', '.join(places)}", *values)


@wrong_postgres("postgres-unlogged", base=CrashableServer)
class Unlogged(PostgresEventStore):
    """Keeps envelopes in a table that the server empties after a crash."""

    SCHEMA = changed(
        PostgresEventStore.SCHEMA,
        ("CREATE TABLE IF NOT EXISTS envelopes", "CREATE UNLOGGED TABLE IF NOT EXISTS envelopes"),
    )


@wrong_postgres("postgres-batch-by-executions")
class BatchByExecutions(PostgresEventStore):
    """Writes the executions of a batch one after the other, each in a transaction."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        """Store each execution's part as a batch of its own."""
        parts: dict[str, list[EventEnvelope]] = {}
        for envelope in envelopes:
            parts.setdefault(envelope.execution_id, []).append(envelope)
        for part in parts.values():
            await super().append_batch(part)


@wrong_postgres("postgres-asynchronous-commit", base=CrashableServer)
class AsynchronousCommit(PostgresEventStore):
    """Does not wait for the write-ahead log."""

    SETTINGS = PostgresEventStore.SETTINGS | {"synchronous_commit": "off"}
