"""What all tests of the project stand on."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Take interrupts again where the run was started in the background, which ignores them.

    Processes that the tests start inherit that, and some tests interrupt them.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
