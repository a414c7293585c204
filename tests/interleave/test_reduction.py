"""The reduction leaves out repetitions and nothing else: reduced against plain, 500 times over."""

from __future__ import annotations

import itertools

import pytest
from random_programs import explored, scenario

from loom_backends.memory import MemoryBackend
from loom_conformance.interleave.search.bounded import Bounded
from loom_conformance.interleave.search.dpor import Reduced

PLAIN_RUNS = 80
"""Programs with more schedules than this are passed over: their plain exploration is too long."""

COMPARED = 50
"""How many programs a block compares; there are ten blocks."""


@pytest.mark.parametrize("block", range(10))
def test_reduced_and_plain_exploration_see_the_same(block: int) -> None:
    compared = fewer = 0
    for seed in itertools.count(1000 * block):
        program = scenario(seed)
        plain = explored(program, MemoryBackend(), Bounded(None), PLAIN_RUNS)
        if not plain.complete:
            continue
        reduced = explored(program, MemoryBackend(), Reduced(), PLAIN_RUNS)
        assert reduced.complete
        assert reduced.outcomes == plain.outcomes, program.name
        assert reduced.classes == plain.classes, program.name
        assert reduced.runs == len(plain.classes), program.name
        assert reduced.blocked == 0, program.name
        fewer += reduced.runs < plain.runs
        compared += 1
        if compared == COMPARED:
            break
    assert fewer > COMPARED / 2, "the reduction hardly ever had anything to leave out"
