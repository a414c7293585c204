"""BATCH-1 to BATCH-9: a batch is one step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from ..lab.burst import burst, must_have_met
from ..lab.calls import Handle, Outcome
from ..lab.stage import Log, Stage
from ..lab.values import sized
from ..lab.verdict import NotOffered
from ..lab.watch import Read, watch
from ..spi import (
    MAX_JSON_BYTES,
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    is_error,
)
from .case import rule

LARGE = 10_000
CONFLICTS = (DuplicateSequenceError, DuplicateEnvelopeIdError)


class BatchSuite:
    """All of a batch is stored, or none of it."""

    @rule("BATCH-1")
    async def test_an_acknowledged_batch_is_stored_whole(self, stage: Stage) -> None:
        await stage.needs("batch")
        writer = await stage.writer()
        for size in (1, 2, 3, 100):
            log = await stage.given_log(1)
            batch = following(log, size)
            stage.returned(await writer.append_batch(batch), "a good batch to be acknowledged")
            log.envelopes += batch
            await stage.holds(log)

    @rule("BATCH-2")
    async def test_a_taken_slot_at_any_position_refuses_the_whole_batch(self, stage: Stage) -> None:
        await stage.needs("batch")
        for position in range(5):
            log = await stage.given_log(2)
            batch = following(log, 4)
            batch.insert(position, log.envelope(0, id=f"rival-{log.execution_id}"))
            await refused_whole(stage, batch, log, DuplicateSequenceError)

    @rule("BATCH-2")
    async def test_a_taken_id_at_any_position_refuses_the_whole_batch(self, stage: Stage) -> None:
        await stage.needs("batch")
        for position in range(5):
            log = await stage.given_log(2)
            batch = following(log, 5)
            batch[position] = log.envelope(batch[position].sequence, id=log.envelopes[0].id)
            await refused_whole(stage, batch, log, DuplicateEnvelopeIdError)

    @rule("BATCH-3")
    async def test_two_envelopes_of_one_batch_with_the_same_slot_refuse_it(
        self, stage: Stage
    ) -> None:
        await stage.needs("batch")
        for first, second in ((0, 1), (0, 3), (2, 3)):
            log = await stage.given_log(1)
            batch = following(log, 4)
            batch[second] = log.envelope(batch[first].sequence, id=f"twin-{log.execution_id}")
            await refused_whole(stage, batch, log, DuplicateSequenceError)

    @rule("BATCH-3")
    async def test_two_envelopes_of_one_batch_with_the_same_id_refuse_it(
        self, stage: Stage
    ) -> None:
        await stage.needs("batch")
        for first, second in ((0, 1), (0, 3), (2, 3)):
            log = await stage.given_log(1)
            batch = following(log, 4)
            batch[second] = log.envelope(batch[second].sequence, id=batch[first].id)
            await refused_whole(stage, batch, log, DuplicateEnvelopeIdError)

    @rule("BATCH-3")
    async def test_the_same_envelope_twice_in_one_batch_refuses_it(self, stage: Stage) -> None:
        await stage.needs("batch")
        log = await stage.given_log(1)
        twin = log.envelope()
        await refused_whole(stage, [twin, twin], log, *CONFLICTS)

    @rule("BATCH-3")
    async def test_one_id_for_two_executions_of_a_batch_counts_as_the_scope_says(
        self, stage: Stage
    ) -> None:
        await needs_mixed_batches(stage)
        log, other = await stage.given_log(1), await stage.given_log(1)
        one_id = f"shared-{log.execution_id}"
        batch = [log.envelope(id=one_id), other.envelope(id=one_id)]
        if stage.backend.envelope_ids == "store":
            await refused_whole(stage, batch, log, DuplicateEnvelopeIdError, others=[other])
            return
        outcome = await (await stage.writer()).append_batch(batch)
        stage.returned(outcome, "one id in two executions, since the declared scope is execution")
        for each, envelope in zip((log, other), batch, strict=True):
            each.wrote(envelope)
        await stage.holds(log, other)

    @rule("BATCH-4")
    async def test_a_batch_is_atomic_across_executions(self, stage: Stage) -> None:
        await needs_mixed_batches(stage)
        for position in range(3):
            logs = [await stage.given_log(1) for _ in range(3)]
            batch = [log.envelope() for log in logs]
            offended = logs[position]
            batch[position] = offended.envelope(0, id=f"rival-{offended.execution_id}")
            await refused_whole(stage, batch, offended, DuplicateSequenceError, others=logs)

    @rule("BATCH-4")
    async def test_a_batch_over_several_executions_is_stored_whole(self, stage: Stage) -> None:
        await needs_mixed_batches(stage)
        writer = await stage.writer()
        logs = [await stage.given_log(length) for length in (0, 1, 2)]
        batch = [envelope for log in logs for envelope in following(log, 2)]
        stage.returned(await writer.append_batch(batch), "a good batch to be acknowledged")
        for log in logs:
            log.envelopes += [one for one in batch if one.execution_id == log.execution_id]
        await stage.holds(*logs)

    @rule("BATCH-5")
    async def test_no_reader_ever_sees_part_of_a_batch(self, stage: Stage) -> None:
        await stage.needs("batch")
        writer, *readers = await stage.contenders(3)
        mixed = stage.backend.batch_scope == "store"
        seen: list[list[Outcome[None]]] = []
        for _ in range(stage.settings.rounds(3)):
            log = stage.log()
            other = stage.log() if mixed else log
            batch = following(log, 50) + (following(other, 50) if mixed else [])
            outcome = await _watched(stage, writer, [*readers, writer], batch, log, other)
            seen.append([outcome])
            log.envelopes += [one for one in batch if one.execution_id == log.execution_id]
            if mixed:
                other.envelopes += [one for one in batch if one.execution_id == other.execution_id]
            await stage.holds(log, other)

    @rule("BATCH-6")
    async def test_an_empty_batch_succeeds_and_changes_nothing(self, stage: Stage) -> None:
        await stage.needs("batch")
        log = await stage.given_log(1)
        writer = await stage.writer()
        empties: list[Iterable[EventEnvelope]] = [[], (), iter(())]
        for empty in empties:
            stage.returned(await writer.append_batch(empty), "an empty batch to succeed")
        await stage.holds(log)
        await stage.still_good(writer, log)

    @rule("BATCH-7")
    async def test_a_large_batch_is_stored_whole(self, stage: Stage) -> None:
        await stage.needs("batch")
        log = stage.log()
        writer = (await stage.writer()).patient(10)
        batch = following(log, largest(stage))
        stage.returned(await writer.append_batch(batch), f"a batch of {len(batch)} to be stored")
        log.envelopes += batch
        await stage.holds(log)

    @rule("BATCH-7")
    async def test_a_batch_of_large_payloads_is_stored_whole(self, stage: Stage) -> None:
        await stage.needs("batch")
        log = stage.log()
        writer = (await stage.writer()).patient(10)
        batch = [log.envelope(place, payload=sized(MAX_JSON_BYTES)) for place in range(5)]
        stage.returned(await writer.append_batch(batch), "five payloads of 1 MiB to be stored")
        log.envelopes += batch
        await stage.holds(log)

    @rule("BATCH-7")
    async def test_a_batch_of_large_payloads_whose_last_envelope_conflicts_is_refused_whole(
        self, stage: Stage
    ) -> None:
        await stage.needs("batch")
        log = await stage.given_log(1)
        large = sized(MAX_JSON_BYTES)
        batch = [log.envelope(place, payload=large) for place in range(1, 5)]
        batch.append(log.envelope(0, id=f"rival-{log.execution_id}", payload=large))
        await refused_whole(stage, batch, log, DuplicateSequenceError, patience=10)

    @rule("BATCH-7")
    async def test_a_large_batch_whose_last_envelope_conflicts_is_refused_whole(
        self, stage: Stage
    ) -> None:
        await stage.needs("batch")
        log = await stage.given_log(1)
        batch = following(log, largest(stage) - 1)
        batch.append(log.envelope(0, id=f"rival-{log.execution_id}"))
        await refused_whole(stage, batch, log, DuplicateSequenceError, patience=10)

    @rule("BATCH-7")
    async def test_a_large_batch_whose_last_id_is_taken_is_refused_whole(
        self, stage: Stage
    ) -> None:
        """Its sequences ascend to the end, so that sorting does not bring the offender forward."""
        await stage.needs("batch")
        log = await stage.given_log(1)
        batch = following(log, largest(stage))
        batch[-1] = log.envelope(batch[-1].sequence, id=log.envelopes[0].id)
        await refused_whole(stage, batch, log, DuplicateEnvelopeIdError, patience=10)

    @rule("BATCH-7")
    async def test_a_batch_beyond_the_declared_limit_is_refused_whole(self, stage: Stage) -> None:
        await stage.needs("batch")
        limit = stage.backend.max_batch
        if limit is None:
            raise NotOffered("the backend declares no largest batch")
        log = await stage.given_log(1)
        await refused_whole(stage, following(log, limit + 1), log, ValueError, patience=10)

    @rule("BATCH-8")
    async def test_any_iterable_is_a_batch(self, stage: Stage) -> None:
        await stage.needs("batch")
        writer = await stage.writer()
        for kind in (list, tuple, iter, _generator, _OneShot, dict.fromkeys):
            log = await stage.given_log(1)
            batch = following(log, 3)
            stage.returned(
                await writer.append_batch(kind(batch)),
                f"a batch given as {getattr(kind, '__name__', kind)} to be stored",
            )
            log.envelopes += batch
            await stage.holds(log)

    @rule("BATCH-8")
    async def test_an_iterable_that_fails_midway_leaves_nothing(self, stage: Stage) -> None:
        await stage.needs("batch")
        writer = await stage.writer()
        for given in (0, 1, 3):
            log = await stage.given_log(1)
            outcome = await writer.append_batch(_failing(following(log, given)))
            if outcome.ok:
                stage.broken(
                    f"the iterable's own error, which comes after {given} envelopes", outcome.line()
                )
            await stage.holds(log, expected="nothing of a batch that was never given whole")
            await stage.still_good(writer, log)

    @rule("BATCH-8")
    async def test_a_one_shot_iterable_with_a_conflict_is_refused_whole(self, stage: Stage) -> None:
        await stage.needs("batch")
        log = await stage.given_log(1)
        batch = [*following(log, 2), log.envelope(0, id=f"rival-{log.execution_id}")]
        await refused_whole(stage, _generator(batch), log, DuplicateSequenceError)

    @rule("BATCH-9")
    async def test_of_simultaneous_overlapping_batches_the_log_is_the_union(
        self, stage: Stage
    ) -> None:
        await stage.needs("batch")
        handles = await stage.contenders(4)
        mixed = stage.backend.batch_scope == "store"
        rounds: list[list[Outcome[None]]] = []
        for _ in range(stage.settings.rounds(4)):
            contested = await stage.given_log(1)
            logs = [stage.log() for _ in handles] if mixed else []
            batches = [
                _overlapping(contested, number, logs[number] if mixed else None)
                for number in range(len(handles))
            ]
            outcomes = await burst(
                [
                    lambda handle=handle, batch=batch: handle.append_batch(batch)  # type: ignore[misc]
                    for handle, batch in zip(handles, batches, strict=True)
                ]
            )
            rounds.append(outcomes)
            _lost_by_conflict(stage, outcomes)
            for batch, outcome in zip(batches, outcomes, strict=True):
                if outcome.ok:
                    stage.noted(batch)
            for log in [contested, *logs]:
                _no_slot_twice(stage, log)
            await stage.holds(contested, *logs, expected="the union of the acknowledged batches")
        must_have_met(rounds)


def following(log: Log, count: int) -> list[EventEnvelope]:
    """The next so many envelopes of an execution."""
    return [log.envelope(log.next + place) for place in range(count)]


def largest(stage: Stage) -> int:
    """How many envelopes the largest batch of the contract holds here."""
    return min(LARGE, stage.backend.max_batch or LARGE)


async def needs_mixed_batches(stage: Stage) -> None:
    """Raise `NotOffered` where a batch cannot span executions."""
    await stage.needs("batch")
    if stage.backend.batch_scope != "store":
        raise NotOffered('a batch holds one execution here (batch_scope = "execution")')


async def refused_whole(
    stage: Stage,
    batch: Iterable[EventEnvelope],
    log: Log,
    *errors: type[BaseException],
    others: Iterable[Log] = (),
    patience: float = 1,
) -> None:
    """Check that a batch is refused with one of the errors, and that nothing of it is there."""
    writer = (await stage.writer()).patient(patience)
    names = " or ".join(error.__name__ for error in errors)
    outcome = await writer.append_batch(batch)
    if outcome.error is None:
        stage.broken(f"the whole batch to be refused with {names}", f"acknowledged: {outcome.call}")
    if not is_error(outcome.error, *errors):
        stage.broken(f"{names} for the whole batch", outcome.line())
    await stage.holds(log, *others, expected="a refused batch to leave no trace")
    await stage.still_good(writer, log)


async def _watched(
    stage: Stage,
    writer: Handle,
    readers: list[Handle],
    batch: list[EventEnvelope],
    log: Log,
    other: Log,
) -> Outcome[None]:
    half = sum(one.execution_id == log.execution_id for one in batch)
    rest = len(batch) - half
    writing = asyncio.ensure_future(writer.append_batch(batch))

    async def look(read: Read) -> str | None:
        first = len(await read(log.execution_id))
        if first not in (0, half):
            return f"{first} of {half} envelopes of the batch in one read"
        second = len(await read(other.execution_id))
        if other is not log and first and second < rest:
            return f"{first} of {half} envelopes of one execution, then {second} of {rest}"
        return None

    try:
        seen = await asyncio.gather(
            *(watch(stage, reader, look, writing.done) for reader in readers)
        )
    finally:
        outcome = await writing
    for reader, wrong in zip(readers, seen, strict=True):
        stage.check(wrong is None, "all of a batch to be seen or none", f"{reader.name}: {wrong}")
    stage.returned(outcome, "a good batch to be acknowledged")
    return outcome


def _generator(batch: Iterable[EventEnvelope]) -> Iterator[EventEnvelope]:
    yield from batch


class UnreadableError(Exception):
    """What the iterable that fails raises."""


def _failing(batch: Iterable[EventEnvelope]) -> Iterator[EventEnvelope]:
    yield from batch
    raise UnreadableError("the rest of the batch cannot be made")


class _OneShot:
    """An iterable that gives its envelopes once and complains if it is asked again."""

    def __init__(self, batch: Iterable[EventEnvelope]) -> None:
        self._batch: list[EventEnvelope] | None = list(batch)

    def __iter__(self) -> Iterator[EventEnvelope]:
        if self._batch is None:
            raise RuntimeError("the batch is read a second time")
        batch, self._batch = self._batch, None
        return iter(batch)


def _overlapping(contested: Log, number: int, own: Log | None) -> list[EventEnvelope]:
    """Batches of which any two share a slot, and each holds envelopes of its own too."""
    shared = [
        contested.envelope(contested.next + place, id=f"{contested.execution_id}-{number}-{place}")
        for place in range(2)
    ]
    if own is None:
        return shared
    before, after = following(own, 2)
    return [before, *shared, after]


def _lost_by_conflict(stage: Stage, outcomes: list[Outcome[None]]) -> None:
    for outcome in outcomes:
        if outcome.error is not None and not is_error(outcome.error, *CONFLICTS):
            stage.broken("a conflict's error for each batch that lost", outcome.line())


def _no_slot_twice(stage: Stage, log: Log) -> None:
    places = [envelope.sequence for envelope in log.envelopes]
    twice = sorted({place for place in places if places.count(place) > 1})
    stage.check(
        not twice,
        "no two acknowledged batches to share a slot",
        f"the slots {twice} of {log.execution_id!r} were acknowledged more than once",
    )
    if log.next > 1:
        stage.check(bool(places), "one batch to win", "all were refused")
