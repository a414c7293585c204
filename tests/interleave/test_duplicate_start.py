"""The race that the kit exists for: found, as small as it gets, and the same on every backend."""

from __future__ import annotations

import pytest
from interleaving_support import SaysYes, Wrapping, duplicate_start

from loom_backends.memory import MemoryBackend
from loom_conformance.backend import Backend
from loom_conformance.interleave import Finding, explore, replay

TOKEN = "lk1-9n0sp-AB4A3"

TRACE = """\
       node A                                    node B
  1    read_range('sched@7', 0, 0) → []
  2                                              read_range('sched@7', 0, 0) → []
  3                                              append(sched@7, 0, EXECUTION_STARTED) → ok
  4                                              effect "audit"
  5                                              append(sched@7, 1, STEP_COMPLETED) → ok
  6  ✗ append(sched@7, 0, EXECUTION_STARTED) → ok  ← the slot was taken at step 3
  7    effect "audit"  ← once more
  8  ✗ append(sched@7, 1, STEP_COMPLETED) → ok  ← the slot was taken at step 5
       returned 'won'
                                                 returned 'won'"""


@pytest.mark.parametrize(("nodes", "schedules"), [(2, 8), (3, 66)])
def test_on_a_right_store_it_holds_in_every_schedule(
    backend: Backend, nodes: int, schedules: int
) -> None:
    verdict = explore(duplicate_start(nodes), backend)
    assert (verdict.finding, verdict.schedules) == (Finding.HOLDS, schedules), str(verdict)


def test_it_is_found_with_one_preemption_and_the_same_token_everywhere(backend: Backend) -> None:
    verdict = explore(duplicate_start(2), Wrapping(backend, SaysYes))
    assert verdict.finding is Finding.FAILS
    found = verdict.counterexample
    assert found is not None
    assert (found.preemptions, found.smallest) == (1, True)
    assert (found.replayed, found.replays) == (10, 10)
    assert found.token == TOKEN
    assert str(found.trace) == TRACE


def test_its_token_replays_every_time(backend: Backend) -> None:
    verdict = replay(duplicate_start(2), Wrapping(backend, SaysYes), TOKEN, times=100)
    assert verdict.finding is Finding.FAILS, str(verdict)
    found = verdict.counterexample
    assert found is not None
    assert (found.replayed, found.replays) == (100, 100)
    assert found.reason == "the effect ran 2 times: B, A"


def test_on_a_right_store_its_token_says_where_the_run_went_another_way(backend: Backend) -> None:
    verdict = replay(duplicate_start(2), backend, TOKEN)
    assert verdict.finding is Finding.INCONCLUSIVE
    assert "step 7: expected a step of node A; met the end of the run" in verdict.reason
    assert "DuplicateSequenceError" in verdict.reason


def test_the_verdict_reads_like_a_bug_report() -> None:
    verdict = explore(duplicate_start(2), Wrapping(MemoryBackend(), SaysYes))
    head, facts, blank, *rest = str(verdict).splitlines()
    assert head == "FAIL one start per occurrence [memory]: the effect ran 2 times: B, A"
    assert facts == "  1 preemption · schedule 4 · replayed 10 of 10"
    assert blank == ""
    assert rest == [*TRACE.splitlines(), "", f"  Replay: {TOKEN}"]
    with pytest.raises(AssertionError, match="the effect ran 2 times: B, A"):
        verdict.require()
