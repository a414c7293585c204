"""What a search strategy sees of a program: strands, and the next step of each.

A *strand* is one line of calls: a node's main task, a task that it spawned, or a timer that it
armed. A *step* is what a strand does when it is chosen. Resources are bits of an integer, so two
steps are compared in a few machine instructions, and a strategy never learns what they stand for.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

Strand: TypeAlias = tuple[int, int]
"""The node's place, and the strand's number within it: 0 is the node's main task, above it are
tasks in the order of their first call, below it timers in the order of their arming. Under equal
histories of a node its strands have equal numbers."""

EVERYTHING: Final = -1
"""A set of resources: all of them, those not known yet included."""


class Step:
    """One step of one strand.

    Attributes:
        strand: whose step it is.
        key: what it does, as a value; a replayed prefix must meet equal keys.
        reads, writes: the resources it touches, as bits, known before it is chosen.
        parked_at: the index of the step during which this one came up, -1 for the first ones.
    """

    __slots__ = ("key", "parked_at", "reads", "strand", "writes")

    def __init__(
        self, strand: Strand, key: Hashable, reads: int = 0, writes: int = 0, parked_at: int = -1
    ) -> None:
        self.strand = strand
        self.key = key
        self.reads = reads
        self.writes = writes
        self.parked_at = parked_at

    def __str__(self) -> str:
        name, *rest = self.key if isinstance(self.key, tuple) else (self.key,)
        return f"{name}({', '.join(map(str, rest))}) of node {chr(ord('A') + self.strand[0])}"

    def __repr__(self) -> str:
        return f"<{self}>"


def dependent(one: Step, other: Step) -> bool:
    """Whether the order of two steps can matter: one node's, or a resource that one writes."""
    return bool(
        one.strand[0] == other.strand[0]
        or one.writes & (other.reads | other.writes)
        or one.reads & other.writes
    )


def preempts(last: Strand | None, chosen: Strand, pending: Collection[Strand]) -> bool:
    """Whether choosing a strand takes the turn from one that could have gone on.

    Source: Musuvathi and Qadeer, "Iterative Context Bounding", PLDI 2007.
    """
    return last is not None and chosen != last and last in pending


def preemptions(trail: Sequence[Step], enabled: Sequence[frozenset[Strand]]) -> int:
    """How many choices of a run took the turn from a strand that could have gone on."""
    return sum(
        before.strand != after.strand and before.strand in choices
        for before, after, choices in zip(trail, trail[1:], enabled[1:], strict=False)
    )


class Strategy(Protocol):
    """Decides run by run, and choice by choice, which strand goes on."""

    def begin(self) -> bool:
        """Make ready for one more run; `False` when there is none left."""

    def pick(self, pending: Mapping[Strand, Step], trail: Sequence[Step]) -> Strand | None:
        """The strand that goes on; `None` gives the run up as a repetition.

        Raises:
            Diverged: a replayed prefix met another step than it did before.
        """

    def finish(self, trail: Sequence[Step]) -> None:
        """Learn from a run that came to its end.

        Raises:
            Diverged: it ended before the prefix did that led it.
        """


NOT_TAKEN: Final = "what runs here does not take this schedule, or no longer"
"""What is said of a token whose run went another way: the code was changed since, as a rule."""


class Diverged(Exception):
    """A program that was led along a known schedule did something else than before.

    Attributes:
        place: which choice or step it was, such as `"step 6"`.
        expected: what was to come there.
        met: what there was.
    """

    def __init__(self, place: str, expected: str, met: str) -> None:
        super().__init__(place, expected, met)
        self.place = place
        self.expected = expected
        self.met = met

    def __str__(self) -> str:
        return f"diverged at {self.place}: expected {self.expected}; met {self.met}"


def follow(expected: Step, pending: Mapping[Strand, Step], index: int) -> Strand:
    """The strand of a known step, once it is sure that the same step is there again.

    Raises:
        Diverged: it is not.
    """
    strand = expected.strand
    met = pending.get(strand)
    if met is None or met.key != expected.key:
        there = [met] if met is not None else [step for _, step in sorted(pending.items())]
        raise Diverged(f"choice {index + 1}", str(expected), ", ".join(map(str, there)))
    return strand


def follow_to_end(length: int, trail: Sequence[Step]) -> None:
    """Make sure that a run came as far as the schedule that led it.

    Raises:
        Diverged: it ended before.
    """
    if len(trail) < length:
        raise Diverged(f"choice {len(trail) + 1}", "one more step", "the end of the run")
