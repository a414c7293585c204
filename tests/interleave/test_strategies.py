"""The strategies on programs that are nothing but strands and resources."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from math import comb, factorial

import pytest

from loom_conformance.interleave.search.bounded import Bounded
from loom_conformance.interleave.search.chance import Chance, Pct
from loom_conformance.interleave.search.dpor import Reduced
from loom_conformance.interleave.search.overlap import Overlap
from loom_conformance.interleave.search.replay import Replay
from loom_conformance.interleave.search.step import (
    EVERYTHING,
    Diverged,
    Step,
    Strand,
    Strategy,
    dependent,
    preempts,
)

Program = Sequence[Sequence[tuple[int, int]]]
"""For each node, the resources that each of its steps reads and writes."""


def run(program: Program, strategy: Strategy) -> list[Step] | None:
    """One run of a program; `None` where the strategy gave it up."""
    place = [0] * len(program)
    trail: list[Step] = []
    stands = [-1] * len(program)
    while True:
        pending: dict[Strand, Step] = {}
        for node, steps in enumerate(program):
            if place[node] < len(steps):
                reads, writes = steps[place[node]]
                strand = (node, 0)
                pending[strand] = Step(strand, ("step", place[node]), reads, writes, stands[node])
        if not pending:
            strategy.finish(trail)
            return trail
        chosen = strategy.pick(pending, trail)
        if chosen is None:
            return None
        trail.append(pending[chosen])
        place[chosen[0]] += 1
        stands[chosen[0]] = len(trail) - 1


def runs(program: Program, strategy: Strategy) -> list[tuple[int, ...]]:
    """All runs, each as the nodes in their order."""
    found = []
    while strategy.begin():
        trail = run(program, strategy)
        assert trail is not None
        found.append(tuple(step.strand[0] for step in trail))
    return found


def writers(nodes: int, steps: int) -> Program:
    """Nodes that all write the same."""
    return [[(0, 1)] * steps for _ in range(nodes)]


def loners(nodes: int, steps: int) -> Program:
    """Nodes that share nothing."""
    return [[(0, 1 << node)] * steps for node in range(nodes)]


@pytest.mark.parametrize(("nodes", "steps"), [(1, 3), (2, 2), (2, 4), (3, 2), (4, 1)])
def test_plain_exploration_runs_every_order_once(nodes: int, steps: int) -> None:
    found = runs(loners(nodes, steps), Bounded(None))
    every = factorial(nodes * steps) // factorial(steps) ** nodes
    assert len(found) == len(set(found)) == every


def preemptions(order: Sequence[int], steps: int) -> int:
    """How often a node was left that had more to do."""
    done: Counter[int] = Counter()
    count = 0
    for now, then in itertools.pairwise(order):
        done[now] += 1
        count += now != then and done[now] < steps
    return count


@pytest.mark.parametrize("bound", [0, 1, 2, 3])
def test_a_bound_lets_through_exactly_those_with_so_few_preemptions(bound: int) -> None:
    program = loners(3, 2)
    within = {order for order in runs(program, Bounded(None)) if preemptions(order, 2) <= bound}
    found = runs(program, Bounded(bound))
    assert len(found) == len(set(found))
    assert set(found) == within
    counts = [preemptions(order, 2) for order in found]
    assert counts == sorted(counts), "those with fewer preemptions come first"


def test_a_bound_is_complete_exactly_when_it_leaves_nothing_out() -> None:
    for bound in range(6):
        strategy = Bounded(bound)
        assert (len(runs(loners(2, 2), strategy)) == comb(4, 2)) == strategy.complete


@pytest.mark.parametrize(("nodes", "steps"), [(2, 3), (3, 2), (4, 4)])
def test_nodes_that_share_nothing_have_one_class(nodes: int, steps: int) -> None:
    strategy = Reduced()
    assert len(runs(loners(nodes, steps), strategy)) == 1
    assert strategy.complete


@pytest.mark.parametrize(("nodes", "steps"), [(2, 3), (3, 2)])
def test_nodes_that_share_everything_have_every_order(nodes: int, steps: int) -> None:
    strategy = Reduced()
    found = runs(writers(nodes, steps), strategy)
    assert set(found) == set(runs(writers(nodes, steps), Bounded(None)))
    assert len(found) == len(set(found))
    assert strategy.blocked == 0


@pytest.mark.parametrize("readers", range(1, 7))
def test_readers_commute(readers: int) -> None:
    """One writer and n readers have 2**n classes (the paper's first example)."""
    program: Program = [[(0, 1)], *[[(1, 0)]] * readers]
    strategy = Reduced()
    assert len(runs(program, strategy)) == 2**readers
    assert strategy.blocked == 0


def test_a_reduced_search_is_not_complete_before_its_end() -> None:
    strategy = Reduced()
    while strategy.begin():
        assert not strategy.complete
        run(writers(2, 2), strategy)
    assert strategy.complete


CHANGED: dict[str, Program] = {
    "another step": [[(0, 1)] * 2, []],
    "an earlier end": [[(0, 1)], []],
}


@pytest.mark.parametrize("strategy", [Reduced, lambda: Bounded(None)], ids=["reduced", "plain"])
@pytest.mark.parametrize("changed", CHANGED.values(), ids=CHANGED.keys())
def test_a_program_that_changes_diverges(
    strategy: Callable[[], Strategy], changed: Program
) -> None:
    search = strategy()
    search.begin()
    run(writers(2, 2), search)
    search.begin()
    with pytest.raises(Diverged, match=r"diverged at choice \d: expected .*; met "):
        run(changed, search)


def test_a_replay_of_a_program_that_changes_diverges() -> None:
    search = Bounded(0)
    search.begin()
    trail = run(writers(2, 2), search)
    assert trail is not None
    for changed in ([[(0, 1)] * 3] * 2, [[(0, 1)] * 2, []]):
        with pytest.raises(Diverged, match=r"the end of the run|expected step"):
            run(changed, Replay(trail))


def test_a_replay_is_led_as_known() -> None:
    strategy = Bounded(None)
    orders = []
    while strategy.begin():
        trail = run(loners(2, 2), strategy)
        assert trail is not None
        known = Replay(trail, times=3)
        orders += runs(loners(2, 2), known)
        assert not known.complete
    assert len(orders) == 3 * comb(4, 2)
    assert set(Counter(orders).values()) == {3}


def test_overlapping_runs_take_turns() -> None:
    assert runs(loners(3, 2), Overlap()) == [(0, 1, 2, 0, 1, 2), (2, 1, 0, 2, 1, 0)]


def test_chance_reaches_every_order_and_repeats_with_its_seed() -> None:
    program = loners(2, 2)
    assert set(runs(program, Chance(200, 1))) == set(runs(program, Bounded(None)))
    assert runs(program, Chance(20, 1)) == runs(program, Chance(20, 1))
    assert runs(program, Chance(20, 1)) != runs(program, Chance(20, 2))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_pct_hits_a_bug_of_its_depth_at_least_as_often_as_promised(depth: int) -> None:
    """The bug needs an order of `depth` steps: of the nodes' last steps, of all, descending."""
    nodes, steps, tries = 3, 2, 3000
    strategy = Pct(depth, tries, seed=5)
    hits = 0
    for order in runs(loners(nodes, steps), strategy):
        last = [len(order) - 1 - order[::-1].index(node) for node in range(nodes)]
        first = [order.index(node) for node in range(nodes)]
        hits += {
            1: last[2] < last[1] < last[0] or last[2] < first[0],
            2: first[0] < first[1] < last[0],
            3: first[0] < first[1] < first[2] < last[0],
        }[depth]
    promised = 1 / (nodes * (nodes * steps) ** (depth - 1))
    assert strategy.runs == tries
    assert hits / tries >= promised * 0.9
    assert strategy.missed == pytest.approx((1 - promised) ** tries)
    assert not strategy.complete


def test_pct_repeats_with_its_seed() -> None:
    assert runs(loners(3, 3), Pct(3, 30, 1)) == runs(loners(3, 3), Pct(3, 30, 1))
    assert runs(loners(3, 3), Pct(3, 30, 1)) != runs(loners(3, 3), Pct(3, 30, 2))
    with pytest.raises(ValueError, match="a bug has a depth of 1 or more, not 0"):
        Pct(0, 1, 1)


def test_dependence_is_of_one_node_or_of_a_resource_that_one_writes() -> None:
    def step(node: int, reads: int, writes: int) -> Step:
        return Step((node, 0), "step", reads, writes)

    assert dependent(step(0, 0, 0), step(0, 0, 0))
    assert not dependent(step(0, 1, 0), step(1, 1, 0))
    assert not dependent(step(0, 0, 1), step(1, 2, 2))
    assert dependent(step(0, 0, 1), step(1, 1, 0))
    assert dependent(step(0, 1, 0), step(1, 0, 1))
    assert dependent(step(0, 0, 1), step(1, 0, 1))
    assert dependent(step(0, 0, EVERYTHING), step(1, 1 << 200, 0))
    assert not dependent(step(0, 0, EVERYTHING), step(1, 0, 0))


def test_only_taking_a_turn_away_is_a_preemption() -> None:
    pending = {(0, 0): Step((0, 0), "step"), (1, 0): Step((1, 0), "step")}
    assert not preempts(None, (0, 0), pending)
    assert not preempts((0, 0), (0, 0), pending)
    assert preempts((0, 0), (1, 0), pending)
    assert not preempts((2, 0), (1, 0), pending)
