"""Other schedulers for asyncio on the duplicate start, each by its own front door."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

from loom_backends.memory import MemoryEventStore, MemoryStorage
from loom_conformance.backend import Backend
from loom_conformance.spi import DuplicateSequenceError, EventEnvelope, RangeEventStore

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


async def yields() -> None:
    """What a store does whose methods never suspend, so that others may go on."""
    await asyncio.sleep(0)


async def goes_on() -> None:
    """A store that suspends by itself needs no more."""


async def _race(nodes: int) -> None:
    """One run of the race on a fresh store; it raises where the effect happened twice."""
    storage = MemoryStorage()
    effects: list[str] = []
    await asyncio.gather(
        *(_node(MemoryEventStore(storage), str(number), effects) for number in range(nodes))
    )
    assert len(effects) == 1


async def _node(
    store: RangeEventStore,
    name: str,
    effects: list[str],
    execution: str = "sched@7",
    pause: Callable[[], Awaitable[None]] = yields,
) -> None:
    await pause()
    if await store.read_range(execution, 0, 0):
        return
    await pause()
    started = EventEnvelope(execution, 0, f"{execution}-0", "EXECUTION_STARTED", NOON, name)
    try:
        await store.append(started)
    except DuplicateSequenceError:
        return
    await asyncio.sleep(0)  # the effect is something that is waited for, too
    effects.append(name)
    await pause()
    await store.append(EventEnvelope(execution, 1, f"{execution}-1", "STEP_COMPLETED", NOON))


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
    return int(result.schedules)


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


def frontrun_on_postgres(backend: Backend, address: str) -> int:
    """One verdict of frontrun on two nodes on PostgreSQL, by the same store."""
    import frontrun

    names = itertools.count()
    session = secrets.token_hex(4)

    class State:
        def __init__(self) -> None:
            self.execution = f"{session} {next(names)}"
            self.effects: list[str] = []

    async def worker(state: State) -> None:
        store: Any = await backend.connect(address)
        try:
            await _node(store, "node", state.effects, state.execution, goes_on)
        finally:
            await store.close()

    async def explored() -> Any:
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

    result = asyncio.run(explored())
    assert result.property_holds, result.explanation
    return 1
