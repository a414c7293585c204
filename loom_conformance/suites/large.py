"""What holds for three envelopes holds for thousands: the rules again, on much at once.

Limits that nobody meets in a small test are a store's own: the parameters of a statement, the
items of a transaction, the size of a cache or of a page, the width of a column.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from ..lab.calls import Handle, settle
from ..lab.stage import Log, Make, Stage, difference_between
from ..lab.verdict import Inconclusive, NotOffered
from ..lab.watch import Look, Read, watch
from ..spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    EventStoreError,
    StaleFenceError,
    is_error,
    is_token,
)
from .batch import following, largest, needs_mixed_batches, refused_whole
from .case import rule

LONG: Final = 2_500
"""The length of an execution that has outgrown caches and pages."""

WATCHED: Final = 1_100
"""The length of what is read again and again: more than a page of a thousand."""

MANY: Final = 300
"""More executions than a transaction or a list of parameters holds, where that is limited."""

HEAVY: Final = 300_000
"""More characters than a row or a page holds."""

ACQUIRES: Final = 300
"""More tokens than fit one byte."""

PATIENCE: Final = 10
"""How many deadlines one large call may take."""


class LargeSuite:
    """Old slots, many executions, long batches."""

    @rule("SEQ-1")
    async def test_an_old_slot_of_a_long_execution_is_as_taken_as_a_new_one(
        self, stage: Stage
    ) -> None:
        log = await stage.given_bulk(LONG)
        for handle in (await stage.writer(), await stage.connect(name="opened later")):
            for slot in (0, log.next // 2, log.next - 1):
                rival = log.envelope(slot, id=f"rival-{handle.name}-{log.execution_id}-{slot}")
                await _refused_both_ways(
                    stage,
                    handle,
                    log,
                    lambda _, rival=rival: rival,  # type: ignore[misc]
                    DuplicateSequenceError,
                    f"slot {slot} of {log.next}",
                )
        await stage.holds(log, expected="a refused write to leave no trace")

    @rule("SEQ-1")
    async def test_a_large_value_that_is_refused_replaces_none_at_its_slot(
        self, stage: Stage
    ) -> None:
        await _replaces_nothing(
            stage,
            lambda log, _: log.envelope(0, id=f"rival-{log.execution_id}", payload="y" * HEAVY),
            DuplicateSequenceError,
            "slot 0 of 1",
        )

    @rule("ID-1")
    async def test_a_large_value_that_is_refused_replaces_none_of_its_id(
        self, stage: Stage
    ) -> None:
        await _replaces_nothing(
            stage,
            lambda log, sequence: log.envelope(
                sequence, id=log.envelopes[0].id, payload="y" * HEAVY
            ),
            DuplicateEnvelopeIdError,
            "the first envelope's id",
        )

    @rule("ID-2")
    async def test_a_handle_that_opens_late_knows_the_old_ids(self, stage: Stage) -> None:
        log = await stage.given_bulk(LONG)
        late = await stage.connect(name="opened later")
        for place in (0, log.next // 2, log.next - 1):
            await _refused_both_ways(
                stage,
                late,
                log,
                lambda sequence, place=place: log.envelope(  # type: ignore[misc]
                    sequence, id=log.envelopes[place].id
                ),
                DuplicateEnvelopeIdError,
                f"an id that was written {log.next - place} envelopes ago",
            )
        await stage.holds(log, expected="a refused write to leave no trace")

    @rule("BATCH-3")
    async def test_twins_at_both_ends_of_a_large_batch_refuse_it(self, stage: Stage) -> None:
        await stage.needs("batch")
        log = await stage.given_log(1)
        length = min(LONG, largest(stage))
        batch = following(log, length)
        twin_id = f"twin-{log.execution_id}"
        batch[-1] = log.envelope(batch[0].sequence, id=twin_id)
        await refused_whole(stage, batch, log, DuplicateSequenceError, patience=PATIENCE)
        batch = following(log, length)
        batch[-1] = log.envelope(batch[-1].sequence, id=batch[0].id)
        await refused_whole(stage, batch, log, DuplicateEnvelopeIdError, patience=PATIENCE)

    @rule("ID-2")
    async def test_a_large_batch_knows_the_ids_of_other_executions(self, stage: Stage) -> None:
        await stage.needs("batch")
        if stage.backend.envelope_ids != "store":
            raise NotOffered("an id of another execution is free here")
        other, log = await stage.given_log(1), Log(stage.session.fresh_id())
        batch = following(log, min(LONG, largest(stage)))
        batch[-1] = log.envelope(batch[-1].sequence, id=other.envelopes[0].id)
        outcome = await (await stage.writer()).patient(PATIENCE).append_batch(batch)
        if not is_error(outcome.error, DuplicateEnvelopeIdError):
            stage.broken(
                f"DuplicateEnvelopeIdError for the last of {len(batch)} envelopes", outcome.line()
            )

    @rule("BATCH-4")
    async def test_a_batch_over_many_executions_is_one_step(self, stage: Stage) -> None:
        await needs_mixed_batches(stage)
        logs = [Log(stage.session.fresh_id()) for _ in range(_many(stage))]
        writer = (await stage.writer()).patient(PATIENCE)
        batch = [log.envelope() for log in logs]
        stage.returned(
            await writer.append_batch(batch), f"a batch over {len(logs)} executions to be stored"
        )
        for log, envelope in zip(logs, batch, strict=True):
            log.wrote(envelope)
        await stage.holds(*_some(logs))
        again = [log.envelope() for log in logs]
        again[-1] = logs[-1].envelope(0, id=f"rival-{logs[-1].execution_id}")
        await refused_whole(
            stage, again, logs[-1], DuplicateSequenceError, others=_some(logs), patience=PATIENCE
        )

    @rule("BATCH-5")
    async def test_no_reader_ever_sees_part_of_a_large_batch(self, stage: Stage) -> None:
        await stage.needs("batch")
        writer, *readers = await stage.contenders(3)
        log = stage.log()
        batch = following(log, min(WATCHED, largest(stage)))

        async def look(read: Read) -> str | None:
            found = len(await read(log.execution_id))
            part = found not in (0, len(batch))
            return f"{found} of {len(batch)} envelopes of the batch in one read" if part else None

        await _unseen_in_part(stage, writer, readers, batch, look)
        log.envelopes += batch
        await stage.holds(log)

    @rule("BATCH-5")
    async def test_no_reader_ever_sees_a_batch_in_some_of_its_many_executions(
        self, stage: Stage
    ) -> None:
        await needs_mixed_batches(stage)
        writer, *readers = await stage.contenders(3)
        logs = [Log(stage.session.fresh_id()) for _ in range(_many(stage))]
        ends = (logs[0], logs[-1])

        async def look(read: Read) -> str | None:
            for first, then in (ends, ends[::-1]):
                if await read(first.execution_id) and not await read(then.execution_id):
                    place = logs.index(then) + 1
                    return (
                        f"the envelope of one execution and then not that of another, the batch's "
                        f"{place}. of {len(logs)}"
                    )
            return None

        batch = [log.envelope() for log in logs]
        await _unseen_in_part(stage, writer, readers, batch, look)
        for log, envelope in zip(logs, batch, strict=True):
            log.wrote(envelope)
        await stage.holds(*_some(logs))

    @rule("BATCH-5")
    async def test_a_long_read_sees_the_gaps_that_a_batch_fills_all_or_none(
        self, stage: Stage
    ) -> None:
        """A long execution is read while pairs of its gaps, far from each other, are filled."""
        await stage.needs("batch")
        if not stage.backend.sparse_sequences:
            raise NotOffered("the store takes no gaps (sparse_sequences = False)")
        writer, *readers = await stage.contenders(3)
        log = stage.log()
        every_other = [log.envelope(2 * place) for place in range(WATCHED)]
        size = min(largest(stage), WATCHED)
        for start in range(0, WATCHED, size):
            stage.given(
                await writer.patient(PATIENCE).append_batch(every_other[start : start + size])
            )
        pairs = [
            [log.envelope(2 * place + 1), log.envelope(2 * (WATCHED - place) - 1)]
            for place in range(1, 1 + stage.settings.rounds(10))
        ]

        async def look(read: Read) -> str | None:
            found = {envelope.sequence for envelope in await read(log.execution_id)}
            for pair in pairs:
                seen = [one.sequence for one in pair if one.sequence in found]
                if len(seen) == 1:
                    return f"{seen[0]} of a batch of {[one.sequence for one in pair]} in one read"
            return None

        done = False

        async def fill() -> None:
            nonlocal done
            try:
                for pair in pairs:
                    stage.returned(await writer.append_batch(pair), "a good batch to be stored")
            finally:
                done = True

        _, *seen = await asyncio.gather(
            fill(), *(watch(stage, reader, look, lambda: done) for reader in readers)
        )
        for reader, wrong in zip(readers, seen, strict=True):
            _not_torn(stage, reader, wrong)

    @rule("FENCE-1")
    async def test_tokens_grow_over_hundreds_of_acquires(self, stage: Stage) -> None:
        await stage.needs("fencing")
        (log,) = logs = [stage.log()]
        tokens = await _acquired(stage, logs * ACQUIRES)
        before = 0
        for number, token in enumerate(tokens, 1):
            stage.check(
                is_token(token) and token > before,
                f"a token above {before}, the one before it",
                f"acquire {number} of {len(tokens)} returned {token!r}",
            )
            before = token
        log.token = tokens[-1]
        await stage.accepted(log, expected=f"the token of acquire {ACQUIRES} to be current")

    @rule("FENCE-3")
    async def test_a_stale_write_to_a_long_execution_is_refused(self, stage: Stage) -> None:
        await stage.needs("fencing")
        log = stage.log()
        old = await stage.given_fence(log)
        await stage.given_bulk(LONG, log)
        await stage.given_fence(log)
        for handle in (await stage.writer(), await stage.connect(name="opened later")):
            await _refused_both_ways(
                stage,
                handle,
                log,
                lambda sequence: log.envelope(sequence, token=old),
                StaleFenceError,
                f"the old token {old} after {log.next} envelopes",
            )
        await stage.holds(log, expected="a refused write to leave no trace")

    @rule("FENCE-4")
    async def test_a_fence_holds_however_many_executions_are_fenced_after_it(
        self, stage: Stage
    ) -> None:
        await stage.needs("fencing")
        log = await stage.given_log(1, fenced=True)
        others = [Log(stage.session.fresh_id()) for _ in range(stage.settings.rounds(1_200))]
        await _acquired(stage, others)
        for handle in (await stage.writer(), await stage.connect(name="opened later")):
            outcome = await handle.append(log.envelope(token=None))
            if not is_error(outcome.error, StaleFenceError):
                stage.broken(
                    f"StaleFenceError for a write without the token {log.token}, though "
                    f"{len(others)} executions were fenced since",
                    outcome.line(),
                )
        await stage.holds(log, expected="a refused write to leave no trace")

    @rule("FENCE-9")
    async def test_each_of_a_batchs_many_executions_answers_for_its_token(
        self, stage: Stage
    ) -> None:
        await stage.needs("fencing")
        await needs_mixed_batches(stage)
        logs = [Log(stage.session.fresh_id()) for _ in range(_many(stage))]
        for log, token in zip(logs, await _acquired(stage, logs), strict=True):
            log.token = token
        writer = (await stage.writer()).patient(PATIENCE)
        for place in (0, len(logs) // 2, len(logs) - 1):
            batch = [log.envelope() for log in logs]
            batch[place] = logs[place].envelope(token=None)
            outcome = await writer.append_batch(batch)
            if not is_error(outcome.error, StaleFenceError):
                stage.broken(
                    f"StaleFenceError: execution {place + 1} of {len(logs)} has a token and the "
                    "batch's envelope for it has none",
                    outcome.line(),
                )
            await stage.holds(*_some(logs), expected="a refused batch to leave no trace")
        batch = [log.envelope() for log in logs]
        stage.returned(
            await writer.append_batch(batch),
            f"a batch with the current tokens of {len(logs)} executions to be stored",
        )
        for log, envelope in zip(logs, batch, strict=True):
            log.wrote(envelope)
        await stage.holds(*_some(logs))

    @rule("FENCE-9")
    async def test_the_last_envelope_of_a_large_batch_answers_for_its_token(
        self, stage: Stage
    ) -> None:
        await stage.needs("fencing")
        await stage.needs("batch")
        log = await stage.given_log(1, fenced=True)
        old = log.token
        await stage.given_fence(log)
        batch = following(log, largest(stage))
        batch[-1] = log.envelope(batch[-1].sequence, token=old)
        await refused_whole(stage, batch, log, StaleFenceError, patience=PATIENCE)


async def _replaces_nothing(
    stage: Stage,
    make: Callable[[Log, int], EventEnvelope],
    error: type[EventStoreError],
    what: str,
) -> None:
    """Check that a large value which is refused leaves alone the one that is stored.

    Raises:
        Inconclusive: that one is not kept as it was written, which is for DATA-3 to say.
    """
    log = Log(stage.session.fresh_id())
    first = log.envelope(payload="x" * HEAVY)
    writer = await stage.writer()
    stage.given(await writer.append(first))
    if difference_between([first], await stage.read(writer, log.execution_id)):
        raise Inconclusive("set-up failed: a large value is not kept as it was written")
    log.wrote(first)
    stage.logs.append(log)
    rival = await stage.connect(name="rival")
    await _refused_both_ways(stage, rival, log, partial(make, log), error, what)
    await stage.holds(log, expected="a refused write to leave no trace")


async def _refused_both_ways(
    stage: Stage,
    handle: Handle,
    log: Log,
    make: Make,
    error: type[EventStoreError],
    what: str,
) -> None:
    """Check that a write is refused alone, and behind a good one in a batch."""
    outcomes = [await handle.append(make(log.next))]
    if await stage.offers("batch") and largest(stage) > 1:
        outcomes.append(await handle.append_batch([log.envelope(), make(log.next + 1)]))
    for outcome in outcomes:
        if not is_error(outcome.error, error):
            stage.broken(f"{error.__name__} for {what}", outcome.line())


def _many(stage: Stage) -> int:
    return min(MANY, stage.backend.max_batch or MANY)


def _some(logs: Sequence[Log]) -> list[Log]:
    """The first, the last, and some between."""
    return [logs[place] for place in sorted({0, len(logs) // 2, len(logs) - 1})]


async def _acquired(stage: Stage, logs: Sequence[Log]) -> list[Any]:
    """A token for each, acquired one after the other in one bounded call."""
    writer = (await stage.writer()).patient(PATIENCE)
    store: Any = writer.store
    told = len({log.execution_id for log in logs})
    call = f"{writer.name}.acquire_fence() {len(logs)} times, for {told} executions"
    seconds = stage.session.allowance("acquire_fence") * PATIENCE

    async def each() -> list[Any]:
        return [await store.acquire_fence(log.execution_id) for log in logs]

    outcome = await settle(call, "acquire_fence", each, seconds)
    tokens = stage.given(outcome)
    stage.steps.append(f"{call} → {tokens[0]!r} … {tokens[-1]!r}")
    return tokens


async def _unseen_in_part(
    stage: Stage, writer: Handle, readers: Sequence[Handle], batch: list[EventEnvelope], look: Look
) -> None:
    """Check that nobody sees a part of a batch while it is written."""
    writing = asyncio.ensure_future(writer.patient(PATIENCE).append_batch(batch))
    try:
        seen = await asyncio.gather(
            *(watch(stage, reader, look, writing.done) for reader in [*readers, writer])
        )
    finally:
        outcome = await writing
    for reader, wrong in zip([*readers, writer], seen, strict=True):
        _not_torn(stage, reader, wrong)
    stage.returned(outcome, "a good batch to be acknowledged")


def _not_torn(stage: Stage, reader: Handle, wrong: str | None) -> None:
    stage.check(wrong is None, "all of a batch to be seen or none", f"{reader.name}: {wrong}")
