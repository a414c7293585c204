"""Every rule is proven: some wrong store breaks it."""

from __future__ import annotations

from typing import Final

from loom_conformance.contract.rules import rules
from loom_conformance.report.claims import claims

from .registry import variants
from .test_failure_texts import SHOWN

ELSEWHERE: Final = {"races": "each race is lost by a wrong runtime of its own (tests/races)"}
"""Profiles whose rules judge something other than a store, and what proves them."""

ENOUGH_WRONG: Final = 80
ENOUGH_CORRECT: Final = 12


def broken_somewhere() -> set[str]:
    """The rules that some claim breaks, or advises."""
    found: set[str] = set()
    for claim in claims().values():
        found |= claim.breaks | claim.advice
    return found


def test_every_rule_is_broken_by_a_wrong_store() -> None:
    unproven = [
        rule.id
        for rule in rules().values()
        if rule.id not in broken_somewhere() and rule.profile not in ELSEWHERE
    ]
    assert unproven == []


def test_there_are_enough_of_both() -> None:
    assert len(claims()) >= ENOUGH_WRONG
    assert len(variants()) >= ENOUGH_CORRECT


def test_each_rule_is_shown_by_a_store_that_breaks_it() -> None:
    for rule, name in SHOWN.items():
        claim = claims()[name]
        assert rule in claim.breaks | claim.advice, f"{name} does not break {rule}"
