"""LIVE-4: a call that is cancelled harms no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import Any, TypeVar, cast

from ...lab.awaits import watching
from ...lab.calls import Handle, Hung, Outcome, settle, told_error, told_value
from ...lab.cancellation import bare_write, cancel_at, one_write
from ...lab.paths import WritePath
from ...lab.stage import Log, Stage, difference_between
from ...lab.verdict import Inconclusive
from ...spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    FencingEventStore,
    is_error,
)
from ..case import on_every_write_path, on_write_paths, rule

T = TypeVar("T")

TAKEN = (DuplicateSequenceError, DuplicateEnvelopeIdError)
ENOUGH_CANCELS = 16
"""How many calls are cancelled at least, so that a pool that leaks a connection each runs dry."""

MANY_CANCELS = 20
"""How many calls are cancelled twice at most, where a call has many awaits."""


class CancellingSuite:
    """A handle is whole after a call was cut short."""

    @rule("LIVE-4")
    @on_every_write_path
    async def test_a_write_cancelled_at_any_await_is_whole_or_absent(
        self, stage: Stage, path: WritePath
    ) -> None:
        await _cancelled_writes(stage, twice=False)

    @rule("LIVE-4")
    @on_write_paths("append", "batch-middle", "batch-last", "coalesced-append")
    async def test_a_write_cancelled_again_while_it_ends_is_whole_or_absent(
        self, stage: Stage, path: WritePath
    ) -> None:
        await _cancelled_writes(stage, twice=True)

    @rule("LIVE-4")
    async def test_a_cancelled_acquire_or_read_leaves_the_handle_usable(self, stage: Stage) -> None:
        handle = await stage.connect()
        log = await stage.given_log(2)
        fencing = await stage.offers("fencing")
        store: Any = handle.store
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "read_from": lambda: store.read_from(log.execution_id)
        }
        if await stage.offers("range"):
            calls["read_range"] = lambda: store.read_range(log.execution_id, 0, 1)
        if fencing:
            calls["acquire_fence"] = lambda: store.acquire_fence(log.execution_id)
        for method, call in calls.items():
            async for place, later, _ in _places(stage, call):
                stage.steps.append(f"{method} cancelled at its await {place}")
                await cancel_at(
                    call,
                    place,
                    later=later,
                    deadline=stage.session.allowance(method),
                    method=method,
                )
                reads: list[Outcome[Sequence[EventEnvelope]]] = []
                reads.append(await _usably(stage, handle.read_from(log.execution_id)))
                if method == "read_range":
                    reads.append(await _usably(stage, handle.read_range(log.execution_id, 0, 1)))
                for outcome in reads:
                    stage.returned(outcome, "a read after a cancelled call to succeed")
                    found = stage.listed(outcome)
                    stage.check(len(found) == 2, "the whole log", f"{len(found)} envelopes of 2")
        with _usable(stage):
            if fencing:
                log.token = stage.returned(
                    await handle.acquire_fence(log.execution_id),
                    "an acquire after a cancelled one to succeed",
                )
            written = await handle.append(log.envelope())
            stage.returned(written, "the next write to be acknowledged")

    @rule("FENCE-1")
    async def test_tokens_grow_past_an_acquire_that_is_cancelled_as_another_begins(
        self, stage: Stage
    ) -> None:
        await stage.needs("fencing")
        leaving, staying = await stage.connect(name="leaving"), await stage.connect(name="staying")
        log = await stage.given_log(1)
        last = stage.given(await staying.acquire_fence(log.execution_id))
        for place in range(1, ENOUGH_CANCELS + 1):
            token = await _acquired_beside(stage, leaving, staying, log.execution_id, place)
            if token is None:
                break
            newer = stage.given(await staying.acquire_fence(log.execution_id))
            stage.check(
                last < token < newer,
                f"tokens to grow past {last} and past an acquire that was cancelled",
                f"they were {token} and {newer}",
            )
            last = newer
        newest = stage.given(await staying.acquire_fence(log.execution_id))
        stage.check(newest > last, f"a token above {last}", f"it is {newest}")


async def _acquired_beside(
    stage: Stage, leaving: Handle, staying: Handle, execution_id: str, place: int
) -> int | None:
    """The token of an acquire that began when another came to an await and was cancelled there.

    `None` where that one has no such await.
    """
    one, other = cast(FencingEventStore, leaving.store), cast(FencingEventStore, staying.store)
    beside: list[asyncio.Future[int]] = []

    def reached(count: int) -> None:
        if count == place:
            beside.append(asyncio.ensure_future(other.acquire_fence(execution_id)))
            asyncio.get_running_loop().call_soon(cancelled.cancel)

    cancelled = asyncio.ensure_future(watching(one.acquire_fence(execution_id), reached))
    bound = stage.session.allowance("acquire_fence")
    await asyncio.wait({cancelled}, timeout=bound)
    stage.steps.append(f"acquire_fence cancelled at its await {place} as another began")
    if beside:
        await asyncio.wait(beside, timeout=bound)
    for call in (cancelled, *beside):
        if not call.done():
            call.cancel()
            raise Inconclusive("an acquire beside one that was cancelled did not settle")
    if not beside:
        return None
    try:
        return beside[0].result()
    except Exception as error:
        raise Inconclusive(f"an acquire beside a cancelled one → {told_error(error)}") from error


@contextmanager
def _usable(stage: Stage) -> Iterator[None]:
    """Calls that must settle because one before them was cancelled; LIVE-4 and not LIVE-1."""
    try:
        yield
    except Hung as hung:
        stage.session.note_hung(hung.method, stage.rule)
        stage.broken("the handle to stay usable after a cancelled call", str(hung))


async def _usably(stage: Stage, call: Awaitable[T]) -> T:
    with _usable(stage):
        return await call


@dataclass(frozen=True, slots=True)
class _Tried:
    """A write that was cancelled, whether it was acknowledged, and whether it was seen then."""

    envelopes: list[EventEnvelope]
    acknowledged: bool
    seen: bool


async def _cancelled_writes(stage: Stage, *, twice: bool) -> None:
    handle = await stage.contender()
    good = stage.log()
    tried: list[_Tried] = []
    async for place, later, again in _places(stage, lambda: one_write(stage, handle), twice=twice):
        log = Log(stage.session.fresh_id())
        envelopes, _, _ = stage.compose(log, log.envelope)
        cancelled = await cancel_at(
            lambda envelopes=envelopes: bare_write(stage, handle, envelopes),  # type: ignore[misc]
            place,
            later=later,
            deadline=stage.session.allowance("append"),
            method="a write",
            again=again,
        )
        came = told_value(None) if cancelled.error is None else told_error(cancelled.error)
        more = f" and {again} later" if again else ""
        stage.steps.append(f"write cancelled at its await {place}{more} → {came}")
        with _usable(stage):
            seen = await _whole_or_absent(stage, handle, envelopes)
            tried.append(_Tried(envelopes, cancelled.acknowledged, seen))
            await _next_write(stage, handle, good)
    await stage.holds(good, expected="writes acknowledged after a cancelled one to be durable")
    late = await _settled_for_good(stage, tried)
    with _usable(stage):
        await _made_again(stage, handle, tried)
    # A second cancellation may leave at once: the first one's caller has been told nothing yet.
    if late and not twice:
        stage.broken(
            "a cancelled write to be settled when the call ends",
            f"{late} of {len(tried)} landed later",
            advice=True,
        )


async def _places(
    stage: Stage, call: Callable[[], Awaitable[Any]], *, twice: bool = False
) -> AsyncIterator[tuple[int, bool, int]]:
    """Each await of the call in turn, at once and a turn later, and often enough.

    The third is after how many awaits more a second cancellation follows, and 0 where none does.
    """
    counted = await settle("a call", "append", call, stage.session.allowance("append"))
    if counted.error is not None:
        raise Inconclusive(f"the call fails without cancellation too: {counted.told()}")
    awaits = counted.suspensions
    if awaits == 0:
        return
    places = list(product(range(1, awaits + 1), (False, True), (1, 2, 3) if twice else (0,)))
    if twice and len(places) > MANY_CANCELS:
        places = stage.random.sample(places, MANY_CANCELS)
    for _ in range(ceil(ENOUGH_CANCELS / len(places))):
        for place in places:
            yield place


async def _whole_or_absent(stage: Stage, reader: Handle, envelopes: list[EventEnvelope]) -> bool:
    """Whether the write is there, all of it; none of it otherwise.

    It may land between the reads of two executions: what is there in part is read once more.
    """
    wanted = _in_order(envelopes)
    found = _in_order(await _found(stage, reader, envelopes))
    if found and difference_between(wanted, found):
        found = _in_order(await _found(stage, reader, envelopes))
    if not found:
        return False
    difference = difference_between(wanted, found)
    if difference:
        stage.broken("a cancelled write to be in the log whole or not at all", difference)
    return True


def _in_order(envelopes: list[EventEnvelope]) -> list[EventEnvelope]:
    return sorted(envelopes, key=lambda one: (one.execution_id, one.sequence))


async def _found(
    stage: Stage, reader: Handle, envelopes: list[EventEnvelope]
) -> list[EventEnvelope]:
    """What the executions of a write hold."""
    found: list[EventEnvelope] = []
    for execution_id in dict.fromkeys(envelope.execution_id for envelope in envelopes):
        outcome = await reader.read_from(execution_id)
        stage.returned(outcome, "a read after a cancelled write to succeed")
        found += stage.listed(outcome)
    return found


async def _next_write(stage: Stage, handle: Handle, log: Log) -> None:
    expected = "the next write after a cancelled one to be acknowledged"
    try:
        outcome = await stage.write_alone(handle, log.envelope())
    except Hung as hung:
        stage.broken(expected, str(hung))
    stage.returned(outcome, expected)
    log.wrote(log.envelope())


async def _settled_for_good(stage: Stage, tried: list[_Tried]) -> int:
    """Check on a fresh handle what was seen and told of writes; how many landed since."""
    late = 0
    async with stage.fresh() as reader:
        for one in tried:
            there = await _whole_or_absent(stage, reader, one.envelopes)
            stage.check(
                there or not one.acknowledged,
                "a write that was acknowledged although cancelled to be stored",
                "it is absent",
            )
            stage.check(there or not one.seen, "what was seen once to stay", "it is gone")
            late += there and not one.seen
    return late


async def _made_again(stage: Stage, handle: Handle, tried: list[_Tried]) -> None:
    """Check that each write, made again on its handle, is refused just where it has landed."""
    loop = asyncio.get_running_loop()
    written: list[Log] = []
    for one in tried:
        patience = loop.time() + stage.settings.deadline / 4
        outcome = await stage.write(handle, one.envelopes)
        there = await _whole_or_absent(stage, handle, one.envelopes)
        # Across a network the cancelled write may be on its way still, and hold its place.
        while is_error(outcome.error, *TAKEN) and not there and loop.time() < patience:
            await asyncio.sleep(0.02)
            outcome = await stage.write(handle, one.envelopes)
            there = await _whole_or_absent(stage, handle, one.envelopes)
        if outcome.ok and one.seen:
            stage.broken(
                "a cancelled write that landed to be refused when made again", outcome.line()
            )
        if not (there and is_error(outcome.error, *TAKEN)):
            stage.returned(
                outcome, "a cancelled write that left nothing to be accepted when made again"
            )
        for execution_id in dict.fromkeys(each.execution_id for each in one.envelopes):
            own = [each for each in one.envelopes if each.execution_id == execution_id]
            written.append(Log(execution_id, envelopes=sorted(own, key=lambda each: each.sequence)))
    await stage.holds(*written, expected="a write that was made again to be stored whole")
