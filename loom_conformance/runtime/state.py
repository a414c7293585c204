"""Events, and the state that folding them gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal

from ..spi import EventEnvelope, EventStore, JsonValue
from .errors import CorruptLogError

EXECUTION_STARTED: Final = "EXECUTION_STARTED"
STEP_COMPLETED: Final = "STEP_COMPLETED"
TIMER_SET: Final = "TIMER_SET"
TIMER_FIRED: Final = "TIMER_FIRED"
EXECUTION_COMPLETED: Final = "EXECUTION_COMPLETED"
EXECUTION_FAILED: Final = "EXECUTION_FAILED"
EXECUTION_CANCELLED: Final = "EXECUTION_CANCELLED"

Status = Literal["running", "sleeping", "completed", "failed", "cancelled"]

_ENDS: Final[Mapping[str, Status]] = {
    EXECUTION_COMPLETED: "completed",
    EXECUTION_FAILED: "failed",
    EXECUTION_CANCELLED: "cancelled",
}


@dataclass(frozen=True, slots=True)
class Event:
    """What happened, before it has a place in a log."""

    kind: str
    payload: dict[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExecutionState:
    """The fold of an execution's log.

    Attributes:
        execution_id: the execution.
        last: the sequence of the last envelope folded.
        status: `"sleeping"` while a timer is set and has not fired; `"completed"`, `"failed"` and
            `"cancelled"` are ends.
        workflow: the name of the workflow it runs.
        input: what it was started with.
        steps: the result of each recorded step.
        timers: when each timer that was set is due.
        fired: the timers that have fired.
        result: what the workflow returned.
        error: why it failed or was cancelled.
    """

    execution_id: str
    last: int
    status: Status
    workflow: str
    input: JsonValue = None
    steps: Mapping[str, JsonValue] = field(default_factory=dict)
    timers: Mapping[str, datetime] = field(default_factory=dict)
    fired: frozenset[str] = frozenset()
    result: JsonValue = None
    error: str | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing can follow in the log."""
        return self.status in _ENDS.values()


def fold(state: ExecutionState | None, envelope: EventEnvelope) -> ExecutionState:
    """The state after one more envelope; `None` is the state before sequence 0.

    Raises:
        CorruptLogError: the envelope cannot stand at this place of the log.
    """

    def corrupt(reason: str) -> CorruptLogError:
        return CorruptLogError(envelope.execution_id, envelope.sequence, reason)

    expected = 0 if state is None else state.last + 1
    if envelope.sequence != expected:
        raise corrupt(f"sequence {expected} was expected")
    payload = envelope.payload
    if not isinstance(payload, dict):
        raise corrupt(f"{envelope.kind} without its payload")
    try:
        if state is None:
            if envelope.kind != EXECUTION_STARTED:
                raise corrupt(f"{envelope.kind} before {EXECUTION_STARTED}")
            return ExecutionState(
                envelope.execution_id, 0, "running", str(payload["workflow"]), payload["input"]
            )
        if state.ended:
            raise corrupt(f"{envelope.kind} after the execution {state.status}")
        return _follow(replace(state, last=expected), envelope.kind, payload, corrupt)
    except KeyError as missing:
        raise corrupt(f"{envelope.kind} without {missing} in its payload") from missing


def _follow(
    state: ExecutionState,
    kind: str,
    payload: dict[str, Any],
    corrupt: Callable[[str], CorruptLogError],
) -> ExecutionState:
    if kind in _ENDS:
        return replace(
            state, status=_ENDS[kind], result=payload.get("result"), error=payload.get("error")
        )
    if kind == STEP_COMPLETED:
        name = payload["step"]
        if name in state.steps:
            raise corrupt(f"step {name!r} is completed twice")
        return replace(state, steps={**state.steps, name: payload["result"]})
    if kind == TIMER_SET:
        name, due = payload["timer"], datetime.fromisoformat(payload["due"])
        if name in state.timers:
            raise corrupt(f"timer {name!r} is set twice")
        return replace(state, timers={**state.timers, name: due}, status="sleeping")
    if kind == TIMER_FIRED:
        name = payload["timer"]
        if name not in state.timers or name in state.fired:
            raise corrupt(f"timer {name!r} fires, but is not set")
        return replace(state, fired=state.fired | {name}, status="running")
    raise corrupt(f"unknown kind {kind!r}")


def fold_all(envelopes: Iterable[EventEnvelope]) -> ExecutionState | None:
    """The state that a whole log gives, or `None` for an empty one.

    Raises:
        CorruptLogError: an envelope does not fit where it stands.
    """
    state: ExecutionState | None = None
    for envelope in envelopes:
        state = fold(state, envelope)
    return state


async def load(store: EventStore, execution_id: str) -> ExecutionState | None:
    """Read and fold an execution's log; `None` where there is none."""
    return fold_all(await store.read_from(execution_id, 0))
