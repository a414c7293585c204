"""What only the search finds: the smallest illegal part and its picture."""

from __future__ import annotations

from lab_support import Timeline, envelope, writing

from loom_conformance.contract.model import StoreModel
from loom_conformance.contract.operations import Refused, Unknown
from loom_conformance.lab.checker.picture import draw
from loom_conformance.lab.checker.search import Answer, Budget
from loom_conformance.lab.checker.verdict import Problem, check, drawing, drawing_data
from loom_conformance.spi import DuplicateSequenceError

MODEL = StoreModel(sparse_sequences=True)


def two_unknown_writers_one_slot() -> Timeline:
    """Two writes of one slot, outcomes unknown, each seen by one of two overlapping reads.

    No single read or pair of calls contradicts another by its times: only no order explains all.
    """
    t = Timeline()
    for number in range(5):
        t.wrote(envelope(number, "other"))
    one, two = envelope(0, name="one"), envelope(0, name="two")
    t.call(writing(one), Unknown(), begin=200)
    t.call(writing(two), Unknown(), begin=200)
    t.read(one, begin=300, end=320)
    t.read(two, begin=310, end=330)
    for number in range(1, 4):
        t.wrote(envelope(number), begin=400 + 10 * number)
    return t


def test_the_search_finds_what_the_linear_checks_do_not() -> None:
    t = two_unknown_writers_one_slot()
    verdict = check(t.history, MODEL)
    assert verdict.answer is Answer.ILLEGAL
    (problem,) = verdict.violations
    assert isinstance(problem, Problem)
    assert problem.rule == "APPEND-2"
    assert [str(call.operation) for call in problem.calls] == [
        "append('e'[0] id='one')",
        "append('e'[0] id='two')",
        "read_from('e', 0)",
        "read_from('e', 0)",
    ]
    assert "no order" not in problem.got
    assert "there is none" in problem.got


def test_the_picture_shows_who_overlaps_whom() -> None:
    t = two_unknown_writers_one_slot()
    (problem,) = check(t.history, MODEL).violations
    lines = drawing(problem).splitlines()
    assert len(lines) == 4
    assert sum(line.startswith("!") for line in lines) >= 1
    assert all("=>" in line for line in lines[:2]), "unknown outcomes have no end"
    assert all("=]" in line for line in lines[2:])
    begins = [line.index("[") for line in lines]
    assert begins[2] < begins[3] < lines[2].index("]"), "the two reads overlap"
    data = drawing_data(problem)
    assert [bar["certain"] for bar in data["bars"]] == [False, False, True, True]
    assert all(0 <= bar["begin"] < bar["end"] <= 1 for bar in data["bars"])
    assert any(bar["stuck"] for bar in data["bars"])


def test_a_long_wait_does_not_hide_what_overlaps() -> None:
    t = Timeline()
    t.wrote(envelope(0), begin=0, end=10**12)
    t.wrote(envelope(1), begin=10, end=20)
    t.wrote(envelope(2), begin=30, end=40)
    long, first, second = draw(t.history.calls).splitlines()
    assert first.index("]") < second.index("[") < long.index("]")


def test_a_part_that_is_too_hard_is_unknown_and_no_pass() -> None:
    t = Timeline()
    slot = Refused.of(DuplicateSequenceError("e", 0))
    for number in range(12):
        t.call(writing(envelope(0, name=f"w{number}")), Unknown(), begin=0)
    for number in range(12):
        t.wrote(envelope(number + 1), begin=10, end=500)
    t.call(writing(envelope(0, name="late")), slot, begin=600)
    verdict = check(t.history, MODEL, Budget(steps=10))
    assert verdict.answer is Answer.UNKNOWN
    assert verdict.unjudged == 1
    assert check(t.history, MODEL).answer is Answer.LEGAL
