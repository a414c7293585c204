"""COAL-1 to COAL-8: writes that share a flush, and nothing else.

The author's own decorator is tested where the backend has one, the kit's otherwise. A spy below it
shows what was really flushed together: where nothing was, the rule was not put to the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..lab.burst import burst
from ..lab.calls import Handle, Outcome
from ..lab.spy import Spy, spied
from ..lab.stage import Log, Stage
from ..lab.verdict import Inconclusive, NotOffered
from ..spi import DuplicateSequenceError, EventEnvelope, StaleFenceError, is_error
from .case import rule

LINGER = 0.02
"""Seconds that a flush waits for company; long enough for calls that are made in one turn."""

STEADY = 0.25
"""The same, where company must never fail to come within it, however busy the machine is."""

CALLERS = 6


class CoalescingSuite:
    """Group commit behind the decorator."""

    @rule("COAL-1")
    async def test_callers_that_share_a_flush_are_stored_by_one_batch(self, stage: Stage) -> None:
        handle, spy = await _coalesced(stage)
        logs = [stage.log() for _ in range(CALLERS)]
        outcomes = await burst([_appending(handle, log.envelope()) for log in logs])
        for log, outcome in zip(logs, outcomes, strict=True):
            stage.returned(outcome, "every caller of a good flush to be acknowledged")
            log.wrote(log.envelope())
        stage.check(
            len(spy.appends) < 2,
            f"callers that come within {LINGER} s to be stored by one append_batch",
            f"{len(spy.appends)} of {CALLERS} came through append, each by itself",
        )
        _must_have_shared(spy)
        await stage.holds(*logs)

    @rule("COAL-1")
    async def test_no_caller_is_acknowledged_before_its_flush_is_durable(
        self, stage: Stage
    ) -> None:
        handle, spy = await _coalesced(stage)
        logs = [stage.log() for _ in range(CALLERS)]
        spy.hold()
        calls = [asyncio.ensure_future(handle.append(log.envelope())) for log in logs]
        await _reached(stage, spy)
        early = [call for call in calls if call.done()]
        spy.release()
        outcomes = await asyncio.gather(*calls)
        stage.check(
            not early,
            "no acknowledgement while the store has not yet written the flush",
            f"{len(early)} of {len(calls)} callers were told before",
        )
        for log, outcome in zip(logs, outcomes, strict=True):
            stage.returned(outcome, "every caller to be acknowledged once the flush is written")
            log.wrote(log.envelope())
        await stage.holds(*logs)

    @rule("READ-5")
    async def test_a_write_that_waits_for_its_flush_is_not_read(self, stage: Stage) -> None:
        handle, spy = await _coalesced(stage)
        log = await stage.given_log(1)
        spy.hold()
        writing = asyncio.ensure_future(handle.append(log.envelope()))
        await _reached(stage, spy)
        reads = [await handle.read_from(log.execution_id)]
        if await stage.offers("range"):
            reads.append(await handle.read_range(log.execution_id, 0, log.next))
        spy.release()
        stage.returned(await writing, "the write to be acknowledged in the end")
        for outcome in reads:
            found = stage.listed(outcome)
            stage.check(
                len(found) == 1,
                "what the store has not yet written not to be read",
                f"{outcome.call} shows {len(found)} envelopes of 1",
            )
        log.wrote(log.envelope())
        await stage.holds(log)

    @rule("COAL-1")
    async def test_more_callers_than_a_flush_holds_are_all_stored(self, stage: Stage) -> None:
        size, flushes = 8, 12
        handle, spy = await _coalesced(stage, max_batch=size)
        logs = [stage.log() for _ in range(size * flushes)]
        spy.hold()
        calls = [asyncio.ensure_future(handle.append(log.envelope())) for log in logs]
        await _reached(stage, spy)
        early = sum(call.done() for call in calls)
        spy.release()
        outcomes = await asyncio.gather(*calls)
        stage.check(
            not early,
            "no acknowledgement while the store has not yet written the flush",
            f"{early} of {len(calls)} callers were told before",
        )
        for log, outcome in zip(logs, outcomes, strict=True):
            stage.returned(outcome, "every caller to be acknowledged once the store writes again")
            log.wrote(log.envelope())
        await stage.holds(*logs, expected="what was acknowledged to be stored")

    @rule("COAL-1")
    async def test_a_store_without_batches_cannot_be_coalesced(self, stage: Stage) -> None:
        await _offered(stage)
        inner, _ = spied((await stage.connect()).store, without=frozenset({"batch"}))
        try:
            stage.session.coalesce(inner, LINGER, 100)
        except TypeError:
            return
        except Exception as error:  # noqa: BLE001 - any other error is the finding
            stage.broken("a TypeError at construction", f"{type(error).__name__}: {error}")
        stage.broken("a TypeError at construction", "the decorator was built all the same")

    @rule("COAL-2")
    async def test_a_refused_flush_rejects_every_caller_and_stores_nothing(
        self, stage: Stage
    ) -> None:
        for position in (0, CALLERS // 2, CALLERS - 1):
            flush = await _refused_flush(stage, position)
            _must_have_refused(flush.spy)
            for outcome in flush.outcomes:
                if not is_error(outcome.error, DuplicateSequenceError):
                    stage.broken(
                        "every caller of a refused flush to get the flush's error", outcome.line()
                    )
            await stage.holds(
                flush.taken, *flush.innocent, expected="a refused flush to store nothing"
            )

    @rule("COAL-2")
    async def test_a_flush_refused_for_a_stale_token_rejects_every_caller(
        self, stage: Stage
    ) -> None:
        await stage.needs("fencing")
        fenced = await stage.given_log(1, fenced=True)
        stale = fenced.envelope()
        await stage.given_fence(fenced)
        handle, spy = await _coalesced(stage)
        logs = [stage.log() for _ in range(3)]
        outcomes = await burst(
            [_appending(handle, envelope) for envelope in [*(x.envelope() for x in logs), stale]]
        )
        _must_have_shared(spy, all_of=4)
        _must_have_refused(spy)
        for outcome in outcomes:
            if not is_error(outcome.error, StaleFenceError):
                stage.broken("every caller to get the flush's StaleFenceError", outcome.line())
        await stage.holds(fenced, *logs, expected="a refused flush to store nothing")

    @rule("COAL-2")
    async def test_of_callers_of_one_flush_for_one_slot_no_two_are_acknowledged(
        self, stage: Stage
    ) -> None:
        log = stage.log()
        handle, spy = await _coalesced(stage)
        rivals = [
            log.envelope(id=f"{log.execution_id}-rival-{number}", payload={"rival": number})
            for number in range(3)
        ]
        outcomes = await burst([_appending(handle, rival) for rival in rivals])
        winners = [rival for rival, told in zip(rivals, outcomes, strict=True) if told.ok]
        stage.check(
            len(winners) < 2,
            "never two writes to one slot to be acknowledged",
            f"{len(winners)} of 3 were, in flushes of {[len(flush) for flush in spy.flushes]}",
        )
        log.envelopes += winners
        await stage.holds(log)

    @rule("COAL-3")
    async def test_a_batch_is_a_flush_of_its_own(self, stage: Stage) -> None:
        taken = await stage.given_log(1)
        handle, spy = await _coalesced(stage)
        logs = [stage.log() for _ in range(4)]
        doomed = [stage.log().envelope(), taken.envelope(0, id=f"rival-{taken.execution_id}")]
        calls: list[Callable[[], Awaitable[Outcome[None]]]] = [
            _appending(handle, logs[0].envelope()),
            _appending(handle, logs[1].envelope()),
            lambda: handle.append_batch(doomed),
            _appending(handle, logs[2].envelope()),
            _appending(handle, logs[3].envelope()),
        ]
        outcomes = await burst(calls)
        stage.given_refusal(outcomes.pop(2))
        for log, outcome in zip(logs, outcomes, strict=True):
            stage.returned(outcome, "a batch's refusal to be nobody else's")
            log.wrote(log.envelope())
        sizes = [len(flush) for flush in spy.flushes if doomed[1] in flush]
        stage.check(
            sizes == [len(doomed)],
            "an append_batch to reach the store as one batch of its own",
            f"it came through in flushes of {sizes}",
        )
        await stage.holds(taken, *logs)

    @rule("COAL-3")
    async def test_a_batch_does_not_suffer_for_the_flush_beside_it(self, stage: Stage) -> None:
        taken = await stage.given_log(1)
        handle, _ = await _coalesced(stage)
        log = stage.log()
        batch = [log.envelope(0), log.envelope(1)]
        rival = taken.envelope(0, id=f"rival-{taken.execution_id}")
        refused, stored = await burst(
            [_appending(handle, rival), lambda: handle.append_batch(batch)]
        )
        stage.returned(stored, "a batch to succeed beside a flush that is refused")
        stage.given_refusal(refused)
        log.envelopes += batch
        await stage.holds(taken, log)

    @rule("COAL-4")
    async def test_an_innocent_caller_of_a_refused_flush_succeeds_alone(self, stage: Stage) -> None:
        flush = await _refused_flush(stage, 1)
        for outcome in flush.outcomes:
            stage.given_refusal(outcome)
        for number, log in enumerate(flush.innocent):
            retry = log.envelope()
            call = flush.handle.append_batch([retry]) if number else flush.handle.append(retry)
            stage.returned(await call, "an innocent caller's retry on its own to succeed")
            log.wrote(retry)
        await stage.holds(flush.taken, *flush.innocent)

    @rule("COAL-5")
    async def test_a_caller_cancelled_while_it_waits_for_company_harms_nobody(
        self, stage: Stage
    ) -> None:
        for victims in ((0,), (2,), (CALLERS - 1,), (0, 1, 2)):
            handle, _ = await _coalesced(stage)
            await _cancel_some(stage, handle, victims, None)

    @rule("COAL-5")
    async def test_a_caller_cancelled_during_its_flush_harms_nobody(self, stage: Stage) -> None:
        for victims in ((0,), (2,), (CALLERS - 1,), (0, 1, 2)):
            handle, spy = await _coalesced(stage)
            spy.hold()
            await _cancel_some(stage, handle, victims, spy)

    @rule("COAL-5")
    async def test_the_decorator_goes_on_when_all_callers_were_cancelled(
        self, stage: Stage
    ) -> None:
        handle, spy = await _coalesced(stage)
        spy.hold()
        tasks = [asyncio.ensure_future(_raw(handle, stage.log().envelope())) for _ in range(3)]
        await _reached(stage, spy)
        for task in tasks:
            task.cancel()
        spy.release()
        await asyncio.wait(tasks, timeout=stage.settings.deadline)
        log = stage.log()
        for _ in range(2):
            envelope = log.envelope()
            stage.returned(await handle.append(envelope), "later writes to be acknowledged")
            log.wrote(envelope)
        await stage.holds(log)

    @rule("COAL-6")
    async def test_close_settles_every_caller(self, stage: Stage) -> None:
        for held in (False, True):
            handle, spy = await _coalesced(stage, linger=stage.settings.deadline * 4)
            logs = [Log(stage.session.fresh_id()) for _ in range(CALLERS)]
            calls = [asyncio.ensure_future(handle.append(log.envelope())) for log in logs]
            await asyncio.sleep(0)
            if held:
                spy.hold()
            closing = asyncio.ensure_future(handle.close())
            await asyncio.sleep(0)
            spy.release()
            stage.given(await closing)
            await asyncio.wait(calls, timeout=stage.settings.deadline / 2)
            waiting = sum(not call.done() for call in calls)
            for call in calls:
                if not call.done():
                    call.cancel()
            stage.check(
                not waiting,
                "close to settle every caller",
                f"{waiting} of {CALLERS} were still waiting when it had returned",
            )
            await _as_told(stage, logs, [call.result() for call in calls])

    @rule("COAL-6")
    async def test_no_write_is_accepted_after_close(self, stage: Stage) -> None:
        handle, spy = await _coalesced(stage)
        log = stage.log()
        stage.given(await handle.append(log.envelope()))
        log.wrote(log.envelope())
        stage.given(await handle.close())
        seen = len(spy.flushes)
        for outcome in (
            await handle.append(log.envelope()),
            await handle.append_batch([log.envelope(), log.envelope(2)]),
        ):
            stage.check(not outcome.ok, "a write after close to be refused", outcome.line())
        stage.check(
            len(spy.flushes) == seen,
            "no write to reach the store after close",
            f"{len(spy.flushes) - seen} did",
        )
        stage.returned(await handle.close(), "close to be idempotent")
        await stage.holds(log)

    @rule("COAL-7")
    async def test_one_callers_writes_keep_their_order(self, stage: Stage) -> None:
        handle, spy = await _coalesced(stage, max_batch=4)
        log = stage.log()
        calls: list[Callable[[], Awaitable[Outcome[None]]]] = []
        for place in range(0, 12, 4):
            calls += [
                _appending(handle, log.envelope(place)),
                _appending(handle, log.envelope(place + 1)),
                _batching(handle, [log.envelope(place + 2), log.envelope(place + 3)]),
            ]
        for outcome in await burst(calls):
            stage.returned(outcome, "one caller's writes in order all to be acknowledged")
        log.envelopes += [log.envelope(place) for place in range(12)]
        order = spy.written(log.execution_id)
        stage.check(
            order == sorted(order),
            "one caller's writes to reach the store in the order of the calls",
            f"they came as {order}",
        )
        await stage.holds(log)

    @rule("COAL-7")
    async def test_a_flush_does_not_overtake_the_one_before_it(self, stage: Stage) -> None:
        handle, spy = await _coalesced(stage, max_batch=1)
        log = stage.log()
        spy.hold()
        calls = [asyncio.ensure_future(handle.append(log.envelope(place))) for place in range(3)]
        await _reached(stage, spy)
        await asyncio.sleep(LINGER * 2)
        under_way = len(spy.flushes) + len(spy.appends)
        spy.release()
        outcomes = await asyncio.gather(*calls)
        stage.check(
            under_way == 1,
            "a caller's second write to wait until the store has answered the first",
            f"{under_way} writes to one execution were under way at once",
        )
        for place, outcome in enumerate(outcomes):
            stage.returned(outcome, "one caller's writes in order all to be acknowledged")
            log.wrote(log.envelope(place))
        await stage.holds(log)

    @rule("COAL-8")
    async def test_no_write_waits_for_company_that_keeps_coming(self, stage: Stage) -> None:
        handle, _ = await _coalesced(stage, linger=STEADY, max_batch=100_000)
        handle = handle.patient(4)
        first = asyncio.ensure_future(handle.append(stage.log().envelope()))
        company: list[asyncio.Future[Outcome[None]]] = []
        loop = asyncio.get_running_loop()
        seconds = max(8 * STEADY, stage.settings.deadline / 2)
        end = loop.time() + seconds
        others = Handle(handle.store, handle.name, [], stage.session).patient(4)
        while not first.done() and loop.time() < end:
            log = Log(stage.session.fresh_id())
            company.append(asyncio.ensure_future(others.append(log.envelope())))
            await asyncio.sleep(STEADY / 50)
        stage.steps.append(f"others append, one every {STEADY / 50:g} s")
        waited = first.done()
        outcomes = await asyncio.gather(first, *company)
        stage.check(
            waited,
            f"the first write to go out, whatever comes after it (max_linger is {STEADY} s)",
            f"others kept coming for {seconds:g} s, and it was still waiting",
        )
        for outcome in outcomes:
            stage.returned(outcome, "every write to be acknowledged in the end")


async def _offered(stage: Stage) -> None:
    await stage.needs("batch")
    if stage.backend.batch_scope != "store":
        raise NotOffered("coalescing needs batches that span executions")


async def _coalesced(
    stage: Stage, *, linger: float = LINGER, max_batch: int = 100
) -> tuple[Handle, Spy]:
    await _offered(stage)
    inner, spy = spied((await stage.connect()).store)
    store = stage.session.coalesce(inner, linger, max_batch)
    return stage.adopt(store, "coalesced"), spy


def _appending(handle: Handle, envelope: EventEnvelope) -> Callable[[], Awaitable[Outcome[None]]]:
    return lambda: handle.append(envelope)


def _batching(
    handle: Handle, envelopes: list[EventEnvelope]
) -> Callable[[], Awaitable[Outcome[None]]]:
    return lambda: handle.append_batch(envelopes)


async def _raw(handle: Handle, envelope: EventEnvelope) -> None:
    await handle.store.append(envelope)


async def _reached(stage: Stage, spy: Spy) -> None:
    """Wait until a flush has come through, so that what follows happens during it."""
    waiting = asyncio.ensure_future(spy.begun.wait())
    await asyncio.wait({waiting}, timeout=stage.settings.deadline)
    if not waiting.done():
        waiting.cancel()
        spy.release()
        raise Inconclusive("no flush reached the store, so nothing was shown about one")
    for _ in range(5):
        await asyncio.sleep(0)


def _must_have_shared(spy: Spy, all_of: int = 2) -> None:
    if not any(len(flush) >= all_of for flush in spy.flushes):
        sizes = [len(flush) for flush in spy.flushes]
        raise Inconclusive(
            f"no {all_of} callers shared a flush (flushes of {sizes or 'nothing'}, "
            f"{len(spy.appends)} single appends), so the rule was not put to the test"
        )


def _must_have_refused(spy: Spy) -> None:
    """Make the test inconclusive where the store let the offender pass: there was no refusal."""
    if not spy.refusals:
        raise Inconclusive("the store refused no write of the flush, so nothing was shown")


@dataclass(frozen=True, slots=True)
class _RefusedFlush:
    """Callers of one flush of which one wrote to a taken slot, and what they were told."""

    handle: Handle
    spy: Spy
    taken: Log
    innocent: list[Log]
    outcomes: Sequence[Outcome[Any]]


async def _refused_flush(stage: Stage, position: int) -> _RefusedFlush:
    """Callers of one flush of which the one at `position` writes to a taken slot."""
    taken = await stage.given_log(1)
    handle, spy = await _coalesced(stage)
    logs = [stage.log() for _ in range(CALLERS - 1)]
    envelopes = [log.envelope() for log in logs]
    envelopes.insert(position, taken.envelope(0, id=f"rival-{taken.execution_id}"))
    outcomes = await burst([_appending(handle, envelope) for envelope in envelopes])
    _must_have_shared(spy, all_of=len(envelopes))
    return _RefusedFlush(handle, spy, taken, logs, outcomes)


async def _cancel_some(
    stage: Stage, handle: Handle, victims: Sequence[int], spy: Spy | None
) -> None:
    """Cancel some callers, before their flush or during it (where the spy holds it)."""
    logs = [Log(stage.session.fresh_id()) for _ in range(CALLERS)]
    tasks = [asyncio.ensure_future(_raw(handle, log.envelope())) for log in logs]
    if spy is None:
        await asyncio.sleep(0)
    else:
        await _reached(stage, spy)
    when = "while they wait for company" if spy is None else "while their flush is under way"
    stage.steps.append(
        f"{CALLERS} callers append, and callers {list(victims)} are cancelled {when}"
    )
    for victim in victims:
        tasks[victim].cancel()
    await asyncio.sleep(0)
    if spy is not None:
        spy.release()
    _, pending = await asyncio.wait(tasks, timeout=stage.settings.deadline)
    for task in pending:
        task.cancel()
    survivors = [place for place in range(CALLERS) if place not in victims]
    async with stage.fresh() as reader:
        for place in survivors:
            log, task = logs[place], tasks[place]
            told = _told(task)
            stage.steps.append(f"caller {place} is told: {told}")
            stage.check(
                told == "ok",
                f"caller {place} to be acknowledged, whoever else ({list(victims)}) was cancelled",
                told,
            )
            found = await stage.read(reader, log.execution_id)
            stage.check(
                found == [log.envelope()],
                f"what caller {place} was told to be true",
                f"it was acknowledged, and a fresh handle reads {len(found)} envelopes",
            )


def _told(task: asyncio.Future[None]) -> str:
    if not task.done():
        return "it never settled"
    if task.cancelled():
        return "it was cancelled too"
    error = task.exception()
    return "ok" if error is None else f"{type(error).__name__}: {error}"


async def _as_told(stage: Stage, logs: Sequence[Log], outcomes: Sequence[Outcome[None]]) -> None:
    async with stage.fresh() as reader:
        for log, outcome in zip(logs, outcomes, strict=True):
            found = await stage.read(reader, log.execution_id)
            stage.check(
                found == ([log.envelope()] if outcome.ok else []),
                "an acknowledged write to be stored and a refused one to be absent after close",
                f"{outcome.line()}, and a fresh handle reads {len(found)} envelopes",
            )
