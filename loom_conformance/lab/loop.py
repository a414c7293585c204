"""An event loop that outlives what a store does to it.

A store may ignore cancellation, block the thread, stop or close the loop. None of that may hold up
the rules that come after, so every wait here is bounded and a loop that was harmed is replaced.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


class LoopBlocked(BaseException):
    """A call kept the event loop's thread to itself for longer than the deadline.

    It is no `Exception`, so that a store's own `except Exception` does not swallow it.
    """


class LoopLost(Exception):
    """The store stopped or closed the event loop that it was called on."""


class BoundedLoop:
    """Runs coroutines on one reused loop, and replaces the loop where a store ruined it."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._runner: asyncio.Runner | None = None

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run one coroutine to its end under the watchdog.

        Raises:
            LoopLost: the loop was stopped or closed before the coroutine ended.
        """
        if self._runner is None:
            self._runner = asyncio.Runner(loop_factory=_quiet_loop)
        runner = self._runner
        loop = runner.get_loop()
        with _Watchdog(loop, self._patience):
            try:
                return runner.run(main())
            except RuntimeError as error:
                if not loop.is_closed() and "loop stopped" not in str(error):
                    raise
                how = "closed" if loop.is_closed() else "stopped"
                lost = LoopLost(f"the store {how} the event loop")
        self.replace()
        raise lost

    def replace(self) -> None:
        """Give up this loop; the next run starts on a new one."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        loop = runner.get_loop()
        if loop.is_closed():
            return
        # What is cancelled may stop the loop once more: there is nothing left on it to wait for.
        with _Watchdog(loop, self._patience), suppress(RuntimeError):
            loop.run_until_complete(_cancel_rest(self._patience))
            loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    close = replace


def _quiet_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(_swallow_strays)
    return loop


def _swallow_strays(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Background tasks that a store left behind are its own affair: rules judge its calls."""


async def _cancel_rest(patience: float) -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if rest:
        done, _ = await asyncio.wait(rest, timeout=min(patience, 1.0))
        for task in done:
            if not task.cancelled():
                task.exception()


class _Watchdog:
    """Raises `LoopBlocked` in the main thread when the loop has not turned for too long.

    A timer signal is re-armed by the loop itself, so only a blocked loop lets it fire. Where there
    is no such signal, in another thread, or where someone else uses it, there is no watchdog.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, patience: float) -> None:
        self._loop = loop
        self._patience = patience
        self._handle: asyncio.TimerHandle | None = None
        self._before: Any = None
        self._armed = False

    def __enter__(self) -> None:
        if (
            not hasattr(signal, "setitimer")
            or threading.current_thread() is not threading.main_thread()
            or signal.getitimer(signal.ITIMER_REAL)[0] > 0
        ):
            return
        self._before = signal.signal(signal.SIGALRM, self._fire)
        self._armed = True
        self._beat()

    def __exit__(self, *_: object) -> None:
        if not self._armed:
            return
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before or signal.SIG_DFL)
        self._armed = False
        if self._handle is not None:
            self._handle.cancel()

    def _beat(self) -> None:
        if self._armed and not self._loop.is_closed():
            signal.setitimer(signal.ITIMER_REAL, self._patience * 1.5)
            self._handle = self._loop.call_later(self._patience / 4, self._beat)

    def _fire(self, number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, self._patience * 1.5)
        raise LoopBlocked(f"the event loop did not turn for {self._patience:g} s")
