"""Faults of PostgreSQL sessions, on any store whose address is a DSN."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

_TERMINATE: Final = """
    SELECT count(*) FILTER (WHERE pg_terminate_backend(pid))
    FROM pg_stat_activity
    WHERE application_name = $1 AND pid <> pg_backend_pid()
"""


def tagged(address: str, name: str) -> str:
    """The DSN with an application name, by which `terminate` finds its sessions and no others."""
    parts = urlsplit(address)
    query = [pair for pair in parse_qsl(parts.query) if pair[0] != "application_name"]
    text = urlencode([*query, ("application_name", name)], quote_via=quote)
    return urlunsplit(parts._replace(query=text))


async def terminate(address: str, name: str) -> int:
    """End every session of that application name with `pg_terminate_backend`; how many there were.

    Raises:
        ImportError: asyncpg is not installed.
        OSError, asyncpg.PostgresError: the server cannot be reached.
    """
    import asyncpg

    connection = await asyncpg.connect(address)
    try:
        return int(await connection.fetchval(_TERMINATE, name))
    finally:
        await connection.close()


_TABLES: Final = """
    SELECT format('%I.%I', nspname, relname) FROM pg_class
    JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = current_schema() AND relkind IN ('r', 'p')
"""


@asynccontextmanager
async def tables_locked(address: str) -> AsyncIterator[int]:
    """Another session holds every table of the schema against writers; how many tables.

    Raises:
        ImportError: asyncpg is not installed.
        OSError, asyncpg.PostgresError: the server cannot be reached.
    """
    import asyncpg

    connection = await asyncpg.connect(address)
    try:
        tables = [name for (name,) in await connection.fetch(_TABLES)]
        async with connection.transaction():
            # A store that waits on the event loop's own thread keeps us from giving the lock back.
            await connection.execute("SET LOCAL idle_in_transaction_session_timeout = '1s'")
            if tables:
                await connection.execute(f"LOCK TABLE {', '.join(tables)} IN EXCLUSIVE MODE")
            yield len(tables)
    finally:
        await connection.close()
