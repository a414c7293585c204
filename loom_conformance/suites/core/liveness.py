"""LIVE-1 to LIVE-7: calls end, handles close, cancellation does no harm."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...lab.awaits import watched
from ...lab.burst import burst, must_have_met
from ...lab.calls import Handle, Hung, Outcome, settle, told_error, told_value
from ...lab.cancellation import cancel_at
from ...lab.paths import WritePath
from ...lab.stage import Log, Stage, difference_between
from ...lab.verdict import Inconclusive, NotOffered
from ...spi import EventEnvelope, OutcomeUnknownError, StoreClosedError, is_error
from ..case import on_every_write_path, rule

CALLERS = 40
ENOUGH_CANCELS = 16
"""How many calls are cancelled at least, so that a pool that leaks a connection each runs dry."""


class LivenessSuite:
    """Nothing waits for ever, and nobody pays for another's end."""

    @rule("LIVE-1")
    async def test_every_call_settles(self, stage: Stage) -> None:
        handle = await stage.connect()
        log = stage.log()
        stage.given(await handle.append(log.envelope(0)))
        stage.given(await handle.read_from(log.execution_id))
        if await stage.offers("batch"):
            stage.given(await handle.append_batch([log.envelope(1), log.envelope(2)]))
        if await stage.offers("range"):
            stage.given(await handle.read_range(log.execution_id, 0, 1))
        if await stage.offers("fencing"):
            stage.given(await handle.acquire_fence(log.execution_id))
        stage.given(await handle.close())

    @rule("LIVE-1")
    @on_every_write_path
    async def test_every_call_settles_under_contention(self, stage: Stage, path: WritePath) -> None:
        handle = await stage.contender()
        logs = [stage.log() for _ in range(CALLERS)]
        calls: list[Callable[[], Awaitable[Outcome[Any]]]] = [
            stage.writing(handle, log.envelope()) for log in logs
        ]
        hot = await stage.given_log(1)
        calls += [lambda: handle.read_from(hot.execution_id)] * 8
        if await stage.offers("fencing"):
            calls += [lambda: handle.acquire_fence(hot.execution_id)] * 8
        await burst(calls)

    @rule("LIVE-1")
    @on_every_write_path
    async def test_every_call_settles_while_the_handle_closes(
        self, stage: Stage, path: WritePath
    ) -> None:
        await _close_in_flight(stage)

    @rule("LIVE-2")
    async def test_close_is_idempotent(self, stage: Stage) -> None:
        handle = await stage.connect()
        log = stage.log()
        stage.given(await handle.append(log.envelope()))
        for _ in range(3):
            stage.returned(await handle.close(), "close to succeed, however often it is called")
        again = await stage.connect()
        outcomes = await burst([again.close for _ in range(4)])
        for outcome in outcomes:
            stage.returned(outcome, "simultaneous calls of close all to succeed")

    @rule("LIVE-2")
    async def test_close_can_be_called_again_after_it_was_cancelled(self, stage: Stage) -> None:
        counted = await settle(
            "close()",
            "close",
            (await stage.connect()).store.close,
            stage.session.allowance("close"),
        )
        stage.given(counted)
        for place in range(1, counted.suspensions + 1):
            for later in (False, True):
                handle = await stage.connect()
                await cancel_at(
                    handle.store.close,
                    place,
                    later=later,
                    deadline=stage.session.allowance("close"),
                    method="close",
                )
                stage.steps.append(f"close() cancelled at its await {place}")
                expected = "close to succeed after one that was cancelled"
                try:
                    stage.returned(await handle.close(), expected)
                except Hung as hung:
                    stage.broken(expected, str(hung))

    @rule("LIVE-2")
    async def test_a_closed_handle_refuses_every_call(self, stage: Stage) -> None:
        handle = await stage.connect()
        log = await stage.given_log(1)
        stage.given(await handle.close())
        outcomes: list[Outcome[Any]] = [
            await handle.append(log.envelope()),
            await handle.read_from(log.execution_id),
        ]
        if await stage.offers("batch"):
            outcomes.append(await handle.append_batch([log.envelope()]))
        if await stage.offers("range"):
            outcomes.append(await handle.read_range(log.execution_id, 0, 0))
        if await stage.offers("fencing"):
            outcomes.append(await handle.acquire_fence(log.execution_id))
        for outcome in outcomes:
            stage.check(not outcome.ok, "an error from a closed handle", outcome.line())
        await stage.holds(log, expected="a closed handle to store nothing")
        for outcome in outcomes:
            if not is_error(outcome.error, StoreClosedError):
                stage.broken("StoreClosedError from a closed handle", outcome.line(), advice=True)

    @rule("LIVE-3")
    @on_every_write_path
    async def test_a_write_in_flight_at_close_is_stored_or_absent_as_it_was_told(
        self, stage: Stage, path: WritePath
    ) -> None:
        for _ in range(stage.settings.rounds(3)):
            await _as_told(stage, await _close_in_flight(stage))

    @rule("LIVE-3")
    @on_every_write_path
    async def test_a_write_is_as_it_was_told_wherever_close_meets_it(
        self, stage: Stage, path: WritePath
    ) -> None:
        handle = await stage.contender()
        stage.given(await handle.append(Log(stage.session.fresh_id()).envelope()))
        counted = await settle("a write", "append", lambda: _one_write(stage, handle), _long(stage))
        told: list[tuple[list[EventEnvelope], Outcome[None]]] = []
        for place in range(1, counted.suspensions + 1):
            for later in (False, True):
                told.append(await _closed_at(stage, place, later=later))
        await _as_told(stage, told)

    @rule("LIVE-4")
    @on_every_write_path
    async def test_a_write_cancelled_at_any_await_is_whole_or_absent(
        self, stage: Stage, path: WritePath
    ) -> None:
        handle = await stage.contender()
        good = stage.log()
        tried: list[tuple[list[EventEnvelope], bool, bool]] = []
        async for place, later in _places(stage, lambda: _one_write(stage, handle)):
            log = stage.log()
            envelopes, _, _ = stage.compose(log, log.envelope)
            cancelled = await cancel_at(
                lambda envelopes=envelopes: _raw_write(stage, handle, envelopes),  # type: ignore[misc]
                place,
                later=later,
                deadline=stage.session.allowance("append"),
                method="a write",
            )
            came = told_value(None) if cancelled.error is None else told_error(cancelled.error)
            stage.steps.append(f"write cancelled at its await {place} → {came}")
            with _usable(stage):
                seen = await _whole_or_absent(stage, handle, envelopes)
                tried.append((envelopes, cancelled.acknowledged, seen))
                await _next_write(stage, handle, good)
        await stage.holds(good, expected="writes acknowledged after a cancelled one to be durable")
        await _settled_for_good(stage, tried)

    @rule("LIVE-4")
    async def test_a_cancelled_acquire_or_read_leaves_the_handle_usable(self, stage: Stage) -> None:
        handle = await stage.connect()
        log = await stage.given_log(2)
        fencing = await stage.offers("fencing")
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: handle.store.read_from(log.execution_id)
        ]
        if fencing:
            calls.append(lambda: _acquire(handle, log.execution_id))
        for call in calls:
            async for place, later in _places(stage, call):
                await cancel_at(
                    call,
                    place,
                    later=later,
                    deadline=stage.session.allowance("read_from"),
                    method="a call",
                )
                with _usable(stage):
                    found = stage.returned(
                        await handle.read_from(log.execution_id),
                        "a read after a cancelled call to succeed",
                    )
                stage.check(len(found) == 2, "the whole log", f"{len(found)} envelopes of 2")
        with _usable(stage):
            if fencing:
                log.token = stage.returned(
                    await handle.acquire_fence(log.execution_id),
                    "an acquire after a cancelled one to succeed",
                )
            outcome = await handle.append(log.envelope())
            stage.returned(outcome, "the next write to be acknowledged")

    @rule("LIVE-5")
    async def test_several_handles_open_a_fresh_storage_at_the_same_time(
        self, stage: Stage
    ) -> None:
        if not stage.backend.sets_up_on_connect:
            raise NotOffered("set-up is a step of its own here (sets_up_on_connect = False)")
        rounds: list[list[Outcome[Any]]] = []
        for _ in range(stage.settings.rounds(3)):
            address = await stage.own_storage()
            outcomes = await burst([_connecting(stage, address) for _ in range(4)])
            rounds.append(outcomes)
            stage.steps += [f"{one.call} → a handle" if one.ok else one.line() for one in outcomes]
            for outcome in outcomes:
                stage.returned(outcome, "every simultaneous connect to a fresh storage to succeed")
            handles = [
                stage.adopt(stage.given(outcome), f"h{number}")
                for number, outcome in enumerate(outcomes)
            ]
            log = stage.log()
            for handle in handles:
                envelope = log.envelope()
                stage.returned(await handle.append(envelope), "each of the handles to work")
                log.wrote(envelope)
            async with stage.fresh(address) as reader:
                await stage.holds(log, handle=reader)
            stage.logs.remove(log)
        must_have_met(rounds)

    @rule("LIVE-6")
    @on_every_write_path
    async def test_simultaneous_writes_that_conflict_with_nothing_all_succeed(
        self, stage: Stage, path: WritePath
    ) -> None:
        handles = await stage.contenders(4)
        rounds: list[list[Outcome[None]]] = []
        for _ in range(stage.settings.rounds(3)):
            envelopes = _apart(stage, len(handles) * 3)
            outcomes = await burst(
                [
                    stage.writing(handles[number % len(handles)], envelope)
                    for number, envelope in enumerate(envelopes)
                ]
            )
            rounds.append(outcomes)
            for outcome in outcomes:
                stage.returned(outcome, "a write that conflicts with nothing to succeed")
            await stage.holds(*stage.logs, expected="all of them to be stored")
            stage.logs.clear()
        must_have_met(rounds)

    @rule("LIVE-6")
    @on_every_write_path
    async def test_simultaneous_writes_under_one_token_all_succeed(
        self, stage: Stage, path: WritePath
    ) -> None:
        await stage.needs("fencing")
        handles = await stage.contenders(4)
        rounds: list[list[Outcome[None]]] = []
        for _ in range(stage.settings.rounds(3)):
            log = await stage.given_log(0, fenced=True)
            envelopes = [log.envelope(number) for number in range(len(handles))]
            if not stage.backend.sparse_sequences:
                others = [await stage.given_log(0, fenced=True) for _ in handles]
                envelopes = [other.envelope() for other in others]
            outcomes = await burst(
                [
                    stage.writing(handle, envelope)
                    for handle, envelope in zip(handles, envelopes, strict=True)
                ]
            )
            rounds.append(outcomes)
            for envelope, outcome in zip(envelopes, outcomes, strict=True):
                stage.returned(outcome, "a write under the current token to succeed")
                stage.noted([envelope])
            await stage.holds(*stage.logs, expected="all of them to be stored")
            stage.logs.clear()
        must_have_met(rounds)

    @rule("LIVE-6")
    async def test_batches_that_meet_in_opposite_orders_succeed(self, stage: Stage) -> None:
        await stage.needs("batch")
        if stage.backend.batch_scope != "store" or not stage.backend.sparse_sequences:
            raise NotOffered("two batches over the same executions cannot be free of conflict here")
        handles = await stage.contenders(4)
        rounds: list[list[Outcome[None]]] = []
        for _ in range(stage.settings.rounds(3)):
            logs = [stage.log() for _ in range(5)]
            batches = []
            for number in range(len(handles)):
                batch = [log.envelope(number) for log in logs]
                batches.append(batch[::-1] if number % 2 else batch)
            outcomes = await burst(
                [
                    lambda handle=handle, batch=batch: handle.append_batch(batch)  # type: ignore[misc]
                    for handle, batch in zip(handles, batches, strict=True)
                ]
            )
            rounds.append(outcomes)
            for batch, outcome in zip(batches, outcomes, strict=True):
                stage.returned(outcome, "a batch that conflicts with nothing to succeed")
                stage.noted(batch)
            await stage.holds(*logs, expected="all of them to be stored")
        must_have_met(rounds)

    @rule("LIVE-7")
    @on_every_write_path
    async def test_closing_one_handle_leaves_the_others_at_work(
        self, stage: Stage, path: WritePath
    ) -> None:
        staying = await stage.contender()
        log = stage.log()
        for name in ("before", "after"):
            leaving = await stage.connect(name="leaving")
            envelope = log.envelope(payload=name)
            call = asyncio.ensure_future(stage.write_alone(staying, envelope))
            await asyncio.sleep(0)
            stage.given(await leaving.close())
            stage.returned(await call, f"a write in flight {name} another handle closed to succeed")
            log.wrote(envelope)
        stage.returned(await staying.read_from(log.execution_id), "reads to go on too")
        await stage.holds(log)


@contextmanager
def _usable(stage: Stage) -> Iterator[None]:
    """Calls that must settle because one before them was cancelled; LIVE-4 and not LIVE-1."""
    try:
        yield
    except Hung as hung:
        stage.session.note_hung(hung.method, stage.rule)
        stage.broken("the handle to stay usable after a cancelled call", str(hung))


async def _close_in_flight(stage: Stage) -> list[tuple[list[EventEnvelope], Outcome[None]]]:
    handle = await stage.contender()
    envelopes = [Log(stage.session.fresh_id()).envelope() for _ in range(8)]
    calls: list[Callable[[], Awaitable[Outcome[Any]]]] = [
        stage.writing(handle, envelope) for envelope in envelopes
    ]
    *writes, closed = await burst([*calls, handle.close])
    stage.given(closed)
    return [([envelope], outcome) for envelope, outcome in zip(envelopes, writes, strict=True)]


async def _closed_at(
    stage: Stage, place: int, *, later: bool
) -> tuple[list[EventEnvelope], Outcome[None]]:
    """A write on a handle that is closed as the write reaches an await, or a turn after that."""
    handle = await stage.contender()
    stage.given(await handle.append(Log(stage.session.fresh_id()).envelope()))
    log = Log(stage.session.fresh_id())
    envelopes, _, _ = stage.compose(log, log.envelope)
    closing: list[asyncio.Future[Outcome[None]]] = []

    def close() -> None:
        closing.append(asyncio.ensure_future(handle.close()))

    def reached(count: int) -> None:
        if count == place and later:
            asyncio.get_running_loop().call_soon(close)
        elif count == place:
            close()

    outcome = await settle(
        f"{handle.name}: a write that close meets at its await {place}",
        "append",
        lambda: watched(_raw_write(stage, handle, envelopes), reached),
        _long(stage),
    )
    stage.steps.append(outcome.line())
    for call in closing:
        stage.given(await call)
    return envelopes, outcome


async def _as_told(
    stage: Stage, writes: Sequence[tuple[list[EventEnvelope], Outcome[None]]]
) -> None:
    """Check that what was told of writes that met a close is true."""
    async with stage.fresh() as reader:
        for envelopes, outcome in writes:
            if is_error(outcome.error, OutcomeUnknownError):
                continue
            for envelope in envelopes:
                found = await stage.read(reader, envelope.execution_id)
                if outcome.ok:
                    stage.check(
                        envelope in found,
                        "a write acknowledged during close to be stored",
                        f"{outcome.line()}, but a fresh handle reads {len(found)} envelopes",
                    )
                else:
                    stage.check(
                        not found,
                        "a write refused during close to be absent",
                        f"{outcome.line()}, but a fresh handle reads it",
                    )


def _long(stage: Stage) -> float:
    return stage.session.allowance("append")


def _one_write(stage: Stage, handle: Handle) -> Awaitable[Any]:
    log = Log(stage.session.fresh_id())
    envelopes, _, _ = stage.compose(log, log.envelope)
    return _raw_write(stage, handle, envelopes)


async def _raw_write(stage: Stage, handle: Handle, envelopes: list[EventEnvelope]) -> None:
    """The bare call: its own awaits are what is cancelled."""
    store: Any = handle.store
    if stage.path is not None and stage.path.batch:
        await store.append_batch(envelopes)
    else:
        await store.append(envelopes[0])


async def _acquire(handle: Handle, execution_id: str) -> None:
    store: Any = handle.store
    await store.acquire_fence(execution_id)


async def _places(stage: Stage, call: Callable[[], Awaitable[Any]]) -> Any:
    """Each await of the call in turn, at once and a turn later, and often enough."""
    counted = await settle("a call", "append", call, stage.session.allowance("append"))
    if counted.error is not None:
        raise Inconclusive(f"the call fails without cancellation too: {counted.told()}")
    awaits = counted.suspensions
    if awaits == 0:
        return
    yields = 0
    while yields < ENOUGH_CANCELS:
        for place in range(1, awaits + 1):
            for later in (False, True):
                yield place, later
                yields += 1


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


async def _settled_for_good(
    stage: Stage, tried: list[tuple[list[EventEnvelope], bool, bool]]
) -> None:
    late = 0
    async with stage.fresh() as reader:
        for envelopes, acknowledged, seen in tried:
            there = await _whole_or_absent(stage, reader, envelopes)
            stage.check(
                there or not acknowledged,
                "a write that was acknowledged although cancelled to be stored",
                "it is absent",
            )
            stage.check(there or not seen, "what was seen once to stay", "it is gone")
            late += there and not seen
    if late:
        stage.broken(
            "a cancelled write to be settled when the call ends",
            f"{late} of {len(tried)} landed later",
            advice=True,
        )


def _connecting(stage: Stage, address: str) -> Callable[[], Awaitable[Outcome[Any]]]:
    seconds = stage.settings.deadline * 3
    return lambda: settle(
        f"connect({address!r:.40})", "connect", lambda: stage.backend.connect(address), seconds
    )


def _apart(stage: Stage, count: int) -> list[EventEnvelope]:
    """Envelopes no two of which conflict: executions of their own, and slots of one."""
    envelopes = []
    shared = stage.log()
    for number in range(count):
        if stage.backend.sparse_sequences and number % 3 == 0:
            envelope = shared.envelope(number)
            shared.wrote(envelope)
        else:
            log = stage.log()
            envelope = log.envelope()
            log.wrote(envelope)
        envelopes.append(envelope)
    return envelopes
