"""Whatever a store does to its process: a clear line, in bounded time, and the next rule runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_support import loom, write_backends

from loom_conformance.cli.supervise import Request, supervise
from loom_conformance.lab.settings import Settings
from loom_conformance.report.outcomes import Outcome
from loom_conformance.report.run import Choice, Run

RULES = ("SEQ-1", "SEQ-5", "LIVE-6", "LIVE-1")
"""The first writes a second envelope, which is where the harm is done; the next two do not."""

ARGUMENTS = (
    *("--depth", "quick", "--deadline", "0.4", "--seed", "1", "--report", "report.json"),
    *(word for rule in RULES for word in ("--rule", rule)),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_backends(tmp_path)
    return tmp_path


def rules_in(folder: Path) -> dict[str, Any]:
    report = json.loads((folder / "report.json").read_text("utf-8"))
    return {rule["id"]: rule for rule in report["rules"]}


@pytest.mark.parametrize("name", ["Prints", "ClosesStdout", "ClosesDescriptors", "LeavesThreads"])
def test_a_store_that_harms_no_one_is_judged_as_ever(folder: Path, name: str) -> None:
    result = loom(folder, "check", f"harmful:{name}", *ARGUMENTS)
    assert result.returncode == 0, result.stdout + result.stderr
    found = rules_in(folder)
    assert {found[rule]["outcome"] for rule in RULES} == {"passed"}
    assert "noise" not in result.stdout + result.stderr
    told = "the store left threads that keep a process alive: Thread-" in result.stderr
    assert told == (name == "LeavesThreads")


def test_what_a_backend_does_not_clean_up_is_said(folder: Path) -> None:
    result = loom(folder, "check", "harmful:Untidy", *ARGUMENTS)
    assert result.returncode == 0, result.stdout + result.stderr
    told = " ".join(result.stdout.split())
    assert "clean-up Untidy.destroy() raised OSError: the folder is busy; the storage is" in told
    assert "clean-up Untidy.stop() did not settle within" in told
    report = json.loads((folder / "report.json").read_text("utf-8"))
    assert [text.partition("(")[0] for text in report["unclean"]] == [
        "Untidy.destroy",
        "Untidy.stop",
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Hangs", "append('run-000001' at 1) did not settle within 0.4 s"),
        ("Blocks", "blocked the event loop"),
        ("StopsLoop", "the store stopped the event loop"),
        ("ClosesLoop", "the store stopped the event loop"),
    ],
)
def test_a_store_that_never_answers_breaks_live_1(folder: Path, name: str, said: str) -> None:
    result = loom(folder, "check", f"harmful:{name}", *ARGUMENTS)
    assert result.returncode == 1, result.stdout + result.stderr
    found = rules_in(folder)
    assert found["SEQ-1"]["outcome"] == "inconclusive"
    assert "see LIVE-1" in found["SEQ-1"]["reason"]
    assert found["LIVE-1"]["outcome"] == "failed"
    assert "LIVE-1" in result.stdout
    assert said.partition("(")[0] in " ".join(result.stdout.split())
    assert (found["SEQ-5"]["outcome"], found["LIVE-6"]["outcome"]) == ("passed", "passed")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Dies", "the store ended the process (exit status 0) during this test"),
        ("Killed", "the process was killed by SIGKILL during this test"),
        ("Interrupts", "the store interrupted the run (KeyboardInterrupt, pytest.exit)"),
    ],
)
def test_a_store_that_ends_the_process_is_an_error(folder: Path, name: str, said: str) -> None:
    result = loom(folder, "check", f"harmful:{name}", *ARGUMENTS)
    assert result.returncode == 1, result.stdout + result.stderr
    found = rules_in(folder)
    assert found["SEQ-1"]["outcome"] == "error"
    assert said in found["SEQ-1"]["reason"]
    assert f"ERROR SEQ-1 [{name}] on append" in result.stdout
    assert "Replay: loom-conformance check harmful:" in result.stdout
    assert (found["SEQ-5"]["outcome"], found["LIVE-6"]["outcome"]) == ("passed", "passed")


def test_two_processes_find_what_one_finds(folder: Path) -> None:
    found = []
    for jobs in ("1", "2", "3"):
        arguments = (*ARGUMENTS, "--rule", "BATCH-1", "--rule", "RACE-1", "--jobs", jobs)
        result = loom(folder, "check", "harmful:Dies", *arguments)
        assert result.returncode == 1, result.stdout + result.stderr
        found.append({name: rule["outcome"] for name, rule in rules_in(folder).items()})
    assert found[0] == found[1] == found[2]
    assert {found[0]["SEQ-1"], found[0]["RACE-1"]} == {"error"}
    assert (found[0]["SEQ-5"], found[0]["LIVE-6"]) == ("passed", "passed")


def test_a_store_that_calls_exit_is_told_so(folder: Path) -> None:
    result = loom(folder, "check", "harmful:Exits", *ARGUMENTS)
    assert result.returncode == 1
    found = rules_in(folder)
    assert found["SEQ-1"]["outcome"] in ("failed", "inconclusive")
    assert "SystemExit: 0" in found["SEQ-1"]["reason"]
    assert (found["SEQ-5"]["outcome"], found["LIVE-6"]["outcome"]) == ("passed", "passed")


def test_a_store_that_never_gives_way_is_killed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    settings = Settings(deadline=0.2, seed=1, depth="quick")
    choice = Choice(rules=RULES)
    run = Run(settings, choice)
    request = Request("harmful:NeverGivesWay", settings, choice, patience=10.0)
    heard: list[str] = []
    ending = supervise(request, run, lambda event: heard.append(event["event"]))
    assert ending.problem == ""
    (key,) = run.subjects
    found = {result.rule.id: result for result in run.rule_results(key)}
    assert found["SEQ-1"].outcome is Outcome.INCONCLUSIVE
    assert found["LIVE-1"].outcome is Outcome.FAILED
    assert "no call of the store began or ended any more" in found["LIVE-1"].reason
    assert found["SEQ-5"].outcome is found["LIVE-6"].outcome is Outcome.PASSED
    assert heard.count("end") == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("CreateRaises", "CreateRaises.create raised OSError: disk full"),
        ("CreateHangs", "CreateHangs.create() did not settle within 1.2 s"),
        ("CreateReturnsANumber", "CreateReturnsANumber.create returned 7; it must return the"),
        ("CreateDies", "the store ended the process (exit status 7) during this test"),
        ("ConnectReturnsNoStore", "which has no append, read_from, close; it must return an"),
        ("StartRaises", "StartRaises.start raised RuntimeError: no server"),
    ],
)
def test_a_backend_that_does_not_open_could_not_be_run(folder: Path, name: str, said: str) -> None:
    arguments = ("--deadline", "0.2", "--rule", "RANGE-1", "--rule", "RANGE-2")
    result = loom(folder, "check", f"harmful:{name}", *arguments)
    assert result.returncode == 3, result.stdout + result.stderr
    text = " ".join(result.stdout.split())
    assert said in text
    assert "nothing was judged, so there is no certificate" in text
    assert "Traceback" not in result.stdout + result.stderr
