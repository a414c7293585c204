"""The rules about simultaneous calls once more, with every turn of the calls led by the kit.

A burst leaves it to luck whether two calls meet where it hurts. Here two calls are led one
resumption at a time, in every order with few changes of turn, so that a check which comes before
its write is torn apart every time, and a token shows it again.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..backend import Blocking
from ..interleave.steps import Call, Settled, explore_steps, replay_steps
from ..interleave.token import BadToken
from ..interleave.verdict import Finding, Verdict
from ..lab.awaits import as_coroutine
from ..lab.calls import Handle, told_error, told_value
from ..lab.paths import WritePath
from ..lab.stage import Log, Stage
from ..lab.verdict import Inconclusive, NotOffered, RuleBroken
from ..spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    StaleFenceError,
    is_error,
)
from .case import on_write_paths, rule

SECONDS = 5.0
STEPPED = ("append", "batch-middle")

Work = Callable[[], Coroutine[Any, Any, Any]]


@dataclass(slots=True)
class Round:
    """One run's calls and what they are about."""

    calls: list[Call]
    logs: list[Log] = field(default_factory=list)
    envelopes: list[EventEnvelope] = field(default_factory=list)


class SteppedSuite:
    """Two calls, every order of their turns."""

    @rule("SEQ-4")
    @on_write_paths(*STEPPED)
    async def test_in_no_order_of_turns_do_two_writes_take_one_slot(
        self, stage: Stage, path: WritePath
    ) -> None:
        handles = await stage.contenders(2)

        async def begin() -> Round:
            log = await stage.given_log(1)
            rivals = [
                log.envelope(id=f"{log.execution_id}-rival-{number}", payload={"rival": number})
                for number in range(2)
            ]
            return Round(_writes(stage, handles, rivals), [log], rivals)

        async def judge(turn: Round, settled: Sequence[Settled]) -> None:
            _one_of_two(stage, settled, DuplicateSequenceError)
            await _holds_the_winner(stage, turn, settled)

        await _explore(stage, begin, judge)

    @rule("ID-3")
    @on_write_paths(*STEPPED)
    async def test_in_no_order_of_turns_do_two_writes_take_one_id(
        self, stage: Stage, path: WritePath
    ) -> None:
        handles = await stage.contenders(2)
        shared = stage.backend.envelope_ids == "store"
        apart = stage.backend.sparse_sequences and not shared

        async def begin() -> Round:
            first = await stage.given_log(1)
            second = await stage.given_log(1) if shared else first
            name = f"contended-{first.execution_id}"
            rivals = [first.envelope(id=name), second.envelope(second.next + apart, id=name)]
            return Round(_writes(stage, handles, rivals), [first, second], rivals)

        async def judge(turn: Round, settled: Sequence[Settled]) -> None:
            _one_of_two(stage, settled, DuplicateEnvelopeIdError, DuplicateSequenceError)
            await _holds_the_winner(stage, turn, settled)

        await _explore(stage, begin, judge)

    @rule("FENCE-2")
    async def test_in_no_order_of_turns_do_two_acquires_get_one_token(self, stage: Stage) -> None:
        await stage.needs("fencing")
        handles = await stage.contenders(2)
        for fenced_before in (False, True):

            async def begin(fenced: bool = fenced_before) -> Round:
                log = await stage.given_log(0, fenced=fenced)
                return Round([_acquire(handle, log) for handle in handles], [log])

            async def judge(turn: Round, settled: Sequence[Settled]) -> None:
                tokens = [_returned(stage, one, "both acquires to succeed") for one in settled]
                stage.check(
                    len(set(tokens)) == 2,
                    "simultaneous acquires to get different tokens",
                    f"they got {tokens[0]} and {tokens[1]}",
                )

            await _explore(stage, begin, judge, "before" if fenced_before else "")

    @rule("FENCE-8")
    @on_write_paths(*STEPPED)
    async def test_in_no_order_of_turns_does_an_older_token_land_after_an_acquire(
        self, stage: Stage, path: WritePath
    ) -> None:
        await _acquire_against_write(stage, fenced_before=True)

    @rule("FENCE-8")
    @on_write_paths(*STEPPED)
    async def test_in_no_order_of_turns_does_a_missing_token_land_after_the_first_acquire(
        self, stage: Stage, path: WritePath
    ) -> None:
        await _acquire_against_write(stage, fenced_before=False)

    @rule("BATCH-5")
    async def test_in_no_order_of_turns_is_part_of_a_batch_seen(self, stage: Stage) -> None:
        await stage.needs("batch")
        writer, reader = await stage.contenders(2)
        mixed = stage.backend.batch_scope == "store"

        async def begin() -> Round:
            first = stage.log()
            second = stage.log() if mixed else first
            batch = [
                first.envelope(0),
                second.envelope(0 if mixed else 1),
                first.envelope(2 - mixed),
            ]
            calls = [
                Call("append_batch(3 envelopes)", _batching(writer, batch), writer.store),
                Call("two reads", _reading_both(reader, first, second), reader.store),
            ]
            return Round(calls, [first, second], batch)

        async def judge(turn: Round, settled: Sequence[Settled]) -> None:
            _returned(stage, settled[0], "a good batch to be acknowledged")
            seen = _given(settled[1])
            whole = [
                sum(one.execution_id == log.execution_id for one in turn.envelopes)
                for log in turn.logs
            ]
            for count, all_of_it in zip(seen, whole, strict=True):
                stage.check(
                    count in (0, all_of_it),
                    f"none of the batch or all {all_of_it} of its envelopes in one read",
                    f"a reader sees {count}",
                )
            stage.check(
                not seen[0] or seen[1] == whole[1],
                "the rest of a batch once one part of it was seen",
                f"a reader sees {seen[0]} of {whole[0]}, then {seen[1]} of {whole[1]}",
            )

        await _explore(stage, begin, judge)

    @rule("BATCH-9")
    async def test_in_no_order_of_turns_do_overlapping_batches_mix(self, stage: Stage) -> None:
        await stage.needs("batch")
        handles = await stage.contenders(2)

        async def begin() -> Round:
            log = await stage.given_log(1)
            batches = [
                [
                    log.envelope(log.next + place, id=f"{log.execution_id}-{number}-{place}")
                    for place in range(2)
                ]
                for number in range(2)
            ]
            calls = [
                Call(f"append_batch({number})", _batching(handle, batch), handle.store)
                for number, (handle, batch) in enumerate(zip(handles, batches, strict=True))
            ]
            return Round(calls, [log], [one for batch in batches for one in batch])

        async def judge(turn: Round, settled: Sequence[Settled]) -> None:
            _one_of_two(stage, settled, DuplicateSequenceError, DuplicateEnvelopeIdError)
            log = turn.logs[0]
            for number, one in enumerate(settled):
                if one.error is None:
                    log.envelopes += turn.envelopes[2 * number : 2 * number + 2]
            await stage.holds(log, expected="the union of the acknowledged batches")

        await _explore(stage, begin, judge)


async def _explore(
    stage: Stage,
    begin: Callable[[], Coroutine[Any, Any, Round]],
    judge: Callable[[Round, Sequence[Settled]], Coroutine[Any, Any, None]],
    variant: str = "",
) -> None:
    """Lead the calls through every order, or through the one that a schedule token names."""
    turn: list[Round] = []
    about: dict[AssertionError, list[Log]] = {}

    async def make() -> Sequence[Call]:
        stage.steps.clear()
        stage.logs.clear()
        turn[:] = [await begin()]
        return turn[0].calls

    async def check(settled: Sequence[Settled]) -> None:
        try:
            await judge(turn[0], settled)
        except RuleBroken as error:
            about[error] = list(stage.logs)
            raise

    name = " ".join(filter(None, [stage.rule, str(stage.path or ""), variant]))
    backend = stage.backend
    blocked = None
    if isinstance(backend, Blocking):
        address = await stage.address()
        asked: Blocking = backend
        blocked = lambda: asked.blocked(address)  # noqa: E731
    verdict: Verdict
    if stage.settings.schedule is not None:
        try:
            verdict = await replay_steps(
                name, make, check, stage.settings.schedule, backend=backend.name, blocked=blocked
            )
        except BadToken as error:
            raise NotOffered(f"the schedule that was given is another test's: {error}") from error
    else:
        verdict = await explore_steps(
            name,
            make,
            check,
            backend=backend.name,
            blocked=blocked,
            preemptions=2 if stage.settings.depth == "thorough" else 1,
            seconds=SECONDS * max(1.0, stage.settings.rounds(1)),
            patience=stage.settings.deadline,
        )
    found = verdict.counterexample
    if found is not None and isinstance(found.error, RuleBroken):
        # The failure was replayed on executions of its own; those that it tells of are the first.
        stage.logs[:] = about[found.error]
    stage.showed(schedules=verdict.schedules)
    _told(verdict)


def _told(verdict: Verdict) -> None:
    if verdict.finding is Finding.INCONCLUSIVE:
        raise Inconclusive(str(verdict))
    found = verdict.counterexample
    if verdict.finding is not Finding.FAILS or found is None:
        return
    if not isinstance(found.error, RuleBroken):
        raise Inconclusive(f"the check of a schedule broke: {found.reason}") from found.error
    failure = found.error.failure
    failure.trace = str(found.trace)
    failure.picture = found.trace.to_json()
    if found.token is not None:
        failure.replay = ["--schedule", found.token]
    raise RuleBroken(failure)


def _writes(stage: Stage, handles: list[Handle], rivals: list[EventEnvelope]) -> list[Call]:
    method = "append_batch" if stage.path is not None and stage.path.batch else "append"
    return [
        # Names of executions differ from run to run, and a label must not.
        Call(
            f"{method}(rival {number} at {rival.sequence})",
            _bare(stage, handle, rival),
            handle.store,
        )
        for number, (handle, rival) in enumerate(zip(handles, rivals, strict=True))
    ]


def _bare(stage: Stage, handle: Handle, envelope: EventEnvelope) -> Work:
    """The store's own coroutine by this test's path: each of its turns is one of the kit's."""
    store: Any = handle.store
    if stage.path is not None and stage.path.batch:
        batch = stage.accompanied(envelope)
        return lambda: as_coroutine(store.append_batch(batch))
    return lambda: as_coroutine(store.append(envelope))


def _batching(handle: Handle, batch: list[EventEnvelope]) -> Work:
    store: Any = handle.store
    return lambda: as_coroutine(store.append_batch(batch))


def _acquire(handle: Handle, log: Log) -> Call:
    store: Any = handle.store
    return Call("acquire_fence", lambda: as_coroutine(store.acquire_fence(log.execution_id)), store)


def _reading_both(handle: Handle, first: Log, second: Log) -> Work:
    async def read() -> tuple[int, int]:
        seen = len(await handle.store.read_from(first.execution_id))
        return seen, len(await handle.store.read_from(second.execution_id))

    return read


async def _acquire_against_write(stage: Stage, *, fenced_before: bool) -> None:
    await stage.needs("fencing")
    fencer, writer = await stage.contenders(2)

    async def begin() -> Round:
        log = await stage.given_log(1, fenced=fenced_before)
        envelope = log.envelope()

        async def acquire() -> list[EventEnvelope]:
            store: Any = fencer.store
            log.token = await store.acquire_fence(log.execution_id)
            return list(await store.read_from(log.execution_id))

        calls = [
            Call("acquire_fence, then read", acquire, fencer.store),
            Call("write under the older token", _bare(stage, writer, envelope), writer.store),
        ]
        return Round(calls, [log], [envelope])

    async def judge(turn: Round, settled: Sequence[Settled]) -> None:
        log, envelope = turn.logs[0], turn.envelopes[0]
        log.envelopes = _returned(stage, settled[0], "an acquire beside a write to succeed")
        refused = settled[1].error
        if refused is not None and not is_error(refused, StaleFenceError):
            stage.broken("StaleFenceError where the write lost", told_error(refused))
        await stage.holds(log, expected="nothing of an older token to land after the acquire")
        stage.check(
            (envelope in log.envelopes) == (refused is None),
            "an acknowledged write to be in the log, and a refused one not to be",
            f"{_told_settled(settled[1])}, and the log holds {len(log.envelopes)} envelopes",
        )

    await _explore(stage, begin, judge, "" if fenced_before else "first")


def _returned(stage: Stage, settled: Settled, expected: str) -> Any:
    if settled.error is not None:
        stage.broken(expected, _told_settled(settled))
    return settled.value


def _given(settled: Settled) -> Any:
    """What a call returned that the rule is not about, or an inconclusive test."""
    if settled.error is not None:
        raise Inconclusive(f"set-up failed: {_told_settled(settled)}") from settled.error
    return settled.value


def _told_settled(settled: Settled) -> str:
    came = told_value(settled.value) if settled.error is None else told_error(settled.error)
    return f"{settled.label} → {came}"


def _one_of_two(stage: Stage, settled: Sequence[Settled], *errors: type[BaseException]) -> None:
    lines = "; ".join(map(_told_settled, settled))
    winners = [one for one in settled if one.error is None]
    stage.check(len(winners) == 1, "exactly one of the two to be acknowledged", lines)
    for one in settled:
        if one.error is not None and not is_error(one.error, *errors):
            names = " or ".join(error.__name__ for error in errors)
            stage.broken(f"{names} for the one that lost", _told_settled(one))


async def _holds_the_winner(stage: Stage, turn: Round, settled: Sequence[Settled]) -> None:
    for envelope, one in zip(turn.envelopes, settled, strict=True):
        if one.error is None:
            log = next(log for log in turn.logs if log.execution_id == envelope.execution_id)
            log.wrote(envelope)
    await stage.holds(*dict.fromkeys(turn.logs))
