"""An end for code that keeps the event loop's thread to itself, and so cannot be reached by it."""

from __future__ import annotations

import signal
import threading
import time
from types import TracebackType
from typing import Any, Self


class Watchdog:
    """Interrupts the main thread when nobody has called `beat` for `patience` seconds.

    The interruption is a `KeyboardInterrupt`, which no `except Exception` swallows; `fired` tells
    it from one that a person sent. In another thread than the main one there is no watchdog.

    Attributes:
        waiting: set while the loop waits for I/O, which others bound.
        fired: whether it has interrupted.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._last = time.monotonic()
        self._over = threading.Event()
        self._main = threading.current_thread()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._before: Any = None
        self.waiting = False
        self.fired = False

    def beat(self) -> None:
        """Say that the loop turns."""
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        if self._main is threading.main_thread():
            # A process that was started in the background may have been told to ignore it.
            if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
                self._before = signal.signal(signal.SIGINT, signal.default_int_handler)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _watch(self) -> None:
        while not self._over.wait(self._patience / 4):
            silent = time.monotonic() - self._last
            if silent > self._patience and not self.waiting and self._main.ident is not None:
                self.fired = True
                self.beat()
                signal.pthread_kill(self._main.ident, signal.SIGINT)
