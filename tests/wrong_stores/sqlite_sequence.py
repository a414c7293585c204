"""SQLite stores that lose a slot, or the place that the caller named."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import NoReturn

from loom_backends.sqlite import SQLiteEventStore
from loom_backends.sqlite.store import Row
from loom_conformance.spi import DuplicateEnvelopeIdError, DuplicateSequenceError

from .sqlite_base import InMemoryFiles, StepwiseStore, changed, wrong_sqlite

WITHOUT_SLOT_KEY = changed(
    SQLiteEventStore.SCHEMA,
    (
        "            metadata TEXT NOT NULL,\n"
        "            PRIMARY KEY (execution_id, sequence)\n"
        "        ) WITHOUT ROWID;",
        "            metadata TEXT NOT NULL\n        );\n"
        "        CREATE INDEX IF NOT EXISTS by_slot ON envelopes (execution_id, sequence);",
    ),
)
"""The tables with an index on the slot that is not unique."""

WITHOUT_KEYS = (
    changed(WITHOUT_SLOT_KEY, ("id TEXT NOT NULL UNIQUE", "id TEXT NOT NULL"))
    + "CREATE INDEX IF NOT EXISTS by_id ON envelopes (id);"
)
"""The tables with indexes none of which is unique."""


@wrong_sqlite("sqlite-upsert")
class Upsert(SQLiteEventStore):
    """Replaces the envelope that is there."""

    INSERT = changed(SQLiteEventStore.INSERT, ("INSERT INTO", "INSERT OR REPLACE INTO"))


@wrong_sqlite("sqlite-ignores-conflicts")
class IgnoresConflicts(StepwiseStore):
    """Skips the row that is taken and does not look at the count."""

    PUT = changed(StepwiseStore.PUT, ("INSERT INTO", "INSERT OR IGNORE INTO"))


@wrong_sqlite("sqlite-slot-without-key")
class SlotWithoutKey(SQLiteEventStore):
    """Has no unique key on the slot."""

    SCHEMA = WITHOUT_SLOT_KEY


class OldTableBackend(InMemoryFiles):
    """Files whose table was made by a version that had no keys yet."""

    async def create(self) -> str:
        """Make the file as the old version did."""
        address = await super().create()
        connection = sqlite3.connect(address)
        try:
            connection.executescript(WITHOUT_KEYS)
        finally:
            connection.close()
        return address


@wrong_sqlite("sqlite-old-table", base=OldTableBackend)
class OldTable(SQLiteEventStore):
    """Its `CREATE TABLE IF NOT EXISTS` leaves a table without keys as it is."""


@wrong_sqlite("sqlite-renumbers")
class Renumbers(SQLiteEventStore):
    """Stores at the execution's next sequence, whatever the caller gave."""

    INSERT = changed(
        SQLiteEventStore.INSERT,
        (
            "SELECT execution_id, sequence, id,",
            """SELECT execution_id, coalesce((
                SELECT max(sequence) + 1 FROM envelopes WHERE execution_id = new.execution_id
            ), 0), id,""",
        ),
    )


@wrong_sqlite("sqlite-check-then-insert")
class CheckThenInsert(StepwiseStore):
    """Looks whether slot and id are free, and takes the lock after that; no key holds it."""

    SCHEMA = WITHOUT_KEYS

    TAKEN = """
        SELECT new.place, old.sequence IS NOT NULL FROM (
            SELECT key AS place, value ->> 0 AS execution_id, value ->> 1 AS sequence,
                value ->> 2 AS id
            FROM json_each(?)
        ) AS new
        LEFT JOIN envelopes AS old USING (execution_id, sequence)
        LEFT JOIN envelopes AS other ON other.id = new.id
        WHERE old.id IS NOT NULL OR other.id IS NOT NULL
        ORDER BY new.place LIMIT 1
    """

    async def _transact(self, rows: Sequence[Row]) -> None:
        await self._check_fences(rows)
        found = await self._connection.execute_fetchall(self.TAKEN, (json.dumps(rows),))
        for place, slot_is_taken in found:
            self._refuse(rows[place], slot_is_taken)
        slots, ids = set[tuple[str, int]](), set[str]()
        for row in rows:
            if row[:2] in slots or row.id in ids:
                self._refuse(row, row[:2] in slots)
            slots.add(row[:2])
            ids.add(row.id)
        await super()._transact(rows)

    def _refuse(self, row: Row, slot_is_taken: bool) -> NoReturn:
        if slot_is_taken:
            raise DuplicateSequenceError(row.execution_id, row.sequence)
        raise DuplicateEnvelopeIdError(row.execution_id, row.id)
