"""SQLite stores that read too little, too much, in the wrong order or too late."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import aiosqlite

from loom_backends.sqlite import SQLiteEventStore
from loom_conformance.spi import EventEnvelope

from .sqlite_base import changed, wrong_sqlite

WITH_ROWID = changed(
    SQLiteEventStore.SCHEMA,
    (
        "            PRIMARY KEY (execution_id, sequence)\n        ) WITHOUT ROWID;",
        "            PRIMARY KEY (execution_id, sequence)\n        );",
    ),
)
"""The tables, of which the first keeps the order in which its rows came."""


@wrong_sqlite("sqlite-text-sequence")
class TextSequence(SQLiteEventStore):
    """Keeps the sequence as text: 10 comes before 2."""

    SCHEMA = changed(
        SQLiteEventStore.SCHEMA, ("sequence INTEGER NOT NULL", "sequence TEXT NOT NULL")
    )
    READ = changed(
        SQLiteEventStore.READ,
        ("sequence BETWEEN ? AND ?", "CAST(sequence AS INTEGER) BETWEEN ? AND ?"),
    )

    def _decode(self, execution_id: str, row: Sequence[Any]) -> EventEnvelope:
        return super()._decode(execution_id, [int(row[0]), *row[1:]])


@wrong_sqlite("sqlite-ordered-by-time")
class OrderedByTime(SQLiteEventStore):
    """Reads in the order of the timestamps."""

    READ = changed(SQLiteEventStore.READ, ("ORDER BY sequence", "ORDER BY timestamp, sequence"))


@wrong_sqlite("sqlite-limited-read")
class LimitedRead(SQLiteEventStore):
    """Reads a page, and no more than one."""

    READ = f"{SQLiteEventStore.READ.rstrip()} LIMIT 1000"


@wrong_sqlite("sqlite-range-without-its-end")
class RangeWithoutItsEnd(SQLiteEventStore):
    """Reads a range as Python counts one: without its end."""

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        """The envelopes from `first` to the one before `last`."""
        return await self._read(execution_id, first, last - 1)


@wrong_sqlite("sqlite-old-snapshot")
class OldSnapshot(SQLiteEventStore):
    """Reads on a connection of its own, whose transaction ends when this handle writes."""

    _reader: aiosqlite.Connection | None = None
    _path: str | Path

    @classmethod
    async def _open(cls, path: str | Path, patience: float) -> Self:
        handle = await super()._open(path, patience)
        handle._path = path
        return handle

    async def _fetch(self, sql: str, *parameters: object, writing: bool = False) -> list[Any]:
        if writing or sql != self.READ:
            await self._end_snapshot()
            return await super()._fetch(sql, *parameters, writing=writing)
        if self._reader is None:
            self._reader = await aiosqlite.connect(self._path, isolation_level=None)
        if not self._reader.in_transaction:
            await self._reader.execute_fetchall("BEGIN")
        return list(await self._reader.execute_fetchall(sql, parameters))

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Store one envelope, and let go of what was read before."""
        await super().append(envelope)
        await self._end_snapshot()

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        """Store all or none, and let go of what was read before."""
        await super().append_batch(envelopes)
        await self._end_snapshot()

    async def _end_snapshot(self) -> None:
        if self._reader is not None:
            await self._reader.rollback()

    async def _close(self) -> None:
        await super()._close()
        if self._reader is not None:
            await self._reader.close()


@wrong_sqlite("sqlite-shared-objects")
class SharedObjects(SQLiteEventStore):
    """Decodes an envelope once and hands the same object to everyone who reads it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._decoded: dict[tuple[str, int], EventEnvelope] = {}

    def _decode(self, execution_id: str, row: Sequence[Any]) -> EventEnvelope:
        key = (execution_id, row[0])
        if key not in self._decoded:
            self._decoded[key] = super()._decode(execution_id, row)
        return copy.copy(self._decoded[key])


@wrong_sqlite("sqlite-encodes-late")
class EncodesLate(SQLiteEventStore):
    """Asks first whether the connection is alive, and looks at the values after that."""

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Store the envelope as it has become by then."""
        with self._calls:
            await self._fetch("SELECT 1")
        await super().append(envelope)

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        """Store the envelopes as they have become by then."""
        listed = list(envelopes)
        with self._calls:
            await self._fetch("SELECT 1")
        await super().append_batch(listed)
