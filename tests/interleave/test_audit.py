"""What is taken for independent commutes on the real stores, and a store that lies is caught."""

from __future__ import annotations

import random

import pytest
from interleaving_support import Around, Wrapping, envelope
from random_programs import Behaviour, program

from loom_backends.memory import MemoryBackend
from loom_backends.sqlite import SQLiteBackend
from loom_conformance.backend import Backend
from loom_conformance.interleave import Node, Scenario
from loom_conformance.interleave.audit import audit
from loom_conformance.spi import EventEnvelope, EventStore


async def writes_here_and_there(node: Node) -> list[str]:
    """Calls of every kind, on an execution of its own and on one that is shared."""
    own = f"own-{node.name}"
    await node.store.append(envelope(own, 0))
    token = await node.store.acquire_fence(own)
    await node.store.append_batch([envelope(own, 1, token=token), envelope(own, 2, token=token)])
    found = await node.store.read_from("shared", 0)
    await node.effect(f"bell of {node.name}")
    await node.leases.claim(own, node.name, 60.0)
    return [one.id for one in [*found, *await node.store.read_range(own, 1, 2)]]


BUSY = Scenario("here and there", [writes_here_and_there] * 2, lambda outcome: None)


def test_independent_neighbours_commute(backend: Backend) -> None:
    found = audit(BUSY, backend, swaps=12, seed=7)
    assert len(found.swaps) == 12
    assert not found.failed, found.failed


@pytest.mark.parametrize("seed", range(4))
def test_they_do_in_random_programs_too(backend: Backend, seed: int) -> None:
    chance = random.Random(seed)
    nodes = [Behaviour(program(chance, 4)) for _ in range(2)]
    scenario = Scenario(f"program {seed}", nodes, lambda outcome: None)
    found = audit(scenario, backend, swaps=5, seed=seed)
    assert found.swaps
    assert not found.failed, found.failed


class Counting(Around):
    """Numbers all envelopes of the storage in one sequence, whatever execution they are of."""

    def __init__(self, store: EventStore, counter: list[int]) -> None:
        super().__init__(store)
        self.counter = counter

    async def append(self, envelope: EventEnvelope) -> None:
        self.counter[0] += 1
        await self.store.append(
            EventEnvelope(
                envelope.execution_id,
                envelope.sequence,
                envelope.id,
                envelope.kind,
                envelope.timestamp,
                {"position": self.counter[0]},
                envelope.metadata,
            )
        )


@pytest.mark.parametrize("backend", [MemoryBackend(), SQLiteBackend()], ids=lambda one: one.name)
def test_a_store_that_touches_more_than_it_says_is_caught(backend: Backend) -> None:
    counters: dict[str, list[int]] = {}

    class Numbering(Wrapping):
        async def connect(self, address: str) -> EventStore:
            self.wrap = lambda store: Counting(store, counters.setdefault(address, [0]))
            return await super().connect(address)

    found = audit(BUSY, Numbering(backend, lambda store: store), swaps=30)
    assert found.failed
    for swap in found.failed:
        assert swap.difference is not None
        assert "position" in swap.difference
        assert "append(own-" in swap.first
        assert "append(own-" in swap.second
