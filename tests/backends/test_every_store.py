"""What every store of ours does, where a test needs to see more than the conformance suites do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator

import pytest
from backends_support import Place, envelope

from loom_backends.memory import MemoryEventStore
from loom_backends.postgres import PostgresEventStore
from loom_backends.sqlite import SQLiteEventStore
from loom_conformance.spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    InvalidEnvelopeError,
    JsonValue,
    StaleFenceError,
    StoreClosedError,
)

pytestmark = pytest.mark.asyncio

Store = MemoryEventStore | SQLiteEventStore | PostgresEventStore


async def open_store(place: Place) -> Store:
    handle = await place.backend.connect(place.address)
    assert isinstance(handle, Store)
    return handle


async def sequences(store: Store, execution_id: str) -> list[int]:
    return [envelope.sequence for envelope in await store.read_from(execution_id)]


async def test_a_conflict_in_a_batch_names_the_envelope_that_met_it(place: Place) -> None:
    store = await open_store(place)
    await store.append(envelope("order-1", 0))
    fine = [envelope("order-2", sequence) for sequence in range(3)]

    with pytest.raises(DuplicateSequenceError) as taken:
        await store.append_batch([*fine, envelope("order-1", 0, "another")])
    assert (taken.value.execution_id, taken.value.sequence) == ("order-1", 0)

    with pytest.raises(DuplicateEnvelopeIdError) as reused:
        await store.append_batch([fine[0], envelope("order-3", 9, "order-1-0"), *fine[1:]])
    assert (reused.value.execution_id, reused.value.envelope_id) == ("order-3", "order-1-0")

    with pytest.raises(DuplicateSequenceError) as twice:
        await store.append_batch([*fine, envelope("order-2", 1, "another")])
    assert (twice.value.execution_id, twice.value.sequence) == ("order-2", 1)

    with pytest.raises(DuplicateEnvelopeIdError) as doubled:
        await store.append_batch([*fine, envelope("order-2", 7, "order-2-1")])
    assert doubled.value.envelope_id == "order-2-1"

    assert await sequences(store, "order-2") == []
    await store.append_batch(fine)
    assert await sequences(store, "order-2") == [0, 1, 2]
    await store.close()


async def test_a_stale_envelope_names_its_token_and_the_current_one(place: Place) -> None:
    store = await open_store(place)
    assert await store.acquire_fence("order-1") == 1
    assert await store.acquire_fence("order-1") == 2
    for given in (None, 1, 3):
        with pytest.raises(StaleFenceError) as stale:
            await store.append_batch([envelope("order-2", 0), envelope("order-1", 0, fence=given)])
        assert (stale.value.execution_id, stale.value.given) == ("order-1", given)
        assert stale.value.current == 2
    with pytest.raises(StaleFenceError) as never:
        await store.append(envelope("order-3", 0, fence=1))
    assert never.value.current is None
    assert await sequences(store, "order-2") == []
    await store.append_batch([envelope("order-2", 0), envelope("order-1", 0, fence=2)])
    assert await sequences(store, "order-1") == [0]
    await store.close()


async def test_a_batch_is_larger_than_any_limit_on_parameters(place: Place) -> None:
    store = await open_store(place)
    count = 20_000
    many = [envelope(f"order-{number}", 0) for number in range(count)]
    with pytest.raises(DuplicateEnvelopeIdError):
        await store.append_batch([*many, envelope("last", 0, "order-0-0")])
    assert await sequences(store, "order-0") == []
    await store.append_batch(many)
    assert await sequences(store, f"order-{count - 1}") == [0]
    await store.close()


async def test_a_value_is_taken_when_the_call_starts(place: Place) -> None:
    store = await open_store(place)
    payload: dict[str, JsonValue] = {"step": 1}
    given = envelope("order-1", 0, payload=payload)
    batch = [envelope("order-1", 1, payload=payload)]
    calls: list[Awaitable[None]] = [
        asyncio.ensure_future(store.append(given)),
        asyncio.ensure_future(store.append_batch(batch)),
    ]
    await asyncio.sleep(0)
    payload["step"] = 2
    batch.append(envelope("order-1", 2))
    await asyncio.gather(*calls)
    assert [read.payload for read in await store.read_from("order-1")] == [{"step": 1}] * 2
    await store.close()


async def test_a_batch_whose_iterable_fails_writes_nothing(place: Place) -> None:
    store = await open_store(place)

    def broken() -> Iterator[EventEnvelope]:
        yield envelope("order-1", 0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.append_batch(broken())
    assert await sequences(store, "order-1") == []
    await store.close()


async def test_bounds_beyond_any_sequence_are_cut(place: Place) -> None:
    store = await open_store(place)
    await store.append_batch([envelope("order-1", 0), envelope("order-1", 2**53 - 1)])
    assert await sequences(store, "order-1") == [0, 2**53 - 1]
    assert len(await store.read_from("order-1", -(2**70))) == 2
    assert await store.read_from("order-1", 2**70) == []
    assert len(await store.read_range("order-1", -5, 2**70)) == 2
    assert await store.read_range("order-1", 5, -5) == []
    for unreadable in ("", "a\x00b", "\ud800", "x" * 256):
        with pytest.raises(InvalidEnvelopeError):
            await store.read_from(unreadable)
        with pytest.raises(InvalidEnvelopeError):
            await store.acquire_fence(unreadable)
    await store.close()


async def test_every_call_after_close_says_that_the_store_is_closed(place: Place) -> None:
    store = await open_store(place)
    await asyncio.gather(store.close(), store.close())
    await store.close()
    for call in (
        store.append(envelope("order-1", 0)),
        store.append_batch([envelope("order-1", 0)]),
        store.append_batch([]),
        store.read_from("order-1"),
        store.read_range("order-1", 5, 0),
        store.acquire_fence("order-1"),
    ):
        with pytest.raises(StoreClosedError):
            await call


async def test_writes_in_flight_at_close_are_stored_or_refused(place: Place) -> None:
    store = await open_store(place)
    writes = [asyncio.ensure_future(store.append(envelope("order-1", n))) for n in range(30)]
    await asyncio.sleep(0)
    await store.close()
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} <= {type(None), StoreClosedError}
    other = await open_store(place)
    acknowledged = [n for n, outcome in enumerate(outcomes) if outcome is None]
    assert await sequences(other, "order-1") == acknowledged
    await other.close()


async def test_handles_open_a_fresh_storage_at_once(place: Place) -> None:
    stores = await asyncio.gather(*(open_store(place) for _ in range(8)))
    await asyncio.gather(*(s.append(envelope(f"o-{n}", 0)) for n, s in enumerate(stores)))
    for number in range(8):
        assert await sequences(stores[0], f"o-{number}") == [0]
    await asyncio.gather(*(store.close() for store in stores))
