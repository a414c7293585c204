"""Trials: load and faults on one storage, and the verdict on all that happened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lab_support import Timeline, envelope
from lossy import BreaksDown, LossyMemory, LossySQLite

from loom_backends.memory import MemoryBackend
from loom_backends.sqlite import SQLiteBackend
from loom_conformance.lab.checker.search import Answer, Budget
from loom_conformance.lab.history import read_history
from loom_conformance.lab.load import Load
from loom_conformance.lab.trial import FaultKind, Figures, Plan, TrialFailed, overlaps, run_trial

pytestmark = pytest.mark.asyncio

SMALL = Load(seed=1, tasks=2, handles=1, executions=2, calls=60, length=10, cancel=0.05)

GROWING = Load(
    tasks=1,
    executions=1,
    calls=60,
    length=20,
    fenced=0.0,
    mischief=0.0,
    weights={"append": 3, "read": 1},
)
"""Comes by the writes that a lossy store forgets, whoever is faster."""


def recorded(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.glob("*.jsonl")) if file.stat().st_size]


async def test_a_store_is_killed_paused_and_locked_and_its_history_is_legal(
    tmp_path: Path,
) -> None:
    first: tuple[FaultKind, ...] = ("kill", "pause", "lock")
    plan = Plan(SMALL, processes=2, first=first, calls_between=20, most=6, at_chosen_moments=0.0)
    result = await run_trial(SQLiteBackend(), plan, tmp_path, seed=1)
    assert result.verdict.answer is Answer.LEGAL
    figures = result.figures
    assert set(first) <= set(figures.faults)
    assert figures.calls == figures.ok + figures.refused + figures.unknown >= 120
    assert figures.checked == figures.calls == len(result.history.calls)
    assert figures.overlaps > 0
    # Whoever was killed was followed by another process.
    assert figures.processes >= 2 + figures.faults["kill"]
    assert sum(one.kind == "kill" for one in result.history.faults) == figures.faults["kill"]
    assert sum(one.kind == "pause" for one in result.history.faults) == sum(
        one.kind == "resume" for one in result.history.faults
    )


async def test_what_was_recorded_can_be_judged_again_from_its_files(tmp_path: Path) -> None:
    plan = Plan(SMALL, processes=2, faults={"kill": 1}, first=("kill",), calls_between=20, most=2)
    result = await run_trial(SQLiteBackend(), plan, tmp_path, seed=2)
    again = read_history(recorded(tmp_path))
    assert [str(call) for call in again.calls] == [str(call) for call in result.history.calls]
    names = {call.process for call in again.calls}
    assert {"audit", "p0.0", "p1.0"} <= names
    audited = [call for call in again.calls if call.process == "audit"]
    assert [str(call.operation) for call in audited] == [
        f"read_from({name!r}, 0)" for name in again.executions()
    ]


async def test_processes_that_are_killed_at_once_do_not_stop_a_trial(tmp_path: Path) -> None:
    load = Load(seed=1, tasks=1, handles=1, executions=1, calls=10)
    plan = Plan(load, processes=1, faults={"kill": 1}, first=("kill",), calls_between=1, most=8)
    result = await run_trial(SQLiteBackend(), plan, tmp_path, seed=3)
    assert result.verdict.answer is Answer.LEGAL
    assert result.figures.faults["kill"] >= 1


async def test_a_write_lost_between_processes_is_found(tmp_path: Path) -> None:
    result = await run_trial(LossySQLite(), Plan(GROWING, faults={}), tmp_path, seed=1)
    assert result.verdict.answer is Answer.ILLEGAL
    assert "APPEND-1" in result.verdict.rules


async def test_a_storage_in_memory_is_met_by_many_handles_of_one_process(tmp_path: Path) -> None:
    plan = Plan(SMALL, processes=3)
    result = await run_trial(MemoryBackend(), plan, tmp_path, seed=1)
    assert result.verdict.answer is Answer.LEGAL
    assert result.figures.processes == 1
    assert set(result.figures.faults) <= {"cancel"}
    made = [call for call in result.history.calls if call.process == "load"]
    assert len(made) == 3 * 60
    assert {call.handle for call in made} == {"h1", "h2", "h3"}


async def test_a_write_lost_in_memory_is_found(tmp_path: Path) -> None:
    result = await run_trial(LossyMemory(), Plan(GROWING), tmp_path, seed=1)
    assert result.verdict.answer is Answer.ILLEGAL
    assert "APPEND-1" in result.verdict.rules


async def test_a_trial_whose_check_gave_up_passes_for_nothing(tmp_path: Path) -> None:
    plan = Plan(SMALL, processes=1)
    result = await run_trial(MemoryBackend(), plan, tmp_path, seed=1, budget=Budget(steps=1))
    assert result.verdict.answer is Answer.UNKNOWN
    assert result.verdict.unjudged >= 1


async def test_a_storage_that_nobody_can_open_afterwards_has_failed(tmp_path: Path) -> None:
    load = Load(tasks=1, handles=1, calls=10, patience=0.1)
    with pytest.raises(TrialFailed, match="the storage broke down"):
        await run_trial(BreaksDown(), Plan(load, processes=2), tmp_path)
    assert (tmp_path / "load.jsonl").exists()


async def test_calls_overlap_where_they_meet_on_an_execution_by_several_handles() -> None:
    t = Timeline()
    t.wrote(envelope(0), begin=0, end=10, process="p")
    t.wrote(envelope(1), begin=5, end=15, process="q")
    t.wrote(envelope(0, "other"), begin=6, end=12, process="r")
    t.read(begin=20, end=30, process="p")
    t.read(begin=22, end=28, process="p")
    assert overlaps(t.history) == 1


async def test_figures_add_up() -> None:
    one = Figures(calls=3, ok=2, refused=1, overlaps=1, checked=3, parts=1, processes=2)
    one.seconds = 0.5
    one.faults["kill"] = 2
    other = Figures(calls=2, unknown=2, checked=2, parts=2, processes=1)
    other.seconds = 0.25
    other.faults.update(kill=1, pause=1)
    one.add(other)
    assert json.loads(json.dumps(one.to_json())) == {
        "calls": 5,
        "ok": 2,
        "refused": 1,
        "unknown": 2,
        "overlaps": 1,
        "checked": 5,
        "parts": 3,
        "processes": 3,
        "seconds": 0.75,
        "faults": {"kill": 3, "pause": 1},
    }
