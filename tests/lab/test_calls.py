"""One call, bounded and told; bursts of them; cancellation at each await; the spy below."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from lab_support import envelope

from loom_backends.memory import MemoryBackend
from loom_conformance.lab.awaits import watched
from loom_conformance.lab.burst import burst, met, must_have_met
from loom_conformance.lab.calls import Hung, Outcome, settle, short, told_envelopes, told_error
from loom_conformance.lab.cancellation import cancel_at
from loom_conformance.lab.spy import spied
from loom_conformance.lab.verdict import Inconclusive
from loom_conformance.spi import DuplicateSequenceError, abilities

pytestmark = pytest.mark.asyncio

BRIEF = 0.05


async def _settle(start: Callable[[], Awaitable[Any]], seconds: float = 5.0) -> Outcome[Any]:
    return await settle("h.call()", "call", start, seconds)


async def _suspending(times: int, value: object = None) -> object:
    for _ in range(times):
        await asyncio.sleep(0)
    return value


async def test_a_value_and_the_suspensions_are_told() -> None:
    outcome = await _settle(lambda: _suspending(3, 7))
    assert outcome.ok
    assert outcome.value == 7
    assert outcome.suspensions == 3
    assert outcome.line() == "h.call() → 7"


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), asyncio.CancelledError()])
async def test_whatever_a_call_raises_is_its_outcome(error: BaseException) -> None:
    async def fail() -> None:
        raise error

    outcome = await _settle(fail)
    assert outcome.error is error
    assert not outcome.ok


async def test_an_error_of_the_stores_own_says_where_it_was_raised() -> None:
    async def careless() -> object:
        orders: dict[str, object] = {}
        return orders["order"]

    async def orderly() -> None:
        raise DuplicateSequenceError("order-1", 0)

    line = careless.__code__.co_firstlineno + 2
    told = (await _settle(careless)).told()
    assert told == f"KeyError: 'order' ({Path(__file__).name}:{line})"
    assert Path(__file__).name not in (await _settle(orderly)).told()


async def test_a_method_that_is_not_async_is_asked_to_be() -> None:
    outcome = await _settle(lambda: None)  # type: ignore[arg-type, return-value]
    assert outcome.told() == "TypeError: it returned None, no awaitable: is it `async def`?"


async def test_a_call_that_is_watched_is_a_call_like_any_other() -> None:
    seen: list[int] = []
    outcome = await _settle(lambda: watched(_suspending(2, 7), seen.append))
    assert (outcome.value, seen) == (7, [1, 2])


async def test_a_call_that_hangs_is_cancelled_and_named() -> None:
    cancelled = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(Hung, match=r"h\.call\(\) did not settle within 0\.05 s$"):
        await _settle(hang, BRIEF)
    assert cancelled.is_set()


async def test_a_call_that_ignores_its_cancellation_is_left_behind() -> None:
    released = asyncio.Event()

    async def stubborn() -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    with pytest.raises(Hung, match="ignored its cancellation"):
        await _settle(stubborn, BRIEF)
    released.set()


async def test_a_burst_overlaps_where_its_calls_suspend() -> None:
    outcomes = await burst([lambda: _settle(lambda: _suspending(2))] * 3)
    assert met(outcomes)
    must_have_met([outcomes])


async def test_calls_one_after_another_have_not_met() -> None:
    outcomes = [await _settle(lambda: _suspending(2)) for _ in range(3)]
    assert not met(outcomes)
    with pytest.raises(Inconclusive, match="no two calls overlapped"):
        must_have_met([outcomes, outcomes])


async def test_calls_of_one_step_are_atomic() -> None:
    assert met([await _settle(lambda: _suspending(0)) for _ in range(3)])


async def test_a_burst_waits_for_all_before_it_tells_of_the_one_that_hung() -> None:
    done = []

    async def slow() -> Outcome[Any]:
        outcome = await _settle(lambda: _suspending(50))
        done.append(outcome)
        return outcome

    async def hanging() -> Outcome[Any]:
        return await _settle(lambda: asyncio.sleep(60), BRIEF)

    with pytest.raises(Hung):
        await burst([hanging, slow])
    assert done


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("place", [1, 2, 3])
async def test_a_call_is_cancelled_at_the_chosen_await(place: int, later: bool) -> None:
    passed = []

    async def work() -> None:
        for number in range(1, 4):
            await asyncio.sleep(0)
            passed.append(number)

    result = await cancel_at(work, place, later=later, deadline=5, method="work")
    assert result.reached
    assert passed[: place - 1] == list(range(1, place))
    assert len(passed) <= place
    assert isinstance(result.error, asyncio.CancelledError)


@pytest.mark.parametrize("later", [False, True])
async def test_a_call_is_cancelled_again_at_an_await_of_its_end(later: bool) -> None:
    ended = []

    async def work() -> None:
        try:
            await asyncio.sleep(0.01)
        finally:
            for number in (1, 2, 3):
                await asyncio.sleep(0.01)
                ended.append(number)

    result = await cancel_at(work, 1, later=later, deadline=5, method="work", again=2)
    assert result.reached
    assert result.again
    assert ended == [1]
    assert isinstance(result.error, asyncio.CancelledError)


async def test_a_cancellation_beyond_the_last_await_does_not_fire() -> None:
    result = await cancel_at(lambda: _suspending(2), 9, later=False, deadline=5, method="work")
    assert not result.reached
    assert result.acknowledged


async def test_a_spy_has_just_the_abilities_that_are_left_to_it() -> None:
    backend = MemoryBackend()
    address = await backend.create()
    store = await backend.connect(address)
    whole, _ = spied(store)
    assert abilities(whole) == abilities(store)
    less, _ = spied(store, without=frozenset({"batch"}))
    assert abilities(less) == abilities(store) - {"batch"}
    await store.close()
    await backend.destroy(address)


async def test_a_spy_holds_writes_until_it_is_told_to_let_them_go() -> None:
    backend = MemoryBackend()
    address = await backend.create()
    inner, spy = spied(await backend.connect(address))
    spy.hold()
    writing = asyncio.ensure_future(inner.append(envelope(0)))
    await spy.begun.wait()
    assert not writing.done()
    assert list(await inner.read_from(envelope(0).execution_id)) == []
    spy.release()
    await writing
    assert spy.written(envelope(0).execution_id) == [0]
    await inner.close()
    await backend.destroy(address)


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


async def test_telling_never_raises() -> None:
    assert short(10**5000).startswith("<int, whose repr raises")
    assert short(_Unprintable()).startswith("<_Unprintable")
    assert told_error(_Unprintable()).startswith("_Unprintable: <its message raises")
    assert told_error(ValueError("first\nsecond")) == "ValueError: first"
    assert len(told_error(ValueError("x" * 5000))) < 200


async def test_many_envelopes_are_counted_instead_of_listed() -> None:
    told = told_envelopes([envelope(number) for number in range(50)])
    assert told.startswith("50 envelopes: ")
    assert len(told) < 200
