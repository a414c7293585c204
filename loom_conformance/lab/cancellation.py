"""Cancelling a call at each of its awaits in turn.

A call is run once to count how often it gives way to the event loop. It is then made again and
again, each time cancelled at the next of these places: at once, as the call begins to wait there,
and a turn of the loop later, when what it waits for may already have happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from .awaits import watched
from .calls import Hung

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What became of a call that was cancelled.

    Attributes:
        place: at which of its awaits, counted from 1.
        reached: whether the call got that far, so that the cancellation fired.
        acknowledged: whether it returned all the same.
        error: what it raised, if anything.
    """

    place: int
    reached: bool
    acknowledged: bool
    error: BaseException | None


async def cancel_at(
    start: Callable[[], Awaitable[T]],
    place: int,
    *,
    later: bool,
    deadline: float,
    method: str,
) -> Cancelled:
    """Make a call and cancel it at its `place`-th await; wait for it to end.

    Raises:
        Hung: it did not end within `deadline` seconds, cancelled as it was.
    """
    reached = [False]
    task = asyncio.ensure_future(_run(start, place, later, reached))
    await asyncio.wait({task}, timeout=deadline)
    if not task.done():
        raise Hung(f"{method}, cancelled at its await {place},", method, deadline, ignored=True)
    if task.cancelled():
        return Cancelled(place, reached[0], False, asyncio.CancelledError())
    error = task.exception()
    return Cancelled(place, reached[0], error is None, error)


async def _run(
    start: Callable[[], Awaitable[T]], place: int, later: bool, reached: list[bool]
) -> T:
    awaitable = start()
    if not isinstance(awaitable, Coroutine):
        return await awaitable
    task = cast("asyncio.Task[Any]", asyncio.current_task())

    def cancel(count: int) -> None:
        if count != place:
            return
        reached[0] = True
        if later:
            task.get_loop().call_soon(task.cancel)
        else:
            task.cancel()

    return await watched(awaitable, cancel)
