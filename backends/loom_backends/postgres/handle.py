"""A handle on one PostgreSQL schema, by asyncpg: its sessions, its patience and its end.

Every call is one statement, and so one round trip and one transaction. Sessions are kept by the
handle itself: asyncpg's pool spends a task and a reset on each release, and nothing here leaves
anything to reset.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Final, Self, TypeAlias, TypeVar

import asyncpg

from loom_conformance.spi import EventStoreError, OutcomeUnknownError

from ..lifecycle import Calls, finish, opened

T = TypeVar("T")
Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

RETRIED: Final = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.TooManyConnectionsError,
)
"""Errors by which the server says: nothing was done because of others, try again."""

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

CONNECT_WITHIN: Final = 30.0
COMMAND_WITHIN: Final = 60.0
"""How long the server may take for a session, and for one statement, locks included (seconds)."""

SETTLE_WITHIN: Final = 5.0
"""How long a cancelled call waits for the server's last word before it cuts the session."""

CLOSE_WITHIN: Final = 10.0
"""How long `close` waits for calls in flight, in seconds, before it cuts their connections."""


class PostgresHandle:
    """One handle on a schema, with a few sessions. The tables are those of the `search_path`."""

    SETTINGS: ClassVar[dict[str, str]] = {"synchronous_commit": "on"}

    SCHEMA: ClassVar[str]
    """Statements that make the tables where they are not there; they run as one transaction."""

    IS_SET_UP: ClassVar[str]
    """A query that says whether they are."""

    def __init__(self, dsn: str, max_sessions: int = 8, patience: float = 30.0) -> None:
        self._dsn = dsn
        self._patience = patience
        self._limit = asyncio.Semaphore(max_sessions)
        self._sessions: set[Session] = set()
        self._idle: list[Session] = []
        self._calls = Calls()
        self._closing: asyncio.Future[None] | None = None

    @classmethod
    async def connect(cls, dsn: str, *, max_sessions: int = 8, patience: float = 30.0) -> Self:
        """Open a handle, and set the schema up if it is new.

        Args:
            dsn: a PostgreSQL URI; `options=-csearch_path=...` in it chooses a schema.
            max_sessions: how many calls the server serves at once; others wait for their turn.
            patience: how long, in seconds, a call retries what the server asks to be retried.

        Raises:
            EventStoreError: the server cannot be reached or refuses the session.
        """
        return await opened(cls._connect(dsn, max_sessions, patience))

    @classmethod
    async def _connect(cls, dsn: str, max_sessions: int, patience: float) -> Self:
        handle = cls(dsn, max_sessions, patience)
        try:
            ((is_set_up,),) = await handle._fetch(cls.IS_SET_UP)
            if not is_set_up:
                await handle._patiently(lambda session: session.execute(cls.SCHEMA))
        except BaseException:
            await handle.close()
            raise
        return handle

    @property
    def server_pids(self) -> frozenset[int]:
        """The process ids of the server's sessions that serve this handle."""
        return frozenset(
            session.get_server_pid() for session in self._sessions if not session.is_closed()
        )

    async def close(self) -> None:
        """Settle what is in flight and end every session."""
        if self._closing is None:
            self._calls.close()
            self._closing = asyncio.ensure_future(self._close())
        await finish(self._closing)

    async def _close(self) -> None:
        try:
            await self._calls.idle(within=CLOSE_WITHIN)
            for session in self._idle:
                # A session that is lost anyway has nothing to say at its end.
                with contextlib.suppress(*FAULTS):
                    await session.close(timeout=CLOSE_WITHIN)
        finally:
            for session in self._sessions:
                session.terminate()

    async def _fetch(self, query: str, *arguments: object, writing: bool = False) -> list[Any]:
        """Run one statement, which is a transaction of its own, and fetch all its records."""
        return await self._patiently(
            lambda session: session.fetch(query, *arguments), writing=writing
        )

    async def _patiently(
        self, work: Callable[[Session], Awaitable[T]], *, writing: bool = False
    ) -> T:
        """Do some work on a session; again, where the server asks for that."""
        deadline = asyncio.get_running_loop().time() + self._patience
        while True:
            try:
                async with self._limit:
                    return await self._once(work, writing=writing)
            except RETRIED as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise EventStoreError(
                        f"PostgreSQL asked for another try for {self._patience} s: {error}"
                    ) from error
            await asyncio.sleep(random.uniform(0.001, 0.02))
            self._calls.check()

    async def _once(self, work: Callable[[Session], Awaitable[T]], *, writing: bool) -> T:
        session = await self._take()
        try:
            return await work(session)
        except asyncio.CancelledError:
            await finish(self._settle(session))
            raise
        except (*RETRIED, asyncpg.UniqueViolationError):
            raise
        except FAULTS as error:
            if isinstance(error, LOST):
                session.terminate()
            raise self._fault(error, writing=writing) from error
        finally:
            self._give_back(session)

    async def _take(self) -> Session:
        """A session for one statement. Whatever fails here, nothing was sent."""
        while self._idle:
            session = self._idle.pop()
            if not session.is_closed():
                return session
            self._sessions.discard(session)
        try:
            session = await asyncpg.connect(
                self._dsn,
                timeout=CONNECT_WITHIN,
                command_timeout=COMMAND_WITHIN,
                server_settings=self.SETTINGS,
            )
        except RETRIED:
            raise
        except FAULTS as error:
            raise EventStoreError(f"cannot reach PostgreSQL: {error}") from error
        self._sessions.add(session)
        return session

    async def _settle(self, session: Session) -> None:
        """Wait for the server to end a statement whose caller was cancelled.

        asyncpg has asked it to stop, and holds back the next statement until it has.
        """
        try:
            async with asyncio.timeout(SETTLE_WITHIN):
                await session.execute("SELECT 1")
        except FAULTS:
            session.terminate()

    def _give_back(self, session: Session) -> None:
        if session.is_closed():
            self._sessions.discard(session)
        else:
            self._idle.append(session)

    def _fault(self, error: Exception, *, writing: bool) -> EventStoreError:
        """What a driver's error means."""
        if writing and isinstance(error, LOST):
            return OutcomeUnknownError(f"the session ended during a write: {error}")
        return EventStoreError(f"PostgreSQL failed: {error}")
