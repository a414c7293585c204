"""Schedules by chance, for what is too big to exhaust: PCT with its guarantee, and random."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from .step import Step, Strand


class Pct:
    """Probabilistic concurrency testing: random priorities with `depth - 1` random drops.

    A bug that needs `depth` ordered steps is hit by one run of `n` strands and `k` steps with
    probability at least `1 / (n * k**(depth - 1))`. `n` and `k` are the largest seen so far.
    Source: Burckhardt, Kothari, Musuvathi and Nagarakatte, "A Randomized Scheduler with
    Probabilistic Guarantees of Finding Bugs", ASPLOS 2010.
    """

    def __init__(self, depth: int, runs: int, seed: int) -> None:
        if depth < 1:
            raise ValueError(f"a bug has a depth of 1 or more, not {depth}")
        self.depth = depth
        self.strands = 1
        self.steps = 1
        self.runs = 0
        self._left = runs
        self._random = random.Random(seed)
        self._priority: dict[Strand, float] = {}
        self._drops: dict[int, int] = {}

    @property
    def complete(self) -> bool:
        """Chance never proves that it has run everything."""
        return False

    @property
    def missed(self) -> float:
        """The largest probability with which a bug of this depth was missed by all runs so far."""
        hit = 1 / (self.strands * self.steps ** (self.depth - 1))
        return float((1 - hit) ** self.runs)

    def begin(self) -> bool:
        if self._left <= 0:
            return False
        self._left -= 1
        self._priority = {}
        places = [self._random.randrange(self.steps) for _ in range(self.depth - 1)]
        self._drops = {place: rank for rank, place in enumerate(places, 1)}
        return True

    def pick(self, pending: Mapping[Strand, Step], trail: Sequence[Step]) -> Strand:
        priority = self._priority
        for strand in sorted(pending):
            if strand not in priority:
                priority[strand] = 1 + self._random.random()
        chosen = max(pending, key=priority.__getitem__)
        rank = self._drops.get(len(trail))
        if rank is not None:
            priority[chosen] = -rank
            chosen = max(pending, key=priority.__getitem__)
        return chosen

    def finish(self, trail: Sequence[Step]) -> None:
        self.runs += 1
        self.steps = max(self.steps, len(trail))
        self.strands = max(self.strands, len(self._priority))


class Chance:
    """At every choice, any strand with the same probability."""

    def __init__(self, runs: int, seed: int) -> None:
        self.runs = 0
        self._left = runs
        self._random = random.Random(seed)

    @property
    def complete(self) -> bool:
        """Chance never proves that it has run everything."""
        return False

    def begin(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def pick(self, pending: Mapping[Strand, Step], trail: Sequence[Step]) -> Strand:
        return tuple(pending)[int(self._random.random() * len(pending))]

    def finish(self, trail: Sequence[Step]) -> None:
        self.runs += 1
