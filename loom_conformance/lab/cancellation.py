"""Cancelling a call at each of its awaits in turn.

A call is run once to count how often it gives way to the event loop. It is then made again and
again, each time cancelled at the next of these places: at once, as the call begins to wait there,
and a turn of the loop later, when what it waits for may already have happened. It may be cancelled
a second time while it ends, as happens where a time-out and a shutdown meet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from ..spi import EventEnvelope
from .awaits import watched
from .calls import Handle, Hung
from .stage import Log, Stage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What became of a call that was cancelled.

    Attributes:
        place: at which of its awaits, counted from 1.
        reached: whether the call got that far, so that the cancellation fired.
        again: whether a second cancellation fired too.
        acknowledged: whether it returned all the same.
        error: what it raised, if anything.
    """

    place: int
    reached: bool
    again: bool
    acknowledged: bool
    error: BaseException | None


async def cancel_at(
    start: Callable[[], Awaitable[T]],
    place: int,
    *,
    later: bool,
    deadline: float,
    method: str,
    again: int = 0,
) -> Cancelled:
    """Make a call and cancel it at its `place`-th await; wait for it to end.

    With `again` it is cancelled once more, at so many awaits after the first cancellation.

    Raises:
        Hung: it did not end within `deadline` seconds, cancelled as it was.
    """
    reached: set[int] = set()
    places = {place, place + again}
    task = asyncio.ensure_future(_run(start, places, later, reached))
    await asyncio.wait({task}, timeout=deadline)
    if not task.done():
        raise Hung(f"{method}, cancelled at its await {place},", method, deadline, ignored=True)
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    return Cancelled(place, place in reached, reached == places, error is None, error)


async def _run(
    start: Callable[[], Awaitable[T]], places: set[int], later: bool, reached: set[int]
) -> T:
    awaitable = start()
    if not isinstance(awaitable, Coroutine):
        return await awaitable
    task = cast("asyncio.Task[Any]", asyncio.current_task())

    def cancel(count: int) -> None:
        if count not in places:
            return
        reached.add(count)
        if later:
            task.get_loop().call_soon(task.cancel)
        else:
            task.cancel()

    return await watched(awaitable, cancel)


async def bare_write(stage: Stage, handle: Handle, envelopes: list[EventEnvelope]) -> None:
    """Write by the test's path without any bound: its own awaits are what is counted."""
    store: Any = handle.store
    if stage.path is not None and stage.path.batch:
        await store.append_batch(envelopes)
    else:
        await store.append(envelopes[0])


def one_write(stage: Stage, handle: Handle) -> Awaitable[Any]:
    """The bare write of a new execution's first envelope, in the company of the test's path."""
    log = Log(stage.session.fresh_id())
    envelopes, _, _ = stage.compose(log, log.envelope)
    return bare_write(stage, handle, envelopes)
