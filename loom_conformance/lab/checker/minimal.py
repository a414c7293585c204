"""The smallest illegal part of a history.

Only what keeps the verdict sound is taken away. A prefix of a legal history is legal. A legal
history stays legal without a call that leaves the state as it is (a read, a refusal), and when it
is left open whether some other call took effect at all. So what remains after such steps, and
still has no legal order, proves that the whole has none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TypeVar

from .call import Call
from .search import Answer, Budget, Model, search

O = TypeVar("O")  # noqa: E741
R = TypeVar("R")
S = TypeVar("S", bound=Hashable)


def smallest_illegal(
    model: Model[O, R, S],
    calls: Sequence[Call[O, R]],
    *,
    steps: int = 50_000,
    seconds: float = 10.0,
) -> list[Call[O, R]]:
    """Reduce calls that have no legal order to few that have none.

    Args:
        model: the model that they are judged by.
        calls: one part of a history, which a search found illegal.
        steps: what one try may cost; where a try costs more its calls stay.
        seconds: after this time what has been reached is returned.

    Returns:
        the calls that are needed and, marked as not certain, those whose effect may have been
        among them, in the order of invocation.
    """
    until = time.monotonic() + seconds

    def illegal(some: Sequence[Call[O, R]]) -> bool:
        if time.monotonic() > until:
            return False
        budget = Budget(steps=steps, seconds=seconds)
        return any(
            search(model, part, budget).answer is Answer.ILLEGAL for part in model.partition(some)
        )

    kept = _shortest_prefix(sorted(calls, key=lambda call: call.invoked), illegal)
    size = sum(call.certain for call in kept)
    while size:
        kept = _without_pieces(model, kept, size, illegal)
        size //= 2
    return _shown(model, kept)


def _shortest_prefix(
    calls: Sequence[Call[O, R]], illegal: Callable[[Sequence[Call[O, R]]], bool]
) -> list[Call[O, R]]:
    ends = sorted(call.deadline for call in calls if call.deadline is not None)
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        if illegal(_prefix(calls, ends[middle])):
            high = middle
        else:
            low = middle + 1
    cut = _prefix(calls, ends[low]) if ends else list(calls)
    return cut if illegal(cut) else list(calls)


def _prefix(calls: Sequence[Call[O, R]], end: int) -> list[Call[O, R]]:
    """What had begun by a time; what had not ended by it is open."""
    return [
        call if call.deadline is None or call.deadline <= end else replace(call, certain=False)
        for call in calls
        if call.invoked <= end
    ]


def _without_pieces(
    model: Model[O, R, S],
    calls: list[Call[O, R]],
    size: int,
    illegal: Callable[[Sequence[Call[O, R]]], bool],
) -> list[Call[O, R]]:
    """Leave open or take out `size` certain calls at a time, wherever that keeps it illegal."""
    place = 0
    while True:
        certain = [index for index, call in enumerate(calls) if call.certain]
        piece = set(certain[place : place + size])
        if not piece:
            return calls
        weaker = []
        for index, call in enumerate(calls):
            if index not in piece:
                weaker.append(call)
            elif not model.is_pure(call.operation, call.outcome):
                weaker.append(replace(call, certain=False))
        if len(piece) < len(certain) and illegal(weaker):
            calls = weaker
        else:
            place += size


def _shown(model: Model[O, R, S], calls: list[Call[O, R]]) -> list[Call[O, R]]:
    """Of the open calls only those in the longest order, or due next in it."""
    names: set[tuple[str, int]] = set()
    for part in model.partition(calls):
        budget = Budget(steps=200_000, seconds=5.0)
        found = search(model, part, budget, use_precedence=False)
        names.update((call.process, call.number) for call in [*found.order, *found.stuck])
    return [call for call in calls if call.certain or (call.process, call.number) in names]
