"""What got worse and what got better."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from report_samples import broken, failing, report

from loom_conformance.report.difference import BEST_FIRST, changes
from loom_conformance.report.outcomes import Outcome


def with_outcome(rule_id: str, outcome: str, path: str = "") -> dict[str, Any]:
    made = report()
    for rule in made["rules"]:
        if rule["id"] == rule_id:
            if path:
                rule["paths"] = [{"path": path, "outcome": outcome}]
            else:
                rule["outcome"] = outcome
    return made


def test_nothing_changed_between_a_report_and_itself() -> None:
    assert changes(failing(), failing()) == []


def test_every_outcome_has_its_rank() -> None:
    assert set(BEST_FIRST) == set(Outcome)


JUDGED = [one.value for one in BEST_FIRST if one is not Outcome.NOT_RUN]


@pytest.mark.parametrize(("before", "after"), list(itertools.combinations(JUDGED, 2)))
def test_a_change_has_one_direction(before: str, after: str) -> None:
    old, new = with_outcome("SEQ-1", before), with_outcome("SEQ-1", after)
    (change,) = changes(old, new)
    assert (change.rule, change.before, change.after) == ("SEQ-1", before, after)
    assert (change.worse, change.better) == (True, False)
    (back,) = changes(new, old)
    assert (back.worse, back.better) == (False, True)


@pytest.mark.parametrize("before", JUDGED)
def test_to_leave_a_rule_out_is_worse_where_it_held_and_never_better(before: str) -> None:
    (change,) = changes(with_outcome("SEQ-1", before), with_outcome("SEQ-1", "not run"))
    assert change.worse == (before in ("passed", "advice"))
    assert not change.better


def test_a_path_that_changed_within_a_rule_is_told() -> None:
    old = with_outcome("SEQ-1", "failed", "append")
    new = with_outcome("SEQ-1", "passed", "append")
    (change,) = changes(old, new)
    assert (change.path, change.before, change.after) == ("append", "failed", "passed")
    assert change.better


def test_a_new_rule_that_fails_is_worse_and_one_that_passes_is_neither() -> None:
    old, new = report(), report(SEQ_1=broken("SEQ-1"))
    old["rules"] = [rule for rule in old["rules"] if rule["id"] not in ("SEQ-1", "SEQ-2")]
    found = {change.rule: change for change in changes(old, new)}
    assert found["SEQ-1"].worse
    assert not found["SEQ-2"].worse
    assert not found["SEQ-2"].better


def test_a_rule_that_is_gone_is_told() -> None:
    new = report()
    new["rules"] = new["rules"][1:]
    (change,) = changes(report(), new)
    assert (change.before, change.after) == ("passed", None)
    assert not change.worse
