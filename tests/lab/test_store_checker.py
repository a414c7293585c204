"""The verdict on store histories, against trying every order, and rule by rule."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal, TypeAlias

from hypothesis import event, given, settings
from hypothesis import strategies as st
from lab_support import envelope

from loom_conformance.contract.model import State, StoreModel
from loom_conformance.contract.operations import (
    AcquireFence,
    Append,
    AppendBatch,
    Done,
    Operation,
    Outcome,
    ReadFrom,
    ReadRange,
    Refused,
    Unknown,
)
from loom_conformance.contract.rules import rules
from loom_conformance.lab.checker.call import Call
from loom_conformance.lab.checker.narrowing import narrowed
from loom_conformance.lab.checker.search import Answer
from loom_conformance.lab.checker.verdict import check
from loom_conformance.lab.history import History, StoreCall
from loom_conformance.spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    StaleFenceError,
)

Scope: TypeAlias = Literal["store", "execution"]

# --- Against every order ----------------------------------------------------------------------


def legal_by_brute_force(model: StoreModel, calls: Sequence[StoreCall]) -> bool:
    """Try every subset of the uncertain calls and every order that respects time."""
    certain = [call for call in calls if call.certain]
    uncertain = [
        call
        for call in calls
        if not call.certain and not isinstance(call.operation, ReadFrom | ReadRange)
    ]
    for count in range(len(uncertain) + 1):
        for chosen in itertools.combinations(uncertain, count):
            if _has_order(model, model.initial, [*certain, *chosen]):
                return True
    return False


def _has_order(model: StoreModel, state: State, left: list[StoreCall]) -> bool:
    if not left:
        return True
    for call in left:
        others = [other for other in left if other is not call]
        if any(o.deadline is not None and o.deadline < call.invoked for o in others):
            continue
        after = model.step(state, call.operation, call.outcome)
        if after is not None and _has_order(model, after, others):
            return True
    return False


POOL = [
    envelope(sequence, execution, name=name, fence=fence)
    for sequence, execution, name, fence in [
        (0, "e", "a", None),
        (0, "e", "b", None),
        (1, "e", "a", None),
        (1, "e", "c", None),
        (0, "e", "d", 1),
        (1, "e", "e", 2),
        (0, "f", "a", None),
        (0, "f", "g", None),
    ]
]

CONFLICTS: list[Outcome] = [
    Refused.of(DuplicateSequenceError("e", 0)),
    Refused.of(DuplicateEnvelopeIdError("e", "a")),
    Refused.of(StaleFenceError("e", None, 1)),
]


@st.composite
def store_calls(draw: st.DrawFn) -> tuple[Operation, Outcome]:
    kind = draw(st.sampled_from(["append", "append", "batch", "read", "read", "fence"]))
    if kind == "append":
        outcome = draw(st.sampled_from([Done(), Done(), Unknown(), *CONFLICTS]))
        return Append(draw(st.sampled_from(POOL))), outcome
    if kind == "batch":
        members = draw(st.lists(st.sampled_from(POOL), min_size=2, max_size=2))
        return AppendBatch(members), draw(st.sampled_from([Done(), Unknown(), *CONFLICTS]))
    execution = draw(st.sampled_from("eef"))
    if kind == "fence":
        token = draw(st.integers(1, 3))
        outcomes: list[Outcome] = [Done(token), Done(token), Unknown()]
        return AcquireFence(execution), draw(st.sampled_from(outcomes))
    shown = draw(
        st.lists(st.sampled_from([e for e in POOL if e.execution_id == execution]), max_size=2)
    )
    first = draw(st.sampled_from([0, 0, 0, 1]))
    shown = sorted({e.sequence: e for e in shown if e.sequence >= first}.values(), key=_sequence)
    return ReadFrom(execution, first), Done(tuple(shown))


def _sequence(one: EventEnvelope) -> int:
    return one.sequence


@st.composite
def histories(draw: st.DrawFn) -> History:
    calls = []
    for number, (operation, outcome) in enumerate(
        draw(st.lists(store_calls(), min_size=1, max_size=6))
    ):
        begin = draw(st.integers(0, 10)) * 10
        end: int | None = begin + draw(st.integers(1, 6)) * 10 + 5
        certain = not isinstance(outcome, Unknown)
        if not certain and draw(st.booleans()):
            end = None
        calls.append(Call(f"p{number}", number, operation, outcome, begin, end, certain))
    return History(sorted(calls, key=lambda call: call.invoked))


@settings(max_examples=300, deadline=None)
@given(histories(), st.sampled_from(["store", "execution"]), st.booleans())
def test_the_verdict_agrees_with_trying_every_order(
    history: History, scope: Scope, sparse: bool
) -> None:
    model = StoreModel(envelope_ids=scope, sparse_sequences=sparse)
    legal = legal_by_brute_force(model, history.calls)
    event(f"legal: {legal}")
    verdict = check(history, model)
    assert (verdict.answer is Answer.LEGAL) == legal, verdict.violations
    assert all(violation.rule in rules() for violation in verdict.violations)


@settings(max_examples=150, deadline=None)
@given(histories())
def test_narrowing_changes_no_verdict(history: History) -> None:
    model = StoreModel()
    assert legal_by_brute_force(model, narrowed(history.calls)) == legal_by_brute_force(
        model, history.calls
    )


@st.composite
def honest_histories(draw: st.DrawFn) -> History:
    """Calls on a right store: each takes effect at one instant within its interval."""
    model = StoreModel(sparse_sequences=True)
    state = model.initial
    calls = []
    for number in range(draw(st.integers(1, 25))):
        instant = number * 10
        operation, _ = draw(store_calls())
        outcome: Outcome
        if isinstance(operation, ReadFrom):
            outcome = Done(state.log(operation.execution_id).between(operation.first, None))
        elif isinstance(operation, AcquireFence):
            fence = state.log(operation.execution_id).fence
            outcome = Done((fence.low if fence else 0) + draw(st.integers(1, 2)))
        else:
            allowed = [each for each in [Done(), *CONFLICTS] if model.step(state, operation, each)]
            outcome = draw(st.sampled_from(allowed))
        begin = instant - draw(st.integers(0, 60))
        end = instant + draw(st.integers(0, 60))
        if draw(st.integers(0, 5)) == 0 and not isinstance(operation, ReadFrom):
            happened = model.step(state, operation, Unknown())
            if happened is not None and draw(st.booleans()):
                state = happened
            begun: StoreCall = Call(f"p{number}", number, operation, Unknown(), begin, None, False)
            calls.append(begun)
            continue
        after = model.step(state, operation, outcome)
        assert after is not None
        state = after
        made: StoreCall = Call(f"p{number}", number, operation, outcome, begin, end)
        calls.append(made)
    return History(sorted(calls, key=lambda call: call.invoked))


@settings(max_examples=150, deadline=None)
@given(honest_histories())
def test_a_right_store_is_always_legal(history: History) -> None:
    verdict = check(history, StoreModel(sparse_sequences=True))
    assert verdict.answer is Answer.LEGAL, verdict.violations
