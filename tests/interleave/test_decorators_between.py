"""Decorators between a node and its gate: their lingers are timers, and so choices."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

from interleaving_support import envelope

import loom_conformance.interleave
from loom_conformance.backend import Backend
from loom_conformance.decorators import (
    CoalescingEventStore,
    Replica,
    ReplicaReadingEventStore,
    TenantScopedEventStore,
)
from loom_conformance.interleave import Finding, Node, Outcome, Scenario, explore
from loom_conformance.spi import DuplicateSequenceError


def test_a_linger_is_a_choice_and_its_flush_is_one_step(backend: Backend) -> None:
    """Two writes of one node share a flush or not, as the timer fires late or early."""
    flushes: set[tuple[int, ...]] = set()

    async def writes(node: Node) -> list[str]:
        store = CoalescingEventStore(node.store, max_linger=0.01, clock=node.clock)

        async def late() -> None:
            await node.effect("think")
            await store.append(envelope("late", 0))

        await asyncio.gather(store.append(envelope("early", 0)), late())
        return [one.id for one in await store.read_from("early", 0)]

    def counted(outcome: Outcome) -> None:
        assert outcome.results == {"A": ["early-0"]}

    verdict = explore(Scenario("linger", [writes], counted), backend)
    assert verdict.finding is Finding.HOLDS, str(verdict)
    assert verdict.schedules > 1

    async def never_together(outcome: Outcome) -> None:
        early = await outcome.store.read_from("early", 0)
        late = await outcome.store.read_from("late", 0)
        flushes.add((len(early), len(late)))
        raise AssertionError("as always")

    found = explore(Scenario("linger", [writes], never_together), backend).counterexample
    assert found is not None
    assert "timer fires at 0.01 s" in str(found.trace)
    assert "append_batch([(early, 0, STEP_COMPLETED)" in str(found.trace)
    assert flushes == {(1, 1)}


def test_an_innocent_shares_the_fate_of_its_flush_in_some_schedules_only(
    backend: Backend,
) -> None:
    async def given(store: object) -> None:
        await store.append(envelope("taken", 0))  # type: ignore[attr-defined]

    async def writes(node: Node) -> list[str]:
        store = CoalescingEventStore(node.store, max_linger=0.01, clock=node.clock)

        async def one(execution: str) -> str:
            try:
                await store.append(envelope(execution, 0, id=f"{execution} again"))
            except DuplicateSequenceError:
                return "refused"
            return "stored"

        async def late() -> str:
            await node.effect("think")
            return await one("fresh")

        return list(await asyncio.gather(one("taken"), late()))

    ends: list[str] = []

    def seen(outcome: Outcome) -> None:
        refused, fresh = outcome.results["A"]
        assert refused == "refused"
        ends.append(fresh)

    verdict = explore(Scenario("shared fate", [writes], seen, given=given), backend)
    assert verdict.finding is Finding.HOLDS, str(verdict)
    assert set(ends) == {"refused", "stored"}


def test_tenants_and_lagging_replicas_stand_between_too(backend: Backend) -> None:
    async def works(node: Node) -> list[int]:
        lagging = ReplicaReadingEventStore(node.store, Replica(1))
        store = TenantScopedEventStore(lagging, f"tenant {node.name}")
        await store.append(envelope("x", 0))
        behind = len(await store.read_from("x", 0))
        await store.append(envelope("x", 1))
        return [behind, len(await store.read_from("x", 0))]

    def apart(outcome: Outcome) -> None:
        assert outcome.results == {"A": [0, 1], "B": [0, 1]}

    verdict = explore(Scenario("tenants", [works, works], apart), backend)
    assert verdict.finding is Finding.HOLDS, str(verdict)
    assert verdict.schedules == 1, "tenants share no execution, so their calls commute"


def test_nothing_private_of_anyone_elses_is_used() -> None:
    """No attribute with a leading underscore but of `self` in the scheduler's own code."""
    found = []
    for path in sorted(Path(loom_conformance.interleave.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Attribute)
                and node.attr.startswith("_")
                and not node.attr.startswith("__")
                and not (isinstance(node.value, ast.Name) and node.value.id == "self")
            ):
                found.append(f"{path.name}:{node.lineno} {ast.unparse(node)}")
    assert not found
