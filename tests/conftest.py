"""What all tests of the project stand on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from loom_backends.memory import MemoryBackend
from loom_backends.postgres import PostgresBackend
from loom_backends.sqlite import SQLiteBackend
from loom_conformance.backend import Backend


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


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresBackend]:
    """A started backend."""
    backend = PostgresBackend()
    asyncio.run(backend.start())
    yield backend
    asyncio.run(backend.stop())


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> Backend:
    """A backend of each kind in turn."""
    if request.param == "memory":
        return MemoryBackend()
    if request.param == "sqlite":
        return SQLiteBackend()
    started: PostgresBackend = request.getfixturevalue("postgres")
    return started
