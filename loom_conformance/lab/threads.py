"""Work that needs an event loop of its own, done beside the one that runs a test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from .verdict import Inconclusive

T = TypeVar("T")


async def aside(work: Callable[[], T], seconds: float, what: str) -> T:
    """Do blocking work in a thread of its own, and wait for it at most `seconds`.

    The thread ends with the process: work that hangs holds nobody up.

    Raises:
        Inconclusive: it did not end in time.
        BaseException: what the work raised.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(value: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value, error = None, None
        try:
            value = work()
        except BaseException as raised:  # noqa: BLE001 - raised again where it is awaited
            error = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish, value, error)

    threading.Thread(target=run, name=what, daemon=True).start()
    await asyncio.wait({done}, timeout=seconds)
    if not done.done():
        done.cancel()
        raise Inconclusive(f"{what} did not end in {seconds:g} s")
    return done.result()
