"""Envelopes and storages for these tests."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from loom_conformance.backend import Backend
from loom_conformance.spi import EventEnvelope, JsonValue

NOON = datetime(2024, 2, 29, 12, 0, 0, 123000, tzinfo=UTC)


def envelope(
    execution_id: str,
    sequence: int,
    id_: str | None = None,
    *,
    fence: int | None = None,
    payload: JsonValue = None,
) -> EventEnvelope:
    """An envelope with the runtime's own id unless another is given."""
    return EventEnvelope(
        execution_id,
        sequence,
        id_ or f"{execution_id}-{sequence}",
        "STEP_COMPLETED",
        NOON,
        payload,
        {} if fence is None else {"fence": fence},
    )


@dataclass(frozen=True, slots=True)
class Place:
    """A storage and the backend that it belongs to."""

    backend: Backend
    address: str
