"""Every command's output and exit code, as a user meets them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
from cli_support import loom, write_backends

from loom_conformance.cli import COMMANDS
from loom_conformance.contract.rules import rules
from loom_conformance.report.document import schema


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_backends(tmp_path)
    return tmp_path


def test_a_right_backend_conforms_in_what_was_asked(folder: Path) -> None:
    result = loom(
        folder,
        *("check", "memory", "--profile", "range", "--seed", "7", "--depth", "quick"),
        *("--report", "report.json"),
    )
    assert result.returncode == 0, result.stderr
    report = json.loads((folder / "report.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema()).validate(report)
    assert report["backend"]["spec"] == "loom_backends.memory:MemoryBackend"
    assert (report["seed"], report["depth"]) == (7, "quick")
    assert report["selection"] == {"profiles": ["range"], "rules": [], "paths": []}
    assert report["certificate"]["verdict"] == "undecided"
    assert "checking memory: seed 7, quick depth" in result.stderr
    assert "This is no certificate: only profiles range ran." in " ".join(result.stdout.split())
    assert "report       report.json" in result.stdout
    assert sorted(path.name for path in folder.iterdir()) == ["harmful.py", "report.json"]


def test_a_wrong_backend_does_not_and_says_how_to_see_it_again(folder: Path) -> None:
    result = loom(folder, "check", "harmful:WrongRange", "--profile", "range", "--seed", "7")
    assert result.returncode == 1
    assert "FAIL RANGE-1" in result.stderr
    assert "FAIL RANGE-1 [wrong range]" in result.stdout
    replay = next(
        line.partition("Replay: loom-conformance ")[2]
        for line in result.stdout.splitlines()
        if "Replay: " in line
    )
    again = loom(folder, *replay.split())
    assert again.returncode == 1
    assert "FAIL RANGE-1 [wrong range]" in again.stdout


def test_it_fits_80_columns(folder: Path) -> None:
    result = loom(folder, "check", "harmful:WrongRange", "--profile", "range")
    wide = [line for line in result.stdout.splitlines() if len(line) > 80 and "Replay:" not in line]
    assert wide == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("check",), "the following arguments are required: backend"),
        (("check", "nowhere:Mine"), "there is no module 'nowhere'"),
        (("check", "harmful.sub:Mine"), "there is no module 'harmful.sub'"),
        (("check", "harmful:Hang"), "'harmful' has no 'Hang'"),
        (("check", "harmful:not_a_backend"), "is no Backend class"),
        (("check", "harmful:DeclinesCore"), 'declined names "core", which cannot be declined'),
        (("check", "sqlit"), "did you mean 'sqlite'?"),
        (("check", "memory", "--rule", "FENCE-88"), "did you mean FENCE-8"),
        (("check", "memory", "--profile", "cor"), "there is no profile 'cor'; did you mean core?"),
        (("check", "harmful.py:WrongRange"), "Give it as harmful:WrongRange"),
        (("check", "sub/harmful.py:Any"), "Give it as harmful:Any, and start from 'sub'"),
        (("check", "harmful:Misspelt"), "envelope_id is nothing that the kit knows"),
        (("check", "harmful:Misspelt"), "did you mean envelope_ids?"),
        (("check", "memory", "--path", "batch"), "there is no write path 'batch'"),
        (("check", "memory", "--seed", "x"), "'x' is no whole number from 0"),
        (("check", "memory", "--jobs", "0"), "'0' is no number of processes from 1 to 3"),
        (("check", "memory", "--deadline", "-1"), "'-1' is no number of seconds above 0"),
        (("check", "memory", "--report", "report.exe"), "must end in .json"),
        (("check", "memory", "--report", "no/report.json"), "there is no folder 'no'"),
        (("check", "memory", "--", "--no-such-option"), "--no-such-option"),
        (("rules", "FENCE-88"), "there is no rule 'FENCE-88'"),
        (("rules", "--", "-x"), "only check passes arguments on after --"),
        (("frobnicate",), "invalid choice: 'frobnicate'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_command_line_is_told_in_a_line(
    folder: Path, arguments: tuple[str, ...], said: str
) -> None:
    result = loom(folder, *arguments)
    assert result.returncode == 2, result.stderr
    assert said in result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    assert len(result.stderr.splitlines()) <= 8


def test_a_module_that_cannot_be_imported_says_where(folder: Path) -> None:
    (folder / "broken.py").write_text("import harmful\n\n1 / 0\n", "utf-8")
    result = loom(folder, "check", "broken:Mine")
    assert result.returncode == 2
    assert "cannot import 'broken'" in result.stderr
    assert "ZeroDivisionError: division by zero" in result.stderr
    assert "broken.py, line 3" in result.stderr


def test_a_module_that_ends_the_process_could_not_be_run(folder: Path) -> None:
    (folder / "ends.py").write_text("import os\nprint('bye', flush=True)\nos._exit(0)\n", "utf-8")
    result = loom(folder, "check", "ends:Mine")
    assert result.returncode == 3
    assert "bye" in result.stderr


def test_arguments_after_dashes_go_to_pytest(folder: Path) -> None:
    result = loom(folder, "check", "memory", "--profile", "range", "--", "-k", "nothing_like_it")
    assert result.returncode == 3
    assert "no certificate" in result.stderr
    result = loom(
        folder,
        *("check", "harmful:WrongRange", "--profile", "range", "--report", "report.json"),
        *("--", "-x"),
    )
    assert result.returncode == 1
    report = json.loads((folder / "report.json").read_text("utf-8"))
    tests = [test for rule in report["rules"] for test in rule["tests"] if test["duration_s"]]
    assert {test["outcome"] for test in tests} <= {"failed", "passed"}
    assert [test["outcome"] for test in tests].count("failed") == 1


def test_it_runs_under_xdist(folder: Path) -> None:
    result = loom(folder, "check", "memory", "--profile", "range", "--", "-n", "1")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "range        2 passed" in result.stdout


def test_the_users_own_pytest_settings_are_left_out(folder: Path) -> None:
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n", "utf-8")
    (folder / "conftest.py").write_text("raise RuntimeError('not to be loaded')\n", "utf-8")
    result = loom(
        folder,
        *("check", "memory", "--profile", "range"),
        environment={"PYTEST_ADDOPTS": "--no-such-option"},
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_it_says_how_much_it_will_run_and_how_long_it_took(folder: Path) -> None:
    result = loom(folder, "check", "memory", "--profile", "RANGE", "--rule", "range-1")
    assert result.returncode == 0, result.stderr
    assert re.search(r"^\d+ tests of 1 rule$", result.stderr, re.MULTILINE)
    assert re.search(
        r"^range        1 passed, 1 not run \(\d+\.\d s\)$", result.stdout, re.MULTILINE
    )


def test_profiles_of_which_nothing_ran_share_a_line(folder: Path) -> None:
    result = loom(folder, "check", "memory", "--profile", "range")
    lines = [line for line in result.stdout.splitlines() if line.startswith("not run")]
    assert len(lines) == 1
    assert lines[0].startswith("not run      core, batch, fencing, ")


@pytest.mark.parametrize("option", [("--profile", "leases"), ("--rule", "LEASE-1")])
def test_what_is_declined_is_no_success(folder: Path, option: tuple[str, str]) -> None:
    result = loom(folder, "check", "harmful:NoLeases", *option)
    assert result.returncode == 3, result.stdout + result.stderr
    said = " ".join(result.stdout.split())
    assert "no leases: nothing was judged (LEASE-1" in said
    assert "declined: one node only), so there is no certificate." in said


def test_a_known_failure_is_seen_and_so_is_one_that_is_none(folder: Path) -> None:
    result = loom(folder, "check", "harmful:Listed", "--profile", "range")
    assert result.returncode == 0
    assert "KNOWN FAILING RANGE-1 issue 12" in result.stderr
    assert "KNOWN FAILING RANGE-1 [listed]" in result.stdout
    (folder / "good.py").write_text(
        "from loom_backends.memory import MemoryBackend\n"
        "class Good(MemoryBackend):\n    known_failing = {'RANGE-1': 'issue 12'}\n",
        "utf-8",
    )
    result = loom(folder, "check", "good:Good", "--profile", "range")
    assert result.returncode == 1
    assert "FAIL RANGE-1 [memory]\n  listed in known_failing (issue 12)" in result.stdout
    assert "all of its tests pass: take it off the list" in " ".join(result.stdout.split())
    assert "likely fault" not in result.stdout


def test_failures_come_before_what_could_not_be_judged(folder: Path) -> None:
    result = loom(
        folder,
        *("check", "harmful:Hangs", "--rule", "SEQ-1", "--rule", "LIVE-1", "--depth", "quick"),
        *("--deadline", "0.4", "--path", "append"),
    )
    assert result.returncode == 1
    heads = re.findall(r"^(FAIL|INCONCLUSIVE) (\S+) \[", result.stdout, re.MULTILINE)
    assert heads == [("FAIL", "LIVE-1"), ("INCONCLUSIVE", "SEQ-1")]


def test_a_terminated_check_tells_what_it_saw_and_certifies_nothing(folder: Path) -> None:
    (folder / "slow.py").write_text(
        "import asyncio, pathlib\n"
        "from harmful import Store, WrongRange, Wrong, MemoryBackend\n"
        "async def wait():\n"
        "    pathlib.Path('waits').touch()\n"
        "    await asyncio.Event().wait()\n"
        "class Late(Wrong):\n"
        "    async def acquire_fence(self, execution_id):\n"
        "        await wait()\n"
        "class Slow(MemoryBackend):\n"
        "    name = 'slow'\n"
        "    async def connect(self, address):\n"
        "        return Late(await super().connect(address), lambda: None)\n",
        "utf-8",
    )
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "loom_conformance", "check", "slow:Slow", "--deadline", "60"),
            *("--rule", "RANGE-1", "--rule", "FENCE-2", "--report", "report.json"),
            *("--report", "certificate.json", "--report", "badge.svg"),
        ],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    ends = time.monotonic() + 60
    while not (folder / "waits").exists() and time.monotonic() < ends:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 143, stdout + stderr
    assert "terminated: what did not run is not proven" in stderr
    assert "FAIL RANGE-1 [slow]" in stdout
    said = " ".join(stdout.split())
    assert "slow: the run was terminated before its end, so there is no certificate." in said
    assert "RANGE-1 failed" in said
    report = json.loads((folder / "report.json").read_text("utf-8"))
    assert report["certificate"]["verdict"] == "does not conform"
    assert not (folder / "certificate.json").exists()
    assert not (folder / "badge.svg").exists()


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupted_check_ends_its_children(folder: Path, jobs: int) -> None:
    (folder / "slow.py").write_text(
        "import os, pathlib, time\n"
        "from loom_backends.memory import MemoryBackend\n"
        "class Slow(MemoryBackend):\n"
        "    async def create(self):\n"
        "        pathlib.Path(f'{os.getpid()}.pid').touch()\n"
        "        time.sleep(600)\n",
        "utf-8",
    )
    words = ["check", "slow:Slow", "--deadline", "60", "--jobs", str(jobs)]
    process = subprocess.Popen(
        [sys.executable, "-m", "loom_conformance", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    ends = time.monotonic() + 60
    while len(list(folder.glob("*.pid"))) < jobs and time.monotonic() < ends:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stdout + stderr
    assert "interrupted" in stderr
    children = [int(path.stem) for path in folder.glob("*.pid")]
    assert len(children) == jobs
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


def test_rules_lists_every_rule(folder: Path) -> None:
    result = loom(folder, "rules")
    assert result.returncode == 0
    for rule in rules():
        assert f"  {rule} " in result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines())


def test_rules_of_one_profile(folder: Path) -> None:
    result = loom(folder, "rules", "--profile", "range")
    assert "2 rules" in result.stdout
    assert "FENCE-1" not in result.stdout


def test_a_rule_is_explained(folder: Path) -> None:
    result = loom(folder, "rules", "fence-8")
    assert result.returncode == 0
    text = " ".join(result.stdout.split())
    for part in ("FENCE-8 (fencing, MUST)", rules()["FENCE-8"].promise, "why", "causes", "tests"):
        assert part in text


def test_backends_are_listed(folder: Path) -> None:
    result = loom(folder, "backends")
    assert result.returncode == 0
    for name in ("memory", "sqlite", "postgres"):
        assert any(line.startswith(name) for line in result.stdout.splitlines())


def test_postgres_says_which_source(folder: Path) -> None:
    dsn = "postgresql://somewhere/else"
    result = loom(folder, "postgres", environment={"LOOM_POSTGRES_DSN": dsn})
    assert result.returncode == 0
    assert "PostgreSQL comes from the server of LOOM_POSTGRES_DSN" in result.stdout


def test_help_names_every_command_and_exit_code(folder: Path) -> None:
    for arguments in (("--help",), ()):
        result = loom(folder, *arguments)
        assert result.returncode == (0 if arguments else 2)
        for command in COMMANDS:
            assert f"\n    {command.name} " in result.stdout
        assert "3  the work could not be done" in result.stdout
    for command in COMMANDS:
        result = loom(folder, command.name, "--help")
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith(f"usage: loom-conformance {command.name}")


def test_a_reader_that_goes_away_is_no_accident(folder: Path) -> None:
    result = subprocess.run(
        f"{sys.executable} -m loom_conformance rules | head -1",
        shell=True,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.stderr == ""


def test_text_that_the_terminal_cannot_encode_is_escaped(folder: Path) -> None:
    result = loom(
        folder,
        *("check", "harmful:WrongRange", "--rule", "RANGE-1"),
        environment={"PYTHONIOENCODING": "ascii"},
    )
    assert result.returncode == 1, result.stderr
    assert "\\u2192" in result.stdout
