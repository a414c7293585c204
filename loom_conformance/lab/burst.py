"""Calls released together, with the proof that they met.

Nothing is controlled here: the storage decides. A burst whose calls ran one after the other has
shown nothing, and says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from .calls import Hung, Outcome
from .verdict import Inconclusive

T = TypeVar("T")


async def burst(calls: Sequence[Callable[[], Awaitable[Outcome[T]]]]) -> list[Outcome[T]]:
    """Start all calls in one turn of the event loop and wait for all of them.

    Raises:
        Hung: one of them did not settle; the others were waited for.
    """
    tasks = [asyncio.ensure_future(call()) for call in calls]
    await asyncio.wait(tasks)
    problems = [task.exception() for task in tasks]
    for problem in sorted(filter(None, problems), key=lambda one: not isinstance(one, Hung)):
        raise problem
    return [task.result() for task in tasks]


def met(outcomes: Sequence[Outcome[Any]]) -> bool:
    """Whether two of the calls overlapped, or every call was one step that none could enter."""
    if all(outcome.suspensions == 0 for outcome in outcomes):
        return True
    spans = sorted((outcome.began, outcome.ended) for outcome in outcomes)
    return any(later[0] < earlier[1] for earlier, later in pairwise(spans))


def must_have_met(rounds: Sequence[Sequence[Outcome[Any]]]) -> None:
    """Make the test inconclusive unless the calls of some round met.

    Raises:
        Inconclusive: in no round did two calls overlap.
    """
    if not any(met(outcomes) for outcomes in rounds):
        raise Inconclusive(
            f"in {len(rounds)} rounds no two calls overlapped, so the rule was not put to the test"
        )
