"""SEQ-1 to SEQ-5: a slot is taken once, and where the caller said."""

from __future__ import annotations

from ...lab.burst import burst, must_have_met
from ...lab.calls import Outcome, told_answers, told_envelope
from ...lab.paths import WritePath
from ...lab.stage import Stage
from ...lab.values import SEQUENCES
from ...spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    EventStoreError,
    is_error,
)
from ..case import on_every_write_path, rule

LENGTH = 3


class SequenceSuite:
    """Slots are unique, independent by execution, and never renumbered."""

    @rule("SEQ-1")
    @on_every_write_path
    async def test_a_second_envelope_for_a_taken_slot_is_refused(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = await stage.given_log(LENGTH)
        for taken in (0, 1, LENGTH - 1):
            await stage.refused(
                log,
                lambda _, taken=taken: log.envelope(  # type: ignore[misc]
                    taken, id=f"rival-{log.execution_id}-{taken}", payload={"rival": taken}
                ),
                DuplicateSequenceError,
                recovery=lambda sequence, taken=taken: log.envelope(  # type: ignore[misc]
                    sequence, id=f"rival-{log.execution_id}-{taken}"
                ),
            )

    @rule("SEQ-1")
    @on_every_write_path
    async def test_the_current_token_opens_no_taken_slot(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = await stage.given_log(LENGTH, fenced=True)
        for taken in (0, LENGTH - 1):
            await stage.refused(
                log,
                lambda _, taken=taken: log.envelope(  # type: ignore[misc]
                    taken, id=f"rival-{log.execution_id}-{taken}"
                ),
                DuplicateSequenceError,
            )

    @rule("SEQ-2")
    @on_every_write_path
    async def test_the_same_envelope_again_is_refused(self, stage: Stage, path: WritePath) -> None:
        log = await stage.given_log(LENGTH)
        for taken in (0, LENGTH - 1):
            again = log.envelopes[taken]
            await stage.refused(
                log,
                lambda _, again=again: again,  # type: ignore[misc]
                DuplicateSequenceError,
                DuplicateEnvelopeIdError,
                target=f"the same envelope again, {told_envelope(again)}",
            )

    @rule("SEQ-3")
    @on_every_write_path
    async def test_slots_of_different_executions_are_independent(
        self, stage: Stage, path: WritePath
    ) -> None:
        first = await stage.given_log(LENGTH)
        for _ in range(2):
            other = stage.log()
            for _ in range(2):
                await stage.accepted(
                    other, expected="a slot taken in one execution to be free in another"
                )
        await stage.holds(first)

    @rule("SEQ-3")
    async def test_a_slot_is_a_pair_and_not_its_parts_joined(self, stage: Stage) -> None:
        long = stage.log()
        await stage.given_more(long, 12)
        short = stage.log(f"{long.execution_id}1")
        writer = await stage.writer()
        for sequence in range(2):
            envelope = short.envelope(sequence, id=f"{short.execution_id}|{sequence}")
            stage.returned(
                await writer.append(envelope),
                f"the slot to be free, though {long.execution_id!r} holds 10 and 11",
            )
            short.wrote(envelope)
        await stage.holds(long, short)

    @rule("SEQ-4")
    @on_every_write_path
    async def test_of_simultaneous_writes_to_one_slot_exactly_one_is_acknowledged(
        self, stage: Stage, path: WritePath
    ) -> None:
        handles = await stage.contenders(4)
        rivals_each = 1 if path.shares_flushes else 2
        rounds: list[list[Outcome[None]]] = []
        for turn in range(stage.settings.rounds(5)):
            log = await stage.given_log(turn % 2)
            equal = turn == 1
            names = (f"{log.execution_id}-rival-{n}" for n in range(len(handles) * rivals_each))
            rivals = [
                log.envelope() if equal else log.envelope(id=name, payload={"rival": name})
                for name in names
            ]
            outcomes = await burst(
                [
                    stage.writing(handles[number % len(handles)], rival)
                    for number, rival in enumerate(rivals)
                ]
            )
            rounds.append(outcomes)
            _one_winner(stage, outcomes, equal=equal)
            winner = next(
                rival for rival, outcome in zip(rivals, outcomes, strict=True) if outcome.ok
            )
            log.wrote(winner)
            await stage.holds(log, expected="the log to hold the one write that was acknowledged")
        must_have_met(rounds)

    @rule("SEQ-5")
    @on_every_write_path
    async def test_an_envelope_is_stored_at_the_sequence_its_caller_gave(
        self, stage: Stage, path: WritePath
    ) -> None:
        for ahead in (2, *SEQUENCES):
            log = await stage.given_log(1)
            far = log.envelope(log.next + ahead if ahead == 2 else ahead)
            if stage.backend.sparse_sequences:
                await _stored_alone(stage, log.execution_id, far)
            else:
                await _stored_there_or_refused(stage, log.execution_id, far)


def _one_winner(stage: Stage, outcomes: list[Outcome[None]], *, equal: bool) -> None:
    writes = "writes of one and the same envelope" if equal else "writes"
    stage.check(
        sum(outcome.ok for outcome in outcomes) == 1,
        f"exactly one of the simultaneous {writes} to be acknowledged",
        told_answers(outcomes),
    )
    right = (DuplicateSequenceError, *((DuplicateEnvelopeIdError,) if equal else ()))
    for outcome in outcomes:
        if outcome.error is not None and not is_error(outcome.error, *right):
            names = " or ".join(kind.__name__ for kind in right)
            stage.broken(f"{names} for each write that lost", outcome.line())


async def _stored_alone(stage: Stage, execution_id: str, envelope: EventEnvelope) -> None:
    handle = await stage.writer()
    outcome = await stage.write_alone(handle, envelope)
    stage.returned(outcome, "a sparse sequence to be accepted, as the backend declares")
    await _is_at_its_place(stage, execution_id, envelope)


async def _stored_there_or_refused(
    stage: Stage, execution_id: str, envelope: EventEnvelope
) -> None:
    handle = await stage.writer()
    outcome = await stage.write_alone(handle, envelope)
    if outcome.ok:
        await _is_at_its_place(stage, execution_id, envelope)
        return
    if not is_error(outcome.error, EventStoreError):
        stage.broken("a gap to be accepted, or refused with an EventStoreError", outcome.line())
    async with stage.fresh() as reader:
        found = await stage.read(reader, execution_id)
    stage.check(
        all(one.id != envelope.id for one in found),
        "a refused gap to leave no trace",
        f"the log holds it: {told_envelope(envelope)}",
    )


async def _is_at_its_place(stage: Stage, execution_id: str, envelope: EventEnvelope) -> None:
    async with stage.fresh() as reader:
        found = await stage.read(reader, execution_id)
    places = [one.sequence for one in found if one.id == envelope.id]
    stage.check(
        places == [envelope.sequence],
        f"the envelope to be stored at {envelope.sequence}, once",
        f"its id is found at {places or 'no sequence'}",
    )
