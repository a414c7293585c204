"""A store seen from below: what a decorator really asks of the store that it wraps.

`spied` forwards every call of a handle, has exactly its abilities, keeps each batch that comes
through, and can hold writes back until it is told to let them go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..spi import ABILITIES, EventEnvelope, EventStore, abilities


class Spy:
    """What went through a spied store.

    Attributes:
        flushes: the envelopes of each `append_batch`, in the order of the calls.
        appends: the envelopes of each `append`.
        refusals: what the store raised for writes that came through, in that order.
        begun: set once a write has come.
    """

    def __init__(self) -> None:
        self.flushes: list[list[EventEnvelope]] = []
        self.appends: list[EventEnvelope] = []
        self.refusals: list[Exception] = []
        self.begun = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()

    def hold(self) -> None:
        """Let no write reach the store until `release`."""
        self._open.clear()

    def release(self) -> None:
        """Let writes go on."""
        self._open.set()

    async def passing(self) -> None:
        """Note that a write has come, and wait while writes are held."""
        self.begun.set()
        await self._open.wait()

    @contextmanager
    def noting_refusals(self) -> Iterator[None]:
        """Note what the store raises inside the block."""
        try:
            yield
        except Exception as error:
            self.refusals.append(error)
            raise

    def written(self, execution_id: str) -> list[int]:
        """The sequences of one execution in the order in which they came through."""
        flat = [*self.appends, *(one for flush in self.flushes for one in flush)]
        return [one.sequence for one in flat if one.execution_id == execution_id]


def spied(store: EventStore, without: frozenset[str] = frozenset()) -> tuple[EventStore, Spy]:
    """The store with a spy in it, and the spy.

    Args:
        store: the handle to forward to.
        without: abilities that are not forwarded, as from a store that lacks them.
    """
    spy = Spy()
    methods: dict[str, Any] = {}
    for ability in abilities(store) - without:
        name = ABILITIES[ability]
        methods[name] = _FORWARDED[name]
    kind = type("SpiedEventStore", (_Spied,), methods)
    return kind(store, spy), spy


class _Spied:
    def __init__(self, store: Any, spy: Spy) -> None:
        self._store = store
        self._spy = spy

    async def append(self, envelope: EventEnvelope, /) -> None:
        self._spy.appends.append(envelope)
        await self._spy.passing()
        with self._spy.noting_refusals():
            await self._store.append(envelope)

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        found: Sequence[EventEnvelope] = await self._store.read_from(execution_id, first)
        return found

    async def close(self) -> None:
        await self._store.close()


async def _append_batch(self: Any, envelopes: Iterable[EventEnvelope], /) -> None:
    batch = list(envelopes)
    self._spy.flushes.append(batch)
    await self._spy.passing()
    with self._spy.noting_refusals():
        await self._store.append_batch(batch)


async def _read_range(
    self: Any, execution_id: str, first: int, last: int, /
) -> Sequence[EventEnvelope]:
    found: Sequence[EventEnvelope] = await self._store.read_range(execution_id, first, last)
    return found


async def _acquire_fence(self: Any, execution_id: str, /) -> int:
    token: int = await self._store.acquire_fence(execution_id)
    return token


_FORWARDED = {
    "append_batch": _append_batch,
    "read_range": _read_range,
    "acquire_fence": _acquire_fence,
}
