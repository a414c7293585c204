"""A call that stands still at one of its resumptions, with every task that it started.

A library that opens a connection does so in tasks of its own: to lead the call's coroutine alone
would show one step. The event loop's task factory lets their resumptions be counted too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, ContextVar
from typing import Any, TypeAlias, TypeVar

from .stepper import Stepped

T = TypeVar("T")

Work: TypeAlias = Coroutine[Any, Any, Any] | Generator[Any, None, Any]

_LED: ContextVar[Standstill | None] = ContextVar("led", default=None)


class Standstill:
    """Holds what `lead` runs at its resumption number `place`, from 1, until `go_on`.

    Attributes:
        stands: set while it stands there.
    """

    def __init__(self, place: int) -> None:
        self.stands = asyncio.Event()
        self._place = place
        self._resumptions = 0
        self._turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def lead(self, start: Callable[[], Awaitable[T]]) -> T:
        """Run a call to its end. One at a time in an event loop."""
        loop = asyncio.get_running_loop()
        before = loop.get_task_factory()

        def led(loop: asyncio.AbstractEventLoop, work: Work, **options: Any) -> Any:
            owner = _owner(options.get("context"))
            if owner is self and isinstance(work, Coroutine):
                work = self._held(work)
            if before is not None:
                return before(loop, work, **options)
            return asyncio.Task(work, loop=loop, **options)

        token = _LED.set(self)
        loop.set_task_factory(led)
        try:
            return await self._held(_awaiting(start))
        finally:
            loop.set_task_factory(before)
            _LED.reset(token)

    def go_on(self) -> None:
        """Let it go on, here and at every later place."""
        if not self._turn.done():
            self._turn.set_result(None)

    async def _held(self, work: Coroutine[Any, Any, T]) -> T:
        result: T = await Stepped(work, self._permission)
        return result

    def _permission(self) -> asyncio.Future[None]:
        self._resumptions += 1
        if self._resumptions > self._place and not self._turn.done():
            self.stands.set()
            return self._turn
        free: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        free.set_result(None)
        return free


async def _awaiting(start: Callable[[], Awaitable[T]]) -> T:
    return await start()


def _owner(context: Context | None) -> Standstill | None:
    return _LED.get() if context is None else context.get(_LED)
