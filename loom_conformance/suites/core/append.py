"""APPEND-1 to APPEND-3: what an acknowledgement means."""

from __future__ import annotations

from datetime import UTC, datetime

from ...lab.paths import WritePath
from ...lab.stage import Stage
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
        await stage.accepted(log)
        await stage.holds(log, handle=await stage.writer())
        await stage.holds(log, handle=other)
        async with stage.fresh() as fresh:
            await stage.holds(log, handle=fresh)

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

    @rule("APPEND-3")
    @on_every_write_path
    async def test_the_first_append_creates_the_execution(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = stage.log()
        await stage.holds(log)
        await stage.accepted(log)
