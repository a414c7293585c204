"""RANGE-1 and RANGE-2: a closed interval of an execution's log."""

from __future__ import annotations

from ..lab.calls import short
from ..lab.stage import Stage, difference_between
from ..lab.values import alike
from ..lab.verdict import NotOffered
from ..spi import MAX_SEQUENCE, is_error
from .case import rule

LENGTH = 6


class RangeSuite:
    """`read_range` cuts the same log that `read_from` shows."""

    @rule("RANGE-1")
    async def test_both_ends_are_inclusive(self, stage: Stage) -> None:
        await stage.needs("range")
        log = await stage.given_log(LENGTH)
        writer = await stage.writer()
        for first in range(LENGTH + 2):
            for last in range(LENGTH + 2):
                outcome = await writer.read_range(log.execution_id, first, last)
                found = stage.returned(outcome, "a range within bounds to be read")
                difference = difference_between(log.envelopes[first : last + 1], list(found))
                if difference:
                    stage.broken(f"the envelopes from {first} to {last}, both included", difference)

    @rule("RANGE-1")
    async def test_the_ends_are_sequences_and_no_offsets(self, stage: Stage) -> None:
        await stage.needs("range")
        if not stage.backend.sparse_sequences:
            raise NotOffered("sequences have no gaps here, so both are the same")
        log = stage.log()
        writer = await stage.writer()
        for place in (0, 3, 4, 20, 2**31 + 1, 10**10, MAX_SEQUENCE):
            envelope = log.envelope(place)
            stage.given(await writer.append(envelope))
            log.wrote(envelope)
        pairs = [(0, 0), (0, 3), (1, 2), (1, 4), (3, 19), (4, 20), (5, 30), (20, MAX_SEQUENCE)]
        for first, last in [*pairs, (21, 2**31 + 1), (2**32, MAX_SEQUENCE), (MAX_SEQUENCE,) * 2]:
            expected = [one for one in log.envelopes if first <= one.sequence <= last]
            outcome = await writer.read_range(log.execution_id, first, last)
            found = stage.returned(outcome, "a range to be read")
            difference = difference_between(expected, list(found))
            if difference:
                stage.broken(f"the sequences from {first} to {last}", difference)

    @rule("RANGE-1")
    async def test_beyond_the_end_is_cut_and_an_unknown_execution_is_empty(
        self, stage: Stage
    ) -> None:
        await stage.needs("range")
        log = await stage.given_log(2)
        writer = await stage.writer()
        expectations = [
            (log.execution_id, 1, 2**53 - 1, log.envelopes[1:]),
            (log.execution_id, 2, 2**53 - 1, []),
            (stage.session.fresh_id(), 0, 10, []),
        ]
        for execution_id, first, last, expected in expectations:
            outcome = await writer.read_range(execution_id, first, last)
            found = stage.returned(outcome, "a range beyond the end to be read")
            difference = difference_between(expected, list(found))
            if difference:
                stage.broken(f"what there is from {first} on", f"{outcome.call}: {difference}")

    @rule("RANGE-1")
    async def test_an_end_that_no_sequence_reaches_is_cut_or_refused(self, stage: Stage) -> None:
        await stage.needs("range")
        log = await stage.given_log(2)
        writer = await stage.writer()
        for last in (MAX_SEQUENCE + 1, 2**63, 2**200):
            outcome = await writer.read_range(log.execution_id, 1, last)
            if is_error(outcome.error, ValueError):
                continue
            expected = "the range cut at the log's end, or a ValueError"
            found = stage.returned(outcome, expected)
            difference = difference_between(log.envelopes[1:], list(found))
            if difference:
                stage.broken(expected, f"{outcome.call}: {difference}")

    @rule("RANGE-1")
    async def test_a_negative_first_means_zero_or_is_refused(self, stage: Stage) -> None:
        await stage.needs("range")
        log = await stage.given_log(2)
        writer = await stage.writer()
        outcome = await writer.read_range(log.execution_id, -5, 0)
        if isinstance(outcome.error, ValueError):
            return
        found = stage.returned(outcome, "a negative first to mean 0, or a ValueError")
        difference = difference_between(log.envelopes[:1], list(found))
        if difference:
            stage.broken("a negative first to mean 0", difference)

    @rule("RANGE-2")
    async def test_the_same_range_is_read_anew_after_another_handles_write(
        self, stage: Stage
    ) -> None:
        await stage.needs("range")
        log = await stage.given_log(2)
        reader = await stage.connect(name="reader")
        for _ in range(3):
            whole = await stage.read(reader, log.execution_id)
            outcome = await reader.read_range(log.execution_id, 0, 9)
            found = stage.returned(outcome, "a range to be read")
            difference = difference_between(whole, list(found))
            if difference:
                stage.broken("what read_from shows by now", f"{outcome.call}: {difference}")
            await stage.given_more(log)

    @rule("RANGE-2")
    async def test_a_range_shows_one_execution_and_none_that_looks_like_it(
        self, stage: Stage
    ) -> None:
        await stage.needs("range")
        writer = await stage.writer()
        unique = stage.session.fresh_id()
        logs = [stage.log(name) for group in alike(unique) for name in group]
        for number, log in enumerate(logs):
            envelope = log.envelope(id=f"{unique}/{number}")
            stage.given(await writer.append(envelope))
            log.wrote(envelope)
        for log in logs:
            outcome = await writer.read_range(log.execution_id, 0, MAX_SEQUENCE)
            found = stage.returned(outcome, "a range to be read")
            difference = difference_between(log.envelopes, list(found))
            if difference:
                stage.broken(f"the one envelope of {short(log.execution_id)}", difference)
        stage.logs.clear()

    @rule("RANGE-2")
    async def test_a_range_equals_the_part_of_read_from(self, stage: Stage) -> None:
        await stage.needs("range")
        log = await stage.given_log(2)
        writer = await stage.writer()
        rich = log.envelope(kind="ORDER_PLACED", metadata={"computeTarget": "gpu", "tags": ["a"]})
        stage.given(await writer.append(rich))
        log.wrote(rich)
        await stage.given_bulk(1500, log)
        await stage.given_log(3)
        pairs = [(0, 0), (0, 1), (0, log.next - 1), (7, 1200), (999, 1001), (1400, 9000)]
        pairs += [
            tuple(sorted((stage.random.randrange(1500), stage.random.randrange(1600))))  # type: ignore[misc]
            for _ in range(stage.settings.rounds(6))
        ]
        for first, last in pairs:
            tail = stage.given(await writer.read_from(log.execution_id, first))
            part = [envelope for envelope in tail if envelope.sequence <= last]
            found = stage.returned(
                await writer.read_range(log.execution_id, first, last), "a range to be read"
            )
            difference = difference_between(part, list(found))
            if difference:
                stage.broken(f"read_from({first}) cut at {last}", difference)
