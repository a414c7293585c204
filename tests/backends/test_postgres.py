"""What the conformance suites cannot see of the PostgreSQL store: locks, lost sessions, faults."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import asyncpg
import pytest
import pytest_asyncio
from backends_support import envelope, until

from loom_backends.postgres import PostgresBackend, PostgresEventStore
from loom_conformance.spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventStoreError,
    OutcomeUnknownError,
    StaleFenceError,
    StoreClosedError,
)

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def address(postgres: PostgresBackend) -> AsyncIterator[str]:
    address = await postgres.create()
    yield address
    await postgres.destroy(address)


@pytest_asyncio.fixture
async def store(postgres: PostgresBackend, address: str) -> AsyncIterator[PostgresEventStore]:
    store = await postgres.connect(address)
    yield store
    await store.close()


@pytest_asyncio.fixture
async def other(store: PostgresEventStore, address: str) -> AsyncIterator[asyncpg.Connection]:
    """A session of the test's own, on the store's tables."""
    connection = await asyncpg.connect(address)
    yield connection
    await connection.close()


async def until_blocked(postgres: PostgresBackend, address: str) -> None:
    """Wait until a handle waits for a lock."""

    async def is_blocked() -> bool:
        return bool(await postgres.blocked(address))

    await until(is_blocked)


async def test_a_commit_is_synced(store: PostgresEventStore) -> None:
    assert await store._fetch("SHOW synchronous_commit") == [("on",)]
    assert await store._fetch("SHOW fsync") == [("on",)]


async def test_json_is_kept_as_text(store: PostgresEventStore, other: asyncpg.Connection) -> None:
    await store.append(envelope("order-1", 0, payload={"b": 1.0, "a": [1, 10**15, "\x00é"]}))
    (row,) = await other.fetch("SELECT payload, pg_typeof(payload)::text FROM envelopes")
    assert tuple(row) == ('{"b":1.0,"a":[1,1000000000000000,"\\u0000\\u00e9"]}', "text")


async def test_the_longest_ids_fit_into_the_indexes(store: PostgresEventStore) -> None:
    execution_id, id_ = "\U0001f9f5" * 255, "\U0010fffd" * 300
    await store.append(envelope(execution_id, 0, id_))
    with pytest.raises(DuplicateEnvelopeIdError):
        await store.append(envelope(execution_id, 1, id_))
    assert [read.id for read in await store.read_from(execution_id)] == [id_]
    assert await store.acquire_fence(execution_id) == 1


async def test_the_first_fence_waits_for_a_write_in_flight(
    postgres: PostgresBackend, address: str, store: PostgresEventStore, other: asyncpg.Connection
) -> None:
    transaction = other.transaction()
    await transaction.start()
    row = store._encode(envelope("order-1", 0))
    assert await other.fetchval(store.APPEND, *row) is None
    acquire = asyncio.ensure_future(store.acquire_fence("order-1"))
    await until_blocked(postgres, address)
    await transaction.commit()
    assert await acquire == 1
    assert len(await store.read_from("order-1")) == 1


@pytest.mark.parametrize("fences", [0, 1])
@pytest.mark.parametrize("count", [1, 3])
async def test_a_write_waits_for_a_fence_in_flight_and_then_is_stale(
    postgres: PostgresBackend,
    address: str,
    store: PostgresEventStore,
    other: asyncpg.Connection,
    fences: int,
    count: int,
) -> None:
    token = await store.acquire_fence("order-1") if fences else None
    transaction = other.transaction()
    await transaction.start()
    await other.fetch(store.ACQUIRE, "order-1")
    batch = [envelope("order-1", sequence, fence=token) for sequence in range(count)]
    write = asyncio.ensure_future(store.append_batch(batch))
    await until_blocked(postgres, address)
    assert await postgres.blocked(address) == {store}
    await transaction.commit()
    with pytest.raises(StaleFenceError) as stale:
        await write
    assert (stale.value.given, stale.value.current) == (token, fences + 1)
    assert await store.read_from("order-1") == []


async def test_a_write_goes_on_when_the_fence_in_flight_is_rolled_back(
    postgres: PostgresBackend, address: str, store: PostgresEventStore, other: asyncpg.Connection
) -> None:
    transaction = other.transaction()
    await transaction.start()
    await other.fetch(store.ACQUIRE, "order-1")
    write = asyncio.ensure_future(store.append(envelope("order-1", 0)))
    await until_blocked(postgres, address)
    await transaction.rollback()
    await write
    assert await postgres.blocked(address) == set()
    assert len(await store.read_from("order-1")) == 1


async def test_first_writes_in_flight_do_not_exclude_each_other(
    postgres: PostgresBackend, address: str, store: PostgresEventStore, other: asyncpg.Connection
) -> None:
    """Both make the execution's row; the second finds one that its snapshot does not hold."""
    transaction = other.transaction()
    await transaction.start()
    await other.fetch(store.APPEND, *store._encode(envelope("order-1", 0)))
    writes = [
        asyncio.ensure_future(store.append(envelope("order-1", 1))),
        asyncio.ensure_future(store.append_batch([envelope("order-1", 2), envelope("b", 0)])),
    ]
    await until_blocked(postgres, address)
    await transaction.commit()
    await asyncio.gather(*writes)
    assert [read.sequence for read in await store.read_from("order-1")] == [0, 1, 2]


async def test_crossing_batches_conflict_and_do_not_fail(store: PostgresEventStore) -> None:
    for number in range(10):
        names = [f"left-{number}", f"right-{number}"]
        outcomes = await asyncio.gather(
            store.append_batch([envelope(name, 0, f"{name}/a") for name in names]),
            store.append_batch([envelope(name, 0, f"{name}/b") for name in reversed(names)]),
            return_exceptions=True,
        )
        assert sum(outcome is None for outcome in outcomes) == 1
        assert sum(isinstance(outcome, DuplicateSequenceError) for outcome in outcomes) == 1


async def test_what_the_server_asks_to_be_retried_is_retried(
    store: PostgresEventStore, other: asyncpg.Connection
) -> None:
    for code in ("serialization_failure", "deadlock_detected", "lock_not_available"):
        await other.execute(
            f"""
            CREATE SEQUENCE tries;
            CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF nextval('tries') < 3 THEN RAISE EXCEPTION 'again' USING ERRCODE = '{code}';
                END IF; RETURN new; END $$;
            CREATE TRIGGER fail BEFORE INSERT ON envelopes FOR EACH ROW EXECUTE FUNCTION fail();
            """
        )
        await store.append(envelope(code, 0))
        assert await other.fetchval("SELECT last_value FROM tries") == 3
        await other.execute("DROP FUNCTION fail CASCADE; DROP SEQUENCE tries")


async def test_patience_ends(address: str, other: asyncpg.Connection) -> None:
    await other.execute(
        """
        CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'never' USING ERRCODE = 'serialization_failure'; END $$;
        CREATE TRIGGER fail BEFORE INSERT ON envelopes FOR EACH ROW EXECUTE FUNCTION fail();
        """
    )
    store = await PostgresEventStore.connect(address, patience=0)
    with pytest.raises(EventStoreError, match="never") as fault:
        await store.append(envelope("order-1", 0))
    assert isinstance(fault.value.__cause__, asyncpg.SerializationError)
    await store.close()


async def test_a_fault_is_no_conflict(store: PostgresEventStore, other: asyncpg.Connection) -> None:
    await other.execute("CREATE UNIQUE INDEX one_kind ON envelopes (kind)")
    await store.append(envelope("order-1", 0))
    with pytest.raises(EventStoreError, match="one_kind") as refused:
        await store.append(envelope("order-1", 1))
    assert type(refused.value) is EventStoreError
    assert isinstance(refused.value.__cause__, asyncpg.UniqueViolationError)
    await other.execute("DROP INDEX one_kind; ALTER TABLE envelopes RENAME TO elsewhere")
    for call in (store.append(envelope("order-1", 1)), store.read_from("order-1")):
        with pytest.raises(EventStoreError, match="does not exist") as missing:
            await call
        assert isinstance(missing.value.__cause__, asyncpg.UndefinedTableError)
    await other.execute("ALTER TABLE elsewhere RENAME TO envelopes")
    await store.append(envelope("order-1", 1))


async def test_a_session_that_dies_in_commit_leaves_the_outcome_unknown(
    store: PostgresEventStore, other: asyncpg.Connection
) -> None:
    await other.execute(
        """
        CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER die AFTER INSERT ON envelopes DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION die();
        """
    )
    for call in (
        store.append(envelope("order-1", 0)),
        store.append_batch([envelope("order-1", n) for n in range(3)]),
    ):
        with pytest.raises(OutcomeUnknownError) as unknown:
            await call
        assert unknown.value.__cause__ is not None
    await other.execute("DROP FUNCTION die CASCADE")
    assert await store.read_from("order-1") == []
    await store.append(envelope("order-1", 0))


async def test_a_write_whose_answer_is_lost_is_no_conflict_with_itself(
    address: str, store: PostgresEventStore, tmp_path: Path
) -> None:
    """Between the handle and the server stands a proxy that keeps the server's last answer."""
    server = Path(parse_qs(urlsplit(address).query)["host"][0]) / ".s.PGSQL.5432"
    cut = False

    async def serve(client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        upstream, requests = await asyncio.open_unix_connection(str(server))

        async def forward() -> None:
            while request := await client.read(65536):
                requests.write(request)

        forwarding = asyncio.ensure_future(forward())
        while answer := await upstream.read(65536):
            if cut:
                break
            answers.write(answer)
        forwarding.cancel()
        for writer in (answers, requests):
            writer.close()

    async with await asyncio.start_unix_server(serve, str(tmp_path / ".s.PGSQL.5432")):
        proxied = address.replace(quote(str(server.parent), safe=""), quote(str(tmp_path), safe=""))
        remote = await PostgresEventStore.connect(proxied)
        await remote.append(envelope("order-1", 0))
        cut = True
        with pytest.raises(OutcomeUnknownError):
            await remote.append(envelope("order-1", 1))
        cut = False
        assert len(await remote.read_from("order-1")) == 2
        with pytest.raises(DuplicateSequenceError):
            await remote.append(envelope("order-1", 1))
        await remote.close()


async def test_an_idle_session_that_was_ended_is_replaced(
    store: PostgresEventStore, other: asyncpg.Connection
) -> None:
    await store.append(envelope("order-1", 0))
    pids = [*store.server_pids]
    await other.execute("SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) AS pid", pids)

    async def is_noticed() -> bool:
        return not store.server_pids

    await until(is_noticed)
    await store.append(envelope("order-1", 1))
    assert len(store.server_pids) == 1


async def test_sessions_are_few_and_end_with_the_handle(
    address: str, other: asyncpg.Connection
) -> None:
    store = await PostgresEventStore.connect(address, max_sessions=3)
    await asyncio.gather(*(store.append(envelope(f"order-{n}", 0)) for n in range(40)))
    pids = [*store.server_pids]
    assert len(pids) <= 3
    activity = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY ($1)"
    assert await other.fetchval(activity + " AND state <> 'idle'", pids) == 0
    await store.close()
    assert store.server_pids == frozenset()

    async def have_ended() -> bool:
        return not await other.fetchval(activity, pids)

    await until(have_ended)


async def test_close_settles_a_write_that_waits_for_a_lock(
    postgres: PostgresBackend,
    address: str,
    other: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("loom_backends.postgres.handle.CLOSE_WITHIN", 0.2)
    store = await postgres.connect(address)
    transaction = other.transaction()
    await transaction.start()
    await other.fetch(store.ACQUIRE, "order-1")
    write = asyncio.ensure_future(store.append(envelope("order-1", 0)))
    await until_blocked(postgres, address)
    await store.close()
    with pytest.raises(EventStoreError):
        await write
    with pytest.raises(StoreClosedError):
        await store.read_from("order-1")
    await transaction.rollback()


async def test_a_server_that_is_not_there_is_an_error_of_the_store(tmp_path: Path) -> None:
    with pytest.raises(EventStoreError, match="cannot reach PostgreSQL") as fault:
        await PostgresEventStore.connect(f"postgresql:///x?host={quote(str(tmp_path))}")
    assert isinstance(fault.value.__cause__, OSError)


async def test_a_live_handle_outlives_a_crash_of_the_server(
    postgres: PostgresBackend, address: str, store: PostgresEventStore
) -> None:
    if not hasattr(postgres, "crash"):
        pytest.skip("the server is not ours to kill")
    token = await store.acquire_fence("order-1")
    await store.append(envelope("order-1", 0, fence=token))
    storm = [asyncio.ensure_future(store.append(envelope(f"storm-{n}", 0))) for n in range(50)]
    await asyncio.sleep(0)
    await postgres.crash(address)
    outcomes = await asyncio.gather(*storm, return_exceptions=True)
    assert all(outcome is None or isinstance(outcome, EventStoreError) for outcome in outcomes)
    with contextlib.suppress(EventStoreError):
        await store.read_from("order-1")
    await store.append(envelope("order-1", 1, fence=token))
    assert await store.acquire_fence("order-1") == token + 1
    assert [read.sequence for read in await store.read_from("order-1")] == [0, 1]
    for number, outcome in enumerate(outcomes):
        if outcome is None:
            assert len(await store.read_from(f"storm-{number}")) == 1


async def test_a_conflict_with_what_is_gone_is_tried_again_and_not_for_ever(
    store: PostgresEventStore, other: asyncpg.Connection
) -> None:
    """A key that hides from the look for it: the conflict is there, the row is never found."""
    await other.execute(
        """
        ALTER TABLE envelopes DROP CONSTRAINT envelope_id;
        CREATE UNIQUE INDEX envelope_id ON envelopes (lower(id));
        """
    )
    await store.append(envelope("order-1", 0, "A"))
    batch = [envelope("order-2", 0), envelope("order-2", 1, "a")]
    with pytest.raises(EventStoreError, match="overtaken") as fault:
        await store.append_batch(batch)
    assert isinstance(fault.value.__cause__, asyncpg.UniqueViolationError)
    assert await store.read_from("order-2") == []
