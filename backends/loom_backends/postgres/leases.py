"""Leases in one PostgreSQL schema, judged by the server's clock."""

from __future__ import annotations

from ..leases import check_lease, check_ttl
from .handle import PostgresHandle

NOW = "extract(epoch FROM clock_timestamp())::float8"
"""Seconds since 1970 at the moment itself: `now()` is that of the transaction's start, and a
statement may have waited for a lock since."""


class PostgresLeaseStore(PostgresHandle):
    """One handle on a schema's leases; open it with `PostgresLeaseStore.connect(dsn)`.

    A lease is live while `ends` is in the future. Every answer is one statement's.
    """

    SCHEMA = """
        SELECT pg_advisory_xact_lock(hashtext(current_schema()));
        CREATE TABLE IF NOT EXISTS leases (
            name text COLLATE "C" PRIMARY KEY,
            holder text COLLATE "C" NOT NULL,
            ends float8 NOT NULL
        );
    """

    IS_SET_UP = "SELECT to_regclass('leases') IS NOT NULL"

    # What is returned is whether the lease is live, lest one be granted that ended in a wait.
    CLAIM = f"""
        INSERT INTO leases (name, holder, ends) VALUES ($1, $2, {NOW} + $3::float8)
        ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, ends = {NOW} + $3::float8
        WHERE leases.ends <= {NOW}
        RETURNING ends > {NOW}
    """

    RENEW = f"""
        UPDATE leases SET ends = {NOW} + $3::float8
        WHERE name = $1 AND holder = $2 AND ends > {NOW}
        RETURNING ends > {NOW}
    """

    RELEASE = f"DELETE FROM leases WHERE name = $1 AND holder = $2 AND ends > {NOW} RETURNING true"

    AGE = "UPDATE leases SET ends = ends - $1::float8"

    async def claim(self, name: str, holder: str, ttl: float, /) -> bool:
        """Take the lease if nobody's is live, the holder's own included; whether it was taken."""
        check_lease(name, holder)
        return await self._granted(self.CLAIM, name, holder, check_ttl(ttl))

    async def renew(self, name: str, holder: str, ttl: float, /) -> bool:
        """Let a live lease end `ttl` from now; `False` if the holder's is not live any more."""
        check_lease(name, holder)
        return await self._granted(self.RENEW, name, holder, check_ttl(ttl))

    async def release(self, name: str, holder: str, /) -> bool:
        """End the holder's lease; `False` if the holder's is not live any more."""
        check_lease(name, holder)
        return await self._granted(self.RELEASE, name, holder)

    async def age(self, seconds: float) -> None:
        """Leave every lease as it would be `seconds` later."""
        with self._calls:
            await self._fetch(self.AGE, seconds, writing=True)

    async def _granted(self, statement: str, *arguments: object) -> bool:
        with self._calls:
            records = await self._fetch(statement, *arguments, writing=True)
        return any(granted for (granted,) in records)
