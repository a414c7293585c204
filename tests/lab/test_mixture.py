"""Mixtures for Hypothesis: within their bounds, repeatable, and shrunk to little."""

from __future__ import annotations

from hypothesis import find, given, settings
from hypothesis import strategies as st

from loom_conformance.lab.load import KINDS, Load
from loom_conformance.lab.mixture import loads

PREFIXES = st.just("x.")


@given(loads(PREFIXES, most_calls=30))
@settings(max_examples=50, deadline=None)
def test_a_mixture_is_bounded_and_can_be_told(load: Load) -> None:
    assert load.calls is not None
    assert 1 <= load.calls <= 30
    assert load.seconds is None
    assert load.prefix == "x."
    assert set(load.weights) == set(KINDS)
    assert load.weights["append"] >= 1
    assert Load.from_json(load.to_json()) == load


@given(loads(PREFIXES, fencing=False))
@settings(max_examples=50, deadline=None)
def test_without_fencing_nothing_is_fenced(load: Load) -> None:
    assert load.fenced == 0.0


def test_a_mixture_is_shrunk_to_what_it_takes() -> None:
    def takes(load: Load) -> bool:
        return load.calls is not None and load.calls >= 7 and load.weights["batch"] >= 2

    smallest = find(loads(PREFIXES), takes)
    assert (smallest.calls, smallest.tasks, smallest.handles, smallest.executions) == (7, 1, 1, 1)
    assert (smallest.mischief, smallest.cancel, smallest.fenced) == (0.0, 0.0, 0.0)
    assert smallest.weights == {"append": 1, "batch": 2, "read": 0, "range": 0, "fence": 0}
    assert smallest.seed == 0
