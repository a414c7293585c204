"""Faults of SQLite files, on any store whose address is the path of one.

This process never opens such a file itself. POSIX locks belong to a process, not to a descriptor:
closing any descriptor of a file drops the locks that a store of this process holds on it, and the
next process to close the file takes itself for the last and removes the log under the store
("How To Corrupt An SQLite Database File", 2.2, https://sqlite.org/howtocorrupt.html). Writes that
fail for want of room need a process of their own, too: see `limit_child` in `process`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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

_LOOKS: Final = """
import sys
with open(sys.argv[1], "rb") as file:
    sys.exit(file.read(16) != b"SQLite format 3\\0")
"""

_TRIES_TO_WRITE: Final = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=0)
try:
    connection.execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError:
    sys.exit(1)
connection.execute("ROLLBACK")
"""

_SETTLES: Final = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
connection.close()
"""

_COUNTS: Final = """
import sqlite3, sys
sqlite3.connect(sys.argv[1]).execute("SELECT count(*) FROM sqlite_master")
"""

AT_MOST: Final = 2.0
"""How long the lock is held (seconds) if nobody gives it back: a store that waits for it on the
event loop's own thread keeps the kit from doing so."""


class FaultFailed(Exception):
    """A fault could not be brought about, so that nothing can be shown by it."""


def sqlite_file(address: str) -> Path | None:
    """The SQLite file that an address names, once there is one."""
    path = Path(address.removeprefix("sqlite:///"))
    try:
        named = path.is_file()
    except (OSError, ValueError):
        return None
    return path if named and _does(_LOOKS, path) else None


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
    return not _does(_TRIES_TO_WRITE, path)


def spoil(path: Path) -> None:
    """Make the file one that is no database.

    Raises:
        FaultFailed: SQLite opens it all the same.
    """
    for beside in ("-wal", "-shm", "-journal"):
        Path(f"{path}{beside}").unlink(missing_ok=True)
    path.write_bytes(b"this is no database\n" * 512)
    if _does(_COUNTS, path):
        raise FaultFailed(f"SQLite takes {path} for a database although it was overwritten")


def make_read_only(path: Path) -> None:
    """Take from everyone but root the right to write the file and its folder.

    The files that SQLite keeps beside it are settled into it first. A process that is root has to
    give that up (`limit_child`) for the fault to hold for it.

    Raises:
        FaultFailed: the file cannot be settled.
    """
    if not _does(_SETTLES, path):
        raise FaultFailed(f"what is beside {path} could not be settled into it")
    for file in path.parent.iterdir():
        file.chmod(0o444)
    path.parent.chmod(0o555)


def make_writable(path: Path) -> None:
    """Undo `make_read_only`."""
    path.parent.chmod(0o755)
    for file in path.parent.iterdir():
        file.chmod(0o644)


def _does(script: str, path: Path) -> bool:
    """Whether a process that runs a script on the file ends well."""
    command = [sys.executable, "-I", "-S", "-c", script, str(path)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
