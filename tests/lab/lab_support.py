"""Envelopes and histories for the tests of the lab."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from loom_conformance.contract.operations import (
    AcquireFence,
    Append,
    AppendBatch,
    Done,
    Operation,
    Outcome,
    ReadFrom,
    Unknown,
)
from loom_conformance.lab.checker.call import Call
from loom_conformance.lab.history import Fault, History, StoreCall
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


class Timeline:
    """Builds a history call by call, each with a begin and an end of its own."""

    def __init__(self) -> None:
        self.history = History()

    def call(
        self,
        operation: Operation,
        outcome: Outcome | None = None,
        begin: int | None = None,
        end: int | None = None,
        process: str = "p",
    ) -> StoreCall:
        """Add a call; without times it comes after all others. No outcome: acknowledged."""
        calls = self.history.calls
        if begin is None:
            begin = 10 + max((c.completed or c.invoked for c in calls), default=0)
        outcome = Done() if outcome is None else outcome
        certain = not isinstance(outcome, Unknown)
        if end is None and certain:
            end = begin + 5
        made = Call(process, len(calls), operation, outcome, begin, end, certain)
        calls.append(made)
        calls.sort(key=lambda one: one.invoked)
        return made

    def wrote(self, *envelopes: EventEnvelope, **times: Any) -> StoreCall:
        """An acknowledged write: `append` for one envelope, `append_batch` for several."""
        return self.call(writing(*envelopes), **times)

    def read(self, *shown: EventEnvelope, execution: str = "e", **times: Any) -> StoreCall:
        """A whole read of an execution."""
        return self.call(ReadFrom(execution), Done(tuple(shown)), **times)

    def acquired(self, token: object, execution: str = "e", **times: Any) -> StoreCall:
        """An acquire that returned a token."""
        return self.call(AcquireFence(execution), Done(token), **times)

    def fault(self, kind: str, target: str = "p") -> None:
        """A fault now, after all calls so far."""
        at = 1 + max((c.completed or c.invoked for c in self.history.calls), default=0)
        self.history.faults.append(Fault(kind, target, at))


def writing(*envelopes: EventEnvelope) -> Operation:
    """`append` for one envelope, `append_batch` for several."""
    return Append(envelopes[0]) if len(envelopes) == 1 else AppendBatch(envelopes)
