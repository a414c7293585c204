"""Each outcome in pytest's words, in the report and in the exit status."""

from __future__ import annotations

import pytest
from plugin_projects import OUTCOMES, PASSING, outcomes_of, report_of, rule_of

pytest_plugins = ["pytester"]


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(test_mine=OUTCOMES)
    return pytester


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return project.runpytest_inprocess(
        "-p", "no:cacheprovider", "-p", "no:asyncio", "--loom-report", "report.json", *arguments
    )


def test_every_outcome_has_its_own_words(project: pytest.Pytester) -> None:
    result = run(project, "-v")
    result.assert_outcomes(passed=10, failed=1, errors=1)
    for test, word in {
        "test_it_passes": "PASSED",
        "test_it_fails_on_one_path[[]batch-first]": "FAILED",
        "test_it_is_known_to_fail": "KNOWN FAILING",
        "test_it_is_advice": "ADVICE",
        "test_it_is_inconclusive": "INCONCLUSIVE",
        "test_it_is_not_offered": "NOT OFFERED",
        "test_it_is_declined": "DECLINED",
        "test_it_breaks": "ERROR",
    }.items():
        result.stdout.fnmatch_lines(f"*::{test} {word}*")
    line = result.outlines[-1]
    for part in ("1 inconclusive", "1 known failing", "1 advice", "1 not offered", "1 declined"):
        assert part in line


def test_the_report_has_every_outcome_and_follows_the_schema(project: pytest.Pytester) -> None:
    run(project)
    report = report_of(project.path / "report.json")
    found = outcomes_of(report)
    assert {
        key: found[key]
        for key in ("SEQ-1", "ID-1", "FENCE-13", "LIVE-3", "RANGE-1", "LEASE-1", "READ-3")
    } == {
        "SEQ-1": "failed",
        "ID-1": "known failing",
        "FENCE-13": "advice",
        "LIVE-3": "inconclusive",
        "RANGE-1": "not offered",
        "LEASE-1": "declined",
        "READ-3": "error",
    }
    assert found["APPEND-1"] == "passed"
    assert set(found.values()) - {"not run"} == {
        "passed",
        "failed",
        "known failing",
        "advice",
        "inconclusive",
        "not offered",
        "declined",
        "error",
    }
    assert report["certificate"]["verdict"] == "does not conform"
    assert report["certificate"]["proven"] == []
    paths = {one["path"]: one["outcome"] for one in rule_of(report, "SEQ-1")["paths"]}
    assert paths.pop("batch-first") == "failed"
    assert set(paths.values()) == {"passed"}
    assert rule_of(report, "LEASE-1")["reason"] == "one node only"


def test_a_failure_is_its_text_and_no_traceback(project: pytest.Pytester) -> None:
    result = run(project)
    text = result.stdout.str()
    assert "FAIL SEQ-1 [mine] on batch-first" in text
    assert "Expected  a refusal" in text
    assert "verdict.py" not in text
    assert "session.py" not in text
    assert "\x1b[31m\\ud800" not in text
    assert r"acknowledged: \x1b[31m\ud800" in text


def test_an_error_shows_the_frames_of_the_backend_only(project: pytest.Pytester) -> None:
    text = run(project).stdout.str().partition("ERRORS")[2]
    assert 'raise OSError("disk full")' in text
    assert "pluggy" not in text
    assert "_pytest" not in text


def test_what_pytest_does_not_show_stands_in_the_summary(project: pytest.Pytester) -> None:
    result = run(project)
    result.stdout.fnmatch_lines(
        [
            "INCONCLUSIVE LIVE-3 [[]mine]",
            "KNOWN FAILING ID-1 [[]mine]",
            "ADVICE FENCE-13 [[]mine]",
            "leases * declined*",
            "certificate  mine does not conform: SEQ-1 failed; ID-1 known to fail.*",
        ],
        consecutive=False,
    )


def test_the_summary_fits_80_columns(project: pytest.Pytester) -> None:
    lines = run(project, "--loom-seed", "1").outlines
    start = next(place for place, line in enumerate(lines) if "loom-conformance: mine" in line)
    end = next(place for place, line in enumerate(lines) if line.startswith("report "))
    wide = [line for line in lines[start:end] if len(line) > 80 and "Replay:" not in line]
    assert wide == []


def body(*lines: str, known: str = "{}") -> str:
    return PASSING.replace('name = "mine"', f'name = "mine"\n    known_failing = {known}').replace(
        '    @rule("RANGE-1")\n    async def test_both_ends_are_inclusive(self, stage):\n'
        "        await stage.given_log(1)",
        "\n".join(f"    {line}" for line in lines),
    )


@pytest.mark.parametrize(
    ("lines", "known", "status"),
    [
        (("pass",), "{}", 0),
        (
            ('@rule("FENCE-13")', "async def test_x(self, stage):", "    stage.broken('a', 'b')"),
            "{}",
            0,
        ),
        (
            ('@rule("ID-1")', "async def test_x(self, stage):", "    stage.broken('a', 'b')"),
            '{"ID-1": "issue 12"}',
            0,
        ),
        (
            ('@rule("ID-1")', "async def test_x(self, stage):", "    pass"),
            '{"ID-1": "issue 12"}',
            1,
        ),
        (
            ('@rule("ID-1")', "async def test_x(self, stage):", "    stage.broken('a', 'b')"),
            "{}",
            1,
        ),
        (
            ('@rule("ID-1")', "async def test_x(self, stage):", "    raise OSError"),
            '{"ID-1": "issue 12"}',
            1,
        ),
    ],
    ids=["all-pass", "advice", "known", "known-but-passes", "failed", "known-but-broken"],
)
def test_the_exit_status(
    pytester: pytest.Pytester, lines: tuple[str, ...], known: str, status: int
) -> None:
    pytester.makepyfile(test_mine=body(*lines, known=known))
    assert run(pytester).ret == status


def test_a_known_failure_that_passes_is_said_to_be_one(pytester: pytest.Pytester) -> None:
    lines = ('@rule("ID-1")', "async def test_x(self, stage):", "    pass")
    pytester.makepyfile(test_mine=body(*lines, known='{"ID-1": "issue 12"}'))
    run(pytester)
    entry = rule_of(report_of(pytester.path / "report.json"), "ID-1")
    assert entry["outcome"] == "failed"
    assert entry["reason"] == (
        "listed in known_failing (issue 12), but all of its tests pass: take it off the list"
    )


def test_a_rule_seen_broken_on_the_way_is_told_too(pytester: pytest.Pytester) -> None:
    lines = (
        '@rule("ID-1")',
        "async def test_x(self, stage):",
        "    from loom_conformance.lab.verdict import Failure, Inconclusive",
        "    raise Inconclusive('append hung', Failure('LIVE-1', 'an answer', 'none'))",
    )
    pytester.makepyfile(test_mine=body(*lines))
    assert run(pytester).ret == 1
    report = report_of(pytester.path / "report.json")
    assert outcomes_of(report)["ID-1"] == "inconclusive"
    assert outcomes_of(report)["LIVE-1"] == "failed"
    assert "Got       none" in rule_of(report, "LIVE-1")["failures"][0]["text"]


def test_junit_names_rule_and_outcome(project: pytest.Pytester) -> None:
    run(project, "--junitxml", "junit.xml")
    text = (project.path / "junit.xml").read_text("utf-8")
    assert '<property name="loom_rule" value="FENCE-13" />' in text
    assert '<property name="loom_outcome" value="advice" />' in text
    assert "loom_backends" not in text


def test_each_backend_of_a_session_has_a_report(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_mine=PASSING
        + '\n\nclass Other(Mine):\n    name = "the other"\n\n\n'
        + "class TestOther(Kit):\n    backend = Other\n"
    )
    result = run(pytester)
    result.stdout.fnmatch_lines(["*loom-conformance: mine*", "*loom-conformance: the other*"])
    assert report_of(pytester.path / "report-mine.json")["backend"]["name"] == "mine"
    assert report_of(pytester.path / "report-the-other.json")["backend"]["name"] == "the other"
