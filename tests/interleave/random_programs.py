"""Random programs for nodes: calls, effects, timers, spawned tasks and cancellations."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from interleaving_support import envelope

from loom_conformance.backend import Backend
from loom_conformance.interleave import Node, Scenario
from loom_conformance.interleave.engine import Engine, Run
from loom_conformance.interleave.explore import on_loop
from loom_conformance.interleave.search.bounded import Bounded
from loom_conformance.interleave.search.dpor import Reduced
from loom_conformance.interleave.search.step import Strand, dependent
from loom_conformance.spi import EventStoreError

Statement: TypeAlias = tuple[Any, ...]

EXECUTIONS = ("x", "y")


def program(chance: random.Random, length: int, inside: bool = False) -> list[Statement]:
    """A few statements; those inside of a spawned task spawn nothing."""
    return [_statement(chance, inside) for _ in range(chance.randint(1, length))]


def _statement(chance: random.Random, inside: bool) -> Statement:
    execution = chance.choice(EXECUTIONS)
    kind = chance.choices(
        ["read", "append", "batch", "fence", "effect", "sleep", "spawn", "cancel", "timeout"],
        [5, 6, 1, 2, 2, 1, 0 if inside else 1, 1, 1],
    )[0]
    match kind:
        case "spawn":
            return (kind, program(chance, 2, inside=True))
        case "sleep" | "timeout":
            return (kind, execution, chance.choice([1.0, 2.0]))
        case "effect":
            return (kind, chance.choice(["bell", "horn"]))
        case _:
            return (kind, execution, chance.randrange(2))


@dataclass
class Behaviour:
    """What a node does: its statements, each with its outcome written down."""

    statements: list[Statement]

    async def __call__(self, node: Node) -> list[Any]:
        seen: list[Any] = []
        tasks: list[asyncio.Task[list[Any]]] = []
        await self._do(node, self.statements, seen, tasks)
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        return [*seen, *(end if isinstance(end, list) else type(end).__name__ for end in ends)]

    async def _do(
        self,
        node: Node,
        statements: list[Statement],
        seen: list[Any],
        tasks: list[asyncio.Task[list[Any]]],
    ) -> None:
        for number, statement in enumerate(statements):
            try:
                seen.append(await self._one(node, number, statement, tasks))
            except EventStoreError as refusal:
                seen.append(type(refusal).__name__)

    async def _one(
        self,
        node: Node,
        number: int,
        statement: Statement,
        tasks: list[asyncio.Task[list[Any]]],
    ) -> Any:
        store = node.store
        match statement:
            case ("read", execution, first):
                return [one.id for one in await store.read_from(execution, first)]
            case ("append", execution, sequence):
                name = f"{node.name}{number}"
                return await store.append(envelope(execution, sequence, id=name))
            case ("batch", _, sequence):
                return await store.append_batch(
                    [envelope(one, sequence, id=f"{node.name}{number}{one}") for one in EXECUTIONS]
                )
            case ("fence", execution, _):
                return await store.acquire_fence(execution)
            case ("effect", name):
                return await node.effect(name)
            case ("sleep", _, seconds):
                await node.clock.sleep(seconds)
                return node.clock.now().second
            case ("spawn", inner):
                tasks.append(asyncio.ensure_future(self._spawned(node, inner)))
            case ("cancel", _, _):
                for task in tasks[:1]:
                    task.cancel()
            case ("timeout", execution, seconds):
                try:
                    async with asyncio.timeout(seconds):
                        return len(await store.read_from(execution, 0))
                except TimeoutError:
                    return "too late"
        return None

    async def _spawned(self, node: Node, statements: list[Statement]) -> list[Any]:
        seen: list[Any] = []
        await self._do(node, statements, seen, [])
        return seen


def scenario(seed: int, most_nodes: int = 3, length: int = 3) -> Scenario:
    """The random program of a seed."""
    chance = random.Random(seed)
    nodes = [Behaviour(program(chance, length)) for _ in range(chance.randint(2, most_nodes))]
    return Scenario(f"program {seed}", nodes, lambda outcome: None)


@dataclass
class Explored:
    """What running a program under many schedules has shown."""

    outcomes: set[str] = field(default_factory=set)
    classes: set[Any] = field(default_factory=set)
    runs: int = 0
    blocked: int = 0
    complete: bool = False


def explored(
    scenario: Scenario, backend: Backend, strategy: Bounded | Reduced, most_runs: int
) -> Explored:
    """Run a program until the strategy has no more, or too often."""

    async def all_runs() -> Explored:
        found = Explored()
        async with Engine(scenario, backend) as engine:
            while found.runs < most_runs and strategy.begin():
                run = await engine.run(strategy)
                if run.repetition:
                    found.blocked += 1
                    continue
                assert run.failure is None, run.failure
                assert run.stopped is None, run.stopped
                assert run.diverged is None, run.diverged
                assert engine.sharing is None
                strategy.finish(run.trail)
                found.runs += 1
                found.outcomes.add(await _outcome(engine, run))
                found.classes.add(_class(run))
        found.complete = strategy.complete
        return found

    return on_loop(all_runs)


async def _outcome(engine: Engine, run: Run) -> str:
    logs = await engine.logs(run)
    held = {name: [(one.sequence, one.id) for one in log] for name, log in sorted(logs.items())}
    effects = sorted((name, who) for who, name, _ in run.effects)
    return repr((sorted(run.results.items()), held, effects))


def _class(run: Run) -> Any:
    """The equivalence class of a run: its steps, and the order of those that depend."""
    count: dict[Strand, int] = {}
    names = []
    for step in run.trail:
        number = count[step.strand] = count.get(step.strand, 0) + 1
        names.append((step.strand, number, step.key))
    return frozenset(names), frozenset(_ordered(run, names))


def _ordered(run: Run, names: list[Any]) -> Iterator[tuple[Any, Any]]:
    for later, step in enumerate(run.trail):
        for earlier in range(later):
            if dependent(run.trail[earlier], step):
                yield names[earlier], names[later]
