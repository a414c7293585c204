"""Watching a coroutine at each place where it gives way to the event loop."""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar, cast

T = TypeVar("T")


async def watching(awaitable: Awaitable[T], at_await: Callable[[int], None]) -> T:
    """Await, and call `at_await` as `watched` does where what is awaited is a coroutine."""
    if isinstance(awaitable, Coroutine):
        return await watched(awaitable, at_await)
    return await awaitable


def as_coroutine(awaitable: Awaitable[T]) -> Coroutine[Any, Any, T]:
    """A coroutine for whatever a store's method returned: a future has no steps to lead."""
    if isinstance(awaitable, Coroutine):
        return awaitable

    async def awaiting() -> T:
        return await awaitable

    return awaiting()


@types.coroutine
def watched(
    coroutine: Coroutine[Any, Any, T], at_await: Callable[[int], None]
) -> Generator[Any, Any, T]:
    """Run a coroutine and call `at_await` with 1, 2, … as it suspends, before the loop turns."""
    count = 0
    try:
        waited = coroutine.send(None)
        while True:
            count += 1
            at_await(count)
            try:
                sent = yield waited
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:  # noqa: BLE001 - it is the coroutine's to handle
                waited = coroutine.throw(error)
            else:
                waited = coroutine.send(sent)
    except StopIteration as stop:
        return cast(T, stop.value)
