"""APPEND-1 to APPEND-3: what an acknowledgement means."""

from __future__ import annotations

from datetime import UTC, datetime

from ...lab.paths import WritePath
from ...lab.stage import Log, Stage, difference_between
from ...spi import MAX_SEQUENCE
from ..case import on_every_write_path, rule


class AppendSuite:
    """Acknowledged envelopes are there, whole, for everybody."""

    @rule("APPEND-1")
    @on_every_write_path
    async def test_an_acknowledged_envelope_is_read_by_every_handle(
        self, stage: Stage, path: WritePath
    ) -> None:
        other = await stage.connect(name="other")
        log = await stage.given_log(1)
        stage.given(await other.read_from(log.execution_id))
        ranges = await stage.offers("range")
        if ranges:
            stage.given(await other.read_range(log.execution_id, 0, MAX_SEQUENCE))
        await stage.accepted(log)
        await stage.holds(log, handle=await stage.writer())
        await stage.holds(log, handle=other)
        if ranges:
            outcome = await other.read_range(log.execution_id, 0, MAX_SEQUENCE)
            difference = difference_between(log.envelopes, stage.listed(outcome))
            if difference:
                stage.broken("the same range to show it now", f"{outcome.call}: {difference}")
        async with stage.fresh() as fresh:
            await stage.holds(log, handle=fresh)

    @rule("APPEND-1")
    async def test_handles_take_turns_at_one_execution(self, stage: Stage) -> None:
        log = stage.log()
        handles = [await stage.connect(), await stage.connect()]
        for turn in range(6):
            handle = handles[turn % 2]
            envelope = log.envelope()
            stage.returned(
                await handle.append(envelope), "each handle to go on where the other one ended"
            )
            log.wrote(envelope)
            for reader in handles:
                await stage.holds(log, handle=reader)

    @rule("APPEND-2")
    @on_every_write_path
    async def test_what_is_read_back_equals_what_was_written(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = stage.log()
        await stage.accepted(
            log,
            lambda sequence: log.envelope(
                sequence,
                id=f"envelope/{log.execution_id}/{sequence}",
                kind="ORDER_PLACED",
                timestamp=datetime(2026, 9, 27, 8, 30, 15, 987000, tzinfo=UTC),
                payload={"order": 17, "lines": [1, 2.5, None, True], "note": "naïve ✓"},
                metadata={"computeTarget": "gpu", "tags": ["a", "b"]},
            ),
        )

    @rule("APPEND-2")
    @on_every_write_path
    async def test_a_fenced_envelope_is_read_back_with_its_token(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = await stage.given_log(0, fenced=True)
        await stage.accepted(
            log, lambda sequence: log.envelope(sequence, metadata={"computeTarget": "cpu"})
        )

    @rule("APPEND-3")
    @on_every_write_path
    async def test_the_first_append_creates_the_execution(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = stage.log()
        await stage.holds(log)
        await stage.accepted(log)

    @rule("APPEND-3")
    async def test_a_fresh_storage_knows_no_execution(self, stage: Stage) -> None:
        known = await stage.given_log(2)
        address = await stage.own_storage()
        handle = await stage.connect(address, name="elsewhere")
        log = Log(known.execution_id)
        await stage.holds(log, handle=handle, expected="a fresh storage to be empty")
        envelope = log.envelope()
        stage.returned(
            await handle.append(envelope),
            "what another storage holds to be no conflict in this one",
        )
        log.wrote(envelope)
        await stage.holds(log, handle=handle)
        await stage.holds(known)
