"""A fresh storage of every kind for each of these tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from backends_support import Place

from loom_conformance.backend import Backend


@pytest_asyncio.fixture
async def place(backend: Backend) -> AsyncIterator[Place]:
    """A fresh storage."""
    address = await backend.create()
    yield Place(backend, address)
    await backend.destroy(address)
