"""The verdict on a store's history: the linear checks first, then the search, part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...contract.model import State, StoreModel
from ..history import History
from .index import Violation
from .linear import violations
from .minimal import smallest_illegal
from .narrowing import narrowed
from .picture import draw, picture
from .search import Answer, Budget, Found, search
from .sightings import StoreCall
from .store import StoreHistoryModel


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a checker says of a history.

    Attributes:
        answer: legal, illegal, or unknown where the search gave up: that is never a pass.
        violations: what is wrong, each with the rule that it breaks; the linear checks' first.
        calls: how many calls were judged.
        parts: into how many parts they fell.
        unjudged: how many parts the search gave up on.
        states: how many configurations the search met.
    """

    answer: Answer
    violations: list[Violation]
    calls: int
    parts: int
    unjudged: int = 0
    states: int = 0

    @property
    def rules(self) -> list[str]:
        """The rules that are broken, without repetition."""
        return list(dict.fromkeys(violation.rule for violation in self.violations))


@dataclass(frozen=True, slots=True)
class Problem(Violation):
    """A violation that the search found: with the smallest illegal part and its picture."""

    stuck: tuple[StoreCall, ...] = field(default=(), kw_only=True)


def model_of(declared: Mapping[str, Any]) -> StoreModel:
    """The model for a store that declares this, as a history's header tells it."""
    known = {
        name: declared[name]
        for name in ("envelope_ids", "sparse_sequences", "batch_scope", "max_batch")
        if name in declared
    }
    return StoreModel(**known)


def check(
    history: History, model: StoreModel | None = None, budget: Budget | None = None
) -> Verdict:
    """Judge a history.

    A part that a linear check found illegal is not searched again.
    """
    contract = model if model is not None else model_of(history.declared)
    budget = budget or Budget()
    checker = StoreHistoryModel(contract)
    found = violations(history, contract)
    accused = {call for violation in found for call in violation.calls}
    parts = checker.parts(history.calls)
    states = unjudged = 0
    for part in parts:
        if not accused.isdisjoint(part):
            continue
        searched = search(checker, narrowed(part), budget)
        states += searched.states
        if searched.answer is Answer.UNKNOWN:
            unjudged += 1
        elif searched.answer is Answer.ILLEGAL:
            found.append(_problem(checker, part, searched))
    answer = Answer.ILLEGAL if found else Answer.UNKNOWN if unjudged else Answer.LEGAL
    return Verdict(answer, found, len(history.calls), len(parts), unjudged, states)


def _problem(
    checker: StoreHistoryModel, part: Sequence[StoreCall], found: Found[Any, Any]
) -> Problem:
    small = smallest_illegal(checker, part)
    budget = Budget(steps=200_000, seconds=5.0)
    again = search(checker, narrowed(small), budget, use_precedence=False)
    last = again if again.answer is Answer.ILLEGAL else found
    names = {(call.process, call.number) for call in last.stuck}
    stuck = tuple(call for call in small if (call.process, call.number) in names)
    state: State | None = checker.initial
    for call in last.order:
        assert state is not None
        state = checker.step(state, call.operation, call.outcome)
    assert state is not None
    judged = [checker.model.judge(state, call.operation, call.outcome) for call in last.stuck]
    wrong = next((one for one in judged if not one), None)
    rule = wrong.rule if wrong is not None and wrong.rule is not None else "READ-5"
    expected = "an order of these calls that the contract allows"
    got = "there is none"
    if wrong is not None:
        got += f"; in the longest one, next had to be {wrong.allowed}, but it was {wrong.got}"
    return Problem(rule, expected, got, tuple(small), stuck=stuck)


def drawing(violation: Violation) -> str:
    """The calls of a violation as bars in time, as text."""
    return draw(violation.calls, getattr(violation, "stuck", ()))


def drawing_data(violation: Violation) -> dict[str, Any]:
    """The calls of a violation as data, for a page to draw."""
    return picture(violation.calls, getattr(violation, "stuck", ()))
