"""DATA-1 to DATA-3: what is stored is what was given, or nothing is."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from ...lab.calls import Handle, Outcome, short
from ...lab.paths import WritePath
from ...lab.quarters import away_from_home
from ...lab.stage import EPOCH, Log, Make, Stage, told_fields
from ...lab.values import (
    ENDS,
    ENVELOPE_IDS,
    KINDS,
    METADATA,
    OUTSIDE,
    PAYLOADS,
    RESERVED,
    SUBCLASSED,
    TIMESTAMPS,
    WIDE,
    json_values,
    longest,
    made_unique,
    metadata,
    nested,
    sized,
    texts,
    timestamps,
)
from ...spi import (
    MAX_DEPTH,
    MAX_ENVELOPE_ID,
    MAX_EXECUTION_ID,
    MAX_JSON_BYTES,
    MAX_KIND,
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    JsonValue,
    StaleFenceError,
    differing_fields,
    is_error,
)
from ..case import on_every_write_path, rule


class DataSuite:
    """Values survive the round trip."""

    @rule("DATA-1")
    @on_every_write_path
    async def test_every_hard_value_of_the_domain_is_stored_faithfully(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = stage.log()
        makers: list[Make] = []
        makers += [_with(log, payload=value) for value in PAYLOADS]
        makers += [_with(log, metadata=dict(value)) for value in METADATA]
        makers += [_with(log, kind=value) for value in KINDS]
        makers += [_with(log, timestamp=value) for value in TIMESTAMPS]
        makers += [
            _with(log, id=made_unique((value,), log.execution_id, MAX_ENVELOPE_ID)[0])
            for value in ENVELOPE_IDS
        ]
        for make in makers:
            await stage.accepted(
                log, make, expected="a value of the domain to be accepted", read_back=False
            )
        await _kept(stage, log)

    @rule("DATA-1")
    async def test_generated_values_of_the_domain_are_stored_faithfully(self, stage: Stage) -> None:
        log = stage.log()
        for fields in _generated(stage.settings.seed, stage.settings.rounds(40)):
            make = _with(log, **fields)
            envelope = make(log.next)
            outcome = await (await stage.writer()).append(envelope)
            stage.returned(outcome, "a value of the domain to be accepted")
            log.wrote(envelope)
        await _kept(stage, log)

    @rule("DATA-1")
    async def test_a_kind_is_a_text_like_any_other_and_ends_nothing(self, stage: Stage) -> None:
        handle = await stage.writer()
        usual = await _life_with(handle, Log(stage.session.fresh_id()), "K")
        for kind in ENDS:
            found = await _life_with(handle, Log(stage.session.fresh_id()), kind)
            for (what, before), (_, after) in zip(usual, found, strict=True):
                stage.check(
                    before.ok == after.ok,
                    f"{what} to be answered as in an execution without a {kind}",
                    f"{after.line()}; without it: {before.line()}",
                )

    @rule("DATA-1")
    async def test_an_id_that_other_systems_keep_for_themselves_is_one_like_any_other(
        self, stage: Stage
    ) -> None:
        handle = await stage.connect(await stage.own_storage())
        logs = [Log(name) for name in RESERVED]
        for log in logs:
            envelope = log.envelope(id=log.execution_id)
            outcome = await handle.append(envelope)
            stage.returned(outcome, f"an envelope {log.execution_id!r} to be accepted")
            log.wrote(envelope)
        await stage.holds(*logs, handle=handle, expected="each of them to be an id of its own")

    @rule("DATA-2")
    @on_every_write_path
    async def test_a_value_outside_the_domain_is_stored_faithfully_or_refused(
        self, stage: Stage, path: WritePath
    ) -> None:
        for what, fields in {**OUTSIDE, **SUBCLASSED}.items():
            await _faithful_or_refused(stage, what, _with_fresh_ids(stage, fields))

    @rule("DATA-3")
    @on_every_write_path
    async def test_the_largest_and_deepest_values_are_stored_faithfully(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = stage.log()
        values: list[JsonValue] = [
            sized(MAX_JSON_BYTES),
            ["é" * 1000] * (MAX_JSON_BYTES // 2100),
            nested(MAX_DEPTH),
            {"k" * (MAX_JSON_BYTES - len('{"":0}')): 0},
        ]
        for value in values:
            await stage.accepted(
                log,
                _with(log, payload=value),
                expected="a payload of the domain to be accepted",
                read_back=False,
            )
        for payload, value in (
            (None, nested(MAX_DEPTH - 1)),
            (sized(MAX_JSON_BYTES), sized(MAX_JSON_BYTES - len('{"m":}'))),
        ):
            await stage.accepted(
                log,
                _with(log, payload=payload, metadata={"m": value}),
                expected="metadata of the domain to be accepted, with any payload of it",
                read_back=False,
            )
        await _kept(stage, log)

    @rule("DATA-3")
    async def test_the_longest_names_and_the_widest_values_go_together(self, stage: Stage) -> None:
        log = stage.log(longest(stage.session.fresh_id(), MAX_EXECUTION_ID))
        kind = longest("", MAX_KIND)
        for value in (None, *WIDE):
            name = longest(stage.session.fresh_id(), MAX_ENVELOPE_ID)
            await stage.accepted(
                log,
                _with(log, id=name, kind=kind, payload=value),
                expected="an envelope of the domain to be accepted, however long its names are",
                read_back=False,
            )
        await _kept(stage, log)

    @rule("DATA-3")
    async def test_what_is_larger_or_deeper_is_stored_faithfully_or_refused(
        self, stage: Stage
    ) -> None:
        too_much: dict[str, JsonValue] = {
            "a payload of 1 MiB and a byte": sized(MAX_JSON_BYTES + 1),
            "a payload of 5 MiB": sized(5 * MAX_JSON_BYTES),
            "nesting of 101": nested(MAX_DEPTH + 1),
            "nesting of 5,000": nested(5000),
        }
        for what, value in too_much.items():
            await _faithful_or_refused(stage, what, {"payload": value})


async def _life_with(handle: Handle, log: Log, kind: str) -> list[tuple[str, Outcome[None]]]:
    """What becomes of writes to an execution that has an envelope of a kind."""
    first, second = log.envelope(0), log.envelope(1, kind=kind)
    writes = {
        "a first write": first,
        "the write of it": second,
        "a write after it": log.envelope(2),
        "a write to a taken slot": log.envelope(0, id=f"rival-{log.execution_id}"),
        "a write with a taken id": log.envelope(3, id=first.id),
    }
    return [(what, await handle.append(envelope)) for what, envelope in writes.items()]


def _with(log: Log, **fields: Any) -> Make:
    def make(sequence: int) -> EventEnvelope:
        given = {
            "execution_id": log.execution_id,
            "sequence": sequence,
            "id": f"{log.execution_id}-{sequence}",
            "kind": "K",
            "timestamp": EPOCH,
            "payload": None,
            "metadata": {},
        }
        return EventEnvelope(**{**given, **fields})

    return make


def _generated(seed: int, examples: int) -> list[dict[str, Any]]:
    """Values that Hypothesis draws from the whole domain, the same for the same seed."""
    return copy.deepcopy(_drawn(seed, examples))


@cache
def _drawn(seed: int, examples: int) -> list[dict[str, Any]]:
    drawn: list[dict[str, Any]] = []

    @seeded(seed)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(json_values(), metadata(), texts(255), timestamps())
    def draw(payload: Any, extra: dict[str, Any], kind: str, timestamp: Any) -> None:
        drawn.append({"payload": payload, "metadata": extra, "kind": kind, "timestamp": timestamp})

    with away_from_home():
        draw()
    return drawn


async def _kept(stage: Stage, log: Log) -> None:
    async with stage.fresh() as reader:
        outcome = await reader.patient(4).read_from(log.execution_id)
        found = stage.returned(outcome, "what was stored to be read back")
    by_place = {envelope.sequence: envelope for envelope in found}
    for want in log.envelopes:
        have = by_place.get(want.sequence)
        if have is None:
            stage.broken("every acknowledged value to be stored", f"{want.sequence} is missing")
        fields = differing_fields(want, have)
        if fields:
            stage.broken(
                "every value of the domain to be stored faithfully",
                f"at {want.sequence}, {told_fields(want, have, fields)}",
            )


def _could_be_unique(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _with_fresh_ids(stage: Stage, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Ids that no earlier write used, where something can be put in front of them."""
    fresh = {
        name: type(value)(f"{stage.session.fresh_id()}/" + value)
        if name in ("execution_id", "id") and _could_be_unique(value)
        else value
        for name, value in fields.items()
    }
    if "sequence" in fields:
        # The usual id would be that of the good envelope which follows in a batch.
        fresh["id"] = stage.session.fresh_id()
    return fresh


async def _faithful_or_refused(stage: Stage, what: str, fields: Mapping[str, Any]) -> None:
    handle = (await stage.writer()).patient(4)
    log = await stage.given_log(1)
    target = _with(log, **fields)
    envelopes, offender, other = stage.compose(log, target)
    outcome = await stage.write(handle, envelopes)
    if outcome.ok:
        await _is_there(stage, what, offender)
        for envelope in envelopes:
            if envelope is not offender and envelope.execution_id == log.execution_id:
                log.wrote(envelope)
    else:
        refusals: tuple[type[Exception], ...] = (ValueError,)
        if "fence" in what:
            refusals += (StaleFenceError,)
        if any(
            name in fields and not _could_be_unique(fields[name]) for name in ("execution_id", "id")
        ):
            refusals += (DuplicateSequenceError, DuplicateEnvelopeIdError)
        if not is_error(outcome.error, *refusals):
            stage.broken(
                f"{what} to be stored faithfully, or refused with a ValueError", outcome.line()
            )
        await stage.holds(
            log, *([other] if envelopes[1:] else []), expected=f"{what}, refused, to leave no trace"
        )
    fresh_log = stage.log()
    await stage.still_good(handle, fresh_log)


async def _is_there(stage: Stage, what: str, offender: EventEnvelope) -> None:
    reader = await stage.observer()
    outcome = await reader.read_from(offender.execution_id)
    found = [one for one in outcome.value or () if one.id == offender.id]
    if not found:
        stage.broken(
            f"{what}, acknowledged, to be stored", f"it is not read back: {outcome.line()}"
        )
    fields = differing_fields(offender, found[0])
    if fields:
        stage.broken(
            f"{what} to be stored faithfully or refused, never altered",
            told_fields(offender, found[0], fields),
        )
    stage.check(len(found) == 1, f"{what} to be stored once", f"{short(found)}")
