from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest
from decorators_support import HandClock, HeldStore, envelope, only, turns

from loom_conformance.decorators import CoalescingEventStore
from loom_conformance.spi import (
    DuplicateSequenceError,
    EventEnvelope,
    InvalidEnvelopeError,
    OutcomeUnknownError,
    StaleFenceError,
    StoreClosedError,
    abilities,
)

pytestmark = pytest.mark.asyncio


@pytest.fixture
def inner() -> HeldStore:
    return HeldStore()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def lingering(inner: HeldStore, clock: HandClock) -> CoalescingEventStore:
    return CoalescingEventStore(inner, max_linger=1.0, max_batch=3, clock=clock)


@pytest.fixture
def eager(inner: HeldStore, clock: HandClock) -> CoalescingEventStore:
    return CoalescingEventStore(inner, max_linger=0.0, max_batch=3, clock=clock)


def start(awaitable: Any) -> asyncio.Task[None]:
    return asyncio.ensure_future(awaitable)


async def stored(inner: HeldStore, execution_id: str) -> list[int]:
    return [each.sequence for each in await inner.fresh().read_from(execution_id)]


# --- flushes ----------------------------------------------------------------------------------


async def test_writes_that_arrive_within_the_linger_share_one_batch(
    lingering: CoalescingEventStore, inner: HeldStore, clock: HandClock
) -> None:
    first, second = start(lingering.append(envelope("a"))), start(lingering.append(envelope("b")))
    await turns()
    assert inner.flushes == []
    assert not first.done()
    await clock.advance(1.0)
    assert inner.flushes == [[("a", 0), ("b", 0)]]
    assert inner.appends == 0
    assert first.done()
    assert second.done()
    assert await stored(inner, "a") == [0]


async def test_nobody_is_acknowledged_before_the_flush_is_durable(
    eager: CoalescingEventStore, inner: HeldStore
) -> None:
    inner.hold()
    write = start(eager.append(envelope("a")))
    await turns()
    assert inner.flushes == [[("a", 0)]]
    assert not write.done()
    inner.release.set()
    await write
    assert await stored(inner, "a") == [0]


async def test_a_full_flush_goes_out_at_once_and_the_rest_lingers(
    lingering: CoalescingEventStore, inner: HeldStore, clock: HandClock
) -> None:
    writes = [start(lingering.append(envelope(f"e{n}"))) for n in range(5)]
    await turns()
    assert inner.flushes == [[("e0", 0), ("e1", 0), ("e2", 0)]]
    assert [write.done() for write in writes] == [True, True, True, False, False]
    await clock.advance(1.0)
    assert inner.flushes[1:] == [[("e3", 0), ("e4", 0)]]
    await asyncio.gather(*writes)


async def test_the_linger_is_counted_from_the_first_write_however_many_follow(
    inner: HeldStore, clock: HandClock
) -> None:
    store = CoalescingEventStore(inner, max_linger=1.0, max_batch=100, clock=clock)
    writes = []
    for n in range(4):
        writes.append(start(store.append(envelope(f"e{n}"))))
        await turns()
        assert inner.flushes == []
        await clock.advance(0.25)
    assert inner.flushes == [[(f"e{n}", 0) for n in range(4)]]
    await asyncio.gather(*writes)


async def test_a_sealed_flush_leaves_no_timer_behind(
    lingering: CoalescingEventStore, clock: HandClock
) -> None:
    await asyncio.gather(*(lingering.append(envelope(f"e{n}")) for n in range(3)))
    assert clock.armed() == 0


async def test_without_linger_a_flush_takes_what_gathered_behind_the_one_before(
    eager: CoalescingEventStore, inner: HeldStore
) -> None:
    inner.hold()
    writes = [start(eager.append(envelope("a")))]
    await turns()
    writes += [start(eager.append(envelope(name))) for name in ("b", "c")]
    await turns()
    assert inner.flushes == [[("a", 0)]]
    inner.release.set()
    await asyncio.gather(*writes)
    assert inner.flushes == [[("a", 0)], [("b", 0), ("c", 0)]]


async def test_what_gathers_behind_a_slow_flush_is_cut_at_max_batch(
    eager: CoalescingEventStore, inner: HeldStore
) -> None:
    inner.hold()
    writes = [start(eager.append(envelope("a")))]
    await turns()
    writes += [start(eager.append(envelope(f"e{n}"))) for n in range(7)]
    await turns()
    inner.release.set()
    await asyncio.gather(*writes)
    assert [len(flush) for flush in inner.flushes] == [1, 3, 3, 1]


async def test_flushes_never_overlap_and_keep_the_order_of_arrival(
    eager: CoalescingEventStore, inner: HeldStore
) -> None:
    writes = []
    for n in range(20):
        writes.append(start(eager.append(envelope("a", n))))
        if n % 7 == 0:
            await asyncio.sleep(0)
    await asyncio.gather(*writes)
    assert inner.most_underway == 1
    assert [slot for flush in inner.flushes for slot in flush] == [("a", n) for n in range(20)]


# --- refusals ---------------------------------------------------------------------------------


async def test_a_refused_flush_refuses_all_its_callers_with_the_flushs_error(
    lingering: CoalescingEventStore, inner: HeldStore, clock: HandClock
) -> None:
    await inner.fresh().append(envelope("taken"))
    names = ("fresh", "taken", "other")
    writes = [start(lingering.append(envelope(name))) for name in names]
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert all(result is results[0] for result in results)
    assert isinstance(results[0], DuplicateSequenceError)
    assert results[0].execution_id == "taken"
    assert await stored(inner, "fresh") == await stored(inner, "other") == []
    await lingering.append_batch([envelope("fresh")])
    assert await stored(inner, "fresh") == [0]
    await asyncio.gather(*(lingering.append(envelope(name)) for name in ("x", "y", "z")))
    assert await stored(inner, "z") == [0]


@pytest.mark.parametrize("failure", [RuntimeError("disk"), SystemExit(3), KeyError("x")])
async def test_callers_raise_whatever_the_store_raises(
    eager: CoalescingEventStore, inner: HeldStore, failure: BaseException
) -> None:
    inner.failure = failure
    seen = []
    for name in ("a", "b"):
        try:
            await eager.append(envelope(name))
        except BaseException as error:  # noqa: BLE001 - SystemExit is what is passed on
            seen.append(error)
    assert seen == [failure, failure]
    inner.failure = None
    await eager.append(envelope("c"))


async def test_an_append_batch_is_a_flush_of_its_own(
    lingering: CoalescingEventStore, inner: HeldStore
) -> None:
    await inner.fresh().append(envelope("taken"))
    before = start(lingering.append(envelope("a")))
    await turns()
    batch = start(lingering.append_batch([envelope("taken"), envelope("b")]))
    await turns()
    after = start(lingering.append(envelope("c")))
    await turns()
    assert inner.flushes == [[("a", 0)], [("taken", 0), ("b", 0)]]
    await before
    with pytest.raises(DuplicateSequenceError):
        await batch
    assert not after.done()
    await lingering.close()
    await after
    assert inner.flushes[2:] == [[("c", 0)]]
    assert await stored(inner, "a") == [0]
    assert await stored(inner, "b") == []


async def test_a_batch_may_be_larger_than_max_batch(
    eager: CoalescingEventStore, inner: HeldStore
) -> None:
    await eager.append_batch(envelope("a", n) for n in range(50))
    assert [len(flush) for flush in inner.flushes] == [50]


async def test_an_empty_batch_flushes_nothing(
    lingering: CoalescingEventStore, inner: HeldStore
) -> None:
    waiting = start(lingering.append(envelope("a")))
    await turns()
    await lingering.append_batch([])
    await turns()
    assert inner.flushes == []
    await lingering.close()
    await waiting


async def test_an_iterable_is_read_once_and_its_own_error_writes_nothing(
    lingering: CoalescingEventStore, inner: HeldStore
) -> None:
    def breaks() -> Iterator[EventEnvelope]:
        yield envelope("a")
        raise LookupError("no more")

    with pytest.raises(LookupError):
        await lingering.append_batch(breaks())
    assert inner.flushes == []
    await lingering.append_batch(iter([envelope("a"), envelope("a", 1)]))
    assert await stored(inner, "a") == [0, 1]


async def test_a_value_outside_the_domain_costs_no_one_else_the_flush(
    lingering: CoalescingEventStore, inner: HeldStore, clock: HandClock
) -> None:
    good = start(lingering.append(envelope("a")))
    loop: list[Any] = []
    loop.append(loop)
    for payload in (float("nan"), loop):
        with pytest.raises(InvalidEnvelopeError):
            await lingering.append(envelope("b", payload=payload))
    await clock.advance(1.0)
    await good
    assert inner.flushes == [[("a", 0)]]


async def test_the_value_is_the_one_that_was_given_at_the_call(
    lingering: CoalescingEventStore, inner: HeldStore, clock: HandClock
) -> None:
    payload: dict[str, Any] = {"deep": [{"n": 1}]}
    metadata: dict[str, Any] = {"tags": ["x"]}
    single = start(lingering.append(envelope("a", payload=payload, metadata=metadata)))
    await turns()
    payload["deep"][0]["n"] = 2
    metadata["tags"].append("y")
    await clock.advance(1.0)
    await single
    inner.hold()
    batch = start(lingering.append_batch([envelope("b", payload=payload, metadata=metadata)]))
    await turns()
    payload["deep"].clear()
    inner.release.set()
    await batch
    (a,), (b,) = await inner.read_from("a"), await inner.read_from("b")
    assert (a.payload, a.metadata) == ({"deep": [{"n": 1}]}, {"tags": ["x"]})
    assert (b.payload, b.metadata) == ({"deep": [{"n": 2}]}, {"tags": ["x", "y"]})


# --- cancellation -----------------------------------------------------------------------------


async def test_a_caller_cancelled_before_the_flush_has_written_nothing(
    lingering: CoalescingEventStore, inner: HeldStore, clock: HandClock
) -> None:
    leaver, stayer = (start(lingering.append(envelope(name))) for name in ("a", "b"))
    await turns()
    leaver.cancel()
    await turns()
    assert leaver.cancelled()
    await clock.advance(1.0)
    await stayer
    assert inner.flushes == [[("b", 0)]]


async def test_a_flush_that_everyone_left_is_not_sent_and_leaves_no_timer(
    lingering: CoalescingEventStore, inner: HeldStore, clock: HandClock
) -> None:
    leaver = start(lingering.append(envelope("a")))
    await turns()
    leaver.cancel()
    await turns()
    assert clock.armed() == 0
    await clock.advance(1.0)
    assert inner.flushes == []
    later = start(lingering.append(envelope("b")))
    await clock.advance(0.5)
    assert inner.flushes == []
    await clock.advance(0.5)
    await later


async def test_a_caller_cancelled_during_the_flush_is_settled_and_harms_no_one(
    lingering: CoalescingEventStore, inner: HeldStore, clock: HandClock
) -> None:
    inner.hold()
    leaver, stayer = (start(lingering.append(envelope(name))) for name in ("a", "b"))
    await turns()
    await clock.advance(1.0)
    leaver.cancel()
    await turns()
    assert not leaver.done()
    assert inner.cancelled == 0
    inner.release.set()
    await stayer
    await turns()
    assert leaver.cancelled()
    assert await stored(inner, "a") == await stored(inner, "b") == [0]


async def test_a_second_cancellation_leaves_at_once(
    eager: CoalescingEventStore, inner: HeldStore
) -> None:
    inner.hold()
    leaver, stayer = (start(eager.append(envelope(name))) for name in ("a", "b"))
    await turns()
    leaver.cancel()
    await turns()
    leaver.cancel()
    await turns()
    assert leaver.cancelled()
    assert not stayer.done()
    inner.release.set()
    await stayer


async def test_the_flush_is_cancelled_with_its_last_caller(
    eager: CoalescingEventStore, inner: HeldStore
) -> None:
    inner.hold()
    leavers = [start(eager.append(envelope(name))) for name in ("a", "b")]
    await turns()
    for leaver in leavers:
        leaver.cancel()
    await turns()
    assert all(leaver.cancelled() for leaver in leavers)
    assert inner.cancelled == 1
    inner.release.set()
    await eager.append(envelope("a"))
    assert await stored(inner, "a") == [0]


@pytest.mark.parametrize("moment", range(8))
async def test_a_cancelled_caller_of_a_refused_flush_leaves_no_complaint(
    eager: CoalescingEventStore, inner: HeldStore, moment: int
) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
    inner.hold()
    inner.failure = RuntimeError("disk")
    leaver, stayer = (start(eager.append(envelope(name))) for name in ("a", "b"))
    await turns()
    inner.release.set()
    await turns(moment)
    leaver.cancel()
    results = await asyncio.gather(leaver, stayer, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError | RuntimeError)
    assert results[1] is inner.failure
    del leaver, stayer, results
    gc.collect()
    await turns()
    assert complaints == []


@pytest.mark.parametrize("moment", range(8))
async def test_a_cancelled_call_is_all_or_nothing_at_every_turn(moment: int) -> None:
    inner = HeldStore()
    store = CoalescingEventStore(inner)
    call = start(store.append_batch([envelope("a"), envelope("a", 1)]))
    await turns(moment)
    call.cancel()
    await asyncio.wait([call])
    assert await stored(inner, "a") in ([], [0, 1])
    await store.append(envelope("b"))
    assert await stored(inner, "b") == [0]


async def test_a_flush_cancelled_from_outside_is_an_unknown_outcome(
    eager: CoalescingEventStore, inner: HeldStore
) -> None:
    inner.failure = asyncio.CancelledError()
    with pytest.raises(OutcomeUnknownError):
        await eager.append(envelope("a"))
    inner.failure = None
    await eager.append(envelope("a"))


# --- close ------------------------------------------------------------------------------------


async def test_close_settles_everyone_and_then_refuses(
    lingering: CoalescingEventStore, inner: HeldStore
) -> None:
    inner.hold()
    waiting = [start(lingering.append(envelope(name))) for name in ("a", "b")]
    await turns()
    closing = start(lingering.close())
    await turns()
    for refused in (lingering.append(envelope("c")), lingering.append_batch([envelope("c")])):
        with pytest.raises(StoreClosedError):
            await refused
    assert not closing.done()
    assert inner.underway == 1
    inner.release.set()
    await closing
    assert all(write.done() for write in waiting)
    assert inner.flushes == [[("a", 0), ("b", 0)]]
    assert inner.closed
    await asyncio.wait_for(lingering.close(), 5)
    with pytest.raises(StoreClosedError):
        await lingering.append_batch([])


async def test_close_tells_the_callers_of_a_refused_last_flush(
    lingering: CoalescingEventStore, inner: HeldStore
) -> None:
    waiting = start(lingering.append(envelope("a")))
    await turns()
    inner.failure = RuntimeError("disk")
    await lingering.close()
    with pytest.raises(RuntimeError):
        await waiting


async def test_a_cancelled_close_goes_on(lingering: CoalescingEventStore, inner: HeldStore) -> None:
    inner.hold()
    waiting = start(lingering.append(envelope("a")))
    await turns()
    closing = start(lingering.close())
    await turns()
    closing.cancel()
    await turns()
    assert closing.cancelled()
    inner.release.set()
    await lingering.close()
    await waiting
    assert inner.closed


# --- construction -----------------------------------------------------------------------------


async def test_a_store_without_append_batch_cannot_be_coalesced() -> None:
    with pytest.raises(TypeError, match="append_batch"):
        CoalescingEventStore(only("read_range"))


@pytest.mark.parametrize("linger", [-1.0, float("nan"), float("inf")])
async def test_a_linger_must_be_a_time(linger: float, inner: HeldStore) -> None:
    with pytest.raises(ValueError, match="max_linger"):
        CoalescingEventStore(inner, max_linger=linger)


async def test_a_flush_holds_one_write_at_least(inner: HeldStore) -> None:
    with pytest.raises(ValueError, match="max_batch"):
        CoalescingEventStore(inner, max_batch=0)


@pytest.mark.parametrize("more", [(), ("read_range",), ("acquire_fence",)])
async def test_abilities_are_those_of_the_inner_store(more: tuple[str, ...]) -> None:
    inner = only("append_batch", *more)
    assert abilities(CoalescingEventStore(inner)) == abilities(inner)


async def test_fences_and_reads_go_straight_through(
    lingering: CoalescingEventStore, inner: HeldStore, clock: HandClock
) -> None:
    token = await lingering.acquire_fence("a")
    stale = start(lingering.append(envelope("a")))
    await clock.advance(1.0)
    with pytest.raises(StaleFenceError):
        await stale
    fenced = start(lingering.append(envelope("a", metadata={"fence": token})))
    await clock.advance(1.0)
    await fenced
    assert [each.sequence for each in await lingering.read_from("a")] == [0]
    assert [each.sequence for each in await lingering.read_range("a", 0, 5)] == [0]
