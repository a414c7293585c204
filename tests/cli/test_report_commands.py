"""init, report, diff and verify, and the summary of a CI system."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_support import loom, write_backends

from loom_conformance.report.certificate_file import seal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_backends(tmp_path)
    return tmp_path


PART = ("--profile", "range", "--seed", "7", "--depth", "quick")


def reports(folder: Path) -> None:
    """A right and a wrong backend's reports, and the right one's certificate."""
    right = ("--report", "right.json", "--report", "certificate.json")
    assert loom(folder, "check", "memory", *PART, *right).returncode == 0
    wrong = loom(folder, "check", "harmful:WrongRange", *PART, "--report", "wrong.json")
    assert wrong.returncode == 1


def test_init_writes_a_backend_that_runs_and_its_test_file(tmp_path: Path) -> None:
    result = loom(tmp_path, "init", "orders")
    assert result.returncode == 0, result.stderr
    assert "loom-conformance check orders:MyBackend" in result.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["orders.py", "test_orders.py"]
    core = ("--rule", "SEQ-1", "--rule", "ID-1", "--rule", "READ-1", "--rule", "LIVE-2")
    result = loom(tmp_path, "check", "orders:MyBackend", *core, "--depth", "quick")
    assert result.returncode == 0, result.stdout
    words = ("-q", "-p", "no:cacheprovider", "--loom-rule", "SEQ-1", "test_orders.py")
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:asyncio", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_mystore.py").write_text("mine", "utf-8")
    result = loom(tmp_path, "init")
    assert result.returncode == 2
    assert "test_mystore.py is there already, and is left as it is" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["test_mystore.py"]


@pytest.mark.parametrize("name", ["My Store", "class", "a/b", "1st", ""])
def test_init_wants_a_name_that_can_be_imported(tmp_path: Path, name: str) -> None:
    result = loom(tmp_path, "init", name)
    assert result.returncode == 2
    assert "is no name for a module" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["json", "loom_conformance"])
def test_init_hides_no_module_that_is_there(tmp_path: Path, name: str) -> None:
    result = loom(tmp_path, "init", name)
    assert result.returncode == 2
    assert f"there is a module '{name}' already" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_certificate_is_no_report(folder: Path) -> None:
    reports(folder)
    for words in (("report", "certificate.json"), ("diff", "right.json", "certificate.json")):
        result = loom(folder, *words)
        assert result.returncode == 2, result.stdout
        assert "Give the report.json of that run" in " ".join(result.stderr.split())


def test_to_leave_a_failing_rule_out_betters_nothing(folder: Path) -> None:
    reports(folder)
    words = ("check", "harmful:WrongRange", "--rule", "SEQ-1", "--depth", "quick", "--seed", "7")
    assert loom(folder, *words, "--report", "part.json").returncode == 0
    result = loom(folder, "diff", "wrong.json", "part.json")
    assert "RANGE-1    failed → not run" in result.stdout
    assert "RANGE-1" not in result.stdout.partition("otherwise changed")[0]


def test_reports_side_by_side(folder: Path) -> None:
    reports(folder)
    result = loom(folder, "report", "right.json", "wrong.json", "-o", "both.html", "-o", "both.md")
    assert result.returncode == 0, result.stderr
    page = (folder / "both.html").read_text("utf-8")
    assert "wrong range" in page
    assert "failure-1-RANGE-1" in page
    assert "does not conform" in (folder / "both.md").read_text("utf-8")
    printed = loom(folder, "report", "right.json", "wrong.json")
    assert "RANGE-1" in printed.stdout
    assert printed.returncode == 0


def test_diff_says_what_got_worse(folder: Path) -> None:
    reports(folder)
    worse = loom(folder, "diff", "right.json", "wrong.json")
    assert worse.returncode == 1
    assert "two backends are compared" in worse.stdout
    assert "verdict: undecided → does not conform" in worse.stdout
    assert "  RANGE-1    passed → failed" in worse.stdout
    better = loom(folder, "diff", "wrong.json", "right.json")
    assert better.returncode == 0
    assert "  RANGE-1    failed → passed" in better.stdout
    same = loom(folder, "diff", "right.json", "right.json")
    assert (same.returncode, "no rule changed" in same.stdout) == (0, True)


def test_diff_says_that_the_rule_set_changed(folder: Path) -> None:
    reports(folder)
    report = json.loads((folder / "right.json").read_text("utf-8"))
    report["rule_set_digest"] = "0" * 16
    (folder / "old.json").write_text(json.dumps(report), "utf-8")
    result = loom(folder, "diff", "old.json", "right.json")
    assert f"the rule set changed: {'0' * 16} →" in result.stdout


def test_verify_runs_what_a_certificate_claims(folder: Path) -> None:
    reports(folder)
    result = loom(folder, "verify", "certificate.json")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "checking loom_backends.memory:MemoryBackend: seed 7, quick depth" in result.stderr
    assert "the certificate is borne out" in result.stdout
    other = loom(folder, "verify", "certificate.json", "--backend", "harmful:WrongRange")
    assert other.returncode == 1
    assert "  RANGE-1    claimed passed, found failed" in other.stdout
    assert "the certificate is NOT borne out" in other.stdout


def test_verify_refuses_what_it_cannot_judge(folder: Path) -> None:
    reports(folder)
    found = json.loads((folder / "certificate.json").read_text("utf-8"))
    forged = {**found, "verdict": "conforms"}
    (folder / "forged.json").write_text(json.dumps(forged), "utf-8")
    result = loom(folder, "verify", "forged.json")
    assert result.returncode == 2
    assert "was changed after it was made" in result.stderr
    sealed = {**forged, "seal": seal(forged)}
    (folder / "sealed.json").write_text(json.dumps(sealed), "utf-8")
    result = loom(folder, "verify", "sealed.json")
    assert result.returncode == 1
    assert "the certificate is NOT borne out" in result.stdout
    older = {**found, "rule_set_digest": "0" * 16}
    older["seal"] = seal(older)
    (folder / "older.json").write_text(json.dumps(older), "utf-8")
    result = loom(folder, "verify", "older.json")
    assert result.returncode == 3
    assert "install that version to verify it" in " ".join(result.stderr.split())


@pytest.mark.parametrize("command", ["report", "diff", "verify"])
def test_files_that_cannot_be_read_are_told_in_a_line(folder: Path, command: str) -> None:
    (folder / "other.json").write_text("{}", "utf-8")
    files = ("nowhere.json",) * (2 if command == "diff" else 1)
    result = loom(folder, command, *files)
    assert result.returncode == 2
    assert "cannot read nowhere.json: No such file or directory" in result.stderr
    files = ("other.json",) * (2 if command == "diff" else 1)
    result = loom(folder, command, *files)
    assert result.returncode == 2
    assert "other.json is no" in result.stderr


def test_the_summary_of_a_ci_system_is_written_once(folder: Path) -> None:
    summary = folder / "summary.md"
    result = loom(
        folder,
        *("check", "memory", *PART),
        environment={"GITHUB_STEP_SUMMARY": str(summary)},
    )
    assert result.returncode == 0
    assert summary.read_text("utf-8").count("## ") == 1


def test_a_summary_that_cannot_be_written_is_told(folder: Path) -> None:
    result = loom(
        folder,
        *("check", "memory", *PART),
        environment={"GITHUB_STEP_SUMMARY": str(folder / "no" / "summary.md")},
    )
    assert result.returncode == 3
    assert "a report could not be written" in result.stderr
