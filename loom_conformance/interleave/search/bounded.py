"""All schedules in the order of their preemptions: none first, then one, then two.

Each schedule is run once. With no bound it is the plain exploration that a reduced one is
compared with; with bounds 0, 1, 2, … the first failure is one with the fewest preemptions.
Source: Musuvathi and Qadeer, "Iterative Context Bounding", PLDI 2007.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .step import Step, Strand, follow, follow_to_end


@dataclass(slots=True, frozen=True)
class _Branch:
    """A schedule to run: a known one up to a point, there another step, then no preemption."""

    known: Sequence[Step]
    length: int
    other: Step | None


class Bounded:
    """Iterates the preemption bound from 0 to `bound`, both included; `None` is no bound."""

    def __init__(self, bound: int | None = None) -> None:
        self.bound = bound
        self.level = 0
        self._now: deque[_Branch] = deque([_Branch((), 0, None)])
        self._next: deque[_Branch] = deque()
        self._branch = self._now[0]
        self._same: list[tuple[int, Step]] = []
        self._more: list[tuple[int, Step]] = []

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
        self._branch = self._now.popleft()
        self._same, self._more = [], []
        return True

    def again(self) -> None:
        """Make ready for one more run of the schedule that was begun last."""
        self._same, self._more = [], []

    def pick(self, pending: Mapping[Strand, Step], trail: Sequence[Step]) -> Strand:
        index = len(trail)
        branch = self._branch
        if index < branch.length:
            return follow(branch.known[index], pending, index)
        if index == branch.length and branch.other is not None:
            return follow(branch.other, pending, index)
        last = trail[-1].strand if trail else None
        if last is not None and last in pending:
            chosen = last
            others = self._more
        else:
            chosen = min(pending, key=_order)
            others = self._same
        if len(pending) > 1:
            for strand in sorted(pending, key=_order):
                if strand != chosen:
                    others.append((index, pending[strand]))
        return chosen

    def finish(self, trail: Sequence[Step]) -> None:
        branch = self._branch
        follow_to_end(branch.length + (branch.other is not None), trail)
        known = tuple(trail)
        self._now.extend(_Branch(known, index, step) for index, step in self._same)
        self._next.extend(_Branch(known, index, step) for index, step in self._more)


def _order(strand: Strand) -> tuple[bool, int, int]:
    """Calls before timers, then by node, then by age."""
    node, number = strand
    return number < 0, node, abs(number)
