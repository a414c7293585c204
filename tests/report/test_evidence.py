"""What stands behind a verdict in numbers: only what passed, and what is shared but once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loom_conformance.cli import main
from loom_conformance.contract.rules import rules
from loom_conformance.report.certificate_file import certificate
from loom_conformance.report.evidence import evidence, evidence_text
from loom_conformance.report.outcomes import Outcome, RuleResult, TestResult, judge

NOTHING = {"schedules": 0, "histories": 0, "calls": 0, "faults": 0}


def tried(rule: str, *shown: dict[str, Any], outcome: Outcome = Outcome.PASSED) -> TestResult:
    return TestResult(rule, f"test_{len(shown)}", "", outcome, shown=shown)


def of(rule: str, *tests: TestResult) -> RuleResult:
    return judge(rules()[rule], tests, [])


def test_what_tests_did_alone_adds_up() -> None:
    found = evidence(
        [
            of("SEQ-4", tried("SEQ-4", {"of": "", "schedules": 8})),
            of(
                "FAULT-4",
                tried(
                    "FAULT-4", {"of": "", "histories": 1, "calls": 30}, {"of": "", "schedules": 2}
                ),
            ),
        ]
    )
    assert found == {**NOTHING, "schedules": 10, "histories": 1, "calls": 30}


def test_what_tests_share_counts_once() -> None:
    load = {"of": "the load", "histories": 1, "calls": 486, "faults": 8}
    found = evidence([of("SEQ-4", tried("SEQ-4", load)), of("ID-3", tried("ID-3", load))])
    assert found == {**NOTHING, "histories": 1, "calls": 486, "faults": 8}


@pytest.mark.parametrize("outcome", [one for one in Outcome if one is not Outcome.PASSED])
def test_what_did_not_pass_stands_behind_nothing(outcome: Outcome) -> None:
    good = tried("SEQ-4", {"of": "", "schedules": 8})
    bad = tried("SEQ-4", {"of": "", "schedules": 8}, {"of": ""}, outcome=outcome)
    assert evidence([of("SEQ-4", bad)]) == NOTHING
    if outcome not in (Outcome.DECLINED, Outcome.NOT_OFFERED):
        # The rule did not pass, so neither does what stands behind its other tests.
        assert evidence([of("SEQ-4", good, bad)]) == NOTHING


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ({}, ""),
        ({"schedules": 1}, "1 schedule"),
        ({"histories": 2, "calls": 1932}, "2 histories of 1,932 calls"),
        (
            {"schedules": 412, "histories": 1, "calls": 1, "faults": 31},
            "412 schedules, 1 history of 1 call and 31 faults",
        ),
    ],
)
def test_it_is_told_in_words(numbers: dict[str, int], text: str) -> None:
    assert evidence_text({**NOTHING, **numbers}) == text


def test_a_run_says_what_stands_behind_it(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["check", "memory", "--rule", "BATCH-9", "--rule", "DUR-1", "--seed", "1"]
    assert main([*words, "--depth", "quick", "--report", "r.json", "--report", "r.md"]) == 0
    report = json.loads((tmp_path / "r.json").read_text("utf-8"))
    numbers = report["certificate"]["evidence"]
    assert numbers["schedules"] >= 2
    assert numbers["faults"] == 0
    profiles = {one["profile"]: one["evidence"] for one in report["profiles"]}
    assert profiles["batch"] == numbers
    assert profiles["durability"] == NOTHING
    assert certificate(report)["profiles"]["batch"]["evidence"] == numbers
    told = evidence_text(numbers)
    assert told in capsys.readouterr().out
    assert told in (tmp_path / "r.md").read_text("utf-8")
