"""The storage of an exploration: one handle a node, one to look on, and their certain end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ..backend import Backend, Blocking, Leasing
from ..spi import LeaseStore
from .gate import GatedStore
from .names import Names, RenamedStore
from .node import Node


class Handles:
    """Opens what the nodes need on a fresh storage, and closes it on every path.

    Attributes:
        observer: a handle of nobody's, for set-ups and checks.
    """

    observer: RenamedStore

    def __init__(self, backend: Backend, names: Names, patience: float) -> None:
        self._backend = backend
        self._names = names
        self._patience = patience
        self._address: str | None = None
        self._open: list[Any] = []
        self._of_node: dict[int, Any] = {}

    async def open(self, nodes: Sequence[Node]) -> None:
        """Make a storage and connect."""
        backend = self._backend
        address = self._address = await backend.create()
        try:
            # The first one may have to set the storage up, and others in its way are a race of
            # their own (LIVE-5).
            first = await self._connected(address)
            others = await asyncio.gather(*(self._connected(address) for _ in nodes))
        except BaseException:
            await self.close()
            raise
        self.observer = RenamedStore(first, self._names)
        for node, handle in zip(nodes, others, strict=True):
            self._of_node[node.index] = handle
            node.store = GatedStore(node, RenamedStore(handle, self._names))
            if isinstance(backend, Leasing) and "leases" not in backend.declined:
                leases = _LeasesOnDemand(backend, address)
                self._open.append(leases)
                node.leases = GatedStore(node, RenamedStore(leases, self._names))

    async def _connected(self, address: str) -> Any:
        handle = await self._backend.connect(address)
        self._open.append(handle)
        return handle

    async def waits_for_lock(self, node: Node) -> bool:
        """Whether the database says that the node's handle waits for a lock."""
        if self._address is None or not isinstance(self._backend, Blocking):
            return False
        handles = await self._backend.blocked(self._address)
        return any(self._of_node.get(node.index) is handle for handle in handles)

    async def close(self) -> None:
        """Close every handle and remove the storage."""
        handles, self._open = self._open, []
        address, self._address = self._address, None
        self._of_node.clear()
        closing = [asyncio.ensure_future(handle.close()) for handle in handles]
        if closing:
            _, late = await asyncio.wait(closing, timeout=self._patience)
            for task in late:
                task.cancel()
            # How a handle closes is judged by rules of its own; here it only must not hold us.
            await asyncio.gather(*(task for task in closing if task.done()), return_exceptions=True)
        if address is not None:
            await self._backend.destroy(address)


class _LeasesOnDemand:
    """A handle on leases that is opened by its first call: most scenarios make none."""

    def __init__(self, backend: Leasing, address: str) -> None:
        self._backend = backend
        self._address = address
        self._handle: LeaseStore | None = None

    async def _opened(self) -> LeaseStore:
        if self._handle is None:
            self._handle = await self._backend.connect_leases(self._address)
        return self._handle

    async def claim(self, name: str, holder: str, ttl: float) -> bool:
        return await (await self._opened()).claim(name, holder, ttl)

    async def renew(self, name: str, holder: str, ttl: float) -> bool:
        return await (await self._opened()).renew(name, holder, ttl)

    async def release(self, name: str, holder: str) -> bool:
        return await (await self._opened()).release(name, holder)

    async def close(self) -> None:
        if self._handle is not None:
            await self._handle.close()
