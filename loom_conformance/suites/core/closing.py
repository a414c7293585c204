"""LIVE-1 to LIVE-3 about `close`, and what calls in flight at it are told (READ-5, FENCE-11)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ...lab.awaits import watched
from ...lab.burst import burst
from ...lab.calls import Handle, Hung, Outcome, settle
from ...lab.cancellation import bare_write, cancel_at, one_write
from ...lab.paths import WritePath
from ...lab.stage import Log, Stage, difference_between
from ...spi import EventEnvelope, OutcomeUnknownError, StaleFenceError, StoreClosedError, is_error
from ..case import on_every_write_path, rule


class ClosingSuite:
    """What a call is told as its handle closes is true."""

    @rule("LIVE-1")
    @on_every_write_path
    async def test_every_call_settles_while_the_handle_closes(
        self, stage: Stage, path: WritePath
    ) -> None:
        handle = await stage.contender()
        log = await stage.given_log(2)
        writes = [stage.writing(handle, Log(stage.session.fresh_id()).envelope()) for _ in "1234"]
        reads = [lambda: handle.read_from(log.execution_id)] * 4
        if await stage.offers("range"):
            reads += [lambda: handle.read_range(log.execution_id, 0, 1)] * 4
        acquires: list[Callable[[], Awaitable[Outcome[Any]]]] = []
        if await stage.offers("fencing"):
            acquires = [lambda: handle.acquire_fence(log.execution_id)] * 4
        await burst([*writes, *reads, *acquires, handle.close])

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
            await handle.read_from(log.execution_id, log.next),
        ]
        if await stage.offers("batch"):
            outcomes.append(await handle.append_batch([log.envelope()]))
            outcomes.append(await handle.append_batch([]))
        if await stage.offers("range"):
            outcomes.append(await handle.read_range(log.execution_id, 0, 0))
            outcomes.append(await handle.read_range(log.execution_id, 1, 0))
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
        counted = await settle("a write", "append", lambda: one_write(stage, handle), _long(stage))
        told: list[tuple[list[EventEnvelope], Outcome[None]]] = []
        for place in range(1, counted.suspensions + 1):
            for later in (False, True):
                told.append(await _closed_at(stage, place, later=later))
        await _as_told(stage, told)

    @rule("READ-5")
    async def test_a_read_in_flight_at_close_is_whole_or_refused(self, stage: Stage) -> None:
        log = await stage.given_log(3)
        for turns in range(stage.settings.rounds(4)):
            handle = await stage.connect()
            calls: list[Callable[[], Awaitable[Outcome[Any]]]] = [
                lambda handle=handle: handle.read_from(log.execution_id)  # type: ignore[misc]
            ]
            if await stage.offers("range"):
                calls.append(
                    lambda handle=handle: handle.read_range(log.execution_id, 0, 2)  # type: ignore[misc]
                )
            for outcome in await _closed_after(stage, handle, turns, calls):
                if outcome.ok:
                    difference = difference_between(log.envelopes, stage.listed(outcome))
                    stage.check(
                        difference is None,
                        "a read in flight at close to be whole, or an error",
                        f"{outcome.line()}: {difference}",
                    )

    @rule("FENCE-11")
    async def test_a_token_that_was_acquired_as_the_handle_closed_is_kept(
        self, stage: Stage
    ) -> None:
        await stage.needs("fencing")
        told: list[tuple[Log, Outcome[Any]]] = []
        for turns in range(stage.settings.rounds(4)):
            handle = await stage.connect()
            logs = [Log(stage.session.fresh_id()) for _ in range(4)]
            calls: list[Callable[[], Awaitable[Outcome[Any]]]] = [
                lambda log=log, handle=handle: handle.acquire_fence(log.execution_id)  # type: ignore[misc]
                for log in logs
            ]
            told += zip(logs, await _closed_after(stage, handle, turns, calls), strict=True)
        async with stage.fresh() as later:
            for log, acquired in told:
                if not acquired.ok:
                    continue
                outcome = await later.append(log.envelope(token=None))
                if not is_error(outcome.error, StaleFenceError):
                    stage.broken(
                        "StaleFenceError without the token that was acquired during close",
                        f"{outcome.line()}, after {acquired.line()}",
                    )
                newer = stage.given(await later.acquire_fence(log.execution_id))
                stage.check(
                    newer > stage.given(acquired),
                    "a token above the one that was acquired during close",
                    f"{newer}, after {acquired.line()}",
                )


async def _closed_after(
    stage: Stage,
    handle: Handle,
    turns: int,
    calls: Sequence[Callable[[], Awaitable[Outcome[Any]]]],
) -> list[Outcome[Any]]:
    """What calls came to whose handle is closed some turns of the loop after they began."""

    async def close() -> Outcome[Any]:
        for _ in range(turns):
            await asyncio.sleep(0)
        return await handle.close()

    *outcomes, closed = await burst([*calls, close])
    stage.given(closed)
    return outcomes


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
        lambda: watched(bare_write(stage, handle, envelopes), reached),
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
            unknown = is_error(outcome.error, OutcomeUnknownError)
            stored = 0
            for envelope in envelopes:
                found = await stage.read(reader, envelope.execution_id)
                stored += envelope in found
                if unknown:
                    continue
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
            stage.check(
                stored in (0, len(envelopes)),
                "a batch that met a close to be stored whole or absent",
                f"{outcome.line()}, and a fresh handle reads {stored} of {len(envelopes)}",
            )


def _long(stage: Stage) -> float:
    return stage.session.allowance("append")
