"""The storage of an exploration: one handle a node, one to look on, and their certain end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ..backend import Backend, Blocking, Leasing
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
            for node in nodes:
                node.store = await self._gated(node, backend.connect, address)
                if isinstance(backend, Leasing) and "leases" not in backend.declined:
                    node.leases = await self._gated(node, backend.connect_leases, address)
            self.observer = RenamedStore(
                await self._connected(backend.connect, address), self._names
            )
        except BaseException:
            await self.close()
            raise

    async def _gated(
        self, node: Node, connect: Callable[[str], Coroutine[Any, Any, Any]], address: str
    ) -> GatedStore:
        handle = await self._connected(connect, address)
        self._of_node.setdefault(node.index, handle)
        return GatedStore(node, RenamedStore(handle, self._names))

    async def _connected(
        self, connect: Callable[[str], Coroutine[Any, Any, Any]], address: str
    ) -> Any:
        handle = await connect(address)
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
