"""Leases in one SQLite file, judged by the clock of the machine that the file is on."""

from __future__ import annotations

from ..leases import check_lease, check_ttl
from .handle import SQLiteHandle

NOW = "((julianday('now') - 2440587.5) * 86400.0)"
"""Seconds since 1970 by SQLite's own reading, taken after the statement has the write lock."""


class SQLiteLeaseStore(SQLiteHandle):
    """One handle on a file's leases; open it with `SQLiteLeaseStore.open(path)`.

    A lease is live while `ends` is in the future. Every answer is one statement's.
    """

    SCHEMA = """
        CREATE TABLE IF NOT EXISTS leases (
            name TEXT NOT NULL PRIMARY KEY,
            holder TEXT NOT NULL,
            ends REAL NOT NULL
        ) WITHOUT ROWID;
    """

    CLAIM = f"""
        INSERT INTO leases (name, holder, ends) VALUES (?, ?, {NOW} + ?)
        ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, ends = excluded.ends
        WHERE leases.ends <= {NOW}
        RETURNING 1
    """

    RENEW = f"""
        UPDATE leases SET ends = {NOW} + ?
        WHERE name = ? AND holder = ? AND ends > {NOW}
        RETURNING 1
    """

    RELEASE = f"DELETE FROM leases WHERE name = ? AND holder = ? AND ends > {NOW} RETURNING 1"

    AGE = "UPDATE leases SET ends = ends - ?"

    async def claim(self, name: str, holder: str, ttl: float, /) -> bool:
        """Take the lease if nobody's is live, the holder's own included; whether it was taken."""
        check_lease(name, holder)
        return await self._granted(self.CLAIM, name, holder, check_ttl(ttl))

    async def renew(self, name: str, holder: str, ttl: float, /) -> bool:
        """Let a live lease end `ttl` from now; `False` if the holder's is not live any more."""
        check_lease(name, holder)
        return await self._granted(self.RENEW, check_ttl(ttl), name, holder)

    async def release(self, name: str, holder: str, /) -> bool:
        """End the holder's lease; `False` if the holder's is not live any more."""
        check_lease(name, holder)
        return await self._granted(self.RELEASE, name, holder)

    async def age(self, seconds: float) -> None:
        """Leave every lease as it would be `seconds` later."""
        with self._calls:
            await self._fetch(self.AGE, seconds, writing=True)

    async def _granted(self, statement: str, *parameters: object) -> bool:
        with self._calls:
            return bool(await self._fetch(statement, *parameters, writing=True))
