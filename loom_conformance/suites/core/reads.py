"""READ-1 to READ-6: a read is whole, in order, untorn, and of one execution."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from ...lab.calls import Handle, Outcome, short, told_value
from ...lab.paths import WritePath
from ...lab.stage import EPOCH, Log, Stage, difference_between
from ...lab.verdict import NotOffered
from ...lab.watch import Look, Read, watch
from ...spi import MAX_SEQUENCE, EventEnvelope
from ..case import on_every_write_path, rule

WHOLE = 10_001
"""One more than a page or a window of 10,000, which is the default of some engines."""


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
        order = [7, 100, 3, 0, 11, 2, 30, 1, 10]
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
        for place in (0, 3, 4, 20, 2**31 + 1, MAX_SEQUENCE):
            envelope = log.envelope(place)
            stage.given(await writer.append(envelope))
            log.wrote(envelope)
        for first in (0, 1, 2, 3, 4, 5, 20, 21, 2**31 + 1, 2**32, MAX_SEQUENCE):
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
        negative = await writer.read_from(log.execution_id, -1)
        if not isinstance(negative.error, ValueError):
            _is_read(stage, negative, log.envelopes, "a negative first to mean 0")
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
        await stage.holds(*logs, expected="each execution to hold its own envelopes and no other")

    @rule("READ-4")
    async def test_a_long_execution_is_read_whole(self, stage: Stage) -> None:
        log = await stage.given_bulk(WHOLE)
        writer = (await stage.writer()).patient(10)
        outcome = await writer.read_from(log.execution_id)
        _is_read(stage, outcome, log.envelopes, f"all {len(log.envelopes)} envelopes")
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
        envelopes, _, other = stage.compose(
            log, lambda sequence: log.envelope(sequence, payload={"list": [1, {"deep": "x"}]})
        )
        before = copy.deepcopy(envelopes)

        def spoil(count: int) -> None:
            _spoil_all(stage, envelopes, f"passed in, at await {count} of the write")

        # What waits is changed while it waits, and what was acknowledged is changed after it.
        outcome = await stage.watched_write(handle, envelopes, spoil)
        stage.returned(outcome, "the write to be acknowledged")
        _spoil_all(stage, envelopes, "passed in, once the write was acknowledged")
        stage.noted(before, log, other)
        expected = "values taken when the call was made, whatever becomes of them later"
        await stage.holds(log, expected=expected)
        await stage.holds(log, handle=handle, expected=expected)

    @rule("READ-6")
    async def test_changing_what_was_read_changes_nothing_stored(self, stage: Stage) -> None:
        log = stage.log()
        writer = await stage.writer()
        envelope = log.envelope(payload={"list": [1, {"deep": "x"}]}, metadata={"m": [1]})
        log.wrote(copy.deepcopy(envelope))
        stage.given(await writer.append(envelope))
        found = await stage.read(writer, log.execution_id)
        _spoil_all(stage, found, "read")
        expected = "what is stored not to change with what was read out"
        await stage.holds(log, handle=writer, expected=expected)
        await stage.holds(log, expected=expected)
        if await stage.offers("range"):
            in_range = stage.given(await writer.read_range(log.execution_id, 0, 0))
            _spoil_all(stage, in_range, "read in a range")
            await stage.holds(log, handle=writer, expected=expected)


async def _ascending(stage: Stage, log: Log) -> None:
    writer = await stage.writer()
    _is_read(stage, await writer.read_from(log.execution_id), log.envelopes, "ascending sequences")
    if await stage.offers("range"):
        outcome = await writer.read_range(log.execution_id, 0, 1000)
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
        _spoil(envelope)


def _spoil(envelope: EventEnvelope) -> None:
    payload = envelope.payload
    if isinstance(payload, dict):
        inner = payload.get("list")
        if isinstance(inner, list):
            inner.append("changed")
            if isinstance(inner[1], dict):
                inner[1]["deep"] = "changed"
        payload["changed"] = True
    if isinstance(envelope.metadata, dict):
        envelope.metadata["changed"] = True
