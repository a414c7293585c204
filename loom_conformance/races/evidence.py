"""What one run of a race left behind: calls, effects, what was told, how each act ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..contract.operations import AcquireFence, Append, AppendBatch, Operation
from ..runtime import CorruptLogError, ExecutionState, fold_all
from ..spi import FENCE_KEY, EventEnvelope, StaleFenceError, is_error


@dataclass(frozen=True, slots=True)
class Call:
    """One call that reached a handle of the store under test, in the order in which they ran.

    Attributes:
        node: whose handle it was.
        operation: what was asked; ids are those that the store was given.
        error: what it raised, or `None`.
        value: what it returned.
    """

    node: str
    operation: Operation
    error: BaseException | None
    value: Any = None

    @property
    def written(self) -> tuple[EventEnvelope, ...]:
        """The envelopes that it stored, if it was acknowledged."""
        if self.error is None and isinstance(self.operation, Append | AppendBatch):
            return self.operation.envelopes
        return ()

    def touches(self, execution_id: str) -> bool:
        """Whether it is about this execution, whatever a scope put before the id."""
        operation = self.operation
        if isinstance(operation, Append | AppendBatch):
            return any(each.execution_id.endswith(execution_id) for each in operation.envelopes)
        return operation.execution_id.endswith(execution_id)


@dataclass(frozen=True, slots=True)
class Effect:
    """A step's effect that ran, after so many of the store's calls."""

    node: str
    execution_id: str
    step: str
    after: int


@dataclass(frozen=True, slots=True)
class Ended:
    """How an act of a node ended: what it returned, or what it raised."""

    value: Any = None
    error: BaseException | None = None

    def __str__(self) -> str:
        if self.error is not None:
            return f"{type(self.error).__name__}: {self.error}"
        if self.value is None:
            return "nothing"
        if callable(getattr(self.value, "finished", None)):
            return "a handle"
        return str(self.value)


@dataclass(slots=True)
class Evidence:
    """Everything that a race is judged by.

    Attributes:
        earlier: the calls that set up what the race starts from.
        calls: the calls that reached the store, in the order in which they ran.
        acknowledged: the envelopes that a runtime was told to be durable.
        effects: the effects that ran, in order.
        told: what `on_event` was told, by node.
        errors: what `on_error` was told, by node.
        storage_errors: what `on_storage_error` was told, by node.
        ends: how each act ended, by its name; an act that is not here never ended.
        logs: what a fresh handle reads in the end, by execution id.
        notes: what the race's own code took down.
    """

    earlier: list[Call] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    acknowledged: list[EventEnvelope] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    told: list[tuple[str, EventEnvelope]] = field(default_factory=list)
    errors: list[tuple[str, BaseException]] = field(default_factory=list)
    storage_errors: list[tuple[str, BaseException]] = field(default_factory=list)
    ends: dict[str, Ended] = field(default_factory=dict)
    logs: dict[str, Sequence[EventEnvelope]] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    def ran(self, execution_id: str, step: str | None = None) -> list[str]:
        """The nodes in which an execution's effect ran, once for each time."""
        return [
            effect.node
            for effect in self.effects
            if effect.execution_id == execution_id and step in (None, effect.step)
        ]

    def state(self, execution_id: str) -> ExecutionState | CorruptLogError | None:
        """The fold of the log in the end, or why it cannot be folded."""
        try:
            return fold_all(self.logs[execution_id])
        except CorruptLogError as corrupt:
            return corrupt

    def writes(self, execution_id: str) -> Iterator[tuple[Call, EventEnvelope]]:
        """Every acknowledged write to an execution, in order, with the call that made it."""
        for call in self.calls:
            for envelope in call.written:
                if envelope.execution_id.endswith(execution_id):
                    yield call, envelope

    def tries(self, execution_id: str, sequence: int) -> list[Call]:
        """Every call, refused ones too, that was to write this slot."""
        return [
            call
            for call in self.calls
            if isinstance(call.operation, Append | AppendBatch)
            and any(
                each.sequence == sequence and each.execution_id.endswith(execution_id)
                for each in call.operation.envelopes
            )
        ]

    def fenced_writes(
        self, execution_id: str
    ) -> Iterator[tuple[Call, EventEnvelope, int | None, int | None]]:
        """Every acknowledged write with the token that it carried and the one that was current."""
        current: int | None = None
        for call in self.calls:
            if not call.touches(execution_id):
                continue
            if isinstance(call.operation, AcquireFence) and call.error is None:
                current = call.value
            for envelope in call.written:
                if envelope.execution_id.endswith(execution_id):
                    given = envelope.metadata.get(FENCE_KEY)
                    yield call, envelope, given if isinstance(given, int) else None, current

    def tokens(self, execution_id: str) -> list[int]:
        """The tokens that were handed out, in order."""
        return [
            call.value
            for call in self.calls
            if isinstance(call.operation, AcquireFence)
            and call.error is None
            and call.touches(execution_id)
        ]

    def retried_though_superseded(self, execution_id: str) -> list[str]:
        """Nodes that fenced the execution again after a refusal which said that another has it."""
        found: list[str] = []
        lost: set[str] = set()
        started = False
        for call in self.calls:
            if not call.touches(execution_id):
                continue
            if isinstance(call.operation, AcquireFence):
                if call.node in lost:
                    found.append(call.node)
                lost.discard(call.node)
            elif isinstance(call.operation, Append | AppendBatch):
                first = min(each.sequence for each in call.operation.envelopes)
                if call.error is None:
                    started = True
                elif is_error(call.error, StaleFenceError) and (started or first > 0):
                    lost.add(call.node)
        return found


def listed(nodes: Iterable[str]) -> str:
    """Some nodes in the order in which something happened there."""
    return ", ".join(nodes) or "nowhere"
