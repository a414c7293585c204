"""Whether operations that are taken for independent really commute on a backend.

The reduction leaves out an order only because two neighbouring steps share no resource. A store
whose operations touch more than is declared (a counter that all appends move) would make that
wrong in silence. So runs are sampled, two independent neighbours are swapped, and everything
that can be seen of both runs is compared: what every call returned, how the nodes ended, what
the storage holds.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

from ..backend import Backend
from .engine import Engine, Run
from .explore import Limits, on_loop
from .node import Operation
from .scenario import Scenario
from .search.chance import Chance
from .search.replay import Replay
from .search.step import Strand, dependent


@dataclass(frozen=True, slots=True)
class Swap:
    """Two neighbours that were swapped, and what then was different; `None` if nothing was."""

    first: str
    second: str
    difference: str | None


@dataclass(frozen=True, slots=True)
class Audit:
    """What swapping has shown: every sampled pair, and those that do not commute."""

    swaps: tuple[Swap, ...]

    @property
    def failed(self) -> tuple[Swap, ...]:
        """The pairs that do not commute."""
        return tuple(swap for swap in self.swaps if swap.difference is not None)


def audit(
    scenario: Scenario,
    backend: Backend,
    *,
    swaps: int = 50,
    seed: int = 0,
    limits: Limits | None = None,
) -> Audit:
    """Swap sampled neighbours that are independent, each time on two fresh storages.

    Pairs of methods that were not swapped yet go first. It samples up to four runs for each swap;
    a scenario whose nodes share everything has none.
    """
    bounds = limits or Limits()

    async def sample() -> Audit:
        chance = random.Random(seed)
        done: list[Swap] = []
        methods: Counter[frozenset[object]] = Counter()
        async with Engine(
            scenario,
            backend,
            fresh_storage=True,
            most_steps=bounds.steps,
            patience=bounds.patience,
        ) as engine:
            for number in range(4 * swaps):
                if len(done) == swaps:
                    break
                swap = await _swap(engine, chance, seed + number, methods)
                if swap is not None:
                    done.append(swap)
        return Audit(tuple(done))

    return on_loop(sample)


async def _swap(
    engine: Engine, chance: random.Random, seed: int, methods: Counter[frozenset[object]]
) -> Swap | None:
    strategy = Chance(1, seed)
    strategy.begin()
    run = await engine.run(strategy)
    if run.stopped is not None:
        return Swap("a run", "itself", run.stopped)
    trail = run.trail
    places = [
        index
        for index in range(len(trail) - 1)
        if not dependent(trail[index], trail[index + 1]) and trail[index + 1].parked_at < index
        if "start" not in (_method(trail[index]), _method(trail[index + 1]))
    ]
    if not places:
        return None
    pairs = {at: frozenset((_method(trail[at]), _method(trail[at + 1]))) for at in places}
    rarest = min(methods[pair] for pair in pairs.values())
    place = chance.choice([at for at, pair in pairs.items() if methods[pair] == rarest])
    methods[pairs[place]] += 1
    seen = await _seen(engine, run)
    swapped = [*trail[:place], trail[place + 1], trail[place], *trail[place + 2 :]]
    again = await engine.run(Replay(swapped))
    first, second = str(trail[place]), str(trail[place + 1])
    if again.diverged is not None or again.stopped is not None:
        return Swap(first, second, str(again.diverged or again.stopped))
    return Swap(first, second, _difference(seen, await _seen(engine, again)))


async def _seen(engine: Engine, run: Run) -> dict[str, Any]:
    """Everything that can be seen of a run, without the order of its steps."""
    seen: dict[str, Any] = {}
    count: dict[Strand, int] = {}
    for step in run.trail:
        number = count[step.strand] = count.get(step.strand, 0) + 1
        seen[f"{step} as step {number} of its strand"] = _ended(step.result, step.error)
    for name, result in run.results.items():
        seen[f"node {name}"] = repr(result)
    for name, error in run.errors.items():
        seen[f"node {name}"] = _ended(None, error)
    for execution_id, log in (await engine.logs(run)).items():
        seen[f"the log of {execution_id}"] = log
    return seen


def _ended(result: Any, error: BaseException | None) -> Any:
    return result if error is None else (type(error).__name__, str(error))


def _difference(one: dict[str, Any], other: dict[str, Any]) -> str | None:
    for what in sorted(one.keys() | other.keys()):
        before, after = repr(one.get(what)), repr(other.get(what))
        if before != after:
            place = next(
                (at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0
            )
            was, became = (text[max(0, place - 30) : place + 30] for text in (before, after))
            return f"{what}: …{was}… in one order, …{became}… in the other"
    return None


def _method(step: Operation) -> object:
    return step.key[0] if isinstance(step.key, tuple) else step.key
