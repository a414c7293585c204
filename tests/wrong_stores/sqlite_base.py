"""Backends over SQLite stores with one thing changed, and the store as most would write it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from loom_backends.lifecycle import finish
from loom_backends.sqlite import SQLiteBackend, SQLiteEventStore
from loom_backends.sqlite.handle import AtomicConnection, RowRefusedError
from loom_backends.sqlite.store import Row
from loom_conformance.spi import FENCE_KEY, EventEnvelope, StaleFenceError, encode_json

from .registry import backend_of, variant, wrong

S = TypeVar("S", bound=type[SQLiteEventStore])

IN_MEMORY: Final = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None
"""A directory in the machine's memory, where there is one: a sync costs nothing there."""

PATHS: Final = ("append", "batch-first", "batch-last", "coalesced-append")
"""Enough of the ways in: what sets these stores apart lies below them."""


def changed(text: str, *changes: tuple[str, str]) -> str:
    """A statement with parts of it replaced.

    Raises:
        ValueError: a part is not there, so the fault would not be either.
    """
    for before, after in changes:
        if before not in text:
            raise ValueError(f"the statement has no {before!r}: {text}")
        text = text.replace(before, after)
    return text


class InMemoryFiles(SQLiteBackend):
    """Files in the machine's memory, where that can be had."""

    def __init__(self) -> None:
        self._opened: list[SQLiteEventStore] = []

    async def create(self) -> str:
        """Name a file in a new directory."""
        return str(Path(tempfile.mkdtemp(prefix="loom-wrong-", dir=IN_MEMORY)) / "store.db")

    async def connect(self, address: str) -> SQLiteEventStore:
        """Open a handle, and remember it: some wrong stores do not end their threads."""
        handle = await super().connect(address)
        self._opened.append(handle)
        return handle

    async def stop(self) -> None:
        """End the threads that keep the process alive."""
        for handle in self._opened:
            await handle._connection.close()


def wrong_sqlite(
    claim: str,
    *,
    base: type[SQLiteBackend] = InMemoryFiles,
    deadline: float = 10.0,
    paths: tuple[str, ...] = PATHS,
    **declarations: Any,
) -> Callable[[S], S]:
    """Enter a SQLite store's class as the wrong store of a claim."""

    def enter(store: S) -> S:
        wrong(claim, deadline=deadline, paths=paths)(backend_of(store, base, **declarations))
        return store

    return enter


def correct_sqlite(
    name: str, *, advice: tuple[str, ...] = (), **declarations: Any
) -> Callable[[S], S]:
    """Enter a SQLite store's class as a correct variant."""

    def enter(store: S) -> S:
        variant(name, advice=advice, paths=PATHS)(backend_of(store, InMemoryFiles, **declarations))
        return store

    return enter


class OwnTokens(SQLiteEventStore):
    """A store that reads `metadata["fence"]` in a way of its own."""

    def _encode(self, envelope: EventEnvelope) -> Row:
        metadata: Any = envelope.metadata
        if not isinstance(metadata, dict) or FENCE_KEY not in metadata:
            return super()._encode(envelope)
        bare = {key: value for key, value in metadata.items() if key != FENCE_KEY}
        row = super()._encode(replace(envelope, metadata=bare))
        fence = self._token(metadata[FENCE_KEY])
        return row._replace(metadata=encode_json(metadata), fence=fence)

    def _token(self, given: object) -> int | None:
        """The token that stands there."""
        raise NotImplementedError


class OpenEndedConnection(AtomicConnection):
    """A connection that leaves transactions to its user."""

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]], /) -> sqlite3.Cursor:  # type: ignore[override]
        """Write `rows` one by one, up to the first that is refused."""
        cursor = self._insert(sql, rows)
        cursor.close()
        return cursor


@correct_sqlite("sqlite-stepwise")
class StepwiseStore(SQLiteEventStore):
    """A hop for each step, all in one transaction, under a lock of the handle."""

    CONNECTION: ClassVar[type[sqlite3.Connection]] = OpenEndedConnection

    # Polls for the lock: a thread that waits for it cannot be told from one that works.
    SETTINGS = SQLiteEventStore.SETTINGS + "PRAGMA busy_timeout = 0;"

    BEGIN = "BEGIN IMMEDIATE"

    PUT = SQLiteEventStore.INSERT.partition("WHERE")[0]
    """The statement without its own check of the fence."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._turn = asyncio.Lock()

    async def _fetch(self, sql: str, *parameters: object, writing: bool = False) -> list[Any]:
        async with self._turn:
            return await super()._fetch(sql, *parameters, writing=writing)

    async def _write(self, rows: Sequence[Row]) -> None:
        async with self._turn:
            await self._transact(rows)

    async def _transact(self, rows: Sequence[Row]) -> None:
        try:
            await self._begin()
            await self._check_fences(rows)
            await self._insert(rows)
            await self._commit()
        except sqlite3.Error as error:
            raise self._fault(error, writing=True) from error
        finally:
            await finish(self._connection.rollback())

    async def _begin(self) -> None:
        await self._patiently(lambda: self._connection.execute_fetchall(self.BEGIN))

    async def _check_fences(self, rows: Sequence[Row]) -> None:
        for execution_id, given in dict.fromkeys((row.execution_id, row.fence) for row in rows):
            current = await self._current(execution_id)
            if given != current:
                raise StaleFenceError(execution_id, given, current)

    async def _current(self, execution_id: str) -> int | None:
        found = list(await self._connection.execute_fetchall(self.CURRENT, (execution_id,)))
        return found[0][0] if found else None

    async def _insert(self, rows: Sequence[Row]) -> None:
        try:
            await self._connection.executemany(self.PUT, rows)
        except RowRefusedError as refused:
            raise self._conflict(refused.row, refused.error) from refused.error

    async def _commit(self) -> None:
        await self._connection.commit()
