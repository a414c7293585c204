"""Other schedulers for asyncio on the duplicate start, each by its own front door."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

import asyncpg

from loom_backends.memory import MemoryEventStore, MemoryStorage
from loom_conformance.spi import DuplicateSequenceError, EventEnvelope

NOON: Final = datetime(2026, 9, 27, 12, tzinfo=UTC)


def in_memory(nodes: int, runs: int) -> dict[str, Callable[[], int]]:
    """Those that are installed, each with the work of so many schedules.

    frontrun explores until it has proven the race or finds no more; it is given fewer.
    """
    there: dict[str, Callable[[], int]] = {}
    for name, work in (
        ("detangle", _detangle),
        ("simloom", _simloom),
        ("simloop", _simloop),
        ("frontrun", _frontrun),
    ):
        if importlib.util.find_spec(name):
            there[f"{name} {version(name)}"] = _bound(work, nodes, runs)
    return there


def _bound(work: Callable[[int, int], int], nodes: int, runs: int) -> Callable[[], int]:
    return lambda: work(nodes, runs)


async def _race(nodes: int) -> None:
    """One run of the race on a fresh store; it raises where the effect happened twice."""
    storage = MemoryStorage()
    effects: list[str] = []
    await asyncio.gather(
        *(_node(MemoryEventStore(storage), str(number), effects) for number in range(nodes))
    )
    assert len(effects) == 1


async def _node(store: MemoryEventStore, name: str, effects: list[str]) -> None:
    await asyncio.sleep(0)
    if await store.read_range("sched@7", 0, 0):
        return
    await asyncio.sleep(0)
    started = EventEnvelope("sched@7", 0, "sched@7-0", "EXECUTION_STARTED", NOON, name)
    try:
        await store.append(started)
    except DuplicateSequenceError:
        return
    await asyncio.sleep(0)
    effects.append(name)
    await asyncio.sleep(0)
    await store.append(EventEnvelope("sched@7", 1, "sched@7-1", "STEP_COMPLETED", NOON))


def _detangle(nodes: int, runs: int) -> int:
    import detangle

    async def race() -> None:
        await _race(nodes)

    strategy = detangle.RandomWalk(seed=1)
    stats = detangle.explore(race, strategy=strategy, runs=runs, shrink=False, database=False)
    return int(stats.runs)


def _simloom(nodes: int, runs: int) -> int:
    import simloom

    async def race(*_: Any) -> None:
        await _race(nodes)

    result = simloom.explore_systematic(race, max_delays=50, max_schedules=runs)
    return int(result.explored)


def _simloop(nodes: int, runs: int) -> int:
    import simloop

    async def race(*_: Any) -> None:
        await _race(nodes)

    report = simloop.explore(race, range(runs))
    assert report is None, report
    return runs


def _frontrun(nodes: int, runs: int) -> int:
    import frontrun

    class State:
        def __init__(self) -> None:
            self.storage = MemoryStorage()
            self.effects: list[str] = []

    async def worker(state: State) -> None:
        await _node(MemoryEventStore(state.storage), "node", state.effects)

    async def explored() -> Any:
        return await frontrun.explore(
            setup=State,
            workers=worker,
            count=nodes,
            invariant=lambda state: len(state.effects) == 1,
            max_executions=max(1, runs // 50),
            preemption_bound=None,
            detect_io=False,
            total_timeout=30,
        )

    return int(asyncio.run(explored()).num_explored)


def frontrun_there() -> bool:
    """Whether frontrun is installed."""
    return importlib.util.find_spec("frontrun") is not None


def frontrun_on_postgres(dsn: str) -> int:
    """One verdict of frontrun on two nodes on a table of PostgreSQL, by asyncpg."""
    import frontrun

    names = itertools.count()

    class State:
        def __init__(self) -> None:
            self.execution = f"f{next(names)}"
            self.effects: list[int] = []

    async def worker(state: State) -> None:
        connection = await asyncpg.connect(dsn)
        try:
            if await connection.fetch(_LOOK, state.execution):
                return
            try:
                await connection.execute(_APPEND, state.execution, 0)
            except asyncpg.UniqueViolationError:
                return
            state.effects.append(1)
            await connection.execute(_APPEND, state.execution, 1)
        finally:
            await connection.close()

    async def explored() -> Any:
        connection = await asyncpg.connect(dsn)
        await connection.execute(_TABLE)
        await connection.close()
        return await frontrun.explore(
            setup=State,
            workers=worker,
            count=2,
            invariant=lambda state: len(state.effects) == 1,
            detect_sql=True,
            warn_nondeterministic_sql=False,
            preemption_bound=None,
            total_timeout=120,
        )

    asyncio.run(explored())
    return 1


_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS rows (execution text, place int, PRIMARY KEY (execution, place))"
)
_LOOK: Final = "SELECT place FROM rows WHERE execution = $1 AND place = 0"
_APPEND: Final = "INSERT INTO rows VALUES ($1, $2)"
