"""ID-1 to ID-3 and KEY-1: an id names one thing, and only itself."""

from __future__ import annotations

import itertools

from ...lab.burst import burst, must_have_met
from ...lab.calls import Outcome, short, told_answers
from ...lab.paths import WritePath
from ...lab.stage import EPOCH, Log, Stage
from ...lab.values import alike
from ...spi import MAX_ENVELOPE_ID, DuplicateEnvelopeIdError, EventEnvelope, is_error
from ..case import on_every_write_path, rule

OLD = 10_000
"""How many ids lie between the first use of an id and the second, to see a bounded cache fail."""


class IdentitySuite:
    """Envelope ids are unique in their scope; keys are compared by code points."""

    @rule("ID-1")
    @on_every_write_path
    async def test_a_taken_id_is_refused_at_another_sequence(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = await stage.given_log(3)
        for taken in (log.envelopes[0].id, log.envelopes[2].id):
            await stage.refused(
                log,
                lambda sequence, taken=taken: log.envelope(sequence, id=taken),  # type: ignore[misc]
                DuplicateEnvelopeIdError,
            )

    @rule("ID-1")
    @on_every_write_path
    async def test_the_current_token_opens_no_taken_id(self, stage: Stage, path: WritePath) -> None:
        log = await stage.given_log(2, fenced=True)
        await stage.refused(
            log,
            lambda sequence: log.envelope(sequence, id=log.envelopes[0].id),
            DuplicateEnvelopeIdError,
        )

    @rule("ID-2")
    @on_every_write_path
    async def test_in_another_execution_a_taken_id_counts_as_the_scope_says(
        self, stage: Stage, path: WritePath
    ) -> None:
        first = await stage.given_log(2)
        for taken in first.envelopes[:2]:
            other = await stage.given_log(1)
            await _held_to_scope(stage, other, taken.id)

    @rule("ID-2")
    async def test_an_old_id_is_as_taken_as_a_new_one(self, stage: Stage) -> None:
        first = await stage.given_log(1)
        await stage.given_bulk(OLD)
        await _held_to_scope(stage, stage.log(), first.envelopes[0].id)

    @rule("ID-3")
    @on_every_write_path
    async def test_of_simultaneous_writes_with_one_id_exactly_one_is_acknowledged(
        self, stage: Stage, path: WritePath
    ) -> None:
        handles = await stage.contenders(4)
        rounds: list[list[Outcome[None]]] = []
        shared = stage.backend.envelope_ids == "store"
        for _ in range(stage.settings.rounds(4)):
            logs = [stage.log() for _ in handles]
            one_id = f"contended-{logs[0].execution_id}"
            if not shared:
                await stage.given_more(logs[0], 1)
            rivals = _rivals(logs, one_id, shared, stage.backend.sparse_sequences)
            outcomes = await burst(
                [
                    stage.writing(handle, rival)
                    for handle, rival in zip(handles, rivals, strict=True)
                ]
            )
            rounds.append(outcomes)
            winners = [rival for rival, one in zip(rivals, outcomes, strict=True) if one.ok]
            stage.check(
                len(winners) == 1,
                "exactly one of the simultaneous writes with one id to be acknowledged",
                told_answers(outcomes),
            )
            if shared:
                _lost_by_id(stage, outcomes)
            for log in logs:
                for winner in winners:
                    if winner.execution_id == log.execution_id:
                        log.wrote(winner)
            await stage.holds(*(logs if shared else logs[:1]))
        must_have_met(rounds)

    @rule("KEY-1")
    @on_every_write_path
    async def test_execution_ids_are_compared_by_code_points(
        self, stage: Stage, path: WritePath
    ) -> None:
        unique = stage.session.fresh_id()
        logs = [stage.log(name) for group in alike(unique) for name in group]
        for number, log in enumerate(logs):
            await stage.accepted(
                log,
                lambda sequence, log=log, number=number: log.envelope(  # type: ignore[misc]
                    sequence, id=f"{unique}/{path}/{number}", payload={"rival": number}
                ),
                expected=f"execution {short(log.execution_id)} to be nobody else's",
                read_back=False,
            )
        async with stage.fresh() as reader:
            for log in logs:
                found = await stage.read(reader, log.execution_id)
                stage.check(
                    found == log.envelopes,
                    f"execution {short(log.execution_id)} to hold its one envelope",
                    f"it holds {len(found)}: " + ", ".join(short(e.execution_id) for e in found),
                )

    @rule("KEY-1")
    @on_every_write_path
    async def test_envelope_ids_are_compared_by_code_points(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = stage.log()
        groups = alike(log.execution_id, MAX_ENVELOPE_ID)
        for name in itertools.chain.from_iterable(groups):
            await stage.accepted(
                log,
                lambda sequence, name=name: log.envelope(sequence, id=name),  # type: ignore[misc]
                expected=f"envelope id {short(name)} to be different from all before it",
                read_back=False,
            )
        await stage.holds(log)

    @rule("KEY-1")
    async def test_ids_that_look_alike_go_together_in_one_batch(self, stage: Stage) -> None:
        await stage.needs("batch")
        writer = await stage.writer()
        most = stage.backend.max_batch or OLD
        for group in alike(stage.session.fresh_id()):
            one = Log(stage.session.fresh_id())
            batches = [[one.envelope(place, id=name) for place, name in enumerate(group)]]
            if stage.backend.batch_scope == "store":
                batches.append(
                    [
                        Log(name).envelope(id=f"{one.execution_id}/{number}")
                        for number, name in enumerate(group)
                    ]
                )
            for batch in batches:
                outcome = await writer.append_batch(batch[:most])
                stage.returned(outcome, "a batch whose ids look alike, and are not, to be stored")


def _rivals(logs: list[Log], one_id: str, shared: bool, sparse: bool) -> list[EventEnvelope]:
    if shared:
        return [
            log.envelope(id=one_id, payload={"rival": number}) for number, log in enumerate(logs)
        ]
    log = logs[0]
    return [
        EventEnvelope(
            log.execution_id, log.next + (number if sparse else 0), one_id, "K", EPOCH, number
        )
        for number in range(len(logs))
    ]


def _lost_by_id(stage: Stage, outcomes: list[Outcome[None]]) -> None:
    for outcome in outcomes:
        if outcome.error is not None and not is_error(outcome.error, DuplicateEnvelopeIdError):
            stage.broken("DuplicateEnvelopeIdError for each write that lost", outcome.line())


async def _held_to_scope(stage: Stage, log: Log, taken: str) -> None:
    scope = stage.backend.envelope_ids
    if scope == "execution":
        await stage.accepted(
            log,
            lambda sequence: log.envelope(sequence, id=taken),
            expected="an id of another execution to be free, since the declared scope is execution",
        )
    else:
        await stage.refused(
            log,
            lambda sequence: log.envelope(sequence, id=taken),
            DuplicateEnvelopeIdError,
            target=f"id {taken!r} of another execution, since the declared scope is store",
        )
