"""SQLite stores that confuse ids, or forget them."""

from __future__ import annotations

import unicodedata
import uuid
from dataclasses import replace

from loom_backends.sqlite import SQLiteEventStore
from loom_backends.sqlite.store import Row
from loom_conformance.spi import EventEnvelope

from .sqlite_base import changed, wrong_sqlite

EXECUTION_ID = "execution_id TEXT NOT NULL"
ID = "id TEXT NOT NULL UNIQUE"


@wrong_sqlite("sqlite-id-without-key")
class IdWithoutKey(SQLiteEventStore):
    """Has no unique key on the envelope id."""

    SCHEMA = changed(SQLiteEventStore.SCHEMA, (ID, "id TEXT NOT NULL"))


@wrong_sqlite("sqlite-id-per-execution")
class IdPerExecution(SQLiteEventStore):
    """Keeps ids unique in an execution, and says that they are in the store."""

    SCHEMA = changed(
        SQLiteEventStore.SCHEMA,
        (ID, "id TEXT NOT NULL"),
        (
            "PRIMARY KEY (execution_id, sequence)",
            "PRIMARY KEY (execution_id, sequence), UNIQUE (execution_id, id)",
        ),
    )


@wrong_sqlite("sqlite-recent-ids")
class RecentIds(SQLiteEventStore):
    """Holds new ids against the last thousand."""

    SCHEMA = (
        changed(SQLiteEventStore.SCHEMA, (ID, "id TEXT NOT NULL"))
        + """
        CREATE TABLE IF NOT EXISTS recent_ids (
            place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE
        );
        CREATE TRIGGER IF NOT EXISTS remember_id AFTER INSERT ON envelopes BEGIN
            INSERT INTO recent_ids (id) VALUES (new.id);
            DELETE FROM recent_ids WHERE place <= (SELECT max(place) FROM recent_ids) - 1000;
        END;
        """
    )


@wrong_sqlite("sqlite-nocase")
class NoCase(SQLiteEventStore):
    """Compares keys without regard to case, as many a database does by default."""

    SCHEMA = changed(
        SQLiteEventStore.SCHEMA,
        (EXECUTION_ID, "execution_id TEXT COLLATE NOCASE NOT NULL"),
        (ID, "id TEXT COLLATE NOCASE NOT NULL UNIQUE"),
    )


@wrong_sqlite("sqlite-rtrim")
class RightTrim(SQLiteEventStore):
    """Compares keys without the spaces at their ends, as a padded column does."""

    SCHEMA = changed(
        SQLiteEventStore.SCHEMA,
        (EXECUTION_ID, "execution_id TEXT COLLATE RTRIM NOT NULL"),
        (ID, "id TEXT COLLATE RTRIM NOT NULL UNIQUE"),
    )


@wrong_sqlite("sqlite-normalises-keys")
class NormalisesKeys(SQLiteEventStore):
    """Brings execution ids into Unicode's normal form C."""

    def _encode(self, envelope: EventEnvelope) -> Row:
        row = super()._encode(envelope)
        return row._replace(execution_id=unicodedata.normalize("NFC", row.execution_id))

    async def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        found = await super()._read(unicodedata.normalize("NFC", execution_id), first, last)
        return [replace(envelope, execution_id=execution_id) for envelope in found]

    async def acquire_fence(self, execution_id: str, /) -> int:
        """The execution's new current token."""
        return await super().acquire_fence(unicodedata.normalize("NFC", execution_id))


@wrong_sqlite("sqlite-key-prefix")
class KeyPrefix(SQLiteEventStore):
    """Reads all keys that begin with the execution's id, as a key-value store scans a prefix."""

    READ = """
        SELECT sequence, id, kind, timestamp, payload, metadata
        FROM (SELECT ? AS prefix) JOIN envelopes
            ON execution_id >= prefix AND execution_id < prefix || char(1114111)
        WHERE sequence BETWEEN ? AND ? ORDER BY sequence
    """


@wrong_sqlite("sqlite-ids-of-the-process")
class IdsOfTheProcess(SQLiteEventStore):
    """Tells ids apart by what this process has written: a restart forgets them all."""

    PROCESS = uuid.uuid4().hex

    SCHEMA = changed(
        SQLiteEventStore.SCHEMA,
        (ID, "id TEXT NOT NULL, process TEXT NOT NULL"),
        (
            "PRIMARY KEY (execution_id, sequence)",
            "PRIMARY KEY (execution_id, sequence), UNIQUE (id, process)",
        ),
    )
    INSERT = changed(
        SQLiteEventStore.INSERT,
        ("payload, metadata)", "payload, metadata, process)"),
        ("timestamp, payload, metadata\n", f"timestamp, payload, metadata, '{PROCESS}'\n"),
    )
