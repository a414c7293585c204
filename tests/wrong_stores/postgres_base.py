"""Backends over PostgreSQL stores with one thing changed, and the store as most would write it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, Literal, TypeVar

from loom_backends.lifecycle import finish
from loom_backends.postgres import PostgresBackend, PostgresEventStore
from loom_backends.postgres.discovery import find
from loom_backends.postgres.handle import Session
from loom_backends.postgres.server import LocalServer, Server, start
from loom_backends.postgres.store import Row
from loom_conformance.spi import StaleFenceError

from .registry import backend_of, variant, wrong
from .sqlite_base import IN_MEMORY

S = TypeVar("S", bound=type[PostgresEventStore])


PATHS: Final = ("append", "batch-middle", "coalesced-append")
"""One way in of each kind: what sets these stores apart lies below them."""


@cache
def server() -> Server:
    """One server for all stores of this process; it ends with the process.

    Its files are in the machine's memory where that can be had: a sync costs nothing there.
    """
    source = find()
    if source.dsn is None and source.binaries is not None and IN_MEMORY is not None:
        return LocalServer(source.binaries, within=IN_MEMORY)
    return start(source)


class SharedServer(PostgresBackend):
    """Schemas on a server that outlives the session."""

    async def start(self) -> None:
        """Take the server that is there."""
        self._server = await asyncio.to_thread(server)

    async def stop(self) -> None:
        """Leave it to the next store."""
        self._server = None


class CrashableServer(PostgresBackend):
    """Schemas on a server of the session's own, which may be killed."""

    async def start(self) -> None:
        """Start it, and offer to crash it."""
        source = find()
        if source.binaries is not None:
            self._server = await asyncio.to_thread(LocalServer, source.binaries, IN_MEMORY)
        await super().start()


def wrong_postgres(
    claim: str,
    *,
    base: type[PostgresBackend] = SharedServer,
    deadline: float = 10.0,
    paths: tuple[str, ...] = PATHS,
    **declarations: Any,
) -> Callable[[S], S]:
    """Enter a PostgreSQL store's class as the wrong store of a claim."""

    def enter(store: S) -> S:
        wrong(claim, deadline=deadline, paths=paths)(backend_of(store, base, **declarations))
        return store

    return enter


def correct_postgres(
    name: str, *, advice: tuple[str, ...] = (), **declarations: Any
) -> Callable[[S], S]:
    """Enter a PostgreSQL store's class as a correct variant."""

    def enter(store: S) -> S:
        variant(name, advice=advice, paths=PATHS)(backend_of(store, SharedServer, **declarations))
        return store

    return enter


@correct_postgres("postgres-stepwise")
class StepwiseStore(PostgresEventStore):
    """A statement for each step, all in one transaction."""

    ISOLATION: Literal["read_committed", "serializable"] = "read_committed"

    ENTER = "INSERT INTO executions (execution_id) VALUES ($1) ON CONFLICT DO NOTHING"

    CURRENT = "SELECT token FROM executions WHERE execution_id = $1 FOR SHARE"

    PUT = """
        INSERT INTO envelopes (execution_id, sequence, id, kind, timestamp, payload, metadata)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
    """

    async def _write_one(self, row: Row) -> None:
        await self._write_many([row])

    async def _write_many(self, rows: Sequence[Row]) -> None:
        await self._patiently(lambda session: self._settled(session, rows), writing=True)

    async def _settled(self, session: Session, rows: Sequence[Row]) -> None:
        try:
            await self._transact(session, rows)
        except asyncio.CancelledError:
            await finish(self._leave(session))
            raise

    async def _leave(self, session: Session) -> None:
        """Give up a session whose `BEGIN` may have been under way when its call was cancelled."""
        await self._settle(session)
        session.terminate()

    async def _transact(self, session: Session, rows: Sequence[Row]) -> None:
        async with session.transaction(isolation=self.ISOLATION):
            await self._check_fences(session, rows)
            await self._insert(session, rows)

    async def _check_fences(self, session: Session, rows: Sequence[Row]) -> None:
        for execution_id, given in dict.fromkeys((row.execution_id, row.fence) for row in rows):
            current = await self._current(session, execution_id)
            if given != current:
                raise StaleFenceError(execution_id, given, current)

    async def _current(self, session: Session, execution_id: str) -> int | None:
        await session.execute(self.ENTER, execution_id)
        token: int | None = await session.fetchval(self.CURRENT, execution_id)
        return token

    async def _insert(self, session: Session, rows: Sequence[Row]) -> None:
        await session.executemany(self.PUT, [row[:7] for row in rows])
