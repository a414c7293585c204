"""The duplicate start, as a scenario, and backends that go wrong in one way."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from loom_conformance.backend import Backend
from loom_conformance.interleave import Node, Outcome, Scenario
from loom_conformance.spi import DuplicateSequenceError, EventEnvelope, EventStore, JsonValue

NOON = datetime(2026, 9, 27, 12, 0, tzinfo=UTC)


def envelope(
    execution_id: str,
    sequence: int,
    kind: str = "STEP_COMPLETED",
    *,
    id: str | None = None,
    payload: JsonValue = None,
    token: int | None = None,
) -> EventEnvelope:
    """An envelope as the runtime names it."""
    return EventEnvelope(
        execution_id,
        sequence,
        f"{execution_id}-{sequence}" if id is None else id,
        kind,
        NOON,
        payload,
        {} if token is None else {"fence": token},
    )


async def start_occurrence(node: Node) -> str:
    """Look, start, do the effect once, record it: four steps."""
    if await node.store.read_range("sched@7", 0, 0):
        return "seen"
    try:
        await node.store.append(envelope("sched@7", 0, "EXECUTION_STARTED", payload=node.name))
    except DuplicateSequenceError:
        return "lost"
    await node.effect("audit")
    await node.store.append(envelope("sched@7", 1))
    return "won"


def one_effect(outcome: Outcome) -> None:
    """The effect happens once."""
    who = [name for name, _, _ in outcome.effects]
    assert len(who) == 1, f"the effect ran {len(who)} times: {', '.join(who)}"


def duplicate_start(nodes: int) -> Scenario:
    """Nodes that start the same occurrence, and all look before they write."""
    return Scenario("one start per occurrence", [start_occurrence] * nodes, one_effect)


class Around:
    """A handle with something around its `append`; all else is forwarded."""

    def __init__(self, store: EventStore) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class SaysYes(Around):
    """Answers a conflict with success, as `ON CONFLICT DO NOTHING` does."""

    async def append(self, envelope: EventEnvelope) -> None:
        try:
            await self.store.append(envelope)
        except DuplicateSequenceError:
            return


class Wrapping(Backend):
    """A backend with something around every handle."""

    def __init__(self, backend: Backend, wrap: Callable[[EventStore], Any]) -> None:
        self.backend = backend
        self.wrap = wrap
        self.name = backend.name  # type: ignore[misc]
        self.envelope_ids = backend.envelope_ids  # type: ignore[misc]

    async def create(self) -> str:
        return await self.backend.create()

    async def connect(self, address: str) -> EventStore:
        store: EventStore = self.wrap(await self.backend.connect(address))
        return store

    async def destroy(self, address: str) -> None:
        await self.backend.destroy(address)
