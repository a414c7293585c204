"""Envelopes and storages for these tests."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from loom_conformance.backend import Backend
from loom_conformance.spi import EventEnvelope, JsonValue

NOON = datetime(2024, 2, 29, 12, 0, 0, 123000, tzinfo=UTC)


def envelope(
    execution_id: str,
    sequence: int,
    id_: str | None = None,
    *,
    fence: int | None = None,
    payload: JsonValue = None,
) -> EventEnvelope:
    """An envelope with the runtime's own id unless another is given."""
    return EventEnvelope(
        execution_id,
        sequence,
        id_ or f"{execution_id}-{sequence}",
        "STEP_COMPLETED",
        NOON,
        payload,
        {} if fence is None else {"fence": fence},
    )


@dataclass(frozen=True, slots=True)
class Place:
    """A storage and the backend that it belongs to."""

    backend: Backend
    address: str


async def cancelled_at(
    work: Coroutine[Any, Any, Any], suspension: int, *refusals: type[Exception]
) -> bool:
    """Run `work` in a task and cancel it while it is suspended for the n-th time, from 1 on.

    Returns whether it came to that: `False` means that the work ended in fewer suspensions. Where
    it may end in one of the `refusals`, that is as good as its cancellation.
    """
    loop = asyncio.get_running_loop()
    reached = False

    @types.coroutine
    def watched() -> Generator[Any, Any, Any]:
        nonlocal reached
        steps = work.__await__()
        count = 0
        sent: Callable[[], Any] = lambda: next(steps)  # noqa: E731
        while True:
            try:
                awaited = sent()
            except StopIteration as end:
                return end.value
            count += 1
            if count == suspension:
                reached = True
                loop.call_soon(task.cancel)
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - the work gets whatever comes
                sent = functools.partial(steps.throw, error)
            else:
                sent = lambda: next(steps)  # noqa: E731

    async def body() -> Any:
        return await watched()

    task = loop.create_task(body())
    with contextlib.suppress(asyncio.CancelledError, *refusals):
        await task
    return reached


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what a server does in its own time; it tells nobody, so it is asked."""
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0)
