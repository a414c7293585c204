"""Two things measured beside each other, again and again, so that a busy machine hurts both alike.

In each round each side does the same work once, and which side goes first alternates. A ratio is
of the two of one round; what is reported is the median of the ratios and their quartiles.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure.

    Attributes:
        rounds: how often a pair is measured.
        scale: how much work one round is, as a share of the usual amount.
    """

    rounds: int = 15
    scale: float = 1.0

    def amount(self, usual: int) -> int:
        """The number of operations of one round."""
        return max(1, round(usual * self.scale))


@dataclass(frozen=True, slots=True)
class Side(Generic[T]):
    """One side of a pair.

    Attributes:
        name: who it is.
        prepare: makes what a round works on; it is not timed.
        work: does it and returns how many operations it was.
    """

    name: str
    prepare: Callable[[], T]
    work: Callable[[T], Awaitable[int]]

    async def rate(self) -> float:
        """Operations a second in one round; the collector of garbage does not run in it."""
        prepared = self.prepare()
        gc.collect()
        gc.disable()
        try:
            start = time.perf_counter()
            count = await self.work(prepared)
            return count / (time.perf_counter() - start)
        finally:
            gc.enable()


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one pair, or of one measurement alone.

    Attributes:
        group: what the row belongs to, such as `"SQLite"`.
        what: the work.
        rate: operations a second of ours, the median; or the number itself, by its unit.
        against: the other side, or `None` where there is none.
        other: the other side's rate.
        ratio: `rate` to `other`, the median over the rounds.
        low: the ratios' lower quartile.
        high: their upper quartile.
        goal: the ratio to reach, or the rate where there is no other side.
        unit: what `rate` is counted in; of seconds and milliseconds less is better.
    """

    group: str
    what: str
    rate: float
    against: str | None = None
    other: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    goal: float | None = None
    unit: str = "1/s"

    @property
    def reached(self) -> bool:
        """Whether the goal was reached."""
        if self.goal is None:
            return False
        if self.ratio is not None:
            return self.ratio >= self.goal
        return self.rate <= self.goal if self.unit in ("s", "ms") else self.rate >= self.goal


async def compare(
    plan: Plan,
    group: str,
    what: str,
    ours: Side[T],
    theirs: Side[T],
    *,
    goal: float | None = None,
) -> Result:
    """Measure a pair; one round more goes before and is forgotten, since it warms both up."""
    rates: tuple[list[float], list[float]] = ([], [])
    for number in range(plan.rounds + 1):
        for side in (0, 1) if number % 2 else (1, 0):
            rate = await (ours, theirs)[side].rate()
            if number:
                rates[side].append(rate)
    ratios = [mine / other for mine, other in zip(*rates, strict=True)]
    low, ratio, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    ours_rate, other = (statistics.median(side) for side in rates)
    return Result(group, what, ours_rate, theirs.name, other, ratio, low, high, goal)
