"""A catch-up reader: what to build on durable facts alone (ADR 0058; ADR 0103, D6)."""

from __future__ import annotations

from collections.abc import Callable

from ..spi import EventEnvelope, EventStore


class ReadModel:
    """Applies every durable event of an execution once, in order, by reading it back."""

    def __init__(self, store: EventStore, apply: Callable[[EventEnvelope], None]) -> None:
        self.store = store
        self.apply = apply
        self.next: dict[str, int] = {}

    async def catch_up(self, execution_id: str) -> int:
        """Apply what is durable and was not applied yet; how many events that was."""
        first = self.next.get(execution_id, 0)
        envelopes = await self.store.read_from(execution_id, first)
        for envelope in envelopes:
            self.apply(envelope)
            self.next[execution_id] = envelope.sequence + 1
        return len(envelopes)
