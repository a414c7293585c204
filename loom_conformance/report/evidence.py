"""What stands behind a verdict, in numbers: schedules, histories with their calls, and faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from .outcomes import Outcome, RuleResult
from .text import counted, listed

KINDS: Final = ("schedules", "histories", "calls", "faults")
"""What is counted: orders of simultaneous calls that the kit led a store through, recorded
histories that its checker judged and the calls in them, and faults that proved to have happened."""


def evidence(results: Iterable[RuleResult]) -> dict[str, int]:
    """How much of each kind the rules that passed rest on.

    What several tests look at (one load, one series of faults) counts once. A test that did not
    pass, and a test of a rule that did not, count for nothing.
    """
    alone: Counter[str] = Counter()
    shared: dict[str, Mapping[str, int]] = {}
    for result in results:
        if result.outcome is not Outcome.PASSED:
            continue
        for test in result.tests:
            for one in test.shown if test.outcome is Outcome.PASSED else ():
                numbers = {kind: one.get(kind, 0) for kind in KINDS}
                if one.get("of"):
                    shared[one["of"]] = numbers
                else:
                    alone.update(numbers)
    for counts in shared.values():
        alone.update(counts)
    return {kind: alone[kind] for kind in KINDS}


def evidence_text(numbers: Mapping[str, int]) -> str:
    """`412 schedules, 6 histories of 1,932 calls and 31 faults`; `""` where there is nothing."""
    parts = []
    if numbers["schedules"]:
        parts.append(counted(numbers["schedules"], "schedule"))
    if numbers["histories"]:
        of = counted(numbers["calls"], "call")
        parts.append(f"{counted(numbers['histories'], 'history', 'histories')} of {of}")
    if numbers["faults"]:
        parts.append(counted(numbers["faults"], "fault"))
    return listed(parts)
