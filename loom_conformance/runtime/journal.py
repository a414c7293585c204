"""One execution's fold in memory, and its queue of writes (ADR 0103, D1, D3, D6)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

from ..clock import Clock
from ..spi import FENCE_KEY, EventEnvelope, EventStore, JsonValue
from .errors import StorageWriteError
from .state import Event, ExecutionState, fold

Listener = Callable[[EventEnvelope], None]
"""Is told one envelope, and must not wait."""

ErrorListener = Callable[[BaseException], None]


def ignore(_: object, /) -> None:
    """The listener of who listens to nothing."""


class ExecutionJournal:
    """Folds events at once and writes them behind, in order.

    `on_event` is the live tail: it is told an event when it is folded, before the event is durable,
    and so it may be told one that never will be (D6). Whoever must act on durable facts alone reads
    them back, as `ReadModel` does.
    """

    def __init__(
        self,
        store: EventStore,
        execution_id: str,
        clock: Clock,
        *,
        metadata: Mapping[str, JsonValue] | None = None,
        fence: int | None = None,
        state: ExecutionState | None = None,
        on_event: Listener = ignore,
        on_commit: Listener = ignore,
        on_storage_error: ErrorListener = ignore,
    ) -> None:
        """A journal that goes on from `state`, or from nothing.

        Args:
            store: where the envelopes go, decorators included.
            execution_id: the execution.
            clock: where timestamps come from.
            metadata: what every envelope carries; the fence is merged over it.
            fence: the token that every envelope carries, if the execution is driven under one.
            state: the fold of what is durable already.
            on_event: is told every event as it is folded.
            on_commit: is told after `on_event`.
            on_storage_error: is told of the write that failed, once.
        """
        self.execution_id = execution_id
        self.state = state
        self.fence = fence
        self.store = store
        self.clock = clock
        self.metadata = dict(metadata or {})
        self.on_event = on_event
        self.on_commit = on_commit
        self.on_storage_error = on_storage_error
        self.failure: StorageWriteError | None = None
        self._queue: deque[EventEnvelope] = deque()
        self._writer: asyncio.Task[None] | None = None

    @property
    def next_sequence(self) -> int:
        """The sequence that the next event takes."""
        return 0 if self.state is None else self.state.last + 1

    def bootstrap_envelope(self, event: Event) -> EventEnvelope:
        """The envelope of sequence 0, byte for byte as `commit` would write it (D1)."""
        return self._build(event, 0)

    def commit(self, event: Event) -> EventEnvelope:
        """Fold the event, tell it, and enqueue its append; `drain` says whether it landed.

        Raises:
            StorageWriteError: an earlier write failed, so this one cannot follow it.
        """
        if self.failure is not None:
            raise self.failure
        envelope = self._build(event, self.next_sequence)
        self._fold(envelope)
        self.enqueue(envelope)
        return envelope

    def enqueue(self, *envelopes: EventEnvelope) -> None:
        """Append these behind what is being written, without waiting."""
        self._queue.extend(envelopes)
        if self._queue and (self._writer is None or self._writer.done()):
            self._writer = asyncio.create_task(self._write(), name=f"journal {self.execution_id}")

    def adopt(self, envelope: EventEnvelope) -> None:
        """Do all that `commit` does for an envelope that is durable already, but the append.

        Raises:
            ValueError: it is another execution's, or its sequence is not the next one.
        """
        if (envelope.execution_id, envelope.sequence) != (self.execution_id, self.next_sequence):
            raise ValueError(
                f"the journal of {self.execution_id!r} takes sequence {self.next_sequence} next, "
                f"not {envelope.sequence} of {envelope.execution_id!r}"
            )
        self._fold(envelope)

    async def drain(self) -> None:
        """Wait until everything that was committed is durable.

        Raises:
            StorageWriteError: a write failed; nothing after it was written.
        """
        while self._writer is not None and not self._writer.done():
            await asyncio.wait([self._writer])
        if self.failure is not None:
            raise self.failure

    async def abandon(self) -> None:
        """Write nothing more: drop the queue and settle what is in flight."""
        self._queue.clear()
        if self._writer is not None and not self._writer.done():
            self._writer.cancel()
            await asyncio.wait([self._writer])

    def _build(self, event: Event, sequence: int) -> EventEnvelope:
        metadata = dict(self.metadata)
        if self.fence is not None:
            metadata[FENCE_KEY] = self.fence
        return EventEnvelope(
            execution_id=self.execution_id,
            sequence=sequence,
            id=f"{self.execution_id}-{sequence}",
            kind=event.kind,
            timestamp=self.clock.now(),
            payload=dict(event.payload),
            metadata=metadata,
        )

    def _fold(self, envelope: EventEnvelope) -> None:
        self.state = fold(self.state, envelope)
        self.on_event(envelope)
        self.on_commit(envelope)

    async def _write(self) -> None:
        while self._queue:
            envelope = self._queue.popleft()
            try:
                await self.store.append(envelope)
            except Exception as error:  # noqa: BLE001 - whatever a store raises fails the run
                self._fail(envelope, error)

    def _fail(self, envelope: EventEnvelope, error: Exception) -> None:
        self._queue.clear()
        self.failure = StorageWriteError(self.execution_id, envelope.sequence)
        self.failure.__cause__ = error
        self.on_storage_error(self.failure)
