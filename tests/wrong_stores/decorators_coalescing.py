"""Wrong coalescers over the memory store, each a small correct one with one thing changed."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from loom_backends.memory import MemoryEventStore
from loom_conformance.spi import (
    EventEnvelope,
    EventStore,
    StoreClosedError,
    check_envelope,
    has_ability,
)

from .memory_base import PrivateMemory, SuspendingStore
from .registry import variant, wrong


@dataclass(slots=True, eq=False)
class Waiting:
    """One caller's envelopes, and where its outcome is put."""

    envelopes: list[EventEnvelope]
    outcome: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class PlainCoalescer:
    """A small correct coalescer: one flush at a time, in the order of the calls."""

    def __init__(self, store: Any, *, max_linger: float, max_batch: int) -> None:
        self._must_batch(store)
        self.store = store
        self.max_linger = max_linger
        self.max_batch = max_batch
        self.closed = False
        self.waiting: list[Waiting] = []
        self.timer: asyncio.TimerHandle | None = None
        self.last: asyncio.Task[None] | None = None
        for name in ("read_range", "acquire_fence"):
            if callable(getattr(store, name, None)):
                setattr(self, name, getattr(store, name))

    def _must_batch(self, store: Any) -> None:
        if not has_ability(store, "batch"):
            raise TypeError(f"{type(store).__name__} has no append_batch")

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Join the flush that gathers now."""
        self._check_open()
        one = Waiting([self._taken(envelope)])
        self.waiting.append(one)
        if len(self.waiting) >= self.max_batch:
            self._depart()
        else:
            self._set_timer()
        await self._told(one)

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        """Go as a flush of its own, behind what waits."""
        self._check_open()
        one = Waiting([self._taken(envelope) for envelope in envelopes])
        self._depart()
        self._send([one])
        await self._told(one)

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        """What the store has."""
        found: Sequence[EventEnvelope] = await self.store.read_from(execution_id, first)
        return found

    async def close(self) -> None:
        """Send what waits, then close the store."""
        self.closed = True
        self._depart()
        while self.last is not None and not self.last.done():
            await asyncio.wait([self.last])
        await self.store.close()

    def _check_open(self) -> None:
        if self.closed:
            raise StoreClosedError

    def _taken(self, envelope: EventEnvelope) -> EventEnvelope:
        check_envelope(envelope)
        return copy.deepcopy(envelope)

    def _set_timer(self) -> None:
        if self.timer is None:
            loop = asyncio.get_running_loop()
            self.timer = loop.call_later(self.max_linger, self._depart)

    def _depart(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        gone, self.waiting = self.waiting, []
        if gone:
            self._send(gone)

    def _send(self, flush: list[Waiting]) -> None:
        previous = self.last
        self.last = asyncio.get_running_loop().create_task(self._carry(flush, previous))

    async def _carry(self, flush: list[Waiting], previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            await asyncio.wait([previous])
        flush = [one for one in flush if not one.outcome.done()]
        if not flush:
            return
        try:
            await self._write(flush)
        except Exception as error:  # noqa: BLE001 - every caller is told
            self._refuse(flush, error)
        else:
            self._acknowledge(flush)

    async def _write(self, flush: list[Waiting]) -> None:
        await self.store.append_batch([envelope for one in flush for envelope in one.envelopes])

    def _acknowledge(self, flush: list[Waiting]) -> None:
        for one in flush:
            if not one.outcome.done():
                one.outcome.set_result(None)

    def _refuse(self, flush: list[Waiting], error: Exception) -> None:
        for one in flush:
            if not one.outcome.done():
                one.outcome.set_exception(error)

    async def _told(self, one: Waiting) -> None:
        """Wait for the outcome; who is cancelled waits till nothing of it is under way."""
        try:
            await asyncio.shield(one.outcome)
        except asyncio.CancelledError:
            self._leave(one)
            if not one.outcome.done() and self.last is not None:
                await asyncio.wait([self.last])
            if one.outcome.done() and not one.outcome.cancelled():
                one.outcome.exception()
            raise

    def _leave(self, one: Waiting) -> None:
        if one in self.waiting:
            self.waiting.remove(one)
            one.outcome.cancel()


def coalesced_by(decorator: type[PlainCoalescer], store: type[Any] = MemoryEventStore) -> Any:
    """A memory backend that brings a coalescing decorator of its own."""

    class Coalesced(PrivateMemory):
        def coalescing(self, store: EventStore, *, max_linger: float, max_batch: int) -> Any:
            return decorator(store, max_linger=max_linger, max_batch=max_batch)

    Coalesced.store = store
    Coalesced.__name__ = Coalesced.__qualname__ = f"{decorator.__name__}Backend"
    return Coalesced


variant("own-coalescer")(coalesced_by(PlainCoalescer))
variant("own-coalescer-over-a-slow-store")(coalesced_by(PlainCoalescer, SuspendingStore))


class AcknowledgesOnJoining(PlainCoalescer):
    """Acknowledges a write when it has joined the flush."""

    async def _told(self, one: Waiting) -> None:
        one.outcome.add_done_callback(lambda done: done.cancelled() or done.exception())


class WritesOneByOne(PlainCoalescer):
    """Stores the flush by one `append` after another."""

    async def _write(self, flush: list[Waiting]) -> None:
        for one in flush:
            for envelope in one.envelopes:
                await self.store.append(envelope)


class TakesAnyStore(PlainCoalescer):
    """Accepts a store without batches, and loops over it."""

    def _must_batch(self, store: Any) -> None:
        """Nothing is refused."""


class TellsTheFirstOnly(PlainCoalescer):
    """Gives the error to the caller that opened the flush, and success to the others."""

    def _refuse(self, flush: list[Waiting], error: Exception) -> None:
        super()._refuse(flush[:1], error)
        self._acknowledge(flush[1:])


class LogsTheError(PlainCoalescer):
    """Logs the error in the background task, and acknowledges."""

    def _refuse(self, flush: list[Waiting], error: Exception) -> None:
        self._acknowledge(flush)


class WritesTheInnocent(PlainCoalescer):
    """Tries a refused flush again one by one, and tells everyone that it was refused."""

    async def _write(self, flush: list[Waiting]) -> None:
        try:
            await super()._write(flush)
        except Exception:
            if len(flush) > 1:
                for one in flush:
                    try:
                        await super()._write([one])
                    except Exception:  # noqa: BLE001, S112 - the refusal is told below
                        continue
            raise


class BatchJoinsTheQueue(PlainCoalescer):
    """Feeds a batch into the same queue as single writes."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        self._check_open()
        one = Waiting([self._taken(envelope) for envelope in envelopes])
        self.waiting.append(one)
        self._set_timer()
        await self._told(one)


class SendsTheRefusedAgain(PlainCoalescer):
    """Keeps the envelopes of a refused flush, and sends them along with the next one."""

    def __init__(self, store: Any, *, max_linger: float, max_batch: int) -> None:
        super().__init__(store, max_linger=max_linger, max_batch=max_batch)
        self.kept: list[EventEnvelope] = []

    async def _write(self, flush: list[Waiting]) -> None:
        self.kept += [envelope for one in flush for envelope in one.envelopes]
        await self.store.append_batch(self.kept)
        self.kept = []


class StopsAfterARefusal(PlainCoalescer):
    """Marks itself as failed after a refused flush and never recovers."""

    failed: Exception | None = None

    async def _write(self, flush: list[Waiting]) -> None:
        if self.failed is not None:
            raise self.failed
        try:
            await super()._write(flush)
        except Exception as error:
            self.failed = error
            raise


class LeaderTakesTheFlushAlong(PlainCoalescer):
    """Lets the caller that opened the flush carry it: when that is cancelled, all are."""

    async def append(self, envelope: EventEnvelope, /) -> None:
        self._check_open()
        one = Waiting([self._taken(envelope)])
        leads = not self.waiting
        self.waiting.append(one)
        if leads:
            try:
                await asyncio.sleep(self.max_linger)
                flush, self.waiting = self.waiting, []
                previous, self.last = self.last, None
                await self._carry(flush, previous)
            except asyncio.CancelledError:
                for other in [*self.waiting]:
                    other.outcome.cancel()
                self.waiting = []
                raise
        await one.outcome


class SharesOneFuture(PlainCoalescer):
    """Lets all callers of a flush await one future, which the first that leaves cancels."""

    shared: asyncio.Future[None] | None = None

    async def append(self, envelope: EventEnvelope, /) -> None:
        self._check_open()
        if not self.waiting:
            self.shared = asyncio.get_running_loop().create_future()
        shared = self.shared
        assert shared is not None
        self.waiting.append(Waiting([self._taken(envelope)], shared))
        self._set_timer()
        await shared


class ForgetsWhoLeft(PlainCoalescer):
    """Keeps envelopes and callers in two lists, and takes one who leaves out of one of them."""

    async def _carry(self, flush: list[Waiting], previous: asyncio.Task[None] | None) -> None:
        there = [one for one in flush if not one.outcome.done()]
        await super()._carry(there[: len(flush) - 2 * (len(flush) - len(there))], previous)

    def _leave(self, one: Waiting) -> None:
        one.outcome.cancel()


class CloseDropsWhatWaits(PlainCoalescer):
    """Cancels the timer at `close`, and with it what waits."""

    async def close(self) -> None:
        self.closed = True
        if self.timer is not None:
            self.timer.cancel()
        await self.store.close()


class CloseAcknowledgesWhatWaits(PlainCoalescer):
    """Acknowledges at `close` what it never sent."""

    async def close(self) -> None:
        self._acknowledge(self.waiting)
        self.waiting = []
        await super().close()


class AcceptsAfterClose(PlainCoalescer):
    """Lets writes join after `close`; their flush meets a closed store and is acknowledged."""

    def _check_open(self) -> None:
        """Nothing is refused."""

    def _refuse(self, flush: list[Waiting], error: Exception) -> None:
        if isinstance(error, StoreClosedError):
            self._acknowledge(flush)
        else:
            super()._refuse(flush, error)


class BatchOvertakes(PlainCoalescer):
    """Sends a batch at once, past the writes that wait."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        self._check_open()
        one = Waiting([self._taken(envelope) for envelope in envelopes])
        self._send([one])
        await self._told(one)


class LastInFirstOut(PlainCoalescer):
    """Takes waiting writes from the wrong end."""

    def _send(self, flush: list[Waiting]) -> None:
        super()._send(flush[::-1])


class TwoFlushesAtOnce(PlainCoalescer):
    """Sends a flush without waiting for the one before it."""

    async def _carry(self, flush: list[Waiting], previous: asyncio.Task[None] | None) -> None:
        await super()._carry(flush, None)


class Debounces(PlainCoalescer):
    """Sets the timer back at every arrival."""

    def _set_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        super()._set_timer()


class FullQueueAnswersOk(PlainCoalescer):
    """Acknowledges what does not fit into its queue of 16, and drops it."""

    queued = 0

    async def append(self, envelope: EventEnvelope, /) -> None:
        self._check_open()
        check_envelope(envelope)
        if self.queued >= 16:
            return
        self.queued += 1
        try:
            await super().append(envelope)
        finally:
            self.queued -= 1


class KeepsOneASlot(PlainCoalescer):
    """Gathers a flush in a dict by slot, so that the last of two rivals is stored for both."""

    async def _write(self, flush: list[Waiting]) -> None:
        rows = {(e.execution_id, e.sequence): e for one in flush for e in one.envelopes}
        if len(flush) == 1:
            await super()._write(flush)
        else:
            await self.store.append_batch(list(rows.values()))


class TakesValuesAtTheFlush(PlainCoalescer):
    """Hands on the caller's own objects, with what has become of them by then."""

    def _taken(self, envelope: EventEnvelope) -> EventEnvelope:
        return envelope


class ShowsWhatIsUnderWay(PlainCoalescer):
    """Adds to what it reads the writes whose flush is not over yet."""

    def __init__(self, store: Any, *, max_linger: float, max_batch: int) -> None:
        super().__init__(store, max_linger=max_linger, max_batch=max_batch)
        self.under_way: list[EventEnvelope] = []

    async def append(self, envelope: EventEnvelope, /) -> None:
        self.under_way.append(envelope)
        try:
            await super().append(envelope)
        finally:
            self.under_way = [one for one in self.under_way if one is not envelope]

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        found = list(await super().read_from(execution_id, first))
        places = {one.sequence for one in found}
        found += [
            one
            for one in self.under_way
            if one.execution_id == execution_id and one.sequence not in places
        ]
        return found


for _claim, _decorator in {
    "coalescer-acknowledges-on-joining": AcknowledgesOnJoining,
    "coalescer-writes-one-by-one": WritesOneByOne,
    "coalescer-takes-any-store": TakesAnyStore,
    "coalescer-tells-the-first-only": TellsTheFirstOnly,
    "coalescer-logs-the-error": LogsTheError,
    "coalescer-writes-the-innocent": WritesTheInnocent,
    "coalescer-batch-joins-the-queue": BatchJoinsTheQueue,
    "coalescer-sends-the-refused-again": SendsTheRefusedAgain,
    "coalescer-stops-after-a-refusal": StopsAfterARefusal,
    "coalescer-shares-one-future": SharesOneFuture,
    "coalescer-close-acknowledges-what-waits": CloseAcknowledgesWhatWaits,
    "coalescer-accepts-after-close": AcceptsAfterClose,
    "coalescer-batch-overtakes": BatchOvertakes,
    "coalescer-last-in-first-out": LastInFirstOut,
    "coalescer-two-flushes-at-once": TwoFlushesAtOnce,
    "coalescer-full-queue-answers-ok": FullQueueAnswersOk,
    "coalescer-keeps-one-a-slot": KeepsOneASlot,
    "coalescer-takes-values-at-the-flush": TakesValuesAtTheFlush,
    "coalescer-shows-what-is-under-way": ShowsWhatIsUnderWay,
}.items():
    wrong(_claim)(coalesced_by(_decorator))

for _claim, _decorator in {
    "coalescer-leader-takes-the-flush-along": LeaderTakesTheFlushAlong,
    "coalescer-forgets-who-left": ForgetsWhoLeft,
    "coalescer-close-drops-what-waits": CloseDropsWhatWaits,
    "coalescer-debounces": Debounces,
}.items():
    wrong(_claim, deadline=2.0)(coalesced_by(_decorator))
