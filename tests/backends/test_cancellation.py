"""A call that is cancelled at any of its awaits leaves the handle usable and the log whole."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import asyncpg
import pytest
from backends_support import Place, cancelled_at, envelope

from loom_backends.memory import MemoryEventStore
from loom_backends.postgres import PostgresBackend, PostgresEventStore
from loom_backends.sqlite import SQLiteBackend, SQLiteEventStore
from loom_conformance.spi import DuplicateEnvelopeIdError

pytestmark = pytest.mark.asyncio

Store = MemoryEventStore | SQLiteEventStore | PostgresEventStore
Call = Callable[[Store, str], Coroutine[Any, Any, Any]]

CALLS: dict[str, Call] = {
    "append": lambda store, name: store.append(envelope(name, 0)),
    "batch": lambda store, name: store.append_batch([envelope(name, n) for n in range(3)]),
    "conflict": lambda store, name: store.append(envelope(name, 0, "taken-0")),
    "read": lambda store, name: store.read_from("taken"),
    "fence": lambda store, name: store.acquire_fence(name),
}


async def connect(place: Place) -> Store:
    store = await place.backend.connect(place.address)
    assert isinstance(store, Store)
    return store


@pytest.mark.parametrize("call", CALLS)
async def test_a_cancelled_call_leaves_a_usable_handle(place: Place, call: str) -> None:
    store, witness = await connect(place), await connect(place)
    await store.append(envelope("taken", 0))
    for suspension in itertools.count(1):
        name = f"cancelled-{suspension}"
        work = CALLS[call](store, name)
        if not await cancelled_at(work, suspension, DuplicateEnvelopeIdError):
            break
        found = [read.sequence for read in await witness.read_from(name)]
        assert found in {"append": ([], [0]), "batch": ([], [0, 1, 2])}.get(call, ([],))
        # Settled: what the log holds when the call has ended is what it goes on to hold.
        assert found == [read.sequence for read in await store.read_from(name)]
        token = await store.acquire_fence(name)
        await store.append(envelope(name, 7, fence=token))
        assert (await witness.read_from(name))[-1].sequence == 7
    await store.close()
    await witness.close()


async def test_a_cancelled_connect_leaves_nothing(place: Place) -> None:
    threads = set(threading.enumerate())

    async def open_and_close() -> None:
        await (await connect(place)).close()

    for suspension in itertools.count(1):
        if not await cancelled_at(open_and_close(), suspension):
            break
        assert set(threading.enumerate()) == threads
    if isinstance(place.backend, PostgresBackend):
        assert await sessions(place.address) == 0


async def test_a_cancelled_close_still_closes(place: Place) -> None:
    for suspension in itertools.count(1):
        threads = set(threading.enumerate())
        store = await connect(place)
        await store.append(envelope(f"order-{suspension}", 0))
        reached = await cancelled_at(store.close(), suspension)
        if isinstance(place.backend, SQLiteBackend):
            assert set(threading.enumerate()) == threads
        if isinstance(place.backend, PostgresBackend):
            assert await sessions(place.address) == 0
        await store.close()
        if not reached:
            break


async def sessions(address: str) -> int:
    """How many sessions use this schema, ours not counted; those that are ending have a moment."""
    observer = await asyncpg.connect(address)
    try:
        for _ in range(200):
            count: int = await observer.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                " AND backend_type = 'client backend'"
            )
            if not count:
                break
            await observer.execute("SELECT pg_sleep(0.01)")
        return count
    finally:
        await observer.close()
