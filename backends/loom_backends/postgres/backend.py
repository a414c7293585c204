"""PostgreSQL schemas as storages; an address is a DSN that chooses one."""

from __future__ import annotations

import asyncio
import uuid
import weakref
from collections.abc import Awaitable, Callable, Set
from typing import Any, ClassVar
from urllib.parse import quote

import asyncpg

from loom_conformance.backend import Backend

from .handle import FAULTS
from .leases import PostgresLeaseStore
from .server import GivenServer, LocalServer, PostgresStartError, Server, start
from .store import PostgresEventStore


class PostgresBackend(Backend):
    """One server a session, shared by its storages; each is a schema.

    `crash` is there once `start` has started a server that is ours to kill.
    """

    name = "postgres"
    envelope_ids = "store"
    sparse_sequences = True
    durability: ClassVar[str] = (
        "synchronous_commit=on: an acknowledged write survives power loss where the server has"
        " fsync on (a server that the kit starts has)"
    )

    store: ClassVar[type[PostgresEventStore]] = PostgresEventStore
    """The class of the handles that it opens."""

    crash: Callable[[str], Awaitable[None]]

    def __init__(self, dsn: str | None = None) -> None:
        """Use the server of a DSN, or else the one that `start` finds."""
        self._server: Server | None = None if dsn is None else GivenServer(dsn)
        self._handles: dict[str, weakref.WeakSet[PostgresEventStore]] = {}
        self._observers: dict[str, asyncpg.Connection] = {}

    async def start(self) -> None:
        """Find a server and start it, unless one was given; see that it will do.

        Raises:
            PostgresNotFoundError: there is none; the message says what to install.
            PostgresStartError: it does not start, cannot be reached, or is not for Unicode.
        """
        if self._server is None:
            self._server = await asyncio.to_thread(start)
        server = self._server
        await _check(server.dsn)
        if isinstance(server, LocalServer):

            async def crash(address: str) -> None:
                await asyncio.to_thread(server.crash)

            self.crash = crash

    async def stop(self) -> None:
        """Stop the server, if it is ours."""
        if self._server is not None:
            await asyncio.to_thread(self._server.stop)
            self._server = None

    async def create(self) -> str:
        """Make an empty schema."""
        if self._server is None:
            await self.start()
        assert self._server is not None
        dsn = self._server.dsn
        schema = f"loom_{uuid.uuid4().hex}"
        await _execute(dsn, f"CREATE SCHEMA {schema}")
        return f"{dsn}{'&' if '?' in dsn else '?'}options={quote(f'-csearch_path={schema}')}"

    async def connect(self, address: str) -> PostgresEventStore:
        """Open a handle."""
        handle = await self.store.connect(address)
        self._handles.setdefault(address, weakref.WeakSet()).add(handle)
        return handle

    async def destroy(self, address: str) -> None:
        """Drop the schema."""
        self._handles.pop(address, None)
        observer = self._observers.pop(address, None)
        if observer is not None:
            await observer.close()
        await _execute(
            address,
            "DO $$ BEGIN EXECUTE format('DROP SCHEMA %I CASCADE', current_schema()); END $$",
        )

    async def blocked(self, address: str) -> Set[object]:
        """The handles that this backend connected to `address` and that wait for a lock now.

        A handle waits when one of its sessions does (`pg_blocking_pids`). The answer comes on a
        session that is kept until `destroy`; call both from one event loop.
        """
        handles = {
            pid: handle for handle in self._handles.get(address, ()) for pid in handle.server_pids
        }
        if not handles:
            return set()
        observer = self._observers.get(address)
        if observer is None or observer.is_closed():
            self._observers[address] = observer = await asyncpg.connect(address)
        waiting = await observer.fetch(
            "SELECT pid FROM unnest($1::int[]) AS pid WHERE cardinality(pg_blocking_pids(pid)) > 0",
            list(handles),
        )
        return {handles[pid] for (pid,) in waiting}

    async def connect_leases(self, address: str) -> PostgresLeaseStore:
        """Open a handle on the leases of a storage."""
        return await PostgresLeaseStore.connect(address)

    async def age_leases(self, address: str, seconds: float) -> None:
        """Move the end of every lease `seconds` back, which is the same as waiting so long."""
        leases = await self.connect_leases(address)
        try:
            await leases.age(seconds)
        finally:
            await leases.close()


async def _check(dsn: str) -> None:
    try:
        connection = await asyncpg.connect(dsn, timeout=10)
    except FAULTS as error:
        raise PostgresStartError(f"the PostgreSQL server cannot be reached: {error}") from error
    try:
        encoding = await connection.fetchval("SHOW server_encoding")
    finally:
        await connection.close()
    if encoding != "UTF8":
        raise PostgresStartError(
            f"the PostgreSQL database is encoded in {encoding} and cannot keep every id:"
            " name one that is encoded in UTF8"
        )


async def _execute(dsn: str, statement: str, *arguments: Any) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement, *arguments)
    finally:
        await connection.close()
