from __future__ import annotations

import asyncio

import pytest
from decorators_support import HeldStore, envelope, only, turns

from loom_backends.memory import MemoryEventStore, MemoryStorage
from loom_conformance.decorators import Replica, ReplicaReadingEventStore
from loom_conformance.spi import DuplicateSequenceError, EventStore, abilities

pytestmark = pytest.mark.asyncio


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


def reading(storage: MemoryStorage, replica: Replica) -> ReplicaReadingEventStore:
    return ReplicaReadingEventStore(MemoryEventStore(storage), replica)


async def seen(store: EventStore, execution_id: str = "a") -> list[int]:
    return [each.sequence for each in await store.read_from(execution_id)]


async def test_reads_wait_for_the_replica_to_catch_up(storage: MemoryStorage) -> None:
    replica = Replica()
    writer, reader = reading(storage, replica), reading(storage, replica)
    await writer.append(envelope("a"))
    await writer.append_batch([envelope("a", 1), envelope("a", 2)])
    assert await seen(writer) == await seen(reader) == []
    assert replica.behind("a") == 2
    replica.catch_up("a", writes=1)
    assert await seen(reader) == [0]
    replica.catch_up()
    assert await seen(reader) == [0, 1, 2]
    assert replica.behind("a") == 0


@pytest.mark.parametrize("lag", [0, 1, 3])
async def test_a_replica_stays_its_lag_behind(storage: MemoryStorage, lag: int) -> None:
    store = reading(storage, Replica(lag))
    for sequence in range(6):
        await store.append(envelope("a", sequence))
        assert await seen(store) == list(range(max(0, sequence + 1 - lag)))
        ranged = await store.read_range("a", sequence - lag, sequence)
        assert [each.sequence for each in ranged] == ([sequence - lag] if sequence >= lag else [])


async def test_executions_lag_by_themselves(storage: MemoryStorage) -> None:
    store = reading(storage, Replica(1))
    await store.append(envelope("a"))
    await store.append_batch([envelope("b"), envelope("c")])
    assert await seen(store, "a") == await seen(store, "b") == await seen(store, "c") == []
    await store.append(envelope("b", 1))
    assert await seen(store, "b") == [0]
    assert await seen(store, "a") == await seen(store, "c") == []


async def test_a_batch_is_seen_whole_or_not_at_all(storage: MemoryStorage) -> None:
    store = reading(storage, Replica(1))
    await store.append_batch([envelope("a", 1), envelope("a", 0)])
    assert await seen(store) == []
    await store.append_batch([envelope("a", 3), envelope("a", 2)])
    assert await seen(store) == [0, 1]


async def test_what_was_seen_stays_seen(storage: MemoryStorage) -> None:
    """A write is seen by a reader that comes before its acknowledgement; it is not hidden then."""
    inner, replica = HeldStore(storage), Replica()
    writer, reader = ReplicaReadingEventStore(inner, replica), reading(storage, replica)
    inner.hold()
    write = asyncio.ensure_future(writer.append_batch([envelope("a"), envelope("a", 1)]))
    await turns()
    await MemoryEventStore(storage).append_batch([envelope("a"), envelope("a", 1)])
    first = await reader.read_range("a", 0, 0)
    assert len(first) == 1
    inner.failure = ConnectionError("no answer")
    inner.release.set()
    with pytest.raises(ConnectionError):
        await write
    assert await seen(reader) == [0, 1]


async def test_nothing_is_seen_beyond_a_write_that_is_missing(storage: MemoryStorage) -> None:
    store = reading(storage, Replica(1))
    await store.append(envelope("a", 1))
    await store.append(envelope("a", 0))
    assert await seen(store) == []
    ranged = await store.read_range("a", 1, 1)
    assert ranged == []


async def test_a_refused_write_leaves_the_replica_where_it_is(storage: MemoryStorage) -> None:
    replica = Replica()
    store = reading(storage, replica)
    await MemoryEventStore(storage).append(envelope("a"))
    with pytest.raises(DuplicateSequenceError):
        await store.append(envelope("a", id="another"))
    assert replica.behind("a") == 0
    assert await seen(store) == [0]


async def test_a_write_of_unknown_outcome_counts_as_landed(storage: MemoryStorage) -> None:
    inner, replica = HeldStore(storage), Replica()
    store = ReplicaReadingEventStore(inner, replica)
    inner.hold()
    write = asyncio.ensure_future(store.append_batch([envelope("a")]))
    await turns()
    write.cancel()
    await turns()
    assert write.cancelled()
    assert replica.behind("a") == 1


async def test_writes_past_the_replica_are_there_at_once(storage: MemoryStorage) -> None:
    store = reading(storage, Replica())
    await MemoryEventStore(storage).append(envelope("a"))
    assert await seen(store) == [0]


async def test_fences_are_the_primarys(storage: MemoryStorage) -> None:
    store = reading(storage, Replica())
    token = await store.acquire_fence("a")
    await store.append(envelope("a", metadata={"fence": token}))


async def test_a_lag_is_never_negative() -> None:
    with pytest.raises(ValueError, match="lag"):
        Replica(-1)


@pytest.mark.parametrize(
    "more",
    [(), ("append_batch",), ("read_range",), ("acquire_fence",), ("append_batch", "read_range")],
)
async def test_abilities_are_those_of_the_inner_store(more: tuple[str, ...]) -> None:
    inner = only(*more)
    assert abilities(ReplicaReadingEventStore(inner, Replica())) == abilities(inner)
    assert len(abilities(inner)) == len(more)


async def test_closing_one_handle_leaves_the_replica_to_the_others(storage: MemoryStorage) -> None:
    replica = Replica()
    one, other = reading(storage, replica), reading(storage, replica)
    await one.append(envelope("a"))
    await one.close()
    assert await seen(other) == []
    replica.catch_up()
    assert await seen(other) == [0]
