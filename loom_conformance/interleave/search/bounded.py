"""All schedules in the order of their preemptions: none first, then one, then two.

Each schedule is run once. With no bound it is the plain exploration that a reduced one is
compared with; with bounds 0, 1, 2, … the first failure is one with the fewest preemptions.
Source: Musuvathi and Qadeer, "Iterative Context Bounding", PLDI 2007.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from .step import Step, Strand, follow, follow_to_end

_Branch: TypeAlias = tuple[Sequence[Step], int, Step | None]
"""A schedule to run: a known one, up to where it is left, and the step that then comes instead;
after that no preemption."""

_Passed: TypeAlias = tuple[int, Strand, tuple[Step, ...]]
"""A choice: its index, what was chosen, and all that could have been."""


class Bounded:
    """Iterates the preemption bound from 0 to `bound`, both included; `None` is no bound."""

    def __init__(self, bound: int | None = None) -> None:
        self.bound = bound
        self.level = 0
        self._now: deque[_Branch] = deque([((), 0, None)])
        self._next: deque[_Branch] = deque()
        self._known: Sequence[Step] = ()
        self._left_at = 0
        self._instead: Step | None = None
        self._same: list[_Passed] = []
        self._more: list[_Passed] = []

    @property
    def complete(self) -> bool:
        """Whether every schedule there is has been run, whatever the bound."""
        return not self._now and not self._next

    def begin(self) -> bool:
        if not self._now:
            if not self._next or self.level == self.bound:
                return False
            self.level += 1
            self._now, self._next = self._next, self._now
        self._known, self._left_at, self._instead = self._now.popleft()
        self._same, self._more = [], []
        return True

    def again(self) -> None:
        """Make ready for one more run of the schedule that was begun last."""
        self._same, self._more = [], []

    def pick(self, pending: Mapping[Strand, Step], trail: Sequence[Step]) -> Strand:
        index = len(trail)
        if index < self._left_at:
            return follow(self._known[index], pending, index)
        if index == self._left_at and self._instead is not None:
            return follow(self._instead, pending, index)
        last = trail[-1].strand if trail else None
        if last is not None and last in pending:
            if len(pending) > 1:
                self._more.append((index, last, tuple(pending.values())))
            return last
        if len(pending) == 1:
            return next(iter(pending))
        chosen = min(pending, key=calls_first)
        self._same.append((index, chosen, tuple(pending.values())))
        return chosen

    def finish(self, trail: Sequence[Step]) -> None:
        follow_to_end(self._left_at + (self._instead is not None), trail)
        known = tuple(trail)
        for passed, branches in ((self._same, self._now), (self._more, self._next)):
            for index, chosen, steps in passed:
                for step in steps:
                    if step.strand != chosen:
                        branches.append((known, index, step))


def calls_first(strand: Strand) -> tuple[bool, int, int]:
    """An order of strands: calls before timers, then by node, then by age."""
    node, number = strand
    return number < 0, node, abs(number)
