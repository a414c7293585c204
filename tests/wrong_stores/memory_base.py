"""Backends over memory stores with one thing changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from loom_backends.memory import (
    MemoryBackend,
    MemoryEventStore,
    MemoryLeaseStore,
    MemoryStorage,
)
from loom_conformance.spi import EventStore

from .registry import COALESCED_PATHS, PLAIN_PATHS, variant, wrong

S = TypeVar("S", bound=type[Any])


async def turn() -> None:
    """Give way to the event loop once, as every real driver does."""
    await asyncio.sleep(0)


class PrivateMemory(MemoryBackend):
    """A memory backend with a table of storages of its own, so that addresses repeat."""

    store: type[Any] = MemoryEventStore
    leases: type[MemoryLeaseStore] = MemoryLeaseStore
    storage: type[MemoryStorage] = MemoryStorage

    def __init__(self) -> None:
        self.storages: dict[str, MemoryStorage] = {}
        self._made = 0

    async def create(self) -> str:
        """Make an empty storage."""
        self._made += 1
        address = f"storage-{self._made}"
        self.storages[address] = self.storage()
        return address

    async def connect(self, address: str) -> EventStore:  # type: ignore[override]
        """Open a handle of this backend's kind."""
        handle: EventStore = self.store(self.storages[address])
        return handle

    async def destroy(self, address: str) -> None:
        """Forget a storage."""
        self.storages.pop(address, None)

    async def connect_leases(self, address: str) -> MemoryLeaseStore:
        """Open a handle on the leases of a storage."""
        return self.leases(self.storages[address])

    async def age_leases(self, address: str, seconds: float) -> None:
        """Move the end of every lease `seconds` back."""
        for lease in self.storages[address].leases.values():
            lease.ends -= seconds


def memory(store: type[Any], **declarations: Any) -> type[PrivateMemory]:
    """A memory backend whose handles are of a class, with other declarations where given."""
    return type(f"{store.__name__}Backend", (PrivateMemory,), {"store": store, **declarations})


def wrong_memory(
    claim: str,
    *,
    deadline: float = 10.0,
    paths: tuple[str, ...] = PLAIN_PATHS + COALESCED_PATHS,
    **declarations: Any,
) -> Callable[[S], S]:
    """Enter a memory store's class as the wrong store of a claim."""

    def enter(store: S) -> S:
        wrong(claim, deadline=deadline, paths=paths)(memory(store, **declarations))
        return store

    return enter


def correct_memory(
    name: str, *, advice: tuple[str, ...] = (), **declarations: Any
) -> Callable[[S], S]:
    """Enter a memory store's class as a correct variant."""

    def enter(store: S) -> S:
        variant(name, advice=advice)(memory(store, **declarations))
        return store

    return enter
