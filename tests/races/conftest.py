"""A started backend of each kind, for tests that run on all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from loom_backends.memory import MemoryBackend
from loom_backends.postgres import PostgresBackend
from loom_backends.sqlite import SQLiteBackend
from loom_conformance.backend import Backend


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
