"""One schedule of each equivalence class: optimal dynamic partial-order reduction.

Two schedules are equivalent when one becomes the other by swapping neighbouring steps that are
independent. Every class is run exactly once: races of a complete run say which other orders
matter (source sets), sleep sets keep a class from being entered twice, and wakeup trees keep
a run from being started that a sleep set would have to cut short.

It is exact when independent steps commute in every reachable state and neither enables nor
disables the other, when a program does the same under the same schedule, and when runs end.
Source: Abdulla, Aronis, Jonsson and Sagonas, "Source Sets: A Foundation for Optimal Dynamic
Partial Order Reduction", J. ACM 64(4), 2017.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .bounded import calls_first
from .step import Step, Strand, dependent, follow, follow_to_end


class _Wakeup:
    """A tree of sequences that are still to be run from one state, in order of insertion."""

    __slots__ = ("branches", "step")

    def __init__(self, step: Step | None = None) -> None:
        self.step = step
        self.branches: list[_Wakeup] = []

    def insert(self, sequence: list[Step]) -> None:
        """Add a sequence, unless one that is there already leads to an equivalent run."""
        tree = self
        while True:
            for branch in tree.branches:
                assert branch.step is not None
                rest = _without_initial(branch.step, sequence)
                if rest is not None:
                    if not branch.branches:
                        return
                    tree, sequence = branch, rest
                    break
            else:
                break
        for step in sequence:
            branch = _Wakeup(step)
            tree.branches.append(branch)
            tree = branch


def _without_initial(step: Step, sequence: list[Step]) -> list[Step] | None:
    """What is left of a sequence when `step` goes first, or `None` where it cannot.

    It can when it is the strand's first step in the sequence and nothing before it there is
    dependent on it, or when it is not in the sequence and independent of all that is.
    """
    strand = step.strand
    for index, other in enumerate(sequence):
        if other.strand == strand:
            return sequence[:index] + sequence[index + 1 :]
        if dependent(step, other):
            return None
    return sequence


def _same(step: Step, other: Step | None) -> bool:
    """Whether a strand still stands at the same step."""
    return other is not None and other.key == step.key and other.parked_at == step.parked_at


class _Frame:
    """A state on the current path: what was run from it, sleeps there, or is to be run."""

    __slots__ = ("before", "disabled", "pending", "sleep", "step", "wakeup")

    def __init__(
        self, pending: Mapping[Strand, Step], sleep: dict[Strand, Step], wakeup: _Wakeup
    ) -> None:
        self.pending = pending
        self.sleep = sleep
        self.wakeup = wakeup
        self.step: Step | None = None
        self.before = 0
        self.disabled: list[Step] = []


class Reduced:
    """Runs one schedule of each equivalence class.

    Attributes:
        blocked: runs that were given up because all that was left was asleep; the theory says
            that there are none.
    """

    def __init__(self) -> None:
        self.blocked = 0
        self._frames: list[_Frame] = []
        self._replayed = 0
        self._begun = False
        self._complete = False

    @property
    def complete(self) -> bool:
        """Whether every class has been run."""
        return self._complete

    def begin(self) -> bool:
        if not self._begun:
            self._begun = True
            return True
        frames = self._frames
        while frames:
            frame = frames[-1]
            done = frame.step
            assert done is not None
            frame.sleep[done.strand] = done
            branches = frame.wakeup.branches
            if branches and branches[0].step is not None and branches[0].step.strand == done.strand:
                del branches[0]
            if branches:
                self._replayed = len(frames) - 1
                return True
            frames.pop()
        self._complete = True
        return False

    def pick(self, pending: Mapping[Strand, Step], trail: Sequence[Step]) -> Strand | None:
        index = len(trail)
        frames = self._frames
        if index < self._replayed:
            known = frames[index].step
            assert known is not None
            return follow(known, pending, index)
        if index < len(frames):
            frame = frames[index]
        else:
            frame = self._descend(pending, trail)
            frames.append(frame)
        branches = frame.wakeup.branches
        if branches:
            wanted = branches[0].step
            assert wanted is not None
            chosen = follow(wanted, pending, index)
        else:
            awake = [strand for strand in pending if strand not in frame.sleep]
            if not awake:
                frames.pop()
                self.blocked += 1
                return None
            last = trail[-1].strand if trail else None
            chosen = last if last in awake else min(awake, key=calls_first)
            frame.wakeup.branches.append(_Wakeup(pending[chosen]))
        frame.step = pending[chosen]
        return chosen

    def _descend(self, pending: Mapping[Strand, Step], trail: Sequence[Step]) -> _Frame:
        """The frame after the last step of the trail, whose touched resources are final now."""
        if not trail:
            return _Frame(dict(pending), {}, _Wakeup())
        above = self._frames[-1]
        step = trail[-1]
        sleep = {
            strand: asleep for strand, asleep in above.sleep.items() if not dependent(asleep, step)
        }
        return _Frame(dict(pending), sleep, above.wakeup.branches[0])

    def finish(self, trail: Sequence[Step]) -> None:
        """Find the races of a complete run, and plan the runs that reverse them."""
        frames = self._frames
        planned = len(frames[-1].wakeup.branches[0].branches) if frames else 0
        follow_to_end(len(frames) + bool(planned), trail)
        before = [frame.before for frame in frames[: self._replayed]]
        races: list[tuple[int, int]] = []
        for index in range(self._replayed, len(trail)):
            step = trail[index]
            happened = 1 << index
            if step.parked_at >= 0:
                happened |= before[step.parked_at]
            for earlier in range(index - 1, -1, -1):
                if happened >> earlier & 1:
                    continue
                other = trail[earlier]
                if dependent(other, step):
                    happened |= before[earlier]
                    if other.strand != step.strand:
                        races.append((earlier, index))
            before.append(happened)
            frames[index].before = happened
            frames[index].disabled = [
                other
                for strand, other in frames[index].pending.items()
                if strand != step.strand and not _same(other, self._standing(index + 1, strand))
            ]
        for earlier, index in races:
            self._reverse(trail, before, earlier, trail[index], index)
        # A step that was taken away never runs, so all that follows is new to this race.
        for index, frame in enumerate(frames[: len(trail)]):
            for step in frame.disabled:
                self._reverse(trail, before, index, step, None)

    def _standing(self, index: int, strand: Strand) -> Step | None:
        """Where a strand stands before a choice."""
        return self._frames[index].pending.get(strand) if index < len(self._frames) else None

    def _reverse(
        self,
        trail: Sequence[Step],
        before: list[int],
        earlier: int,
        later: Step,
        index: int | None,
    ) -> None:
        """Plan a run in which `later` goes before the step at `earlier`.

        `index` is where `later` ran, or `None` where the step at `earlier` took it away.
        """
        sequence = [
            trail[place]
            for place in range(earlier + 1, len(trail))
            if place != index and not before[place] >> earlier & 1
        ]
        sequence.append(later)
        frame = self._frames[earlier]
        for asleep in frame.sleep.values():
            if _without_initial(asleep, sequence) is not None:
                return
        frame.wakeup.insert(sequence)
