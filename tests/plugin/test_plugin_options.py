"""What the run can be asked for, on the command line and in an ini file."""

from __future__ import annotations

import subprocess
import sys

import pytest
from plugin_projects import PASSING, report_of

pytest_plugins = ["pytester"]

QUIET = ("-p", "no:cacheprovider", "-p", "no:asyncio")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("rule", "FENCE-88", "there is no rule 'FENCE-88'; did you mean FENCE-8"),
        ("profile", "fence", "there is no profile 'fence'; did you mean fencing?"),
        ("path", "batchfirst", "there is no path 'batchfirst'; did you mean batch-first"),
        ("seed", "-3", "must be a whole number from 0, not '-3'"),
        ("depth", "deep", "must be quick, default or thorough, not 'deep'"),
        ("deadline", "0", "must be a number of seconds above 0, not '0'"),
        ("report", "report.txt", "'report.txt' must end in .json, .html, .md, .svg or certificate"),
        ("report", "nowhere/report.json", "there is no folder 'nowhere'"),
        ("backend", "nowhere:Mine", "there is no module 'nowhere'"),
        ("backend", "loom_backends.memory:Memory", "did you mean 'MemoryBackend'?"),
        ("backend", "sqlit", "did you mean 'sqlite'?"),
    ],
)
def test_a_wrong_value_is_a_usage_error(
    pytester: pytest.Pytester, option: str, value: str, said: str
) -> None:
    pytester.makepyfile(test_mine=PASSING)
    result = pytester.runpytest_inprocess(*QUIET, f"--loom-{option}={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"--loom-{option}" in result.stderr.str()
    assert said in result.stderr.str()
    assert "Traceback" not in result.stderr.str()


def test_rules_profiles_and_paths_choose_the_kits_tests_only(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=PASSING + "\n\ndef test_of_the_project():\n    pass\n")
    chosen = ("--loom-rule", "seq-1,RANGE-1", "--loom-path", "append")
    result = pytester.runpytest_inprocess(*QUIET, "-v", *chosen)
    result.assert_outcomes(passed=2, deselected=11)
    result.stdout.fnmatch_lines(
        ["*test_a_taken_slot_is_refused[[]append]*", "*test_of_the_project*"]
    )
    result = pytester.runpytest_inprocess(*QUIET, "--loom-profile", "range")
    result.assert_outcomes(passed=2, deselected=11)


def test_the_ini_file_says_the_same(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=PASSING)
    pytester.makeini(
        """
        [pytest]
        loom_profile = core
        loom_path = append
            batch-last
        loom_seed = 77
        loom_depth = quick
        loom_deadline = 2.5
        loom_report = report.json
        """
    )
    result = pytester.runpytest_inprocess(*QUIET)
    result.assert_outcomes(passed=2, deselected=10)
    result.stdout.fnmatch_lines(["loom-conformance: seed 77, quick depth"])
    report = report_of(pytester.path / "report.json")
    assert (report["seed"], report["depth"], report["deadline_s"]) == (77, "quick", 2.5)
    assert report["selection"]["paths"] == ["append", "batch-last"]
    result = pytester.runpytest_inprocess(*QUIET, "--loom-seed", "78", "--loom-path", "append")
    assert report_of(pytester.path / "report.json")["seed"] == 78


def test_the_replay_command_runs_that_test_again(pytester: pytest.Pytester) -> None:
    source = PASSING.replace(
        "(self, stage, path):\n        await stage.given_log(1)",
        "(self, stage, path):\n"
        "        stage.check(path.name != 'batch-last', 'a', str(stage.random.random()))",
    )
    folder = pytester.mkdir("with space")
    (folder / "test_mine.py").write_text(source, "utf-8")
    first = pytester.runpytest_inprocess(*QUIET)
    replay = next(line.partition("Replay: ")[2] for line in first.outlines if "Replay: " in line)
    assert replay.startswith("pytest 'with space/test_mine.py::TestMine' --loom-rule SEQ-1")
    again = subprocess.run(
        f"{sys.executable} -m {replay}", shell=True, capture_output=True, text=True, check=False
    )
    assert "1 failed, 11 deselected" in again.stdout

    def got(lines: list[str]) -> list[str]:
        return [line for line in lines if "Got " in line]

    assert got(again.stdout.splitlines()) == got(first.outlines) != []


def test_the_header_names_backend_and_seed(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(
        *QUIET,
        *("--pyargs", "loom_conformance.suites", "--loom-backend", "memory"),
        *("--loom-seed", "5", "--loom-rule", "RANGE-2"),
    )
    result.stdout.fnmatch_lines(
        ["loom-conformance: backend memory, seed 5, default depth", "*1 passed*"]
    )


def test_without_a_backend_the_suites_say_what_is_missing(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(*QUIET, "--pyargs", "loom_conformance.suites")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "name one with --loom-backend" in result.stdout.str()


def test_markers_are_registered(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=PASSING)
    result = pytester.runpytest_inprocess(*QUIET, "--strict-markers", "--strict-config")
    result.assert_outcomes(passed=12)
    result = pytester.runpytest_inprocess(*QUIET, "--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.loom_rule(id): *", "@pytest.mark.loom_profile*"])


def test_a_stream_tells_the_run_as_it_goes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=PASSING)
    pytester.runpytest_inprocess(*QUIET, "--loom-stream", "events.jsonl", "--loom-rule", "RANGE-1")
    text = (pytester.path / "events.jsonl").read_text("ascii")
    kinds = [line.partition('"event": "')[2].partition('"')[0] for line in text.splitlines()]
    assert kinds == ["subject", "start", "result", "done", "end"]


def test_a_run_is_resumed_without_what_was_done(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=PASSING)
    (pytester.path / "done.txt").write_text(
        "test_mine.py::TestMine::test_a_taken_slot_is_refused[append]\n", "utf-8"
    )
    result = pytester.runpytest_inprocess(*QUIET, "--loom-skip", "done.txt")
    result.assert_outcomes(passed=11, deselected=1)
