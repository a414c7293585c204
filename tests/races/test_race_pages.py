"""The pages on the races are what the races say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from loom_backends.memory import MemoryBackend
from loom_conformance.races.catalogue import RACES
from loom_conformance.races.pages import race_page
from loom_conformance.races.wrong import WRONG

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def test_the_pages_in_the_documentation_are_what_the_races_say() -> None:
    done = subprocess.run(
        [sys.executable, str(DOCS / "generate" / "races.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


@pytest.mark.parametrize("race_id", list(RACES))
def test_every_race_is_listed_and_tied_to_its_rules(race_id: str) -> None:
    race = RACES[race_id]
    assert f"[{race_id}](races/{race_id.lower()}.md)" in (DOCS / "races.md").read_text("utf-8")
    needs = (DOCS / "what-loom-needs.md").read_text("utf-8")
    for rule in race.rests_on:
        assert f"[{rule}](rules.md#{rule.lower()})" in needs


def test_a_page_says_what_holds_what_loses_and_shows_it() -> None:
    race = RACES["RACE-11"]
    text = race_page(race, MemoryBackend())
    assert race.rule.promise in text
    assert "a superseded dispatch is not tried again" in text
    assert WRONG["retry-on-existing"].fault in text
    assert "while tokens went 1 to 6" in text
    assert re.search(r"loom-conformance replay RACE-11 '?lk1", text)
