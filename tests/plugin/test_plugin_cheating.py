"""No way of leaving tests out, replacing them or ending early makes a better certificate."""

from __future__ import annotations

from typing import Any

import pytest
from plugin_projects import PASSING, WRONG_BUT_PASSING, outcomes_of, report_of, rule_of

pytest_plugins = ["pytester"]

BROKEN = "test_mine.py::TestMine::test_both_ends_are_inclusive"


def report_on(
    pytester: pytest.Pytester, source: str, *arguments: str, conftest: str = "", code: int = 0
) -> dict[str, Any]:
    pytester.makepyfile(test_mine=source)
    if conftest:
        pytester.makeconftest(conftest)
    result = pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", "-p", "no:asyncio", "--loom-report", "report.json", *arguments
    )
    assert result.ret == code
    return report_of(pytester.path / "report.json")


def test_the_rule_fails_where_nobody_cheats(pytester: pytest.Pytester) -> None:
    report = report_on(pytester, WRONG_BUT_PASSING, code=1)
    assert outcomes_of(report)["RANGE-1"] == "failed"
    assert report["certificate"]["verdict"] == "does not conform"


def test_an_honest_part_of_the_rules_is_no_certificate_either(pytester: pytest.Pytester) -> None:
    report = report_on(pytester, PASSING)
    assert outcomes_of(report)["RANGE-1"] == "passed"
    assert report["certificate"]["verdict"] == "undecided"
    assert "core" in report["certificate"]["not_proven"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("-k", "not inclusive"),
        ("-m", "not loom_profile"),
        ("--deselect", BROKEN),
        ("--loom-rule", "APPEND-1"),
        ("--loom-path", "append"),
        ("test_mine.py::TestMine::test_a_taken_slot_is_refused",),
    ],
    ids=lambda arguments: arguments[0].rpartition(":")[2],
)
def test_what_is_deselected_is_not_run(
    pytester: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    source = WRONG_BUT_PASSING.replace(
        '    @rule("RANGE-1")', '    @pytest.mark.loom_profile("x")\n    @rule("RANGE-1")'
    ).replace("\nfrom loom_backends", "\nimport pytest\nfrom loom_backends", 1)
    if arguments[0] == "-m":
        arguments = ("-m", "not slow")
        source = source.replace('mark.loom_profile("x")', "mark.slow")
    report = report_on(
        pytester, source, *arguments, "-W", "ignore::pytest.PytestUnknownMarkWarning"
    )
    assert outcomes_of(report)["RANGE-1"] == "not run"
    assert report["certificate"]["verdict"] == "undecided"
    assert "range" in report["certificate"]["not_proven"]


def test_a_rule_of_which_one_path_is_left_out_is_not_run(pytester: pytest.Pytester) -> None:
    report = report_on(pytester, PASSING, "-k", "not batch-first")
    entry = rule_of(report, "SEQ-1")
    assert entry["outcome"] == "not run"
    assert entry["reason"] == "2 of its 10 tests did not run; what ran passed"
    paths = {one["path"]: one["outcome"] for one in entry["paths"]}
    assert paths["batch-first"] == "not run"
    assert paths["batch-last"] == "passed"


@pytest.mark.parametrize(
    "lines",
    [
        "    test_both_ends_are_inclusive = None",
        "    def test_both_ends_are_inclusive(self):\n        pass",
        "    @pytest.mark.loom_rule('RANGE-1')\n"
        "    def test_both_ends_are_inclusive(self):\n        pass",
        "    @rule('RANGE-1')\n"
        "    async def test_both_ends_are_inclusive(self, stage):\n        pass",
        "    @functools.wraps(Kit.test_both_ends_are_inclusive)\n"
        "    def test_both_ends_are_inclusive(self, request):\n"
        "        try:\n            super().test_both_ends_are_inclusive(request)\n"
        "        except AssertionError:\n            pass",
    ],
    ids=["deleted", "replaced", "marked", "a-rule-test", "wrapped"],
)
def test_what_is_overridden_is_said_to_be(pytester: pytest.Pytester, lines: str) -> None:
    head, _, _ = WRONG_BUT_PASSING.rpartition("    pass")
    report = report_on(pytester, f"import functools\nimport pytest\n{head}{lines}\n")
    entry = rule_of(report, "RANGE-1")
    assert entry["outcome"] == "overridden"
    assert entry["reason"] == (
        "test_mine.py::TestMine replaces the kit's test_both_ends_are_inclusive"
    )
    assert report["certificate"]["verdict"] == "undecided"
    assert "overridden" in report["certificate"]["not_proven"]["range"]


def test_a_test_replaced_on_the_class_is_overridden(pytester: pytest.Pytester) -> None:
    source = WRONG_BUT_PASSING + ("\n\nTestMine.test_both_ends_are_inclusive = lambda self: None\n")
    assert outcomes_of(report_on(pytester, source))["RANGE-1"] == "overridden"


@pytest.mark.parametrize(
    "mark",
    ["skip", "skipif(True, reason='not today')", "xfail", "xfail(run=False)"],
    ids=["skip", "skipif", "xfail", "xfail-norun"],
)
def test_marks_do_not_help(pytester: pytest.Pytester, mark: str) -> None:
    head, _, tail = WRONG_BUT_PASSING.rpartition("class TestMine")
    source = f"import pytest\n{head}@pytest.mark.{mark}\nclass TestMine{tail}"
    code = 1 if mark == "xfail" else 0
    report = report_on(pytester, source, code=code)
    wanted = "failed" if mark == "xfail" else "not run"
    assert outcomes_of(report)["RANGE-1"] == wanted
    assert outcomes_of(report)["APPEND-1"] == ("passed" if mark == "xfail" else "not run")


def test_a_store_that_skips_does_not_pass(pytester: pytest.Pytester) -> None:
    source = WRONG_BUT_PASSING.replace("stage.broken('two', 'one')", "pytest.skip('no')")
    report = report_on(pytester, f"import pytest\n{source}")
    assert rule_of(report, "RANGE-1")["reason"] == "skipped: no"
    assert outcomes_of(report)["RANGE-1"] == "not run"


def test_items_that_a_conftest_drops_are_missed(pytester: pytest.Pytester) -> None:
    conftest = (
        "def pytest_collection_modifyitems(items):\n"
        "    items[:] = [item for item in items if 'inclusive' not in item.name]\n"
    )
    report = report_on(pytester, WRONG_BUT_PASSING, conftest=conftest)
    assert outcomes_of(report)["RANGE-1"] == "not run"


def test_a_fixture_that_skips_is_not_a_pass(pytester: pytest.Pytester) -> None:
    conftest = (
        "import pytest\n@pytest.fixture(autouse=True)\ndef never():\n    pytest.skip('not today')\n"
    )
    report = report_on(pytester, WRONG_BUT_PASSING, conftest=conftest)
    assert outcomes_of(report)["RANGE-1"] == "not run"
    assert report["certificate"]["verdict"] == "nothing run"


def test_what_comes_after_the_first_failure_is_not_run(pytester: pytest.Pytester) -> None:
    source = WRONG_BUT_PASSING.replace("await stage.given_log(1)", "stage.broken('a', 'b')", 1)
    report = report_on(pytester, source, "-x", code=1)
    assert outcomes_of(report)["APPEND-1"] == "failed"
    assert outcomes_of(report)["RANGE-1"] == "not run"


def test_a_run_that_is_interrupted_is_no_certificate(pytester: pytest.Pytester) -> None:
    source = PASSING.replace("await stage.given_log(1)", "raise KeyboardInterrupt", 1)
    pytester.makepyfile(test_mine=source)
    arguments = ("-p", "no:cacheprovider", "-p", "no:asyncio", "--loom-report", "report.json")
    assert pytester.runpytest_subprocess(*arguments).ret == pytest.ExitCode.INTERRUPTED
    report = report_of(pytester.path / "report.json")
    assert report["certificate"]["verdict"] == "nothing run"
    assert "there is no certificate" in report["certificate"]["line"]


def test_a_second_try_does_not_hide_the_first(pytester: pytest.Pytester) -> None:
    conftest = (
        "from _pytest.runner import runtestprotocol\n"
        "def pytest_runtest_protocol(item, nextitem):\n"
        "    for _ in range(2):\n"
        "        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)\n"
        "        runtestprotocol(item, nextitem=nextitem)\n"
        "    return True\n"
    )
    source = WRONG_BUT_PASSING.replace(
        "stage.broken('two', 'one')",
        "global tries\n        tries += 1\n        stage.check(tries > 1, 'two', 'one')",
    )
    report = report_on(pytester, f"tries = 0\n{source}", conftest=conftest, code=1)
    assert outcomes_of(report)["RANGE-1"] == "failed"


def test_collecting_only_writes_no_report(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=PASSING)
    result = pytester.runpytest_inprocess(
        "-p", "no:asyncio", "--collect-only", "--loom-report", "report.json"
    )
    assert not (pytester.path / "report.json").exists()
    assert "certificate" not in result.stdout.str()


def test_known_failures_never_read_like_conformance(pytester: pytest.Pytester) -> None:
    source = WRONG_BUT_PASSING.replace(
        'name = "mine"', 'name = "mine"\n    known_failing = {"RANGE-1": "issue 3"}'
    )
    report = report_on(pytester, source)
    assert report["certificate"]["verdict"] == "does not conform"
    assert "RANGE-1 known to fail" in report["certificate"]["line"]
