"""What all tests of the project stand on."""

from __future__ import annotations

import signal

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run judge every wrong store by every rule."""
    parser.addoption(
        "--whole-claims",
        action="store_true",
        help="judge wrong stores on SQLite and PostgreSQL by all rules, not by those they claim",
    )


def pytest_configure() -> None:
    """Take interrupts again where the run was started in the background, which ignores them.

    Processes that the tests start inherit that, and some tests interrupt them.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
