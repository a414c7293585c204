"""Tests of the kit found by the names that users know: rules, profiles, modules of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

STORE = """
from loom_backends.memory import MemoryBackend


class HereBackend(MemoryBackend):
    name = "here"
"""


def _pytest(folder: Path, *words: str) -> str:
    script = Path(sys.executable).with_name("pytest")
    done = subprocess.run(
        [str(script), "-q", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_k_knows_rules_and_profiles(tmp_path: Path) -> None:
    (tmp_path / "test_here.py").write_text(
        f"{STORE}\n\nfrom loom_conformance import conformance\n\n"
        "TestHere = conformance(HereBackend)\n"
    )
    by_rule = _pytest(tmp_path, "--collect-only", "-k", "RANGE-2")
    assert "test_a_range_equals_the_part_of_read_from" in by_rule
    assert "test_both_ends_are_inclusive" not in by_rule
    by_profile = _pytest(tmp_path, "--collect-only", "-k", "range and not core")
    assert "test_both_ends_are_inclusive" in by_profile
    assert "test_every_call_settles" not in by_profile


def test_a_backend_is_found_in_the_folder_of_the_call(tmp_path: Path) -> None:
    (tmp_path / "here.py").write_text(STORE)
    said = _pytest(
        tmp_path,
        *("--pyargs", "loom_conformance.suites", "--loom-backend", "here:HereBackend"),
        *("--loom-rule", "RANGE-2"),
    )
    assert "1 passed" in said
