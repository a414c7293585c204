"""One PostgreSQL server for these tests, and a fresh storage of every kind for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from backends_support import Place

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


@pytest_asyncio.fixture
async def place(backend: Backend) -> AsyncIterator[Place]:
    """A fresh storage."""
    address = await backend.create()
    yield Place(backend, address)
    await backend.destroy(address)
