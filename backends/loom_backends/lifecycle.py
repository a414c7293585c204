"""What every handle must get right about closing and cancellation, written once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from types import TracebackType
from typing import Any, Protocol, TypeVar

from loom_conformance.spi import StoreClosedError

T = TypeVar("T")


class Closable(Protocol):
    """Anything with an asynchronous `close`."""

    async def close(self) -> None:
        """Release what it holds."""


H = TypeVar("H", bound=Closable)


class Calls:
    """The calls in flight on one handle: `with calls:` around each of them.

    Once `close` was called, entering raises `StoreClosedError`; `idle` waits for those inside.
    """

    def __init__(self) -> None:
        self.closed = False
        self._running = 0
        self._idle: asyncio.Future[None] | None = None

    def __enter__(self) -> None:
        self.check()
        self._running += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._running -= 1
        if self._idle is not None and not self._running and not self._idle.done():
            self._idle.set_result(None)

    def check(self) -> None:
        """Raise `StoreClosedError` once the handle is closed."""
        if self.closed:
            raise StoreClosedError

    def close(self) -> None:
        """Refuse calls from now on."""
        self.closed = True

    async def idle(self, within: float | None = None) -> bool:
        """Wait until no call is in flight, `within` seconds at most; say whether that is so."""
        if self._running:
            self._idle = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._idle], timeout=within)
        return not self._running


async def finish(work: Awaitable[T]) -> T:
    """Await `work` to its end although the caller is cancelled; then let the cancellation through.

    For what must not be left half done: a rollback, a close, a write that a thread is doing.
    """
    task = asyncio.ensure_future(work)
    interrupted: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            interrupted = error
    if interrupted is not None:
        if not task.cancelled():
            task.exception()  # seen: the cancellation is what the caller asked for
        raise interrupted
    return task.result()


async def opened(work: Coroutine[Any, Any, H]) -> H:
    """Await a handle that is being opened; close it again if the caller was cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        return await finish(task)
    except asyncio.CancelledError:
        if not task.cancelled() and task.exception() is None:
            await finish(task.result().close())
        raise
