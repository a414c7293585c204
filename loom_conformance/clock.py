"""Time as something that is handed in: wall time, sleeping, and timers that can be withdrawn.

Whatever waits (a coalescer's linger, a replica's lag, a retry, a timer service) takes a `Clock`
and asks nothing else for the time. In production that is `SystemClock`; under the scheduler of
`loom_conformance.interleave` each node has a clock of its own on one virtual time, and each
timer that fires is a choice of the scheduler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol


class Timer(Protocol):
    """An armed timer."""

    def cancel(self) -> None:
        """Withdraw it; one that has fired or was withdrawn stays as it is."""


class Clock(Protocol):
    """Where a component gets its time from."""

    def now(self) -> datetime:
        """The time: timezone-aware, UTC, in whole milliseconds."""

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed; a cancelled sleep withdraws its timer."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` once, in the running event loop, when `seconds` have passed."""


class SystemClock:
    """The machine's own time and the running event loop's own timers."""

    def now(self) -> datetime:
        return to_milliseconds(datetime.now(UTC))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)


def to_milliseconds(moment: datetime) -> datetime:
    """Cut a time down to the whole milliseconds that an envelope's timestamp may hold."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
