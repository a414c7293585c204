"""Stores that are right in one process and wrong in two."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from loom_conformance.spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    StaleFenceError,
    check_key,
    decode_json,
    encode_json,
)

from .faulty_base import PlainStore, Row, faulty

_LOCKS: dict[tuple[str, asyncio.AbstractEventLoop], asyncio.Lock] = {}


WORK = 0.002
"""How long the work between check and insert lasts, in seconds: a round trip, a slow disk."""

EARLY = 30
"""Later envelopes of a log are spared that: writing thousands would take long."""


def process_lock(path: str) -> asyncio.Lock:
    """The one lock of this process for a file."""
    return _LOCKS.setdefault((path, asyncio.get_running_loop()), asyncio.Lock())


class WithoutIndexes(PlainStore):
    """Tables without any constraint, as an application makes them that checks by itself."""

    SCHEMA: ClassVar[str] = """
        CREATE TABLE IF NOT EXISTS envelopes (
            execution_id TEXT NOT NULL, sequence INTEGER NOT NULL, id TEXT NOT NULL,
            kind TEXT NOT NULL, timestamp INTEGER NOT NULL, payload TEXT NOT NULL,
            metadata TEXT NOT NULL
        );
        CREATE INDEX IF NOT EXISTS slots ON envelopes (execution_id, sequence);
        CREATE INDEX IF NOT EXISTS ids ON envelopes (id);
        CREATE TABLE IF NOT EXISTS fences (execution_id TEXT PRIMARY KEY, token INTEGER NOT NULL);
    """

    def _check_unique(self, rows: Sequence[Row]) -> None:
        slots: set[Row] = set()
        ids: set[object] = set()
        for row in rows:
            if row[:2] in slots or self._finds("execution_id = ? AND sequence = ?", row[:2]):
                raise DuplicateSequenceError(row[0], row[1])
            if row[2] in ids or self._finds("id = ?", (row[2],)):
                raise DuplicateEnvelopeIdError(row[0], row[2])
            slots.add(row[:2])
            ids.add(row[2])

    def _finds(self, condition: str, values: Row) -> bool:
        query = f"SELECT 1 FROM envelopes WHERE {condition}"
        return self.connection.execute(query, values).fetchone() is not None


_COUNTERS: dict[str, dict[str, int]] = {}


@faulty("counts-tokens-in-the-process", load=False)
class CountsTokensInTheProcess(PlainStore):
    """Counts tokens in the process, from those that the storage held when it was first opened."""

    def _connected(self, path: str) -> sqlite3.Connection:
        connection = super()._connected(path)
        if path not in _COUNTERS:
            _COUNTERS[path] = dict(connection.execute("SELECT * FROM fences").fetchall())
        return connection

    def _acquire(self, execution_id: str) -> int:
        counters = _COUNTERS[self.path]
        counters[execution_id] = counters.get(execution_id, 0) + 1
        self.connection.execute(
            "INSERT INTO fences VALUES (?, ?)"
            " ON CONFLICT (execution_id) DO UPDATE SET token = max(token, excluded.token)",
            (execution_id, counters[execution_id]),
        )
        return counters[execution_id]


@faulty("acquires-in-two-steps", load=False)
class AcquiresInTwoSteps(PlainStore):
    """Keeps the token in a file of its own, which it reads and then replaces, under no lock."""

    def _file(self, execution_id: str) -> Path:
        return Path(f"{self.path}-{hashlib.sha256(execution_id.encode()).hexdigest()}")

    def _current(self, execution_id: str) -> int | None:
        try:
            return int(self._file(execution_id).read_text())
        except FileNotFoundError:
            return None

    async def acquire_fence(self, execution_id: str, /) -> int:
        self._check_open()
        check_key("execution_id", execution_id)
        token = (self._current(execution_id) or 0) + 1
        file = self._file(execution_id)
        partial = file.with_suffix(f".{os.getpid()}")
        with partial.open("w") as new:
            new.write(str(token))
            new.flush()
            os.fsync(new.fileno())
        partial.replace(file)
        return token


_TOKENS: dict[tuple[str, str], int | None] = {}


@faulty("fence-cached-in-the-process", load=False)
class FenceCachedInTheProcess(PlainStore):
    """Remembers the current token, and hears of no acquire but its own process's."""

    def _acquire(self, execution_id: str) -> int:
        token = super()._acquire(execution_id)
        _TOKENS[self.path, execution_id] = token
        return token

    def _check_fences(self, rows: Sequence[Row]) -> None:
        for row in rows:
            key = (self.path, row[0])
            if key not in _TOKENS:
                _TOKENS[key] = self._current(row[0])
            if row[7] != _TOKENS[key]:
                raise StaleFenceError(row[0], row[7], _TOKENS[key])


_LOGS: dict[tuple[str, str], list[EventEnvelope]] = {}


@faulty("log-cached-in-the-process")
class LogCachedInTheProcess(PlainStore):
    """Reads an execution once, and keeps it up to date with its own process's writes only."""

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        key = (self.path, execution_id)
        if key not in _LOGS:
            found = super()._read(execution_id, 0, 2**53)
            if not found:
                return []
            _LOGS[key] = found
        return [_copied(envelope) for envelope in _LOGS[key] if first <= envelope.sequence <= last]

    def _insert(self, rows: Sequence[Row]) -> None:
        super()._insert(rows)
        for execution_id in {row[0] for row in rows}:
            if (self.path, execution_id) in _LOGS:
                _LOGS[self.path, execution_id] = super()._read(execution_id, 0, 2**53)

    @contextmanager
    def _begun(self, connection: object) -> Iterator[None]:
        before = dict(_LOGS)
        try:
            with super()._begun(connection):  # type: ignore[arg-type]
                yield
        except BaseException:
            _LOGS.clear()
            _LOGS.update(before)
            raise


def _copied(envelope: EventEnvelope) -> EventEnvelope:
    return EventEnvelope.from_json(_json(envelope))


def _json(envelope: EventEnvelope) -> dict[str, object]:
    told: dict[str, object] = dict(envelope.to_json())
    for name in ("payload", "metadata"):
        told[name] = decode_json(encode_json(told[name]))
    return told


_FENCES: defaultdict[str, dict[str, int]] = defaultdict(dict)


@faulty("fences-in-memory", load=False)
class FencesInMemory(PlainStore):
    """Keeps the fences in the process: they hold for all its handles and end with it."""

    def _acquire(self, execution_id: str) -> int:
        fences = _FENCES[self.path]
        fences[execution_id] = fences.get(execution_id, 0) + 1
        return fences[execution_id]

    def _current(self, execution_id: str) -> int | None:
        return _FENCES[self.path].get(execution_id)
