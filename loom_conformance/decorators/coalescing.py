"""Group commit: writes that arrive close together share one `append_batch` of the inner store.

A sync to disk costs the same for one envelope as for a hundred, so a store under load is faster
when its writers wait a moment for company (DeWitt et al. 1984). What that costs is that the
writers of one flush share its fate: a refused batch refuses them all (ADR 0103, D2), and a
caller that was refused for another's conflict has to try again alone, by `append_batch`.

Flushes go out one after another, in the order in which their first write came.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, cast

from ..clock import Clock, SystemClock, Timer
from ..spi import (
    BatchEventStore,
    EventEnvelope,
    EventStore,
    FencingEventStore,
    JsonValue,
    OutcomeUnknownError,
    RangeEventStore,
    StoreClosedError,
    check_envelope,
    has_ability,
)


class CoalescingEventStore:
    """A handle whose appends share flushes.

    It has `read_range` and `acquire_fence` exactly when the wrapped handle has them; reads and
    fences go straight through. The rules are COAL-1 to COAL-8.

    An envelope is checked and copied when its write is called: what lies outside the contract's
    domain is refused there and costs no other write its flush, and what the caller changes
    afterwards changes nothing.

    A caller that is cancelled before its flush goes out has written nothing. Later than that it
    waits until the flush is settled and is cancelled then; the flush itself is cancelled when
    all its callers have been. A second cancellation leaves at once, with an unknown outcome.
    """

    read_range: Callable[[str, int, int], Awaitable[Sequence[EventEnvelope]]]
    acquire_fence: Callable[[str], Awaitable[int]]

    def __init__(
        self,
        store: EventStore,
        *,
        max_linger: float = 0.0,
        max_batch: int = 500,
        clock: Clock | None = None,
    ) -> None:
        """Coalesce the appends to `store`.

        Args:
            store: the handle to write to; it is closed with this one.
            max_linger: how long a flush waits for company, in seconds from its first write. With
                0 a flush takes what has gathered while the one before it was under way.
            max_batch: how many appends a flush holds; it goes out at once when it is full.
            clock: what measures the linger; the machine's own clock by default.

        Raises:
            TypeError: the store has no `append_batch`.
            ValueError: `max_linger` is negative or not finite, or `max_batch` is less than 1.
        """
        if not has_ability(store, "batch"):
            raise TypeError(
                f"{type(store).__name__} has no append_batch, so its writes cannot share a flush; "
                "use it without coalescing"
            )
        if not (math.isfinite(max_linger) and max_linger >= 0):
            raise ValueError(f"max_linger must be 0 or more seconds, not {max_linger!r}")
        if max_batch < 1:
            raise ValueError(f"max_batch must be 1 or more, not {max_batch!r}")
        self.max_linger: Final = max_linger
        self.max_batch: Final = max_batch
        self._store = cast(BatchEventStore, store)
        self._clock: Clock = SystemClock() if clock is None else clock
        self._open: _Flush | None = None
        self._last: _Flush | None = None
        self._closing: asyncio.Task[None] | None = None
        if has_ability(store, "range"):
            self.read_range = cast(RangeEventStore, store).read_range
        if has_ability(store, "fencing"):
            self.acquire_fence = cast(FencingEventStore, store).acquire_fence

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Store one envelope with the flush that gathers now; return once that is durable.

        Raises:
            InvalidEnvelopeError: the envelope lies outside the contract's domain.
            StoreClosedError: `close` was called before.
            OutcomeUnknownError: the flush was cancelled from outside while it was under way.
            Exception: what refused the flush, for each of its callers alike.
        """
        self._refuse_after_close()
        taken = _snapshot(envelope)
        flush = self._open
        if flush is None:
            flush = self._begin()
            if self.max_linger > 0:
                flush.timer = self._clock.call_later(self.max_linger, flush.ready.set)
            else:
                flush.ready.set()
        caller = flush.join([taken])
        if len(flush.writes) >= self.max_batch:
            self._seal(flush)
        await self._outcome(flush, caller)

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        """Store all of the envelopes or none, as a flush of their own.

        What waits for company is sent off before it, so that writes keep their order.

        Raises:
            InvalidEnvelopeError, StoreClosedError, OutcomeUnknownError: as `append` does.
            Exception: what refused the batch.
        """
        self._refuse_after_close()
        batch = [_snapshot(envelope) for envelope in envelopes]
        if not batch:
            return
        if self._open is not None:
            self._seal(self._open)
        flush = self._begin()
        caller = flush.join(batch)
        self._seal(flush)
        await self._outcome(flush, caller)

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        """What the wrapped store has of the execution from `first` on."""
        return await self._store.read_from(execution_id, first)

    async def close(self) -> None:
        """Send off what waits, settle every caller, then close the wrapped handle.

        A cancelled `close` goes on in the background, and a second one waits for the same end.
        """
        if self._closing is None:
            if self._open is not None:
                self._seal(self._open)
            self._closing = asyncio.create_task(self._shut(self._last), name="close coalescer")
        await asyncio.shield(self._closing)

    async def _shut(self, last: _Flush | None) -> None:
        if last is not None:
            await last.settled.wait()
        await self._store.close()

    def _refuse_after_close(self) -> None:
        if self._closing is not None:
            raise StoreClosedError

    def _begin(self) -> _Flush:
        """Open a flush that goes out after the one before it."""
        flush = _Flush()
        task = asyncio.create_task(self._carry(flush, self._last), name="flush")
        task.add_done_callback(partial(self._ended, flush))
        flush.task = task
        self._open = self._last = flush
        return flush

    def _seal(self, flush: _Flush) -> None:
        """Let nobody else in, and wait no longer for company."""
        if flush.timer is not None:
            flush.timer.cancel()
        flush.ready.set()
        if self._open is flush:
            self._open = None

    async def _carry(self, flush: _Flush, previous: _Flush | None) -> BaseException | None:
        """Wait for company and for the flush before, then write; what refused it, or `None`."""
        await flush.ready.wait()
        if previous is not None:
            await previous.settled.wait()
        self._seal(flush)
        flush.sent = True
        flush.staying = len(flush.writes)
        envelopes = [envelope for taken in flush.writes.values() for envelope in taken]
        try:
            if envelopes:
                await self._store.append_batch(envelopes)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - every caller raises it, whatever it is
            return error
        return None

    def _ended(self, flush: _Flush, task: asyncio.Task[BaseException | None]) -> None:
        """Tell every caller; a done-callback, because a task may be cancelled before it begins."""
        self._seal(flush)
        if self._last is flush:
            self._last = None
        flush.settle(flush.cut() if task.cancelled() else task.result())

    async def _outcome(self, flush: _Flush, caller: asyncio.Future[None]) -> None:
        """Wait for the flush in a caller's name; a caller that is cancelled leaves it."""
        try:
            await caller
        except asyncio.CancelledError:
            if not flush.sent:
                del flush.writes[caller]
                if not flush.writes:
                    self._seal(flush)
            else:
                flush.staying -= 1
                if not flush.staying:
                    flush.task.cancel()
                await flush.settled.wait()
            raise


class _Flush:
    """One `append_batch` of the inner store, and who waits for it."""

    task: asyncio.Task[BaseException | None]

    def __init__(self) -> None:
        self.writes: dict[asyncio.Future[None], list[EventEnvelope]] = {}
        self.timer: Timer | None = None
        self.ready = asyncio.Event()
        self.settled = asyncio.Event()
        self.sent = False
        self.staying = 0

    def join(self, envelopes: list[EventEnvelope]) -> asyncio.Future[None]:
        """Take a caller's envelopes along; the future is the caller's outcome."""
        caller = asyncio.get_running_loop().create_future()
        self.writes[caller] = envelopes
        return caller

    def cut(self) -> Exception:
        """What callers are told when the flush itself was cancelled."""
        if self.sent:
            return OutcomeUnknownError(
                "the flush was cancelled while the store was writing it; read back before "
                "writing again"
            )
        return StoreClosedError("the flush was cancelled before it was sent; nothing is stored")

    def settle(self, error: BaseException | None) -> None:
        """Give every caller that still waits the flush's outcome."""
        for caller in self.writes:
            if caller.done():
                continue
            if error is None:
                caller.set_result(None)
            else:
                caller.set_exception(error)
        self.settled.set()


def _snapshot(envelope: EventEnvelope) -> EventEnvelope:
    """The envelope as it is now.

    Raises:
        InvalidEnvelopeError: it lies outside the contract's domain.
    """
    check_envelope(envelope)
    return EventEnvelope(
        envelope.execution_id,
        envelope.sequence,
        envelope.id,
        envelope.kind,
        envelope.timestamp,
        _copy(envelope.payload),
        cast(dict[str, JsonValue], _copy(envelope.metadata)),
    )


def _copy(value: JsonValue) -> JsonValue:
    """A JSON value of its own; the domain's depth keeps the recursion short."""
    if isinstance(value, dict):
        return {k: v if type(v) in _IMMUTABLE else _copy(v) for k, v in value.items()}
    if isinstance(value, list):
        return [item if type(item) in _IMMUTABLE else _copy(item) for item in value]
    return value


_IMMUTABLE: Final = frozenset({str, int, float, bool, type(None)})
