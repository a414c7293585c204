"""PostgreSQL stores that confuse keys, alter values or read them in the wrong order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loom_backends.postgres import PostgresEventStore
from loom_conformance.spi import EventEnvelope

from .postgres_base import StepwiseStore, wrong_postgres
from .sqlite_base import changed

EXECUTION_ID = 'execution_id text COLLATE "C"'
ID = 'id text COLLATE "C" NOT NULL,'


@wrong_postgres("postgres-jsonb")
class Jsonb(StepwiseStore):
    """Keeps payloads as `jsonb`: numbers without their form, and no U+0000."""

    SCHEMA = changed(PostgresEventStore.SCHEMA, ("payload text", "payload jsonb"))


@wrong_postgres("postgres-cut-keys")
class CutKeys(StepwiseStore):
    """Casts keys to a length, which PostgreSQL does by cutting them."""

    PUT = changed(StepwiseStore.PUT, ("VALUES ($1, $2,", "VALUES ($1::varchar(64), $2,"))
    READ = changed(StepwiseStore.READ, ("execution_id = $1", "execution_id = $1::varchar(64)"))


@wrong_postgres("postgres-padded-keys")
class PaddedKeys(StepwiseStore):
    """Keeps execution ids in a column of a fixed length: spaces at their ends do not count."""

    SCHEMA = changed(PostgresEventStore.SCHEMA, (EXECUTION_ID, "execution_id character(255)"))
    ENTER = changed(StepwiseStore.ENTER, ("VALUES ($1)", "VALUES ($1::text)"))


@wrong_postgres("postgres-integer-sequence")
class IntegerSequence(PostgresEventStore):
    """Keeps the sequence in a column of 32 bits."""

    SCHEMA = changed(
        PostgresEventStore.SCHEMA, ("sequence bigint NOT NULL", "sequence integer NOT NULL")
    )
    READ = changed(PostgresEventStore.READ, ("$2 AND $3", "$2::bigint AND $3::bigint"))


@wrong_postgres("postgres-real-sequence")
class RealSequence(StepwiseStore):
    """Keeps the sequence in a column of floats."""

    SCHEMA = changed(
        PostgresEventStore.SCHEMA, ("sequence bigint NOT NULL", "sequence real NOT NULL")
    )
    READ = changed(StepwiseStore.READ, ("$2 AND $3", "$2::bigint AND $3::bigint"))

    def _decode(self, execution_id: str, record: Sequence[Any]) -> EventEnvelope:
        return super()._decode(execution_id, [int(record[0]), *record[1:]])


@wrong_postgres("postgres-local-time")
class LocalTime(PostgresEventStore):
    """Keeps timestamps without their zone, in that of the session, which has a summer time."""

    SETTINGS = PostgresEventStore.SETTINGS | {"timezone": "Europe/Berlin"}
    SCHEMA = changed(PostgresEventStore.SCHEMA, ("timestamp timestamptz", "timestamp timestamp"))
    APPEND = changed(PostgresEventStore.APPEND, ("$4, $5,", "$4, $5::timestamptz,"))
    READ = changed(PostgresEventStore.READ, ("kind, timestamp,", "kind, timestamp::timestamptz,"))


@wrong_postgres("postgres-like-prefix")
class LikePrefix(PostgresEventStore):
    """Finds an execution by `LIKE`, for which `%` and `_` stand for anything."""

    READ = changed(PostgresEventStore.READ, ("execution_id = $1", "execution_id LIKE $1"))


@wrong_postgres("postgres-ordered-by-arrival")
class OrderedByArrival(StepwiseStore):
    """Reads in the order of writing, by a number that the table gives."""

    SCHEMA = changed(
        PostgresEventStore.SCHEMA,
        ("metadata text NOT NULL,", "metadata text NOT NULL, position bigserial,"),
    )
    READ = changed(PostgresEventStore.READ, ("ORDER BY sequence", "ORDER BY position"))

    async def append_batch(self, envelopes: Any, /) -> None:
        """Store all envelopes in the order in which they come."""
        rows = [self._encode(envelope) for envelope in envelopes]
        with self._calls:
            if rows:
                await self._write(rows)
