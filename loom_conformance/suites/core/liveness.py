"""LIVE-1, LIVE-5, LIVE-6 and LIVE-7: calls end, and nobody fails for others' being there."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ...interleave.standstill import Standstill
from ...lab.burst import burst, must_have_met
from ...lab.calls import Handle, Outcome, settle
from ...lab.paths import WritePath
from ...lab.stage import Log, Stage
from ...lab.verdict import NotOffered
from ...spi import EventEnvelope
from ..case import on_every_write_path, on_write_paths, rule

CALLERS = 40
CROWDS = ((1, 40), (8, 64))
"""Handles, and how many calls are made on them at once."""

PAUSE = 0.5
"""Seconds for a connect beside one that stands still, if nothing is in its way: enough on a busy
machine, and less than any store should be patient with a lock."""

PAUSED = 3.0
"""Seconds after which no further place of a connect is tried."""


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

    @rule("LIVE-5")
    async def test_several_handles_open_a_fresh_storage_at_the_same_time(
        self, stage: Stage
    ) -> None:
        _needs_set_up_on_connect(stage)
        rounds: list[list[Outcome[Any]]] = []
        for _ in range(stage.settings.rounds(4)):
            address = await stage.own_storage()
            outcomes = await burst([_connecting(stage, address) for _ in range(4)])
            rounds.append(outcomes)
            await _all_opened(stage, address, outcomes)
        must_have_met(rounds)

    @rule("LIVE-5")
    async def test_a_handle_opens_a_fresh_storage_that_another_has_half_set_up(
        self, stage: Stage
    ) -> None:
        _needs_set_up_on_connect(stage)
        began = time.monotonic()
        for place in itertools.count(1):
            address = await stage.own_storage()
            standstill = Standstill(place)
            slow = asyncio.ensure_future(_connecting(stage, address, standstill)())
            stands = asyncio.ensure_future(standstill.stands.wait())
            await asyncio.wait({slow, stands}, return_when=asyncio.FIRST_COMPLETED)
            stood = stands.done()
            stands.cancel()
            if stood:
                stage.steps.append(f"a connect stands still after {place} of its awaits")
            quick = asyncio.ensure_future(_connecting(stage, address)())
            # It may have to wait for a lock that the other holds.
            await asyncio.wait({quick}, timeout=PAUSE)
            standstill.go_on()
            handles = await _all_opened(stage, address, [await quick, await slow])
            if not stood or time.monotonic() - began > PAUSED:
                return
            await stage.remove(address, *handles)

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

    @rule("LIVE-6")
    @on_write_paths("append", "batch-middle", "coalesced-append")
    async def test_many_callers_that_conflict_with_nothing_all_succeed(
        self, stage: Stage, path: WritePath
    ) -> None:
        rounds: list[list[Outcome[None]]] = []
        for nodes, callers in CROWDS:
            handles = await stage.contenders(nodes)
            outcomes = await burst(
                [
                    stage.writing(handles[number % nodes], envelope)
                    for number, envelope in enumerate(_apart(stage, callers))
                ]
            )
            rounds.append(outcomes)
            for outcome in outcomes:
                stage.returned(
                    outcome,
                    f"a write that conflicts with nothing to succeed, as one of {callers} "
                    f"at once on {nodes} handle{'s' * (nodes > 1)}",
                )
        await stage.holds(*stage.logs, expected="all of them to be stored")
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

    @rule("LIVE-7")
    async def test_closing_a_handle_more_than_once_leaves_the_others_at_work(
        self, stage: Stage
    ) -> None:
        # On a storage of its own: other tests' handles would keep a shared connection open.
        address = await stage.own_storage()
        staying = await stage.connect(address, name="staying")
        leaving = await stage.connect(address, name="leaving")
        for _ in range(4):
            await leaving.close()  # what a second close returns is LIVE-2's
        await burst([leaving.close] * 4)
        log = Log(stage.session.fresh_id())
        expected = "a handle to stay at work although another was closed more than once"
        stage.returned(await staying.append(log.envelope()), expected)
        log.wrote(log.envelope())
        stage.returned(await staying.read_from(log.execution_id), expected)
        async with stage.fresh(address) as reader:
            await stage.holds(log, handle=reader)


def _needs_set_up_on_connect(stage: Stage) -> None:
    if not stage.backend.sets_up_on_connect:
        raise NotOffered("set-up is a step of its own here (sets_up_on_connect = False)")


def _connecting(
    stage: Stage, address: str, standstill: Standstill | None = None
) -> Callable[[], Awaitable[Outcome[Any]]]:
    seconds = stage.settings.deadline * 3

    def start() -> Awaitable[Any]:
        return stage.backend.connect(address)

    led = start if standstill is None else lambda: standstill.lead(start)
    return lambda: settle(f"connect({address!r:.40})", "connect", led, seconds)


async def _all_opened(stage: Stage, address: str, outcomes: Sequence[Outcome[Any]]) -> list[Handle]:
    """Check that every connect gave a handle, and that each of them works."""
    stage.steps += [f"{one.call} → a handle" if one.ok else one.line() for one in outcomes]
    for outcome in outcomes:
        stage.returned(outcome, "every simultaneous connect to a fresh storage to succeed")
    handles = [
        stage.adopt(stage.given(outcome), f"h{number}") for number, outcome in enumerate(outcomes)
    ]
    log = Log(stage.session.fresh_id())
    for handle in handles:
        envelope = log.envelope()
        stage.returned(await handle.append(envelope), "each of the handles to work")
        log.wrote(envelope)
    async with stage.fresh(address) as reader:
        await stage.holds(log, handle=reader)
    return handles


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
