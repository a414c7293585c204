"""Doing something at a chosen suspension of a call.

A coroutine gives way to its event loop at its awaits. `at_suspension` counts them and acts at the
one that was asked for, so that "at every await" can be tried one by one, without a clock.
"""

from __future__ import annotations

import os
import signal
import types
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Moment:
    """Where in a process's calls it is to be hit, and how.

    Attributes:
        call: which of the process's calls, counted from 1.
        suspension: at which await of that call, counted from 1.
        signal: `"KILL"` ends the process there; `"STOP"` pauses it until it gets a SIGCONT.
    """

    call: int
    suspension: int
    signal: Literal["KILL", "STOP"]

    def strike(self) -> None:
        """Send the signal to this process."""
        os.kill(os.getpid(), signal.SIGKILL if self.signal == "KILL" else signal.SIGSTOP)

    def to_json(self) -> dict[str, Any]:
        """The moment as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """The moment that `to_json` described."""
        return cls(**told)


@types.coroutine
def at_suspension(
    coroutine: Coroutine[Any, Any, T], number: int, act: Callable[[], object]
) -> Generator[Any, Any, T]:
    """Run a coroutine; call `act` once, just after its suspension with that number (from 1).

    At that moment the coroutine has asked to wait and the event loop has not turned yet: what it
    handed to other threads or to the network is under way.
    """
    seen = 0
    try:
        waited = coroutine.send(None)
        while True:
            seen += 1
            if seen == number:
                act()
            try:
                sent = yield waited
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:  # noqa: BLE001 - handed on to the coroutine
                waited = coroutine.throw(error)
            else:
                waited = coroutine.send(sent)
    except StopIteration as stop:
        result: T = stop.value
        return result
