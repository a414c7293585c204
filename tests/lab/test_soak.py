"""A soak: rounds of load and faults, an exit code, a report, and the histories that matter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lossy import LossyMemory

from loom_backends.memory import MemoryBackend
from loom_backends.sqlite import SQLiteBackend
from loom_conformance.lab import soak
from loom_conformance.lab.checker.search import Answer, Budget
from loom_conformance.lab.checker.verdict import check
from loom_conformance.lab.history import read_history
from loom_conformance.lab.trial import Plan, TrialFailed

MOMENT = 0.01
"""Minutes: one round."""


def test_a_soak_of_a_sound_store_under_faults_is_legal_and_leaves_its_figures(
    tmp_path: Path,
) -> None:
    lines: list[str] = []
    report, keep = tmp_path / "soak.json", tmp_path / "kept"
    code = soak.run(
        SQLiteBackend,
        minutes=0.05,
        seed=5,
        processes=2,
        report=report,
        keep=keep,
        write=lines.append,
        live=False,
    )
    assert code == 0
    told = json.loads(report.read_text())
    figures = told["figures"]
    assert (told["verdict"], told["backend"], told["seed"]) == ("legal", "sqlite", 5)
    assert told["found"] == []
    assert sum(figures["faults"].values()) > 0
    assert figures["calls"] == figures["ok"] + figures["refused"] + figures["unknown"] > 0
    assert figures["checked"] == figures["calls"]
    assert not keep.exists()
    assert lines[0] == "soak of sqlite for 0.05 min, 2 processes, seed 5"
    assert lines[1].startswith("legal: sqlite, ")
    assert f"  checked   {figures['calls']:,} calls in {figures['parts']:,} parts" in lines


def test_a_lost_write_ends_a_soak_and_its_history_is_kept(tmp_path: Path) -> None:
    lines: list[str] = []
    report, keep = tmp_path / "soak.json", tmp_path / "kept"
    code = soak.run(
        LossyMemory,
        minutes=MOMENT,
        seed=1,
        processes=1,
        report=report,
        keep=keep,
        write=lines.append,
        live=False,
    )
    assert code == 1
    (found,) = json.loads(report.read_text())["found"]
    assert found["round"] == 1
    assert "APPEND-1" in {violation["rule"] for violation in found["violations"]}
    assert f"    judge it again: loom-conformance judge {found['history']}" in lines
    again = check(read_history(sorted(Path(found["history"]).glob("*.jsonl"))))
    assert again.answer is Answer.ILLEGAL


def test_a_check_that_gives_up_is_no_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "Budget", lambda seconds: Budget(steps=1))
    lines: list[str] = []
    code = soak.run(
        MemoryBackend,
        minutes=MOMENT,
        seed=1,
        processes=1,
        keep=tmp_path / "kept",
        write=lines.append,
        live=False,
    )
    assert code == 3
    assert any(line.startswith("unknown: memory, ") for line in lines)
    assert (tmp_path / "kept" / "round-1" / "load.jsonl").exists()


def test_a_storage_that_does_not_recover_ends_a_soak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: Any, **__: Any) -> None:
        raise TrialFailed("no fresh handle could be opened")

    monkeypatch.setattr(soak, "run_trial", failing)
    lines: list[str] = []
    code = soak.run(MemoryBackend, minutes=1, seed=1, keep=tmp_path, write=lines.append, live=False)
    assert code == 1
    assert "the storage did not recover: no fresh handle could be opened" in "\n".join(lines)
    assert (tmp_path / "round-1").is_dir()


def test_one_seed_plans_the_same_rounds_and_another_one_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[tuple[Plan, int]] = []

    async def noted(backend: object, plan: Plan, folder: Path, *, seed: int, **_: Any) -> None:
        planned.append((plan, seed))
        raise TrialFailed("noted")

    monkeypatch.setattr(soak, "run_trial", noted)
    for number, seed in enumerate((1, 1, 2)):
        soak.run(
            MemoryBackend,
            minutes=1,
            seed=seed,
            keep=tmp_path / str(number),
            write=lambda line: None,
            live=False,
        )
    first, again, other = planned
    assert first == again
    assert first[0].load.seed != other[0].load.seed
    assert first[0].load.seconds == soak.ROUND
