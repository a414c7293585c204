"""The failure text, word by word, and what hostile values can do to it."""

from __future__ import annotations

import pytest

from loom_conformance.contract.rules import Rule
from loom_conformance.lab.verdict import Failure
from loom_conformance.report.failure import failure_text
from loom_conformance.report.outcomes import Outcome

RULE = Rule(
    id="FENCE-8",
    profile="fencing",
    level="MUST",
    promise="The check and the `write` are one: once an acquire has returned, no older token "
    "lands.",
    why="Between a check and a write that are two steps there is room for a whole takeover.",
    source="ADR 0103",
    causes=("The fence read in one statement and the insert made in another.", "READ COMMITTED."),
)

FAILURE = Failure(
    rule="FENCE-8",
    expected="StaleFenceError for 'run-1' at 1, fence 1",
    got="acknowledged: B.append('run-1' at 1, fence 1)",
    steps=["A.acquire_fence('run-1') → 1", "B.acquire_fence('run-1') → 2"],
    log=["read_from('run-1') → ['run-1' at 0, fence 1; 'run-1' at 1, fence 1]"],
    path="batch-first",
    seed=7,
    trace="      node A            node B\n  1   append → ok",
)

REPLAY = ["loom-conformance", "check", "my pkg:B", "--rule", "FENCE-8", "--seed", "7"]

TEXT = """\
FAIL FENCE-8 [mine] on batch-first
  The check and the write are one: once an acquire has returned, no older token
  lands.

  Expected  StaleFenceError for 'run-1' at 1, fence 1
  Got       acknowledged: B.append('run-1' at 1, fence 1)

  What was done
    1  A.acquire_fence('run-1') → 1
    2  B.acquire_fence('run-1') → 2

  In time
          node A            node B
      1   append → ok

  What a fresh handle reads after it
    read_from('run-1') → ['run-1' at 0, fence 1; 'run-1' at 1, fence 1]

  Why it matters: Between a check and a write that are two steps there is room
    for a whole takeover.
  Usual cause: The fence read in one statement and the insert made in another.
  Or: READ COMMITTED.
  Replay: loom-conformance check 'my pkg:B' --rule FENCE-8 --seed 7"""


def test_it_says_all_that_is_known() -> None:
    assert failure_text(FAILURE, RULE, backend="mine", replay=REPLAY) == TEXT


@pytest.mark.parametrize(
    ("outcome", "heading"),
    [(Outcome.ADVICE, "ADVICE FENCE-8"), (Outcome.KNOWN_FAILING, "KNOWN FAILING FENCE-8")],
)
def test_advice_and_known_failures_say_so_first(outcome: Outcome, heading: str) -> None:
    text = failure_text(
        FAILURE, RULE, backend="mine", replay=REPLAY, outcome=outcome, known="issue 12"
    )
    assert text.startswith(heading)
    assert "Known failing: issue 12" in text


def test_what_is_not_known_takes_no_room() -> None:
    bare = Failure(rule="FENCE-8", expected="a", got="b")
    plain = Rule("FENCE-8", "fencing", "MUST", "It holds.", "", "", ())
    text = failure_text(bare, plain, backend="mine", replay=["pytest"])
    assert text == (
        "FAIL FENCE-8 [mine]\n  It holds.\n\n  Expected  a\n  Got       b\n\n  Replay: pytest"
    )


def test_of_many_steps_the_first_and_the_last_are_told() -> None:
    many = Failure(
        rule="FENCE-8", expected="a", got="b", steps=[f"step {n}" for n in range(1, 101)]
    )
    text = failure_text(many, RULE, backend="mine", replay=["pytest"])
    assert "      3  step 3\n         (80 more)\n     84  step 84" in text
    assert "    100  step 100\n" in text


def test_long_values_are_wrapped_and_the_command_is_not() -> None:
    wide = Failure(
        rule="FENCE-8",
        expected="x" * 300,
        got="y " * 200,
        steps=["z" * 300],
        log=["w" * 300],
    )
    replay = ["pytest", "a" * 120]
    lines = failure_text(wide, RULE, backend="mine", replay=replay).splitlines()
    assert max(len(line) for line in lines[:-1]) <= 80
    assert lines[-1] == f"  Replay: pytest {'a' * 120}"


HOSTILE = "\x1b[2J\x07 \ud800 \u202e \x85 \x00 \r\n end"


def test_hostile_values_are_escaped_everywhere() -> None:
    failure = Failure(
        rule="FENCE-8",
        expected=HOSTILE,
        got=HOSTILE,
        steps=[HOSTILE],
        log=[HOSTILE],
        path=HOSTILE,
        trace=HOSTILE,
    )
    text = failure_text(failure, RULE, backend=HOSTILE, replay=["check", HOSTILE], known=HOSTILE)
    text.encode("utf-8")
    assert all(character.isprintable() or character == "\n" for character in text)
    assert r"\x1b[2J\x07 \ud800 \u202e \x85 \x00" in text
