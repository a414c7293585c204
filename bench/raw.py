"""The drivers alone, doing the same durable work: the same tables, no check, no fence, no class."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import aiosqlite
import asyncpg

from loom_backends.postgres import PostgresEventStore
from loom_backends.sqlite import SQLiteEventStore
from loom_conformance.spi import EventEnvelope

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)


def sqlite_row(envelope: EventEnvelope) -> tuple[object, ...]:
    """An envelope as SQLite's driver takes it."""
    return (
        envelope.execution_id,
        envelope.sequence,
        envelope.id,
        envelope.kind,
        (envelope.timestamp - EPOCH) // MILLISECOND,
        json.dumps(envelope.payload),
        json.dumps(envelope.metadata),
    )


def postgres_row(envelope: EventEnvelope) -> tuple[object, ...]:
    """An envelope as asyncpg takes it."""
    return (
        envelope.execution_id,
        envelope.sequence,
        envelope.id,
        envelope.kind,
        envelope.timestamp,
        json.dumps(envelope.payload),
        json.dumps(envelope.metadata),
    )


def with_json(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Rows with their JSON decoded."""
    return [(*row[:-2], json.loads(row[-2]), json.loads(row[-1])) for row in rows]


class RawSQLite:
    """`sqlite3` in this thread and aiosqlite, on two files."""

    INSERT: Final = "INSERT INTO envelopes VALUES (?, ?, ?, ?, ?, ?, ?)"

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def open(self) -> None:
        """Make the files."""
        script = SQLiteEventStore.SETTINGS + SQLiteEventStore.SCHEMA
        self.connection = sqlite3.connect(self._directory / "raw.db", isolation_level=None)
        self.connection.executescript(script)
        self.threaded = await aiosqlite.connect(
            self._directory / "threaded.db", isolation_level=None
        )
        await self.threaded.executescript(script)

    async def close(self) -> None:
        """Close them."""
        self.connection.close()
        await self.threaded.close()

    async def append_all(self, envelopes: Sequence[EventEnvelope]) -> int:
        """One commit a row, in this thread."""
        for envelope in envelopes:
            self.connection.execute(self.INSERT, sqlite_row(envelope))
        return len(envelopes)

    async def append_all_threaded(self, envelopes: Sequence[EventEnvelope]) -> int:
        """One commit a row and one hop to aiosqlite's thread for each."""
        for envelope in envelopes:
            await self.threaded.execute(self.INSERT, sqlite_row(envelope))
        return len(envelopes)

    async def append_batches(self, batches: Sequence[Sequence[EventEnvelope]]) -> int:
        """One commit a batch, in this thread."""
        for batch in batches:
            self.connection.execute("BEGIN IMMEDIATE")
            self.connection.executemany(self.INSERT, map(sqlite_row, batch))
            self.connection.commit()
        return sum(map(len, batches))

    async def read(self, execution_id: str) -> int:
        """One execution, with `json.loads`."""
        rows = await self.threaded.execute_fetchall(
            "SELECT * FROM envelopes WHERE execution_id = ? ORDER BY sequence", (execution_id,)
        )
        return len(with_json(list(rows)))


class RawPostgres:
    """asyncpg on prepared statements: one session, or several."""

    INSERT: Final = "INSERT INTO envelopes VALUES ($1, $2, $3, $4, $5, $6, $7)"
    INSERT_MANY: Final = """
        INSERT INTO envelopes SELECT * FROM unnest(
            $1::text[], $2::bigint[], $3::text[], $4::text[],
            $5::timestamptz[], $6::text[], $7::text[]
        )
    """

    def __init__(self, address: str, sessions: int = 8) -> None:
        self._address = address
        self._count = sessions

    async def open(self) -> None:
        """Connect, on tables that the store makes."""
        await (await PostgresEventStore.connect(self._address)).close()
        settings = PostgresEventStore.SETTINGS
        self.sessions = [
            await asyncpg.connect(self._address, server_settings=settings)
            for _ in range(self._count)
        ]
        self.inserts = [await session.prepare(self.INSERT) for session in self.sessions]
        self.insert_many = await self.sessions[0].prepare(self.INSERT_MANY)

    async def close(self) -> None:
        """End the sessions."""
        for session in self.sessions:
            await session.close()

    async def append_all(self, envelopes: Sequence[EventEnvelope], number: int = 0) -> int:
        """One commit a row, on one session."""
        for envelope in envelopes:
            await self.inserts[number].fetch(*postgres_row(envelope))
        return len(envelopes)

    async def append_spread(self, envelopes: Sequence[EventEnvelope]) -> int:
        """One commit a row, on all sessions at once."""
        parts = [envelopes[number :: self._count] for number in range(self._count)]
        return sum(
            await asyncio.gather(*(self.append_all(part, n) for n, part in enumerate(parts)))
        )

    async def append_batches(self, batches: Sequence[Sequence[EventEnvelope]]) -> int:
        """One commit a batch, by `unnest`."""
        for batch in batches:
            await self.insert_many.fetch(*zip(*map(postgres_row, batch), strict=True))
        return sum(map(len, batches))

    async def read(self, execution_id: str) -> int:
        """One execution, with `json.loads`."""
        rows = await self.sessions[0].fetch(
            "SELECT * FROM envelopes WHERE execution_id = $1 ORDER BY sequence", execution_id
        )
        return len(with_json(rows))
