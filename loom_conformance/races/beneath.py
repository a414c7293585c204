"""Which rule of the contract was broken beneath a race, if one was.

Under gates a store's calls run one at a time, so their outcomes can be judged one by one against
the model of the contract. The first that is not allowed names its rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..backend import Backend
from ..contract.model import Oracle, StoreModel
from ..contract.operations import Done, settled
from ..contract.rules import rules
from ..spi import EventEnvelope
from .evidence import Call


@dataclass(frozen=True, slots=True)
class Broken:
    """A call that the contract does not allow.

    Attributes:
        rule: the rule that it breaks.
        call: which of the calls that were judged it is, counted from 0.
        node: whose call it was.
        operation: the call, in words.
        expected: what was allowed, in words.
        got: what came back, in words.
    """

    rule: str
    call: int
    node: str
    operation: str
    expected: str
    got: str

    def __str__(self) -> str:
        promise = rules()[self.rule].promise
        return f"{self.rule}  {promise}\n  {self.node}: {self.operation} → {self.got}"


def model_of(backend: type[Backend] | Backend, *, fencing: bool) -> StoreModel:
    """The contract for a store that makes this backend's declarations."""
    return StoreModel(
        envelope_ids=backend.envelope_ids,
        sparse_sequences=backend.sparse_sequences,
        batch_scope=backend.batch_scope,
        max_batch=backend.max_batch,
        fencing=fencing,
    )


def broken_at_once(
    calls: Iterable[Call], logs: Mapping[str, Sequence[EventEnvelope]]
) -> Broken | None:
    """What is broken by calls that overlapped, so that no one order of them can be assumed.

    Of two acknowledged writes to one slot or of one id only one can be right in any order, and what
    was acknowledged must be in the log.
    """
    slots: dict[tuple[str, int], Call] = {}
    for number, call in enumerate(calls):
        for envelope in call.written:
            first = slots.setdefault((envelope.execution_id, envelope.sequence), call)
            if first is not call:
                return Broken(
                    "SEQ-4",
                    number,
                    call.node,
                    str(call.operation),
                    f"DuplicateSequenceError for one of the two: {first.node} was acknowledged too",
                    "it was acknowledged",
                )
            if envelope not in logs.get(envelope.execution_id, (envelope,)):
                return Broken(
                    "APPEND-1",
                    number,
                    call.node,
                    str(call.operation),
                    "the envelope to be in the log, since it was acknowledged",
                    "it is not there",
                )
    return None


def first_broken(calls: Iterable[Call], model: StoreModel) -> Broken | None:
    """The first call whose outcome the contract does not allow.

    An error that says nothing certain (a fault of the storage) is an unknown outcome here.
    """
    oracle = Oracle(model)
    for number, call in enumerate(calls):
        outcome = Done(call.value) if call.error is None else settled(call.error)
        judgement = oracle.judge(call.operation, outcome)
        if not judgement:
            return Broken(
                judgement.rule or "APPEND-1",
                number,
                call.node,
                str(call.operation),
                judgement.allowed,
                judgement.got,
            )
    return None
