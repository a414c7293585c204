"""Tokens: short, exact, and plain about what is wrong with one."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from interleaving_support import SaysYes, Wrapping, duplicate_start, start_occurrence

from loom_backends.memory import MemoryBackend
from loom_conformance.interleave import BadToken, Finding, Node, Outcome, Scenario, explore, replay
from loom_conformance.interleave.search.step import Step
from loom_conformance.interleave.token import (
    Token,
    letter_of,
    scenario_hash,
    shape_hash,
    strand_of,
    told,
)

WRONG = Wrapping(MemoryBackend(), SaysYes)

turns = st.lists(
    st.one_of(
        st.sampled_from("ABCXYZabrstz"),
        st.sampled_from("ABZ").map(lambda letter: f"{letter}0"),
    )
)


@given(turns, st.booleans())
def test_a_token_reads_back_as_it_was_written(turns: list[str], open: bool) -> None:
    token = Token("7f", "3ak", tuple(turns), open)
    assert Token.parse(str(token)) == token


def test_runs_of_a_letter_are_counted() -> None:
    assert str(Token("7f", "3ak", ("A0", "B", "A", "A", "A", "s"))) == "lk1-7f3ak-A0BA3s"


@pytest.mark.parametrize("word", ["", "AB4A3", "lk1-7f3ak", "lk1-7f3a-AB", "lk1-7f3ak-A-B", "lk1"])
def test_what_is_no_token_is_refused(word: str) -> None:
    with pytest.raises(BadToken, match="is no schedule token; one looks like lk1-"):
        replay(duplicate_start(2), WRONG, word)


def test_a_token_of_another_version_is_refused() -> None:
    with pytest.raises(
        BadToken, match="a kit with tokens of version 2, and this one has version 1"
    ):
        replay(duplicate_start(2), WRONG, "lk2-7f3ak-AB4A3")


@pytest.mark.parametrize(
    "other",
    [
        duplicate_start(3),
        Scenario("another name", [start_occurrence] * 2, lambda outcome: None),
        Scenario("one start per occurrence", [start_occurrence] * 2, print, variant="fenced"),
    ],
    ids=["nodes", "name", "variant"],
)
def test_a_token_of_another_scenario_is_refused(other: Scenario) -> None:
    found = explore(duplicate_start(2), WRONG).counterexample
    assert found is not None
    assert found.token is not None
    with pytest.raises(BadToken, match="is a schedule of another scenario than"):
        replay(other, WRONG, found.token)


def test_a_token_of_a_program_that_has_changed_is_told_apart() -> None:
    async def renamed(node: Node) -> str:
        await node.store.read_from("sched@7", 0)
        await node.store.read_from("sched@7", 0)
        await node.effect("audit")
        return await start_occurrence(node)

    found = explore(duplicate_start(2), WRONG).counterexample
    assert found is not None
    assert found.token is not None
    changed = Scenario("one start per occurrence", [renamed] * 2, lambda outcome: None)
    verdict = replay(changed, WRONG, found.token)
    assert verdict.finding is Finding.INCONCLUSIVE
    assert "expected the end of the run; met" in verdict.reason

    async def same_length(node: Node) -> None:
        await node.store.read_range("sched@8", 0, 0)
        await node.effect("audit")
        await node.effect("audit")
        await node.effect("audit")

    changed = Scenario("one start per occurrence", [same_length] * 2, lambda outcome: None)
    verdict = replay(changed, WRONG, found.token)
    assert verdict.finding is Finding.INCONCLUSIVE
    assert "expected the operations that the token was made of; met" in verdict.reason
    assert "read_range(sched@8, 0, 0) of node A" in verdict.reason


@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_the_races_tokens_are_short(nodes: int) -> None:
    found = explore(duplicate_start(nodes), WRONG).counterexample
    assert found is not None
    assert found.token is not None
    assert len(found.token) <= 20


def test_the_usual_end_of_a_long_token_is_left_out() -> None:
    order = [0, 1] * 5 + [1, 1, 1, 1, 0, 0]
    left = {(node, 0): order.count(node) for node in (0, 1)}
    trail: list[Step] = []
    choices = []
    for node in order:
        choices.append({one: Step(one, ("call", count)) for one, count in left.items() if count})
        trail.append(choices[-1][(node, 0)])
        left[(node, 0)] -= 1
    token = told("7f", trail, choices)
    assert token is not None
    assert "".join(token.turns) == "ABABABABAB"
    assert str(token).endswith("~")
    assert len(str(token)) <= 20
    assert told("7f", trail[:10], choices) == Token("7f", token_shape(trail[:10]), token.turns)


def token_shape(trail: list[Step]) -> str:
    return shape_hash(["AB"[step.strand[0]] for step in trail], trail)


def test_an_open_token_goes_on_as_usual() -> None:
    found = explore(duplicate_start(2), WRONG).counterexample
    assert found is not None
    assert found.token is not None
    assert found.token.endswith("-AB4A3")
    short = found.token.removesuffix("4A3") + "~"
    again = replay(duplicate_start(2), WRONG, short, times=3).counterexample
    assert again is not None
    assert (again.replayed, again.trace) == (3, found.trace)

    verdict = replay(duplicate_start(2), MemoryBackend(), short)
    assert verdict.finding is Finding.INCONCLUSIVE
    assert "diverged at the end: expected the operations that the token was made of" in (
        verdict.reason
    )


def test_a_long_token_has_no_hyphens() -> None:
    turns = tuple("ABABABABABAB")
    assert str(Token("7f", "3ak", turns)) == "lk17f3akABABABABABAB"
    assert str(Token("7f", "3ak", turns[:10])) == "lk1-7f3ak-ABABABABAB"


def test_starts_that_follow_are_not_written() -> None:
    async def spawns(node: Node) -> None:
        await asyncio.create_task(node.effect(f"of {node.name}"))

    def never(outcome: Outcome) -> None:
        raise AssertionError("as always")

    scenario = Scenario("spawned", [spawns] * 3, never)
    found = explore(scenario, MemoryBackend()).counterexample
    assert found is not None
    assert found.token is not None
    assert found.token.split("-")[2] == "a3"
    assert replay(scenario, MemoryBackend(), found.token, times=2).finding is Finding.FAILS


def test_spawned_tasks_and_timers_have_letters_too() -> None:
    pending = [(0, 0), (0, 2), (1, 1), (1, -3), (0, -1)]
    letters = {strand: letter_of(strand, pending) for strand in pending}
    assert letters == {(0, 0): "A", (0, 2): "a", (1, 1): "b", (0, -1): "s", (1, -3): "t"}
    for strand, letter in letters.items():
        assert letter is not None
        assert strand_of(letter, pending) == strand
    assert strand_of("B", pending) is None
    assert strand_of("c", pending) is None


def test_too_many_strands_have_no_token() -> None:
    async def spawns(node: Node) -> None:
        await asyncio.gather(*(node.effect("bell", number) for number in range(30)))

    def not_the_last_first(outcome: Outcome) -> None:
        assert outcome.effects[0][2] != 29

    verdict = explore(Scenario("many", [spawns], not_the_last_first), MemoryBackend())
    found = verdict.counterexample
    assert found is not None
    assert (found.token, found.replayed, found.replays) == (None, 10, 10)
    assert "Replay" not in str(verdict)


def test_a_schedule_with_spawned_tasks_and_timers_replays() -> None:
    async def works(node: Node) -> bool:
        async def later() -> None:
            await node.clock.sleep(5)
            await node.effect(f"late {node.name}")

        task = asyncio.create_task(later())
        await node.store.read_from("x", 0)
        await task
        return True

    def b_first(outcome: Outcome) -> None:
        assert outcome.effects[0][0] == "A"

    scenario = Scenario("tasks", [works, works], b_first)
    found = explore(scenario, MemoryBackend()).counterexample
    assert found is not None
    assert found.token is not None
    again = replay(scenario, MemoryBackend(), found.token, times=5).counterexample
    assert again is not None
    assert (again.replayed, again.replays) == (5, 5)
    assert again.trace == found.trace


def test_hashes_depend_on_what_they_stand_for() -> None:
    assert scenario_hash("a", 2, "") != scenario_hash("a", 3, "")
    assert scenario_hash("a", 2, "") != scenario_hash("a", 2, "x")
    one, other = Step((0, 0), ("read_from", "x", 0)), Step((0, 0), ("read_from", "y", 0))
    assert shape_hash("A", [one]) == shape_hash("A", [one])
    assert shape_hash("A", [one]) != shape_hash("A", [other])
    assert shape_hash("A", [one]) != shape_hash("B", [one])
