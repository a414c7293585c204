"""A store whose reads come from a replica that has not caught up.

The lag is a matter of writes, never of time, so a test says exactly what a reader sees. Each
execution lags by itself: what happens to one never changes what is read of another.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, cast

from ..spi import (
    BatchEventStore,
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    EventStore,
    FencingEventStore,
    RangeEventStore,
    StaleFenceError,
    StoreClosedError,
    has_ability,
    is_error,
)

_REFUSALS: Final = (
    DuplicateSequenceError,
    DuplicateEnvelopeIdError,
    StaleFenceError,
    StoreClosedError,
    ValueError,
)


class Replica:
    """What one replica has not applied yet; share it among the handles that read from it.

    A replica is a single process's: it hides the writes that were acknowledged through the
    decorators that share it. Whatever was written past them is there at once.
    """

    def __init__(self, lag: int | None = None) -> None:
        """A replica that stays `lag` writes behind in every execution.

        Args:
            lag: how many of an execution's latest writes it has not applied, a batch counting as
                one write; 0 is a replica without lag. `None` lets it move only by `catch_up`.

        Raises:
            ValueError: the lag is negative.
        """
        if lag is not None and lag < 0:
            raise ValueError(f"a replica's lag must be 0 or more writes, not {lag}")
        self.lag: Final[int | None] = lag
        self._unapplied: defaultdict[str, deque[int]] = defaultdict(deque)
        self._served: dict[str, int] = {}

    def behind(self, execution_id: str) -> int:
        """How many of an execution's writes the replica has not applied."""
        return len(self._unapplied.get(execution_id, ()))

    def catch_up(self, execution_id: str | None = None, writes: int | None = None) -> None:
        """Apply the oldest `writes` of an execution, all of them, or all of every execution."""
        if execution_id is None:
            for each in list(self._unapplied):
                self._apply(each, writes)
        else:
            self._apply(execution_id, writes)

    def _apply(self, execution_id: str, writes: int | None) -> None:
        waiting = self._unapplied.get(execution_id)
        if waiting is None:
            return
        for _ in range(len(waiting) if writes is None else min(writes, len(waiting))):
            waiting.popleft()
        if not waiting:
            del self._unapplied[execution_id]

    def wrote(self, envelopes: Iterable[EventEnvelope]) -> None:
        """Note a write of the primary, by the first slot it took in each execution."""
        firsts: dict[str, int] = {}
        for envelope in envelopes:
            first = firsts.get(envelope.execution_id, envelope.sequence)
            firsts[envelope.execution_id] = min(first, envelope.sequence)
        for execution_id, first in firsts.items():
            self._unapplied[execution_id].append(first)
            if self.lag is not None:
                self._apply(execution_id, max(0, self.behind(execution_id) - self.lag))

    def visible(self, execution_id: str, found: Sequence[EventEnvelope]) -> list[EventEnvelope]:
        """Of what the primary has, what the replica has.

        Nothing that it has shown is hidden later, and nothing is shown beyond the first envelope
        that is missing: a reader meets an older state of the log and never a torn one.
        """
        served = self._served.get(execution_id, -1)
        unapplied = self._unapplied.get(execution_id, ())
        end = min((first for first in unapplied if first > served), default=None)
        shown = [envelope for envelope in found if end is None or envelope.sequence < end]
        if shown:
            self._served[execution_id] = max(served, shown[-1].sequence)
        return shown


class ReplicaReadingEventStore:
    """A handle that writes to the primary and reads from a replica behind it.

    Fences are the primary's too. The handle has `append_batch`, `read_range` and `acquire_fence`
    exactly when the wrapped one has them. With a lag it breaks APPEND-1 on purpose: it shows what
    the runtime makes of such a store (ADR 0103, residuals).
    """

    append_batch: Callable[[Iterable[EventEnvelope]], Awaitable[None]]
    read_range: Callable[[str, int, int], Awaitable[Sequence[EventEnvelope]]]
    acquire_fence: Callable[[str], Awaitable[int]]

    def __init__(self, store: EventStore, replica: Replica) -> None:
        """Read `store` as far as `replica` has come; handles that share it see the same state."""
        self.replica: Final = replica
        self._store = store
        if has_ability(store, "batch"):
            self.append_batch = self._append_batch
        if has_ability(store, "range"):
            self.read_range = self._read_range
        if has_ability(store, "fencing"):
            self.acquire_fence = cast(FencingEventStore, store).acquire_fence

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Store one envelope on the primary; the replica has it later."""
        await self._write([envelope], self._store.append(envelope))

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        """What the replica has of the execution from `first` on."""
        found = await self._store.read_from(execution_id, first)
        return self.replica.visible(execution_id, found)

    async def close(self) -> None:
        """Close the wrapped handle; the replica serves the others on."""
        await self._store.close()

    async def _append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        """Store all of the envelopes, or none, on the primary; the replica has them later."""
        batch = list(envelopes)
        await self._write(batch, cast(BatchEventStore, self._store).append_batch(batch))

    async def _read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        """What the replica has of the execution from `first` to `last`."""
        found = await cast(RangeEventStore, self._store).read_range(execution_id, first, last)
        return self.replica.visible(execution_id, found)

    async def _write(self, envelopes: list[EventEnvelope], call: Awaitable[None]) -> None:
        """Make the write; unless it was refused it may have landed, and then the replica lags."""
        try:
            await call
        except BaseException as error:
            if not is_error(error, *_REFUSALS):
                self.replica.wrote(envelopes)
            raise
        self.replica.wrote(envelopes)
