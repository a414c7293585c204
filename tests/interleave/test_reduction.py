"""The reduction leaves out repetitions and nothing else: reduced against plain, 500 times over."""

from __future__ import annotations

import pytest
from random_programs import explored, scenario

from loom_backends.memory import MemoryBackend
from loom_conformance.interleave.search.bounded import Bounded
from loom_conformance.interleave.search.dpor import Reduced

PLAIN_RUNS = 80
"""Programs with more schedules than this are passed over: their plain exploration is too long."""


@pytest.mark.parametrize("block", range(11))
def test_reduced_and_plain_exploration_see_the_same(block: int) -> None:
    compared = fewer = 0
    for seed in range(block * 100, block * 100 + 100):
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
        compared += 1
        fewer += reduced.runs < plain.runs
    assert compared >= 46, "too few programs of this block were small enough to compare"
    assert fewer >= 40, "the reduction hardly ever had anything to leave out"
