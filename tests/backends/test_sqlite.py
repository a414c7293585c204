"""What the conformance suites cannot see of the SQLite store: settings, faults, locks, patience."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
import pytest_asyncio
from backends_support import envelope

from loom_backends.sqlite import SQLiteBackend, SQLiteEventStore
from loom_backends.sqlite.handle import AtomicConnection
from loom_conformance.spi import (
    DuplicateSequenceError,
    EventStoreError,
    OutcomeUnknownError,
    StaleFenceError,
    StoreClosedError,
)

pytestmark = pytest.mark.asyncio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest_asyncio.fixture
async def store(path: Path) -> AsyncIterator[SQLiteEventStore]:
    store = await SQLiteEventStore.open(path)
    yield store
    await store.close()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another connection holds the write lock."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.rollback()
        other.close()


async def test_a_commit_is_synced_to_a_write_ahead_log(store: SQLiteEventStore) -> None:
    assert await store._fetch("PRAGMA journal_mode") == [("wal",)]
    assert await store._fetch("PRAGMA synchronous") == [(2,)]


async def test_json_is_kept_as_text(store: SQLiteEventStore, path: Path) -> None:
    await store.append(envelope("order-1", 0, payload={"b": 1.0, "a": [1, 10**15, "\x00é"]}))
    with contextlib.closing(sqlite3.connect(path)) as other:
        ((payload, kind),) = other.execute("SELECT payload, typeof(payload) FROM envelopes")
    assert kind == "text"
    assert payload == '{"b":1.0,"a":[1,1000000000000000,"\\u0000\\u00e9"]}'


@pytest.fixture
def no_database(path: Path) -> Path:
    path.write_bytes(b"no database" * 1000)
    return path


async def test_a_file_that_is_no_database_is_an_error_of_the_store(no_database: Path) -> None:
    with pytest.raises(EventStoreError, match="not a database") as fault:
        await SQLiteEventStore.open(no_database)
    assert isinstance(fault.value.__cause__, sqlite3.DatabaseError)


async def test_a_directory_that_is_not_there_is_an_error_of_the_store(path: Path) -> None:
    with pytest.raises(EventStoreError, match="cannot open"):
        await SQLiteEventStore.open(path / "below" / "store.db")


async def test_a_fault_is_no_conflict(store: SQLiteEventStore, path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.executescript(
            "CREATE TRIGGER full BEFORE INSERT ON envelopes WHEN new.kind = 'STEP_COMPLETED'"
            " BEGIN SELECT RAISE(ABORT, 'no more steps'); END;"
        )
        with pytest.raises(EventStoreError, match="no more steps") as fault:
            await store.append(envelope("order-1", 0))
        assert type(fault.value) is EventStoreError
        assert isinstance(fault.value.__cause__, sqlite3.IntegrityError)
        other.executescript("DROP TRIGGER full; ALTER TABLE envelopes RENAME TO elsewhere;")
        for call in (store.append(envelope("order-1", 0)), store.read_from("order-1")):
            with pytest.raises(EventStoreError, match="no such table") as missing:
                await call
            assert isinstance(missing.value.__cause__, sqlite3.OperationalError)
        other.executescript("ALTER TABLE elsewhere RENAME TO envelopes;")
    await store.append(envelope("order-1", 0))


class FailingCommit(AtomicConnection):
    """A connection whose next commit fails as a disk does."""

    code: ClassVar[int | None] = None

    def commit(self) -> None:
        code, FailingCommit.code = FailingCommit.code, None
        if code is not None:
            error = sqlite3.OperationalError("the disk")
            error.sqlite_errorcode = code
            raise error
        super().commit()


class FailingStore(SQLiteEventStore):
    CONNECTION = FailingCommit


@pytest.mark.parametrize(
    ("code", "error"),
    [(sqlite3.SQLITE_FULL, EventStoreError), (sqlite3.SQLITE_IOERR_FSYNC, OutcomeUnknownError)],
)
async def test_a_commit_that_fails_leaves_no_transaction_open(
    path: Path, code: int, error: type[EventStoreError]
) -> None:
    store = await FailingStore.open(path)
    FailingCommit.code = code
    with pytest.raises(EventStoreError, match="the disk") as fault:
        await store.append_batch([envelope("order-1", 0), envelope("order-1", 1)])
    assert type(fault.value) is error
    assert await store.read_from("order-1") == []
    await store.append(envelope("order-1", 0))
    await store.close()


async def test_a_lock_that_stays_ends_in_an_error_and_not_in_a_hang(path: Path) -> None:
    store = await SQLiteEventStore.open(path, patience=0.01)
    with locked(path):
        assert await store.read_from("order-1") == []
        for call in (store.append(envelope("order-1", 0)), store.acquire_fence("order-1")):
            with pytest.raises(EventStoreError, match="stayed locked") as fault:
                await call
            assert isinstance(fault.value.__cause__, sqlite3.OperationalError)
    await store.append(envelope("order-1", 0))
    await store.close()


async def test_a_write_waits_for_a_lock_and_holds_up_nobody(
    store: SQLiteEventStore, path: Path
) -> None:
    with locked(path):
        write = asyncio.ensure_future(store.append(envelope("order-1", 0)))
        # Reads of the same handle go on beside it, and so does the loop.
        for _ in range(3):
            assert await store.read_from("order-1") == []
        assert not write.done()
    await write
    assert len(await store.read_from("order-1")) == 1


async def test_close_does_not_wait_for_a_lock(path: Path) -> None:
    store = await SQLiteEventStore.open(path)
    with locked(path):
        write = asyncio.ensure_future(store.append(envelope("order-1", 0)))
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(StoreClosedError):
            await write
    other = await SQLiteEventStore.open(path)
    assert await other.read_from("order-1") == []
    await other.close()


async def test_handles_take_turns(path: Path) -> None:
    stores = await asyncio.gather(*(SQLiteEventStore.open(path) for _ in range(6)))
    await asyncio.gather(
        *(
            store.append(envelope(f"order-{number}", sequence))
            for number, store in enumerate(stores)
            for sequence in range(20)
        )
    )
    for number in range(6):
        assert len(await stores[0].read_from(f"order-{number}")) == 20
    await asyncio.gather(*(store.close() for store in stores))


WRITER = """
import asyncio, sys
sys.path[:0] = sys.argv[4:]
from backends_support import envelope
from loom_backends.sqlite import SQLiteEventStore
from loom_conformance.spi import DuplicateSequenceError

async def main(path, name, count):
    store = await SQLiteEventStore.open(path)
    won = 0
    for sequence in range(count):
        await store.append(envelope(name, sequence))
        try:
            await store.append(envelope("shared", sequence, f"{name}/{sequence}"))
            won += 1
        except DuplicateSequenceError:
            pass
    await store.close()
    print(won)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


async def test_processes_share_a_file(path: Path) -> None:
    count = 60
    places = [str(Path(__file__).parent), *sys.path]
    writers = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", WRITER, str(path), f"node {number}", str(count), *places),
            stdout=subprocess.PIPE,
        )
        for number in range(2)
    ]
    outputs = await asyncio.gather(*(writer.communicate() for writer in writers))
    assert sum(int(output) for output, _ in outputs) == count
    store = await SQLiteEventStore.open(path)
    for name in ("node 0", "node 1", "shared"):
        assert [read.sequence for read in await store.read_from(name)] == list(range(count))
    await store.close()


async def test_a_guessed_token_that_becomes_the_current_one_is_still_refused(
    store: SQLiteEventStore,
) -> None:
    """The tokens that explain a refusal are read after it, and may have grown since."""
    with pytest.raises(StaleFenceError):
        await store._raise_stale([store._encode(envelope("order-1", 0, fence=None))])


async def test_destroy_removes_the_directory() -> None:
    backend = SQLiteBackend()
    address = await backend.create()
    store = await backend.connect(address)
    with pytest.raises(DuplicateSequenceError):
        await store.append_batch([envelope("order-1", 0), envelope("order-1", 0, "other")])
    await store.close()
    await backend.destroy(address)
    assert not Path(address).parent.exists()
    await backend.destroy(address)
