"""Histories of an event store: the contract's model, and how a history falls into parts."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from ...contract.model import State, StoreModel
from ...contract.operations import (
    Append,
    AppendBatch,
    Operation,
    Outcome,
    ReadFrom,
    ReadRange,
    Refused,
    executions_of,
)
from .narrowing import narrowed
from .precedence import precedence
from .sightings import StoreCall


@dataclass(frozen=True, slots=True)
class StoreHistoryModel:
    """The contract's model, for the search.

    Executions are judged apart, except where a batch or, in a store whose ids are store-wide, an
    envelope id ties them together.
    """

    model: StoreModel = field(default_factory=StoreModel)

    @property
    def initial(self) -> State:
        """A fresh storage."""
        return self.model.initial

    def step(self, state: State, operation: Operation, outcome: Outcome) -> State | None:
        """The state after a call, or `None`; see `StoreModel.step`."""
        return self.model.step(state, operation, outcome)

    def is_pure(self, operation: Operation, outcome: Outcome) -> bool:
        """Whether it is a read or a refusal."""
        return isinstance(outcome, Refused) or isinstance(operation, ReadFrom | ReadRange)

    def keys(self, operation: Operation) -> Iterable[tuple[str, Hashable]]:
        """The executions of an operation, and the envelope ids that it claims."""
        for name in executions_of(operation):
            yield ("log", name)
        if isinstance(operation, Append | AppendBatch):
            for envelope in operation.envelopes:
                yield ("id", self.model.id_key(envelope))

    def precedence(self, calls: Sequence[StoreCall]) -> Iterable[tuple[StoreCall, StoreCall]]:
        """Pairs of calls of which the first comes first in every legal order."""
        return precedence(self.model, calls)

    def partition(self, calls: Sequence[StoreCall]) -> Iterable[list[StoreCall]]:
        """The parts that can be judged apart, each with its times narrowed by its reads."""
        return [narrowed(part) for part in self.parts(calls)]

    def parts(self, calls: Sequence[StoreCall]) -> list[list[StoreCall]]:
        """The parts that can be judged apart, as they were recorded."""
        parent: dict[str, str] = {}

        def root(name: str) -> str:
            parent.setdefault(name, name)
            while parent[name] != name:
                parent[name] = parent[parent[name]]
                name = parent[name]
            return name

        owners: dict[str, str] = {}
        for call in calls:
            operation = call.operation
            names = list(executions_of(operation))
            for name in names[1:]:
                parent[root(name)] = root(names[0])
            if self.model.envelope_ids == "store" and isinstance(operation, Append | AppendBatch):
                for envelope in operation.envelopes:
                    owner = owners.setdefault(str(envelope.id), envelope.execution_id)
                    if owner != envelope.execution_id:
                        parent[root(owner)] = root(envelope.execution_id)
        parts: dict[str, list[StoreCall]] = {}
        for call in calls:
            name = next(iter(executions_of(call.operation)), "")
            parts.setdefault(root(name), []).append(call)
        return list(parts.values())
