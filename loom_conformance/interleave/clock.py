"""A node's time: it stands still until the scheduler fires the node's next timer.

Each node's timers fire in their own order, and at any moment between other steps: a node may be
paused for as long as anyone likes, so no timer of one node waits for a timer of another. The
storage's clock is the latest time that any node has reached.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from ..clock import Timer

EPOCH: Final = datetime(2030, 1, 1, tzinfo=UTC)
"""When every run begins."""


class Owner(Protocol):
    """What a clock asks of the node it belongs to."""

    def armed(self, timer: NodeTimer) -> None:
        """A timer is there from now on."""

    def withdrawn(self, timer: NodeTimer) -> None:
        """A timer is there no more."""


class NodeTimer(asyncio.TimerHandle):
    """A timer of one node; firing it is a choice of the scheduler."""

    def __init__(
        self,
        owner: Owner,
        number: int,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
    ) -> None:
        super().__init__(when, callback, args, asyncio.get_running_loop(), context)
        self.number = number
        self.due = when
        self._owner = owner
        self._task = (callback, args, context)

    def cancel(self) -> None:
        if not self.cancelled():
            self._owner.withdrawn(self)
        super().cancel()

    def fire(self) -> None:
        """Make the callback ready."""
        callback, args, context = self._task
        asyncio.get_running_loop().call_soon(callback, *args, context=context)


class NodeClock:
    """The `Clock` of one node, on virtual time.

    Attributes:
        seconds: the time since the beginning of the run.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self.seconds = 0.0
        self._armed = 0

    @property
    def used(self) -> bool:
        """Whether a timer was armed."""
        return self._armed > 0

    def reset(self) -> None:
        """Go back to the beginning of time, for the next run."""
        self.seconds = 0.0
        self._armed = 0

    def now(self) -> datetime:
        return EPOCH + timedelta(milliseconds=round(self.seconds * 1000))

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, lambda: None if future.done() else future.set_result(None))
        try:
            await future
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self.arm(self.seconds + seconds, callback, (), None)

    def arm(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> NodeTimer:
        """Arm a timer for a time of this clock, as `loop.call_at` does."""
        self._armed += 1
        ours = contextvars.copy_context() if context is None else context
        timer = NodeTimer(self._owner, self._armed, max(when, self.seconds), callback, args, ours)
        self._owner.armed(timer)
        return timer

    def reach(self, when: float) -> None:
        """Let the time of a timer come; time never goes back."""
        self.seconds = max(self.seconds, when)
