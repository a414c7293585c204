"""Faults of SQLite files are put on them without harm to the stores that have them open."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from lab_support import envelope

from loom_backends.sqlite import SQLiteEventStore
from loom_conformance.lab.faults.sqlite import (
    is_write_locked,
    make_read_only,
    make_writable,
    spoil,
    sqlite_file,
    write_locked,
)

pytestmark = pytest.mark.asyncio

OPENS_AND_CLOSES = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM envelopes").fetchone()
connection.close()
"""


def keeps_its_log(path: Path) -> bool:
    """Whether the log is there after another process had the file open and closed it."""
    subprocess.run([sys.executable, "-c", OPENS_AND_CLOSES, str(path)], check=True)
    return Path(f"{path}-wal").exists()


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SQLiteEventStore]:
    store = await SQLiteEventStore.open(path)
    try:
        yield store
    finally:
        await store.close()


async def test_a_sqlite_file_is_known_by_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    assert sqlite_file(str(path)) is None
    path.write_bytes(b"something else")
    assert sqlite_file(str(path)) is None
    path.write_bytes(b"SQLite format 3\x00 and more")
    assert sqlite_file(str(path)) == path
    assert sqlite_file(f"sqlite:///{path}") == path
    assert sqlite_file("postgresql://db/name") is None
    assert sqlite_file("memory-1\x00") is None


@pytest.mark.parametrize(
    "look",
    [lambda path: sqlite_file(str(path)), is_write_locked],
    ids=["sqlite_file", "is_write_locked"],
)
async def test_a_look_at_a_file_leaves_a_store_its_locks(
    tmp_path: Path, look: Callable[[Path], object]
) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store:
        await store.append(envelope(0))
        look(path)
        # Were the locks gone, this process would be the last that has the file open.
        assert keeps_its_log(path)


async def test_a_lock_is_held_by_another_process_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path):
        assert not is_write_locked(path)
        async with write_locked(path):
            assert is_write_locked(path)
        assert not is_write_locked(path)


async def test_a_spoilt_file_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store:
        await store.append(envelope(0))
    spoil(path)
    assert sqlite_file(str(path)) is None


async def test_a_file_is_read_only_with_all_that_was_written_in_it(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "store.db"
    path.parent.mkdir()
    async with opened(path) as store:
        await store.append(envelope(0))
        make_read_only(path)
        try:
            assert not path.stat().st_mode & 0o222
            assert not path.parent.stat().st_mode & 0o222
        finally:
            make_writable(path)
        await store.append(envelope(1))
        assert [one.sequence for one in await store.read_from("e", 0)] == [0, 1]
