"""The events that every side writes: the same content, in the form that each of them takes."""

from __future__ import annotations

import itertools
import uuid
from datetime import UTC, datetime
from typing import Final

from loom_conformance.spi import EventEnvelope, JsonValue

KIND: Final = "STEP_COMPLETED"
WHEN: Final = datetime(2024, 2, 29, 12, 0, 0, 123000, tzinfo=UTC)
PAYLOAD: Final[dict[str, JsonValue]] = {
    "step": "charge the card",
    "attempt": 1,
    "result": {"amount": 1250, "currency": "EUR", "items": ["a", "b", "c"], "tax": 0.19},
}
METADATA: Final[dict[str, JsonValue]] = {"node": "n1"}

_NUMBERS: Final = itertools.count()


def new_execution() -> str:
    """An execution id that was not used before."""
    return f"order-{next(_NUMBERS)}"


def envelopes(count: int, *, random_ids: bool = False) -> list[EventEnvelope]:
    """So many envelopes of one new execution."""
    execution_id = new_execution()
    return [
        EventEnvelope(
            execution_id,
            sequence,
            str(uuid.uuid4()) if random_ids else f"{execution_id}-{sequence}",
            KIND,
            WHEN,
            PAYLOAD,
            METADATA,
        )
        for sequence in range(count)
    ]


def interleaved(executions: int, count: int) -> list[EventEnvelope]:
    """So many envelopes of each of several new executions, one of each in turn."""
    parts = [envelopes(count) for _ in range(executions)]
    return [envelope for row in zip(*parts, strict=True) for envelope in row]


def in_batches(count: int, size: int) -> list[list[EventEnvelope]]:
    """So many batches with random envelope ids, each of a new execution."""
    return [envelopes(size, random_ids=True) for _ in range(count)]
