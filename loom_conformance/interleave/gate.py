"""A store handle at whose every call the node stands still until the scheduler lets it go on."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..spi import EventEnvelope, StoreClosedError
from .names import RenamedStore
from .resources import ANYTHING

if TYPE_CHECKING:
    from .node import Node

OPTIONAL = ("append_batch", "read_range", "acquire_fence", "claim", "renew", "release")
"""The methods that a handle may have; its gate has the same."""


class GatedStore:
    """A node's handle: the same abilities, every call a step of its own.

    Under a decorator (coalescing, tenant scope, lagging replica) it gates what the decorator asks
    of the store, which is what reaches the database.

    Attributes:
        closed: whether the node has closed it in this run.
    """

    def __init__(self, node: Node, handle: RenamedStore) -> None:
        self._node = node
        self._handle = handle
        self.closed = False
        for method in OPTIONAL:
            if not callable(getattr(handle, method, None)):
                setattr(self, method, None)

    async def append(self, envelope: EventEnvelope) -> None:
        node = self._open()
        touched = node.resources.write(envelope.execution_id, envelope.id)
        key = ("append", envelope.execution_id, envelope.sequence, envelope.id, envelope.kind)
        await node.call(key, touched, (envelope,), self._handle.append)

    async def append_batch(self, envelopes: Iterable[EventEnvelope]) -> None:
        node = self._open()
        batch = list(envelopes)
        touched = node.resources.writes((one.execution_id, one.id) for one in batch)
        key = ("append_batch", tuple(_shown(one) for one in batch))
        await node.call(key, touched, (batch,), self._handle.append_batch)

    async def read_from(self, execution_id: str, first: int = 0) -> Sequence[EventEnvelope]:
        node = self._open()
        touched = node.resources.read(execution_id)
        key = ("read_from", execution_id, first)
        return await node.call(key, touched, key[1:], self._handle.read_from)

    async def read_range(self, execution_id: str, first: int, last: int) -> Sequence[EventEnvelope]:
        node = self._open()
        touched = node.resources.read(execution_id)
        key = ("read_range", execution_id, first, last)
        return await node.call(key, touched, key[1:], self._handle.read_range)

    async def acquire_fence(self, execution_id: str) -> int:
        node = self._open()
        touched = node.resources.fence(execution_id)
        key = ("acquire_fence", execution_id)
        return await node.call(key, touched, key[1:], self._handle.acquire_fence)

    async def claim(self, name: str, holder: str, ttl: float) -> bool:
        node = self._open()
        key = ("claim", name, holder, ttl)
        return await node.call(key, node.resources.lease(name), key[1:], self._handle.claim)

    async def renew(self, name: str, holder: str, ttl: float) -> bool:
        node = self._open()
        key = ("renew", name, holder, ttl)
        return await node.call(key, node.resources.lease(name), key[1:], self._handle.renew)

    async def release(self, name: str, holder: str) -> bool:
        node = self._open()
        key = ("release", name, holder)
        return await node.call(key, node.resources.lease(name), key[1:], self._handle.release)

    async def close(self) -> None:
        """Refuse what this node still asks of it; the storage keeps the handle for the next run."""
        self.closed = True

    def _open(self) -> Node:
        if self.closed:
            raise StoreClosedError
        return self._node


class Gated:
    """Any other object, each of whose `async` methods is a step that may touch everything."""

    def __init__(self, node: Node, inner: object) -> None:
        self._node = node
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value
        return self._step(name, value)

    def _step(
        self, name: str, method: Callable[..., Coroutine[Any, Any, Any]]
    ) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def call(*args: Any, **options: Any) -> Any:
            async def perform(*_: Any) -> Any:
                return await method(*args, **options)

            words = tuple(repr(value) for value in (*args, *options.items()))
            return await self._node.call((name, *words), ANYTHING, (), perform)

        return call


def _shown(envelope: EventEnvelope) -> tuple[Hashable, ...]:
    return (envelope.execution_id, envelope.sequence, envelope.id, envelope.kind)
