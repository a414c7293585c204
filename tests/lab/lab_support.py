"""Envelopes and backends for the tests of the lab."""

from __future__ import annotations

from datetime import UTC, datetime

from loom_conformance.spi import EventEnvelope, JsonValue

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def envelope(
    sequence: int,
    execution: str = "e",
    *,
    name: str | None = None,
    fence: int | None = None,
    payload: JsonValue = None,
) -> EventEnvelope:
    """An envelope that is told apart by little."""
    return EventEnvelope(
        execution_id=execution,
        sequence=sequence,
        id=name if name is not None else f"{execution}-{sequence}",
        kind="k",
        timestamp=NOON,
        payload=payload,
        metadata={} if fence is None else {"fence": fence},
    )
