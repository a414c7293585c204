"""The scheduler: schedules a second and the time to a verdict, beside other schedulers.

The race is the duplicate start: look, append at 0, do the effect, append at 1, by two or three
nodes of one store. The other schedulers run it where they can do it at all, and only where they
are installed; the store's methods never suspend, so for them each call is preceded by a yield.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from loom_backends.memory import MemoryBackend
from loom_backends.postgres import PostgresBackend
from loom_backends.postgres.discovery import PostgresNotFoundError
from loom_backends.sqlite import SQLiteBackend
from loom_conformance.backend import Backend
from loom_conformance.interleave import Finding, Limits, Node, Outcome, Scenario, explore
from loom_conformance.spi import DuplicateSequenceError, EventEnvelope

from . import schedulers
from .pairs import Plan, Result, Side, compare

NOON: Final = datetime(2026, 9, 27, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be reached on a backend: schedules a second, and milliseconds to a verdict."""

    schedules: float
    two_nodes: float
    three_nodes: float


GOALS: Final = {
    "memory": Goal(8_000, 5, 150),
    "sqlite": Goal(800, 25, 1_000),
    "postgres": Goal(300, 60, 2_500),
}


def one_effect(outcome: Outcome) -> None:
    """What must hold."""
    assert len(outcome.effects) == 1


def race(nodes: int, execution: str = "sched@7") -> Scenario:
    """The race of so many nodes for the start of an execution."""

    async def start_occurrence(node: Node) -> None:
        if await node.store.read_range(execution, 0, 0):
            return
        started = EventEnvelope(
            execution, 0, f"{execution}-0", "EXECUTION_STARTED", NOON, node.name
        )
        try:
            await node.store.append(started)
        except DuplicateSequenceError:
            return
        await node.effect("audit")
        await node.store.append(
            EventEnvelope(execution, 1, f"{execution}-1", "STEP_COMPLETED", NOON)
        )

    return Scenario("duplicate start", [start_occurrence] * nodes, one_effect)


async def measure(plan: Plan) -> AsyncIterator[Result]:
    """Every row, one backend after the other; PostgreSQL only where there is one."""
    async for result in _backend(plan, MemoryBackend()):
        yield result
    async for result in _beside_others(plan):
        yield result
    async for result in _backend(plan, SQLiteBackend()):
        yield result
    postgres = PostgresBackend()
    try:
        await postgres.start()
    except PostgresNotFoundError as error:
        print(error, file=sys.stderr)
        return
    try:
        async for result in _backend(plan, postgres):
            yield result
        if schedulers.frontrun_there():
            yield await _beside_frontrun(plan, postgres)
    finally:
        await postgres.stop()


async def _backend(plan: Plan, backend: Backend) -> AsyncIterator[Result]:
    goal = GOALS[backend.name]
    amount = plan.amount({"memory": 2_000, "sqlite": 400, "postgres": 200}[backend.name])
    rates, two, three = [], [], []
    for _ in range(plan.rounds):
        rates.append(await asyncio.to_thread(_rate, backend, amount))
        two.append(await asyncio.to_thread(_verdict, backend, 2, 8))
        three.append(await asyncio.to_thread(_verdict, backend, 3, 66))
    rows = Result(
        backend.name, "schedules of two nodes", statistics.median(rates), goal=goal.schedules
    )
    yield rows
    for what, times, most in (
        ("all of two nodes, four calls each", two, goal.two_nodes),
        ("all of three nodes, four calls each", three, goal.three_nodes),
    ):
        yield replace(rows, what=what, rate=statistics.median(times), goal=most, unit="ms")


def _rate(backend: Backend, schedules: int) -> float:
    """Schedules of two nodes a second, once everything is open."""
    limits = Limits(schedules=schedules, seconds=3600)
    verdict = explore(race(2), backend, search="random", limits=limits)
    assert verdict.schedules == schedules, str(verdict)
    return schedules / verdict.searching


def _verdict(backend: Backend, nodes: int, schedules: int) -> float:
    """Milliseconds to exhaust a race, once everything is open."""
    verdict = explore(race(nodes), backend)
    assert (verdict.finding, verdict.schedules) == (Finding.HOLDS, schedules), str(verdict)
    return verdict.searching * 1000


async def _beside_others(plan: Plan) -> AsyncIterator[Result]:
    """Schedules a second in memory, by chance, in pairs; all start and end included."""
    amount = plan.amount(1_000)
    for nodes, what in ((2, "schedules of two nodes"), (3, "schedules of three nodes")):

        def ours(nodes: int = nodes) -> int:
            limits = Limits(schedules=amount, seconds=3600)
            explore(race(nodes), MemoryBackend(), search="random", limits=limits)
            return amount

        for name, theirs in schedulers.in_memory(nodes, amount).items():
            goal = 2.0 if name.startswith("detangle") else None
            yield await compare(
                plan, "memory", what, _side("ours", ours), _side(name, theirs), goal=goal
            )


class Standing(PostgresBackend):
    """One schema for every exploration, made beforehand: the other side has it so, too."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._address = address

    async def create(self) -> str:
        """The schema that is there."""
        return self._address

    async def destroy(self, address: str) -> None:
        """Leave it to the next exploration."""


async def _beside_frontrun(plan: Plan, postgres: PostgresBackend) -> Result:
    """Verdicts a second on two nodes on PostgreSQL, all sessions opened and closed each time."""
    address = await postgres.create()
    standing = Standing(address)
    names = itertools.count()
    await (await standing.connect(address)).close()
    try:

        def ours() -> int:
            verdict = explore(race(2, f"ours {next(names)}"), standing)
            assert verdict.finding is Finding.HOLDS, str(verdict)
            return 1

        def theirs() -> int:
            return schedulers.frontrun_on_postgres(postgres, address)

        few = replace(plan, rounds=min(plan.rounds, 3))
        return await compare(
            few,
            "postgres",
            "verdict on two nodes",
            _side("ours", ours),
            _side("frontrun", theirs),
            goal=100.0,
        )
    finally:
        await postgres.destroy(address)


def _side(name: str, work: Callable[[], int]) -> Side[None]:
    """In a thread, for the schedulers bring event loops of their own."""

    async def threaded(_: None) -> int:
        return await asyncio.to_thread(work)

    return Side(name, lambda: None, threaded)
