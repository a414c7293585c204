"""READ-1 to READ-6: a read is whole, in order, untorn, and of one execution."""

from __future__ import annotations

import asyncio
import copy
import string
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from ...lab.calls import Handle, Outcome, settle, short, told_value
from ...lab.paths import WritePath
from ...lab.stage import EPOCH, Log, Stage, difference_between
from ...lab.values import DIGITS
from ...lab.verdict import NotOffered
from ...lab.watch import Look, Read, watch
from ...spi import (
    FENCE_KEY,
    MAX_SEQUENCE,
    EventEnvelope,
    JsonValue,
    StaleFenceError,
    is_error,
)
from ..case import on_every_write_path, rule

WHOLE = 10_001
"""One more than a page or a window of 10,000, which is the default of some engines."""

SPARSE = (0, 3, 4, 20, 2**31 + 1, 2**32, *DIGITS, MAX_SEQUENCE)
"""Sequences between whose neighbours a text, a narrow column or an offset makes a difference."""


class ReadSuite:
    """What a reader sees."""

    @rule("READ-1")
    async def test_reads_ascend_by_number_whatever_the_timestamps_say(self, stage: Stage) -> None:
        log = stage.log()
        writer = await stage.writer()
        for place in range(12):
            envelope = log.envelope(place, timestamp=EPOCH - timedelta(seconds=place))
            stage.given(await writer.append(envelope))
            log.wrote(envelope)
        await _ascending(stage, log)

    @rule("READ-1")
    async def test_reads_ascend_whatever_the_order_of_writing(self, stage: Stage) -> None:
        log = stage.log()
        writer = await stage.writer()
        order = [7, 10**15, 3, 0, 11, 2, 30, 1, *(place for place in DIGITS if place < 10**15)]
        if stage.backend.sparse_sequences:
            for place in order:
                envelope = log.envelope(place)
                stage.given(await writer.append(envelope))
                log.wrote(envelope)
        else:
            for place in range(len(order)):
                other = stage.log(f"{log.execution_id}-{9 - place}")
                await stage.given_more(other, 1)
                await stage.given_more(log, 1)
        await _ascending(stage, log)

    @rule("READ-1")
    async def test_reads_ascend_after_a_batch_in_another_order(self, stage: Stage) -> None:
        await stage.needs("batch")
        log = stage.log()
        writer = await stage.writer()
        envelopes = [log.envelope(place) for place in range(12)]
        shuffled = (
            [*envelopes[::2], *envelopes[1::2]] if stage.backend.sparse_sequences else envelopes
        )
        stage.given(await writer.append_batch(shuffled))
        log.envelopes += envelopes
        await _ascending(stage, log)

    @rule("READ-2")
    async def test_first_is_inclusive_and_past_the_end_is_empty(self, stage: Stage) -> None:
        log = await stage.given_log(5)
        writer = await stage.writer()
        for first in range(7):
            outcome = await writer.read_from(log.execution_id, first)
            _is_read(stage, outcome, log.envelopes[first:], f"the envelopes from {first} on")
        far = await writer.read_from(log.execution_id, 2**53 - 1)
        _is_read(stage, far, [], "nothing past the end")

    @rule("READ-2")
    async def test_first_is_a_sequence_and_no_offset(self, stage: Stage) -> None:
        if not stage.backend.sparse_sequences:
            raise NotOffered("sequences have no gaps here, so both are the same")
        log = stage.log()
        writer = await stage.writer()
        for place in SPARSE:
            envelope = log.envelope(place)
            stage.given(await writer.append(envelope))
            log.wrote(envelope)
        for first in (*SPARSE, 1, 2, 5, 21):
            expected = [one for one in log.envelopes if one.sequence >= first]
            outcome = await writer.read_from(log.execution_id, first)
            _is_read(stage, outcome, expected, f"the envelopes whose sequence is {first} or more")

    @rule("READ-2")
    async def test_what_is_read_is_a_sequence(self, stage: Stage) -> None:
        log = await stage.given_log(3)
        writer = await stage.writer()
        outcomes: list[Outcome[Any]] = [
            await writer.read_from(log.execution_id),
            await writer.read_from(stage.session.fresh_id()),
        ]
        if await stage.offers("range"):
            outcomes.append(await writer.read_range(log.execution_id, 0, 2))
        for outcome in outcomes:
            found = stage.returned(outcome, "a read to return")
            stage.check(
                hasattr(found, "__len__") and hasattr(found, "__getitem__"),
                "a sequence, which has a length and can be read again",
                f"{outcome.call} returned a {type(found).__name__}",
            )

    @rule("READ-2")
    async def test_first_is_zero_by_default(self, stage: Stage) -> None:
        log = await stage.given_log(3)
        writer = await stage.writer()
        outcome = await writer.read_from(log.execution_id)
        _is_read(stage, outcome, log.envelopes, "the whole execution")

    @rule("READ-2")
    async def test_an_unknown_execution_reads_as_empty(self, stage: Stage) -> None:
        await stage.given_log(1)
        writer = await stage.writer()
        unknown = stage.session.fresh_id()
        for outcome in (await writer.read_from(unknown), await writer.read_from(unknown, 3)):
            _is_read(stage, outcome, [], "nothing for an unknown execution")
        written = stage.log(unknown)
        await stage.accepted(written, expected="reading an execution not to create it")

    @rule("READ-2")
    async def test_arguments_out_of_range_read_as_empty_or_are_refused(self, stage: Stage) -> None:
        log = await stage.given_log(2)
        writer = await stage.writer()
        for low in (-1, -(2**63) - 1):
            negative = await writer.read_from(log.execution_id, low)
            if not isinstance(negative.error, ValueError):
                _is_read(stage, negative, log.envelopes, "a negative first to mean 0")
        for high in (MAX_SEQUENCE + 1, 2**63, 2**200):
            beyond = await writer.read_from(log.execution_id, high)
            if not isinstance(beyond.error, ValueError):
                _is_read(stage, beyond, [], f"nothing, or a ValueError, from {high} on")
        for strange in ("", "x" * 256, "a\x00b", "a\ud800"):
            outcome = await writer.read_from(strange)
            if not isinstance(outcome.error, ValueError):
                _is_read(stage, outcome, [], f"nothing, or a ValueError, for {short(strange)}")
        await stage.holds(log, handle=writer)

    @rule("READ-3")
    @on_every_write_path
    async def test_a_read_returns_one_execution_and_no_other(
        self, stage: Stage, path: WritePath
    ) -> None:
        base = stage.session.fresh_id()
        logs = [stage.log(f"{base}{end}") for end in ("", "-1", "-10", "0", "%", "_")]
        for _ in range(2):
            for log in logs:
                await stage.accepted(log, read_back=False)
        expected = "each execution to hold its own envelopes and no other"
        await stage.holds(*logs, expected=expected)
        if path.place == "alone":
            # What a scan by prefix takes for a key of the execution, by whichever separator.
            for mark in (*string.punctuation, " ", "\x01", "\x1f"):
                await stage.accepted(stage.log(f"{base}{mark}x"), read_back=False)
            await stage.holds(logs[0], expected=expected)
        if await stage.offers("range"):
            outcome = await (await stage.observer()).read_range(base, 0, MAX_SEQUENCE)
            _is_read(stage, outcome, logs[0].envelopes, "a range of one execution and no other")

    @rule("READ-4")
    async def test_a_long_execution_is_read_whole(self, stage: Stage) -> None:
        log = await stage.given_bulk(WHOLE)
        writer = (await stage.writer()).patient(10)
        outcome = await writer.read_from(log.execution_id)
        _is_read(stage, outcome, log.envelopes, f"all {len(log.envelopes)} envelopes")
        rest = await writer.read_from(log.execution_id, 1)
        _is_read(stage, rest, log.envelopes[1:], "all envelopes but the first")
        if await stage.offers("range"):
            ranged = await writer.read_range(log.execution_id, 1, log.next)
            _is_read(stage, ranged, log.envelopes[1:], "all envelopes but the first, in a range")
        later = await writer.read_from(log.execution_id, len(log.envelopes) - 3)
        _is_read(stage, later, log.envelopes[-3:], "the last three envelopes")

    @rule("READ-5")
    @on_every_write_path
    async def test_a_reader_never_misses_what_was_acknowledged_nor_sees_it_vanish(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = await stage.given_log(1)
        writer = await stage.writer()
        readers = [await stage.connect(name="reader"), writer]
        done = asyncio.Event()

        async def write() -> None:
            try:
                for _ in range(stage.settings.rounds(10)):
                    envelope = log.envelope()
                    outcome = await stage.writing(writer, envelope)()
                    stage.returned(outcome, "an undisturbed write to be acknowledged")
                    log.wrote(envelope)
            finally:
                done.set()

        writing = asyncio.ensure_future(write())
        try:
            seen = await asyncio.gather(
                *(watch(stage, reader, _growing(log), done.is_set) for reader in readers)
            )
        finally:
            await writing
        _nothing_wrong(stage, readers, seen)
        await stage.holds(log)

    @rule("READ-5")
    async def test_a_reader_that_waits_at_the_end_sees_what_is_written_next(
        self, stage: Stage
    ) -> None:
        log = await stage.given_log(2)
        reader = await stage.connect(name="reader")
        ranged = await stage.offers("range")
        for _ in range(3):
            first = log.next
            await _tails(reader, log, first, ranged=ranged)
            await stage.given_more(log)
            async with stage.fresh() as fresh:
                wanted = await _tails(fresh, log, first, ranged=ranged)
            found = await _tails(reader, log, first, ranged=ranged)
            for want, have in zip(wanted, found, strict=True):
                if want.ok:
                    expected = f"what lies from {first} on, as a fresh handle reads it"
                    _is_read(stage, have, stage.listed(want), expected)

    @rule("READ-5")
    async def test_a_read_shows_what_was_acknowledged_though_an_equal_one_is_under_way(
        self, stage: Stage
    ) -> None:
        log = await stage.given_log(1)
        reader, writer = await stage.connect(name="reader"), await stage.connect(name="writer")
        for turns in range(4):
            envelope = log.envelope()

            async def look(
                turns: int = turns, envelope: EventEnvelope = envelope
            ) -> Sequence[EventEnvelope]:
                early = asyncio.ensure_future(reader.store.read_from(log.execution_id))
                try:
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    await writer.store.append(envelope)
                    return await reader.store.read_from(log.execution_id)
                finally:
                    await early

            call = f"{reader.name}.read_from({short(log.execution_id)}) beside an earlier one"
            outcome = await settle(call, "read_from", look, stage.session.allowance("read_from"))
            stage.steps.append(outcome.line())
            log.wrote(envelope)
            _is_read(
                stage,
                outcome,
                log.envelopes,
                "what was acknowledged to be read, though an equal read began before",
            )

    @rule("READ-5")
    async def test_no_reader_sees_a_slot_before_the_one_ahead_of_it(self, stage: Stage) -> None:
        if stage.backend.sparse_sequences:
            raise NotOffered("a later slot may be written first here")
        handles = await stage.contenders(2)
        reader = await stage.connect(name="reader")
        for _ in range(stage.settings.rounds(5)):
            log = await stage.given_log(1)
            calls = [
                asyncio.ensure_future(handle.append(log.envelope(place)))
                for place, handle in enumerate(handles, 1)
            ]

            async def look(read: Read, log: Log = log) -> str | None:
                places = [one.sequence for one in await read(log.execution_id)]
                return None if places == list(range(len(places))) else f"the sequences {places}"

            def done(calls: Sequence[asyncio.Future[Outcome[None]]] = calls) -> bool:
                return all(call.done() for call in calls)

            wrong = await watch(stage, reader, look, done)
            await asyncio.gather(*calls)
            stage.check(
                wrong is None,
                "no slot to be seen before the one ahead of it, since gaps are refused here",
                f"{reader.name}: {wrong}",
            )

    @rule("READ-5")
    @on_every_write_path
    async def test_a_slot_that_is_filled_late_is_seen_by_every_handle(
        self, stage: Stage, path: WritePath
    ) -> None:
        if not stage.backend.sparse_sequences:
            raise NotOffered("no slot is filled after a later one here")
        log = stage.log()
        writer, reader = await stage.writer(), await stage.connect(name="reader")
        late = 0

        def beyond(place: int) -> EventEnvelope:
            return log.envelope(place + 9)

        def between(_: int) -> EventEnvelope:
            return log.envelope(late)

        for make in (log.envelope, beyond, between):
            target = await stage.accepted(log, make, read_back=False)
            late = target.sequence - 4
            for handle in (reader, writer):
                await stage.holds(
                    log,
                    handle=handle,
                    expected="what was acknowledged to be seen, though a later one was seen before",
                )

    @rule("READ-5")
    @on_every_write_path
    async def test_a_write_that_is_refused_is_never_seen(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = await stage.given_log(2)
        writer = await stage.writer()
        readers = [await stage.connect(name="reader"), writer]
        done = asyncio.Event()

        async def write() -> None:
            try:
                for turn in range(stage.settings.rounds(5)):
                    rival = log.envelope(0, id=f"rival-{log.execution_id}-{turn}")
                    envelopes, _, _ = stage.compose(log, lambda _, rival=rival: rival)  # type: ignore[misc]
                    stage.given_refusal(await stage.write(writer, envelopes))
            finally:
                done.set()

        async def look(read: Read) -> str | None:
            return difference_between(log.envelopes, await read(log.execution_id))

        writing = asyncio.ensure_future(write())
        try:
            seen = await asyncio.gather(
                *(watch(stage, reader, look, done.is_set) for reader in readers)
            )
        finally:
            await writing
        _nothing_wrong(stage, readers, seen)
        await stage.holds(log)

    @rule("READ-6")
    @on_every_write_path
    async def test_changing_what_was_passed_in_changes_nothing_stored(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = await stage.given_log(1)
        handle = await stage.writer()
        for payload in NESTED:
            envelopes, _, other = stage.compose(log, _nested(log, payload))
            before = copy.deepcopy(envelopes)

            def spoil(count: int, envelopes: list[EventEnvelope] = envelopes) -> None:
                _spoil_all(stage, envelopes, f"passed in, at await {count} of the write")
                del envelopes[1:]

            # What waits is changed while it waits, and what was acknowledged is changed after it.
            outcome = await stage.watched_write(handle, envelopes, spoil)
            stage.returned(outcome, "the write to be acknowledged")
            _spoil_all(stage, envelopes, "passed in, once the write was acknowledged")
            stage.noted(before, log, other)
            expected = "values taken when the call was made, whatever becomes of them later"
            await stage.holds(log, expected=expected)
            await stage.holds(log, handle=handle, expected=expected)

    @rule("READ-6")
    @on_every_write_path
    async def test_changing_what_was_read_changes_nothing_stored(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = stage.log()
        handle = await stage.writer()
        for payload in NESTED:
            envelopes, _, other = stage.compose(log, _nested(log, payload))
            stage.given(await stage.write(handle, envelopes))
            stage.noted(copy.deepcopy(envelopes), log, other)
        ranges = await stage.offers("range")
        for in_range in [False, True] if ranges else [False]:
            for change in (_lengthen, _empty):
                outcome = await (
                    handle.read_range(log.execution_id, 0, log.next)
                    if in_range
                    else handle.read_from(log.execution_id)
                )
                found = stage.given(outcome)
                _spoil_all(stage, found, "read in a range" if in_range else "read")
                if isinstance(found, list):
                    stage.steps.append(change(found))
                expected = "what is stored not to change with what was read out"
                await stage.holds(log, handle=handle, expected=expected)
                await stage.holds(log, expected=expected)
                if ranges:
                    again = await handle.read_range(log.execution_id, 0, log.next)
                    _is_read(stage, again, log.envelopes, expected)

    @rule("READ-6")
    @on_every_write_path
    async def test_a_token_is_the_one_that_was_given_when_the_call_was_made(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = await stage.given_log(1, fenced=True)
        stale = log.token
        await stage.given_fence(log)
        handle = await stage.writer()
        envelopes, target, other = stage.compose(log, lambda s: log.envelope(s, token=stale))

        def renew(count: int) -> None:
            stage.steps.append(f"the stale token replaced by the current one, at await {count}")
            target.metadata[FENCE_KEY] = log.token

        outcome = await stage.watched_write(handle, envelopes, renew)
        expected = "the stale token that the call was made with to be judged, and refused"
        stage.check(is_error(outcome.error, StaleFenceError), expected, outcome.line())
        await stage.holds(log, *([other] if envelopes[1:] else []), expected=expected)


NESTED: tuple[JsonValue, ...] = ({"list": [1, {"deep": ["x"]}]}, [1, [2], {"deep": {"x": [3]}}])
"""Payloads with lists in objects and objects in lists."""


async def _tails(
    reader: Handle, log: Log, first: int, *, ranged: bool
) -> list[Outcome[Sequence[EventEnvelope]]]:
    """What a handle reads from a sequence on, in each way that it has."""
    found = [await reader.read_from(log.execution_id, first)]
    if ranged:
        found.append(await reader.read_range(log.execution_id, first, first + 5))
    return found


def _nested(log: Log, payload: JsonValue) -> Callable[[int], EventEnvelope]:
    return lambda sequence: log.envelope(
        sequence,
        payload=copy.deepcopy(payload),
        metadata={"tags": ["a", {"b": [1]}], "owner": {"name": {"first": "x"}}},
    )


def _lengthen(found: list[EventEnvelope]) -> str:
    found.append(found[0])
    return "the list that was read out made longer"


def _empty(found: list[EventEnvelope]) -> str:
    found.clear()
    return "the list that was read out emptied"


async def _ascending(stage: Stage, log: Log) -> None:
    writer = await stage.writer()
    _is_read(stage, await writer.read_from(log.execution_id), log.envelopes, "ascending sequences")
    if await stage.offers("range"):
        outcome = await writer.read_range(log.execution_id, 0, MAX_SEQUENCE)
        _is_read(stage, outcome, log.envelopes, "ascending sequences in a range")


def _is_read(
    stage: Stage,
    outcome: Outcome[Sequence[EventEnvelope]],
    envelopes: Sequence[EventEnvelope],
    expected: str,
) -> None:
    found = stage.returned(outcome, expected)
    try:
        listed = list(found)
    except TypeError:
        stage.broken("a sequence of envelopes", f"{outcome.call} → {told_value(found)}")
    difference = difference_between(envelopes, listed)
    if difference:
        stage.broken(expected, f"{outcome.call}: {difference}")


def _growing(log: Log) -> Look:
    """What a reader must see of a log that grows: all that is acknowledged, without holes."""
    most = 0

    async def look(read: Read) -> str | None:
        nonlocal most
        acknowledged = len(log.envelopes)
        places = [envelope.sequence for envelope in await read(log.execution_id)]
        if places != list(range(len(places))):
            return f"the sequences {short(places)}, which are no prefix of the log"
        if len(places) < acknowledged:
            return f"{len(places)} envelopes, where {acknowledged} were acknowledged before"
        if len(places) < most:
            return f"{len(places)} envelopes, where it saw {most} before"
        most = len(places)
        return None

    return look


def _nothing_wrong(stage: Stage, readers: Sequence[Handle], seen: Sequence[str | None]) -> None:
    for reader, wrong in zip(readers, seen, strict=True):
        stage.check(
            wrong is None,
            "every reader to see all that was acknowledged, and nothing else, all the while",
            f"{reader.name}: {wrong}",
        )


def _spoil_all(stage: Stage, envelopes: Sequence[EventEnvelope], which: str) -> None:
    stage.steps.append(f"the payload and the metadata changed in place, of what was {which}")
    for envelope in envelopes:
        _spoil(envelope.payload)
        _spoil(envelope.metadata)


def _spoil(value: object) -> None:
    """Change every list and object of a JSON value in place, the innermost first."""
    if isinstance(value, dict):
        for inner in value.values():
            _spoil(inner)
        value["changed"] = True
    elif isinstance(value, list):
        for inner in value:
            _spoil(inner)
        value.append("changed")
