"""A handle on one PostgreSQL schema, by asyncpg: its sessions, its patience and its end.

Every call is one statement, and so one round trip and one transaction.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, ClassVar, Final, Self

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from loom_conformance.spi import EventStoreError, OutcomeUnknownError

from ..lifecycle import Calls, finish, opened

RETRIED: Final = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
)
"""Errors by which the server says: rolled back because of others, try again."""

LOST: Final = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InternalClientError,
)
"""Errors that end a session: a statement that was sent may have been committed all the same."""

FAULTS: Final = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""Whatever asyncpg raises; a time-out is an `OSError`."""

CLOSE_WITHIN: Final = 30.0
"""How long `close` waits for calls in flight, in seconds, before it cuts their connections."""


class PostgresHandle:
    """One handle on a schema, with a small pool. The tables are those of its `search_path`."""

    SETTINGS: ClassVar[dict[str, str]] = {"synchronous_commit": "on"}

    SCHEMA: ClassVar[str]
    """Statements that make the tables where they are not there; they run as one transaction."""

    IS_SET_UP: ClassVar[str]
    """A query that says whether they are."""

    def __init__(self, pool: asyncpg.Pool, patience: float) -> None:
        self._pool = pool
        self._patience = patience
        self._calls = Calls()
        self._closing: asyncio.Future[None] | None = None
        self._server_pids: set[int] = set()

    @classmethod
    async def connect(cls, dsn: str, *, max_connections: int = 8, patience: float = 30.0) -> Self:
        """Open a handle, and set the schema up if it is new.

        Args:
            dsn: a PostgreSQL URI; `options=-csearch_path=...` in it chooses a schema.
            max_connections: the size of the pool; a connection is made when it is needed.
            patience: how long, in seconds, a call retries what the server asks to be retried.

        Raises:
            EventStoreError: the server cannot be reached or refuses the connection.
        """
        return await opened(cls._connect(dsn, max_connections, patience))

    @classmethod
    async def _connect(cls, dsn: str, max_connections: int, patience: float) -> Self:
        pids: set[int] = set()

        async def note_pid(connection: asyncpg.Connection) -> None:
            pid = connection.get_server_pid()
            pids.add(pid)
            connection.add_termination_listener(lambda _: pids.discard(pid))

        pool = await asyncpg.create_pool(
            dsn,
            min_size=0,
            max_size=max_connections,
            init=note_pid,
            reset=_keep_as_it_is,
            command_timeout=60,
            server_settings=cls.SETTINGS,
        )
        handle = cls(pool, patience)
        handle._server_pids = pids
        try:
            if not (await handle._run(cls.IS_SET_UP))[0][0]:
                await handle._run_script(cls.SCHEMA)
        except BaseException:
            await handle.close()
            raise
        return handle

    @property
    def server_pids(self) -> frozenset[int]:
        """The process ids of the server's sessions that serve this handle."""
        return frozenset(self._server_pids)

    async def close(self) -> None:
        """Settle what is in flight and end every session."""
        if self._closing is None:
            self._calls.close()
            self._closing = asyncio.ensure_future(self._close())
        await finish(self._closing)

    async def _close(self) -> None:
        try:
            if await self._calls.idle(within=CLOSE_WITHIN):
                await asyncio.wait_for(self._pool.close(), CLOSE_WITHIN)
        except TimeoutError:
            pass
        finally:
            self._pool.terminate()

    async def _run(self, query: str, *arguments: object, writing: bool = False) -> list[Any]:
        """Run one statement in a transaction of its own; again, where the server asks for that."""
        deadline = asyncio.get_running_loop().time() + self._patience
        while True:
            connection = await self._acquire(deadline)
            try:
                return await connection.fetch(query, *arguments)
            except RETRIED as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise EventStoreError(
                        f"PostgreSQL asked for another try for {self._patience} s: {error}"
                    ) from error
            except asyncpg.UniqueViolationError:
                raise
            except FAULTS as error:
                raise self._fault(error, writing=writing) from error
            finally:
                await self._pool.release(connection)
            await asyncio.sleep(random.uniform(0.001, 0.02))

    async def _acquire(self, deadline: float) -> PoolConnectionProxy:
        """A session of the pool. Whatever fails here, nothing was sent."""
        while True:
            try:
                return await self._pool.acquire()
            except asyncpg.TooManyConnectionsError as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise EventStoreError(f"PostgreSQL has no session free: {error}") from error
            except FAULTS as error:
                raise EventStoreError(f"cannot reach PostgreSQL: {error}") from error
            await asyncio.sleep(random.uniform(0.01, 0.1))

    async def _run_script(self, script: str) -> None:
        connection = await self._acquire(deadline=0)
        try:
            await connection.execute(script)
        except FAULTS as error:
            raise self._fault(error, writing=False) from error
        finally:
            await self._pool.release(connection)

    def _fault(self, error: Exception, *, writing: bool) -> EventStoreError:
        """What a driver's error means."""
        if writing and isinstance(error, LOST):
            return OutcomeUnknownError(f"the session ended during a write: {error}")
        return EventStoreError(f"PostgreSQL failed: {error}")


async def _keep_as_it_is(_: object) -> None:
    """Nothing here changes a session, so a pool's reset would be a round trip for nothing."""
