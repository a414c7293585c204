"""The reference stores beside the raw drivers and beside other event stores.

Single appends by 1, 8 and 64 callers, coalesced and not; batches of 100; reads of 1,000.
Everything is durable: a commit is synced.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from eventsourcing.persistence import AggregateRecorder

from loom_backends.memory import MemoryBackend
from loom_backends.postgres import PostgresBackend
from loom_backends.postgres.discovery import PostgresNotFoundError
from loom_backends.postgres.server import start
from loom_backends.sqlite import SQLiteEventStore
from loom_conformance.decorators.coalescing import CoalescingEventStore
from loom_conformance.spi import BatchEventStore, EventEnvelope, EventStore

from . import callers, message_db, peers
from .events import envelopes, in_batches, interleaved
from .pairs import Plan, Result, Side, compare
from .raw import RawPostgres, RawSQLite

T = TypeVar("T")

BATCH: Final = 100
READ: Final = 1_000
SINGLE: Final = 200
PER_CALLER: Final = 10

Pair = tuple[str, Side[Any], Side[Any], float | None]
"""What is done, by whom, beside whom, and the ratio to reach."""


async def measure(plan: Plan) -> AsyncIterator[Result]:
    """Every row, one backend after the other; PostgreSQL only where there is one."""
    async for result in _memory(plan):
        yield result
    with tempfile.TemporaryDirectory(prefix="loom-bench-") as directory:
        async for result in _sqlite(plan, Path(directory)):
            yield result
    try:
        server = await asyncio.to_thread(start)
    except PostgresNotFoundError as error:
        print(error, file=sys.stderr)
    else:
        try:
            async for result in _postgres(plan, server.dsn):
                yield result
        finally:
            await asyncio.to_thread(server.stop)


# --- Sides of a pair --------------------------------------------------------------------------


def _appends(store: EventStore, count: int, by: int = 1) -> Side[list[EventEnvelope]]:
    return Side(
        "loom", lambda: interleaved(by, count // by), lambda e: callers.tasks(by, e, store.append)
    )


def _with_making(side: Side[T]) -> Side[None]:
    """The same, with the making of the events in the time."""

    async def work(_: None) -> int:
        return await side.work(side.prepare())

    return Side(side.name, lambda: None, work)


def _batches(store: BatchEventStore, count: int) -> Side[list[list[EventEnvelope]]]:
    async def work(batches: list[list[EventEnvelope]]) -> int:
        for batch in batches:
            await store.append_batch(batch)
        return count * BATCH

    return Side("loom", lambda: in_batches(count, BATCH), work)


def _reads(read: Callable[[], Awaitable[int]], count: int, name: str) -> Side[None]:
    async def work(_: None) -> int:
        total = 0
        for _number in range(count):
            total += await read()
        return total

    return Side(name, lambda: None, work)


def _raw(
    name: str, count: int, work: Callable[[Sequence[EventEnvelope]], Awaitable[int]]
) -> Side[list[EventEnvelope]]:
    return Side(name, lambda: envelopes(count), work)


def _raw_batches(
    name: str, count: int, work: Callable[[Sequence[Sequence[EventEnvelope]]], Awaitable[int]]
) -> Side[list[list[EventEnvelope]]]:
    return Side(name, lambda: in_batches(count, BATCH), work)


def _eventsource(store: peers.Store, count: int, by: int = 1) -> Side[list[peers.Stream]]:
    async def work(streams: list[peers.Stream]) -> int:
        return sum(await asyncio.gather(*(stream.append_all(store) for stream in streams)))

    name = "eventsource-py" if by == 1 else f"eventsource-py, {by} callers"
    return Side(name, lambda: [peers.Stream(count // by) for _ in range(by)], work)


def _eventsourcing(recorder: AggregateRecorder, count: int, by: int) -> Side[Any]:
    def insert(event: Any) -> None:
        recorder.insert_events([peers.with_state(event)])

    async def work(events: list[Any]) -> int:
        if by == 1:
            return callers.alone(events, insert)
        return await asyncio.to_thread(callers.threads, by, events, insert)

    name = "eventsourcing" if by == 1 else f"eventsourcing, {by} threads"
    return Side(name, lambda: peers.stored_events(by, count // by), work)


# --- Backends ---------------------------------------------------------------------------------


async def _memory(plan: Plan) -> AsyncIterator[Result]:
    backend = MemoryBackend()
    address = await backend.create()
    store = await backend.connect(address)
    count = plan.amount(2_000)
    ours, theirs = _appends(store, count), _eventsource(peers.eventsource_memory(), count)
    pairs: list[Pair] = [
        ("append, 1 caller", ours, theirs, None),
        ("make an event and append it, 1 caller", _with_making(ours), _with_making(theirs), 2),
    ]
    async for result in _compared(plan, "memory", pairs):
        yield result
    await backend.destroy(address)


async def _sqlite(plan: Plan, directory: Path) -> AsyncIterator[Result]:
    store = await SQLiteEventStore.open(directory / "store.db")
    coalesced = CoalescingEventStore(store, max_batch=500)
    raw = RawSQLite(directory)
    await raw.open()
    eventsource = peers.eventsource_sqlite(directory)
    recorder, datastore = peers.eventsourcing_sqlite(directory)
    single, many, batches = plan.amount(SINGLE), plan.amount(PER_CALLER) * 64, plan.amount(20)
    alone = _raw("raw sqlite3", single, raw.append_all)
    execution_id = await _filled(store, raw.append_all_threaded)
    reads = plan.amount(10)

    async def ours() -> int:
        return len(await store.read_from(execution_id))

    async def theirs() -> int:
        return await raw.read(execution_id)

    pairs: list[Pair] = [
        (
            "append, 1 caller",
            _appends(store, single),
            _raw("raw aiosqlite", single, raw.append_all_threaded),
            0.9,
        ),
        ("append, 1 caller", _appends(store, single), alone, None),
        ("append, 1 caller", _appends(store, single), _eventsource(eventsource, single), 1),
        ("append, 1 caller", _appends(store, single), _eventsourcing(recorder, single, 1), None),
        ("append, 8 callers", _appends(store, many, 8), alone, None),
        ("append, 64 callers", _appends(store, many, 64), alone, None),
        ("append, 8 callers, coalesced", _appends(coalesced, many, 8), alone, None),
        ("append, 64 callers, coalesced", _appends(coalesced, many, 64), alone, 3.5),
        (
            "append, 64 callers, coalesced",
            _appends(coalesced, many, 64),
            _eventsourcing(recorder, single // 64 * 64 or 64, 64),
            6,
        ),
        (
            "batches of 100",
            _batches(store, batches),
            _raw_batches("raw sqlite3", batches, raw.append_batches),
            0.9,
        ),
        (
            "reads of 1,000",
            _reads(ours, reads, "loom"),
            _reads(theirs, reads, "raw aiosqlite"),
            0.6,
        ),
    ]
    async for result in _compared(plan, "SQLite", pairs):
        yield result
    datastore.close()
    await eventsource.close()
    await raw.close()
    await coalesced.close()


async def _postgres(plan: Plan, dsn: str) -> AsyncIterator[Result]:
    backend = PostgresBackend(dsn)
    address, raw_address = await backend.create(), await backend.create()
    store = await backend.connect(address)
    coalesced = CoalescingEventStore(store, max_batch=500)
    raw = RawPostgres(raw_address)
    await raw.open()
    eventsource = peers.eventsource_postgres(dsn)
    recorder, datastore = peers.eventsourcing_postgres(dsn)
    single, many, batches = plan.amount(SINGLE), plan.amount(PER_CALLER) * 64, plan.amount(10)
    execution_id = await _filled(store, raw.append_all)
    reads = plan.amount(10)
    eight = Side("raw asyncpg, 8 sessions", lambda: interleaved(8, many // 8), raw.append_spread)

    async def ours() -> int:
        return len(await store.read_from(execution_id))

    async def theirs() -> int:
        return await raw.read(execution_id)

    pairs: list[Pair] = [
        (
            "append, 1 caller",
            _appends(store, single),
            _raw("raw asyncpg", single, raw.append_all),
            0.8,
        ),
        ("append, 1 caller", _appends(store, single), _eventsource(eventsource, single), None),
        ("append, 1 caller", _appends(store, single), _eventsourcing(recorder, single, 1), None),
        ("append, 8 callers", _appends(store, many, 8), eight, None),
        ("append, 64 callers", _appends(store, many, 64), eight, None),
        ("append, 8 callers, coalesced", _appends(coalesced, many, 8), eight, None),
        ("append, 64 callers, coalesced", _appends(coalesced, many, 64), eight, 3),
        (
            "append, 64 callers, coalesced",
            _appends(coalesced, many, 64),
            _eventsource(eventsource, single // 64 * 64 or 64, 64),
            6,
        ),
        (
            "append, 64 callers, coalesced",
            _appends(coalesced, many, 64),
            _eventsourcing(recorder, single // 64 * 64 or 64, 64),
            6,
        ),
        (
            "batches of 100",
            _batches(store, batches),
            _raw_batches("raw asyncpg, unnest", batches, raw.append_batches),
            0.8,
        ),
        (
            "reads of 1,000",
            _reads(ours, reads, "loom"),
            _reads(theirs, reads, "raw asyncpg"),
            0.6,
        ),
    ]
    messages = message_db.MessageDB(dsn)
    try:
        await messages.open()
    except message_db.NotFetchedError as error:
        print(error, file=sys.stderr)
    else:
        theirs_too = Side("Message DB", lambda: message_db.messages(single), messages.append_all)
        pairs.insert(3, ("append, 1 caller", _appends(store, single), theirs_too, 1))
    async for result in _compared(plan, "PostgreSQL", pairs):
        yield result
    await messages.close()
    datastore.close()
    await eventsource.close()
    await raw.close()
    await coalesced.close()
    for used in (address, raw_address):
        await backend.destroy(used)


async def _filled(
    store: BatchEventStore, fill: Callable[[Sequence[EventEnvelope]], Awaitable[int]]
) -> str:
    """An execution of 1,000 envelopes, on both sides."""
    written = envelopes(READ)
    await store.append_batch(written)
    await fill(written)
    return written[0].execution_id


async def _compared(plan: Plan, group: str, pairs: Sequence[Pair]) -> AsyncIterator[Result]:
    for what, ours, theirs, goal in pairs:
        yield await compare(plan, group, what, ours, theirs, goal=goal)
