"""Faults of SQLite files, on any store whose address is the path of one.

Writes that fail for want of room need a process of their own: see `limit_child` in `process`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Final

_HOLD: Final = """
import select, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
select.select([sys.stdin], [], [], float(sys.argv[2]))
connection.execute("ROLLBACK")
"""

AT_MOST: Final = 2.0
"""How long the lock is held (seconds) if nobody gives it back: a store that waits for it on the
event loop's own thread keeps the kit from doing so."""


class FaultFailed(Exception):
    """A fault could not be brought about, so that nothing can be shown by it."""


@asynccontextmanager
async def write_locked(path: Path) -> AsyncIterator[None]:
    """Another process holds the file's write lock, for `AT_MOST` seconds.

    Raises:
        FaultFailed: it did not get the lock, or a write is possible all the same.
    """
    holder = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", _HOLD, str(path), str(AT_MOST)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        if (await holder.stdout.readline()).strip() != b"locked":
            raise FaultFailed(f"no process could lock {path}")
        if not await asyncio.to_thread(is_write_locked, path):
            raise FaultFailed(f"{path} can be written although another process locked it")
        yield
    finally:
        holder.stdin.close()
        await holder.wait()


def is_write_locked(path: Path) -> bool:
    """Whether someone else holds the write lock now."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        connection.execute("ROLLBACK")
        return False


def spoil(path: Path) -> None:
    """Make the file one that is no database.

    Raises:
        FaultFailed: SQLite opens it all the same.
    """
    for beside in ("-wal", "-shm", "-journal"):
        Path(f"{path}{beside}").unlink(missing_ok=True)
    path.write_bytes(b"this is no database\n" * 512)
    try:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.DatabaseError:
        return
    raise FaultFailed(f"SQLite takes {path} for a database although it was overwritten")


def make_read_only(path: Path) -> None:
    """Take from everyone but root the right to write the file and its folder.

    The files that SQLite keeps beside it are settled into it first. A process that is root has to
    give that up (`limit_child`) for the fault to hold for it.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for file in path.parent.iterdir():
        file.chmod(0o444)
    path.parent.chmod(0o555)


def make_writable(path: Path) -> None:
    """Undo `make_read_only`."""
    path.parent.chmod(0o755)
    for file in path.parent.iterdir():
        file.chmod(0o644)
