"""`judge`: files in, one verdict out, and an exit code that a script can use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lab_support import envelope

from loom_conformance.contract.operations import (
    Append,
    Done,
    Operation,
    Outcome,
    ReadFrom,
    Unknown,
)
from loom_conformance.lab.history import Recorder
from loom_conformance.lab.judge import run

ETCD = Path(__file__).parents[1] / "data" / "etcd"


def record(path: Path, *calls: tuple[Operation, Outcome]) -> Path:
    with Recorder(path, path.stem) as recorder:
        for operation, outcome in calls:
            recorder.complete(recorder.invoke("h0", operation), outcome)
    return path


def judged(paths: list[Path], **options: Any) -> tuple[int, str]:
    lines: list[str] = []
    code = run(paths, write=lines.append, **options)
    return code, "\n".join(lines)


def test_a_legal_history(tmp_path: Path) -> None:
    record(tmp_path / "one.jsonl", (Append(envelope(0)), Done()))
    record(tmp_path / "two.jsonl", (ReadFrom("e"), Done((envelope(0),))))
    assert judged([tmp_path]) == (0, "legal: 2 calls in 1 part")


def test_files_are_one_history(tmp_path: Path) -> None:
    one = record(tmp_path / "one.jsonl", (Append(envelope(0)), Done()))
    two = record(tmp_path / "two.jsonl", (ReadFrom("e"), Done(())))
    assert judged([one])[0] == 0
    assert judged([two])[0] == 0
    code, text = judged([one, two])
    assert code == 1
    assert text.startswith("illegal: 2 calls in 1 part; broken: APPEND-1")
    assert "read_from('e', 0), begun after the acknowledgement, does not show it" in text
    assert "[==" in text


def test_declarations_can_be_given(tmp_path: Path) -> None:
    path = record(
        tmp_path / "h.jsonl",
        (Append(envelope(0)), Done()),
        (Append(envelope(0, "f", name="e-0")), Done()),
    )
    assert judged([path])[0] == 1
    assert judged([path], declared={"envelope_ids": "execution"})[0] == 0


def test_a_search_that_gives_up_is_no_pass(tmp_path: Path) -> None:
    calls: list[tuple[Operation, Outcome]]
    calls = [(Append(envelope(0, name=f"w{n}")), Unknown()) for n in range(9)]
    for _ in range(2000):
        calls.append((ReadFrom("e"), Done(())))
    path = record(tmp_path / "h.jsonl", *calls)
    code, text = judged([path], seconds=0.0)
    assert code == 3
    assert "gave up" in text


@pytest.mark.parametrize("content", [None, "", "not json\n", '{"type":"header"}\n'])
def test_what_cannot_be_read_is_told(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "h.jsonl"
    if content is not None:
        path.write_text(content)
    code, text = judged([path])
    assert code == 2
    assert text.startswith("cannot read the history:")
    assert "h.jsonl" in text


def test_an_empty_folder_is_told(tmp_path: Path) -> None:
    assert judged([tmp_path])[0] == 2


def test_registers_get_one_verdict_a_line() -> None:
    files = [ETCD / "etcd_000.log", ETCD / "etcd_002.log"]
    code, text = judged(files, format="jepsen", model="register")
    assert code == 1
    assert text.splitlines() == [f"{files[0]} illegal", f"{files[1]} legal"]
    assert judged(files[1:], format="jepsen", model="register")[0] == 0


def test_one_illegal_register_is_drawn() -> None:
    _, text = judged([ETCD / "etcd_000.log"], format="jepsen", model="register")
    verdict, *bars = text.splitlines()
    assert verdict.endswith(" illegal")
    assert 2 <= len(bars) < 30, "of 85 calls"
    assert any(bar.startswith("!") for bar in bars)


def test_a_model_goes_with_its_format() -> None:
    code, text = judged([ETCD / "etcd_000.log"], format="jepsen", model="store")
    assert code == 2
    assert "cannot judge" in text
