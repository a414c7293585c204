"""From tests to rules, and from rules to a certificate."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_conformance.contract.rules import PROFILES, Rule, rules
from loom_conformance.report.certificate import Verdict, certify
from loom_conformance.report.outcomes import (
    WORST_FIRST,
    Expected,
    Outcome,
    RuleResult,
    TestResult,
    judge,
    worst,
)

RULE = rules()["SEQ-1"]
DECLARATIONS: dict[str, Any] = {
    "max_batch": None,
    "one_process_at_a_time": False,
    "declined": {},
    "known_failing": {},
}


def result(outcome: Outcome, path: str = "", test: str = "test_it", reason: str = "") -> TestResult:
    return TestResult("SEQ-1", test, path, outcome, reason)


def entries(*paths: str) -> list[Expected]:
    return [Expected("SEQ-1", "test_it", path) for path in paths]


def test_a_rule_passes_when_all_of_its_tests_do() -> None:
    found = judge(
        RULE,
        [result(Outcome.PASSED, "append"), result(Outcome.PASSED, "batch-first")],
        entries("append", "batch-first"),
    )
    assert (found.outcome, found.reason) == (Outcome.PASSED, "")
    assert dict(found.paths) == {"append": Outcome.PASSED, "batch-first": Outcome.PASSED}


def test_a_rule_holds_on_the_paths_that_the_store_has() -> None:
    found = judge(
        RULE,
        [
            result(Outcome.PASSED, "append"),
            result(Outcome.NOT_OFFERED, "batch-first", reason="the store has no batch"),
        ],
        entries("append", "batch-first"),
    )
    assert found.outcome is Outcome.PASSED


def test_a_missing_test_leaves_the_rule_unproven() -> None:
    found = judge(RULE, [result(Outcome.PASSED, "append")], entries("append", "batch-first"))
    assert found.outcome is Outcome.NOT_RUN
    assert found.reason == "1 of its 2 tests did not run; what ran passed"
    assert found.paths["batch-first"] is Outcome.NOT_RUN


def test_a_rule_without_any_test_did_not_run() -> None:
    assert judge(RULE, [], []).outcome is Outcome.NOT_RUN


@given(st.lists(st.sampled_from(list(Outcome)), min_size=1, max_size=6))
def test_the_worst_outcome_stands_in_any_order(outcomes: list[Outcome]) -> None:
    results = [result(outcome, f"p{place}") for place, outcome in enumerate(outcomes)]
    found = judge(RULE, results, entries(*(one.path for one in results)))
    assert found.outcome is min(outcomes, key=WORST_FIRST.index)
    assert found.outcome is judge(RULE, results[::-1], entries()).outcome


@given(st.lists(st.sampled_from(list(Outcome)), max_size=6), st.sampled_from(list(Outcome)))
def test_more_results_never_make_a_rule_look_better(some: list[Outcome], more: Outcome) -> None:
    proven = {Outcome.PASSED, Outcome.DECLINED, Outcome.NOT_OFFERED}
    before, after = worst(some), worst([*some, more])
    if some and before not in proven:
        assert WORST_FIRST.index(after) <= WORST_FIRST.index(before)


@pytest.mark.parametrize("outcome", [Outcome.PASSED, Outcome.ADVICE])
def test_a_known_failure_that_passes_fails(outcome: Outcome) -> None:
    found = judge(RULE, [result(outcome)], [], known_failing="issue 12")
    assert found.outcome is Outcome.FAILED
    assert "take it off the list" in found.reason


@pytest.mark.parametrize(
    "outcome",
    [Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.NOT_RUN, Outcome.OVERRIDDEN, Outcome.DECLINED],
)
def test_being_known_to_fail_excuses_nothing_else(outcome: Outcome) -> None:
    assert judge(RULE, [result(outcome)], [], known_failing="issue 12").outcome is outcome


def test_a_test_that_reports_twice_keeps_the_worse_outcome() -> None:
    first, second = result(Outcome.FAILED, reason="broken"), result(Outcome.PASSED)
    first.absorb(second)
    assert (first.outcome, first.reason) == (Outcome.FAILED, "broken")
    second.absorb(result(Outcome.ERROR, reason="tear-down"))
    assert (second.outcome, second.reason) == (Outcome.ERROR, "tear-down")


# --- certificates -----------------------------------------------------------------------------


def results_with(**outcomes: Outcome) -> list[RuleResult]:
    """Every rule passed but for these; the keys are ids with an underscore."""
    found = []
    for rule in rules().values():
        outcome = outcomes.get(rule.id.replace("-", "_"), Outcome.PASSED)
        found.append(rule_result(rule, outcome))
    return found


def rule_result(rule: Rule, outcome: Outcome, reason: str = "why") -> RuleResult:
    tests = [TestResult(rule.id, "test_it", "", outcome, reason)]
    return RuleResult(rule, outcome, reason, {}, tests)


def test_a_store_that_keeps_everything_conforms() -> None:
    found = certify("mine", results_with(), DECLARATIONS)
    assert found.verdict is Verdict.CONFORMS
    assert found.proven == PROFILES
    assert found.unproven == {}
    assert found.line.startswith(f"mine conforms: {len(rules())} rules proven in core, batch")


def test_advice_does_not_stand_in_the_way_but_is_told() -> None:
    found = certify("mine", results_with(FENCE_13=Outcome.ADVICE), DECLARATIONS)
    assert found.verdict is Verdict.CONFORMS
    assert "Advice: FENCE-13." in found.line


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (Outcome.FAILED, Verdict.DOES_NOT_CONFORM),
        (Outcome.KNOWN_FAILING, Verdict.DOES_NOT_CONFORM),
        (Outcome.ERROR, Verdict.UNDECIDED),
        (Outcome.INCONCLUSIVE, Verdict.UNDECIDED),
        (Outcome.NOT_RUN, Verdict.UNDECIDED),
        (Outcome.OVERRIDDEN, Verdict.UNDECIDED),
    ],
)
@pytest.mark.parametrize("rule", ["SEQ_1", "FENCE_8", "DUR_2"])
def test_one_bad_rule_is_no_conformance(rule: str, outcome: Outcome, verdict: Verdict) -> None:
    found = certify("mine", results_with(**{rule: outcome}), DECLARATIONS)
    assert found.verdict is verdict
    profile = rules()[rule.replace("_", "-")].profile
    assert profile not in found.proven
    assert rule.replace("_", "-") in found.unproven[profile]
    assert rule.replace("_", "-") in found.line
    assert " conforms:" not in found.line


def test_a_declined_profile_is_told_with_its_reason() -> None:
    results = [
        rule_result(rule, Outcome.DECLINED, "single node only")
        if rule.profile == "fencing"
        else rule_result(rule, Outcome.PASSED)
        for rule in rules().values()
    ]
    found = certify("mine", results, DECLARATIONS)
    assert found.verdict is Verdict.CONFORMS
    assert found.unproven == {"fencing": "declined: single node only"}
    assert "fencing" not in found.line.partition("Not proven")[0]
    assert "Not proven: fencing (declined: single node only)." in found.line


def test_one_passing_should_is_no_proof_of_a_profile() -> None:
    results = [
        rule_result(rule, Outcome.NOT_OFFERED, "the store has no fencing")
        if rule.profile == "fencing" and rule.level == "MUST"
        else rule_result(rule, Outcome.PASSED)
        for rule in rules().values()
    ]
    found = certify("mine", results, DECLARATIONS)
    assert found.unproven == {"fencing": "not offered: the store has no fencing"}


def test_limits_are_told() -> None:
    found = certify(
        "mine",
        results_with(BATCH_4=Outcome.NOT_OFFERED),
        {**DECLARATIONS, "max_batch": 500, "one_process_at_a_time": True},
    )
    assert found.verdict is Verdict.CONFORMS
    assert found.limits == (
        "BATCH-4 not offered (why)",
        "at most 500 envelopes a batch",
        "one process at a time",
    )
    assert all(limit in found.line for limit in found.limits)


@pytest.mark.parametrize("outcome", [Outcome.NOT_RUN, Outcome.ERROR, Outcome.OVERRIDDEN])
def test_where_nothing_was_judged_there_is_no_certificate(outcome: Outcome) -> None:
    found = certify("mine", [rule_result(rule, outcome) for rule in rules().values()], DECLARATIONS)
    assert found.verdict is Verdict.NOTHING_RUN
    assert found.proven == ()
    assert found.line == "mine: nothing was judged, so there is no certificate."


def test_a_part_of_the_rules_is_never_a_certificate() -> None:
    for outcomes in ({}, {"SEQ_1": Outcome.FAILED}, {"SEQ_1": Outcome.KNOWN_FAILING}):
        found = certify("mine", results_with(**outcomes), DECLARATIONS, "rules SEQ-1")
        assert found.line.endswith("This is no certificate: only rules SEQ-1 ran.")
        assert "conforms" not in found.line


def test_no_worse_result_makes_a_better_verdict() -> None:
    order = [
        Verdict.CONFORMS,
        Verdict.UNDECIDED,
        Verdict.DOES_NOT_CONFORM,
    ]
    best = certify("mine", results_with(), DECLARATIONS)
    for rule, outcome in itertools.product(("SEQ_1", "FENCE_8", "SCOPE_2"), Outcome):
        found = certify("mine", results_with(**{rule: outcome}), DECLARATIONS)
        assert order.index(found.verdict) >= order.index(best.verdict)
        assert set(found.proven) <= set(best.proven)
