"""A clock that is moved by hand, and an inner store whose flushes are held by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from loom_backends.memory import MemoryEventStore, MemoryStorage
from loom_conformance.spi import EventEnvelope, JsonValue

EPOCH = datetime(2026, 9, 27, tzinfo=UTC)


def envelope(
    execution_id: str,
    sequence: int = 0,
    payload: JsonValue = None,
    *,
    id: str | None = None,
    metadata: dict[str, JsonValue] | None = None,
) -> EventEnvelope:
    return EventEnvelope(
        execution_id,
        sequence,
        f"{execution_id}-{sequence}" if id is None else id,
        "HAPPENED",
        EPOCH,
        payload,
        {} if metadata is None else metadata,
    )


async def turns(count: int = 10) -> None:
    """Let everything that is ready run; nothing here waits for anything outside the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


@dataclass
class HandTimer:
    due: float
    callback: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class HandClock:
    """A `Clock` that stands still until a test moves it."""

    elapsed: float = 0.0
    timers: list[HandTimer] = field(default_factory=list)

    def now(self) -> datetime:
        return EPOCH + timedelta(milliseconds=round(self.elapsed * 1000))

    async def sleep(self, seconds: float) -> None:
        passed = asyncio.Event()
        timer = self.call_later(seconds, passed.set)
        try:
            await passed.wait()
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> HandTimer:
        timer = HandTimer(self.elapsed + seconds, callback)
        self.timers.append(timer)
        return timer

    def armed(self) -> int:
        return sum(not timer.cancelled for timer in self.timers)

    async def advance(self, seconds: float) -> None:
        await turns()
        self.elapsed += seconds
        due = [timer for timer in self.timers if timer.due <= self.elapsed]
        self.timers = [timer for timer in self.timers if timer.due > self.elapsed]
        for timer in sorted(due, key=lambda timer: timer.due):
            if not timer.cancelled:
                timer.callback()
        await turns()


class HeldStore(MemoryEventStore):
    """A memory store that notes its calls; its flushes wait while `held` is set."""

    def __init__(self, storage: MemoryStorage | None = None) -> None:
        super().__init__(MemoryStorage() if storage is None else storage)
        self.flushes: list[list[tuple[str, int]]] = []
        self.appends = 0
        self.release = asyncio.Event()
        self.release.set()
        self.failure: BaseException | None = None
        self.cancelled = 0
        self.underway = 0
        self.most_underway = 0

    def hold(self) -> None:
        self.release.clear()

    async def append(self, envelope: EventEnvelope, /) -> None:
        self.appends += 1
        await super().append(envelope)

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        batch = list(envelopes)
        self.flushes.append([(each.execution_id, each.sequence) for each in batch])
        self.underway += 1
        self.most_underway = max(self.most_underway, self.underway)
        try:
            await self.release.wait()
            if self.failure is not None:
                raise self.failure
            await super().append_batch(batch)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.underway -= 1

    def fresh(self) -> MemoryEventStore:
        return MemoryEventStore(self.storage)


class BareStore:
    """A store that has nothing but the core."""

    def __init__(self) -> None:
        self.inner = MemoryEventStore(MemoryStorage())

    async def append(self, envelope: EventEnvelope, /) -> None:
        await self.inner.append(envelope)

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        return await self.inner.read_from(execution_id, first)

    async def close(self) -> None:
        await self.inner.close()


def only(*methods: str) -> BareStore:
    """A core store with these optional methods of a memory store besides."""
    store = BareStore()
    for name in methods:
        setattr(store, name, getattr(store.inner, name))
    return store
