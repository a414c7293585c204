"""ERR-1 to ERR-4: an error says what happened, and only that."""

from __future__ import annotations

from collections.abc import Mapping

from ...lab.burst import burst, must_have_met
from ...lab.calls import Handle, Outcome, told_error
from ...lab.paths import WritePath
from ...lab.stage import Log, Stage
from ...lab.values import NOT_TOKENS
from ...lab.verdict import NotOffered
from ...spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    EventStoreError,
    StaleFenceError,
    is_error,
)
from ..case import on_every_write_path, rule

CONFLICTS = (DuplicateSequenceError, DuplicateEnvelopeIdError, StaleFenceError)


class ErrorSuite:
    """Conflicts are the contract's own errors, and nothing else looks like one."""

    @rule("ERR-1")
    @on_every_write_path
    async def test_conflicts_raise_the_errors_of_the_contract(
        self, stage: Stage, path: WritePath
    ) -> None:
        for outcome in await _conflicts(stage):
            if outcome.error is not None and not is_error(outcome.error, EventStoreError):
                stage.broken(
                    "an EventStoreError for a conflict",
                    f"{type(outcome.error).__module__}.{told_error(outcome.error)}",
                )

    @rule("ERR-1")
    @on_every_write_path
    async def test_a_value_that_is_refused_raises_a_value_error(
        self, stage: Stage, path: WritePath
    ) -> None:
        handle = await stage.writer()
        log = await stage.given_log(1)
        envelopes, _, _ = stage.compose(
            log, lambda s: log.envelope(s, id=f"{log.execution_id}\x00{s}")
        )
        outcome = await stage.write(handle, envelopes)
        if outcome.error is not None and not is_error(outcome.error, ValueError):
            stage.broken("a ValueError for a value that is refused", outcome.line())

    @rule("ERR-1")
    async def test_fencing_what_is_no_execution_id_works_or_raises_a_value_error(
        self, stage: Stage
    ) -> None:
        await stage.needs("fencing")
        handle = await stage.connect(await stage.own_storage())
        for strange in ("", "x" * 256, "x" * 5000, "a\x00b", "a\ud800"):
            outcome = await handle.acquire_fence(strange)
            if outcome.error is not None and not is_error(outcome.error, ValueError):
                stage.broken("a token, or a ValueError", outcome.line())
        log = Log(stage.session.fresh_id())
        stage.given(await handle.append(log.envelope()))
        stage.returned(
            await handle.acquire_fence(log.execution_id), "a good id to be fenced after it"
        )

    @rule("ERR-1")
    @on_every_write_path
    async def test_a_write_to_a_closed_handle_is_no_conflict(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = await stage.given_log(1)
        handle = await stage.contender()
        stage.given(await handle.close())
        envelopes, _, _ = stage.compose(log, log.envelope)
        _no_conflict(stage, await stage.write(handle, envelopes))

    @rule("ERR-1")
    @on_every_write_path
    async def test_a_fault_of_the_storage_is_no_conflict(
        self, stage: Stage, path: WritePath
    ) -> None:
        _no_conflict(stage, await _on_a_removed_storage(stage))

    @rule("ERR-2")
    @on_every_write_path
    async def test_the_attributes_of_an_error_name_what_was_written(
        self, stage: Stage, path: WritePath
    ) -> None:
        handle = await stage.writer()
        makers = [_a_taken_slot, _a_taken_id]
        if stage.backend.envelope_ids == "store":
            elsewhere = (await stage.given_log(1)).envelopes[0].id
            makers.append(lambda log, sequence: log.envelope(sequence, id=elsewhere))
        for make in makers:
            log = await stage.given_log(2)
            envelopes, target, _ = stage.compose(
                log,
                lambda sequence, log=log, make=make: make(log, sequence),  # type: ignore[misc]
            )
            _names_what_was_written(stage, target, await stage.write(handle, envelopes))
        if path.batch and path.place == "last":
            await _twins_are_named(stage, handle)
        if await stage.offers("fencing"):
            await _stale_names_its_tokens(stage)

    @rule("ERR-2")
    @on_every_write_path
    async def test_the_errors_of_those_that_lost_a_race_name_what_they_wrote(
        self, stage: Stage, path: WritePath
    ) -> None:
        handles = await stage.contenders(2)
        for one_id in (False, True):
            for _ in range(stage.settings.rounds(2)):
                log = await stage.given_log(1)
                shared = f"contended-{log.execution_id}"
                elsewhere = stage.backend.envelope_ids == "store"
                rivals = [
                    (stage.log() if one_id and elsewhere and place else log).envelope(
                        id=shared if one_id else f"{shared}-{place}", payload={"rival": place}
                    )
                    for place in range(len(handles))
                ]
                outcomes = await burst(
                    [
                        stage.writing(handle, rival)
                        for handle, rival in zip(handles, rivals, strict=True)
                    ]
                )
                for rival, outcome in zip(rivals, outcomes, strict=True):
                    _names_what_was_written(stage, rival, outcome)

    @rule("ERR-3")
    @on_every_write_path
    async def test_a_write_that_landed_is_not_reported_as_its_own_conflict(
        self, stage: Stage, path: WritePath
    ) -> None:
        handles = await stage.contenders(4)
        rounds: list[list[Outcome[None]]] = []
        for _ in range(stage.settings.rounds(3)):
            hot = await stage.given_log(1)
            logs = [hot, *(stage.log() for _ in handles[1:])]
            envelopes = [log.envelope() for log in logs]
            outcomes = await burst(
                [
                    stage.writing(handle, envelope)
                    for handle, envelope in zip(handles, envelopes, strict=True)
                ]
            )
            rounds.append(outcomes)
            await _not_there_where_refused(stage, envelopes, outcomes)
        must_have_met(rounds)

    @rule("ERR-4")
    @on_every_write_path
    async def test_a_fault_of_the_storage_raises_an_event_store_error_with_its_cause(
        self, stage: Stage, path: WritePath
    ) -> None:
        outcome = await _on_a_removed_storage(stage)
        if not is_error(outcome.error, EventStoreError):
            stage.broken("an EventStoreError for a fault of the storage", outcome.line())
        stage.check(
            outcome.error is not None and outcome.error.__cause__ is not None,
            "the driver's error as the cause",
            f"no cause: {outcome.line()}",
        )


def _a_taken_slot(log: Log, _: int) -> EventEnvelope:
    return log.envelope(1, id=f"rival-{log.execution_id}")


def _a_taken_id(log: Log, sequence: int) -> EventEnvelope:
    return log.envelope(sequence, id=log.envelopes[0].id)


async def _conflicts(stage: Stage) -> list[Outcome[None]]:
    handle = await stage.writer()
    log = await stage.given_log(2)
    makers = [
        lambda _: log.envelope(0, id=f"rival-{log.execution_id}"),
        lambda sequence: log.envelope(sequence, id=log.envelopes[0].id),
    ]
    outcomes = []
    for make in makers:
        envelopes, _, _ = stage.compose(log, make)
        outcomes.append(await stage.write(handle, envelopes))
    if await stage.offers("fencing"):
        fenced = await stage.given_log(1, fenced=True)
        stale = fenced.token
        await stage.given_fence(fenced)
        envelopes, _, _ = stage.compose(fenced, lambda s: fenced.envelope(s, token=stale))
        outcomes.append(await stage.write(handle, envelopes))
    return outcomes


def _no_conflict(stage: Stage, outcome: Outcome[None]) -> None:
    if is_error(outcome.error, *CONFLICTS):
        stage.broken("a fault that does not look like a conflict", outcome.line())


async def _on_a_removed_storage(stage: Stage) -> Outcome[None]:
    """A write to a storage that was removed under its handle.

    Raises:
        NotOffered: the write was acknowledged: removing the storage is no fault here.
    """
    address = await stage.own_storage()
    handle = await stage.contender(address)
    log = Log(stage.session.fresh_id())
    stage.given(await stage.write_alone(handle, log.envelope()))
    await stage.remove(address)
    outcome = await stage.write_alone(handle, log.envelope(1))
    if outcome.ok:
        raise NotOffered("an open handle outlives its storage here, so that is no fault")
    return outcome


def _names_what_was_written(stage: Stage, target: EventEnvelope, outcome: Outcome[None]) -> None:
    error = outcome.error
    if is_error(error, DuplicateSequenceError):
        wanted = {"execution_id": target.execution_id, "sequence": target.sequence}
    elif is_error(error, DuplicateEnvelopeIdError):
        wanted = {"execution_id": target.execution_id, "envelope_id": target.id}
    else:
        return
    _has(stage, error, wanted)


def _has(stage: Stage, error: BaseException | None, wanted: Mapping[str, object]) -> None:
    for name, value in wanted.items():
        given = getattr(error, name, "(no such attribute)")
        stage.check(
            given == value and isinstance(given, bool) == isinstance(value, bool),
            f"{type(error).__name__}.{name} to be {value!r}",
            f"it is {given!r}",
        )


async def _stale_names_its_tokens(stage: Stage) -> None:
    handle = await stage.writer()
    log = await stage.given_log(1, fenced=True)
    old = log.token
    current = await stage.given_fence(log)
    # What is no token may be refused with a ValueError, and what is news may be accepted.
    for token in (old, None, *NOT_TOKENS, str(current), current + 5):
        envelopes, _, _ = stage.compose(
            log,
            lambda s, token=token: log.envelope(s, token=token),  # type: ignore[misc]
        )
        outcome = await stage.write(handle, envelopes)
        if is_error(outcome.error, StaleFenceError):
            _has(
                stage,
                outcome.error,
                {"execution_id": log.execution_id, "given": token, "current": current},
            )
    if await stage.offers("batch") and stage.backend.batch_scope == "store":
        good = await stage.given_log(1, fenced=True)
        outcome = await handle.append_batch([good.envelope(), log.envelope(token=old)])
        if is_error(outcome.error, StaleFenceError):
            wanted = {"execution_id": log.execution_id, "given": old, "current": current}
            _has(stage, outcome.error, wanted)
    unfenced = await stage.given_log(1)
    envelopes, _, _ = stage.compose(unfenced, lambda s: unfenced.envelope(s, token=7))
    outcome = await stage.write(handle, envelopes)
    if is_error(outcome.error, StaleFenceError):
        _has(
            stage,
            outcome.error,
            {"execution_id": unfenced.execution_id, "given": 7, "current": None},
        )


async def _twins_are_named(stage: Stage, handle: Handle) -> None:
    """Two envelopes of one batch are in each other's way, behind one that is in nobody's."""
    for one_slot in (True, False):
        log = await stage.given_log(1)
        ahead, target = log.envelope(1), log.envelope(2)
        twin = (
            log.envelope(2, id=f"twin-{target.id}") if one_slot else log.envelope(3, id=target.id)
        )
        outcome = await handle.append_batch([ahead, target, twin])
        _names_what_was_written(stage, twin, outcome)


async def _not_there_where_refused(
    stage: Stage, envelopes: list[EventEnvelope], outcomes: list[Outcome[None]]
) -> None:
    async with stage.fresh() as reader:
        for envelope, outcome in zip(envelopes, outcomes, strict=True):
            if not is_error(outcome.error, DuplicateSequenceError, DuplicateEnvelopeIdError):
                continue
            found = await stage.read(reader, envelope.execution_id)
            stage.check(
                envelope not in found,
                "a write that landed never to be reported as a conflict with itself",
                f"{outcome.line()}, but the log holds that very envelope",
            )
