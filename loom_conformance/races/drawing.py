"""A race as a property: whatever the ADR leaves open, the race holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from ..backend import Backend
from ..interleave.explore import Limits
from ..spi import EventStore, has_ability
from .exploring import RaceVerdict, play_race
from .play import KIT
from .race import Parameters, Race, Reach
from .scene import Subject

SCHEDULES = 8
"""How many schedules are run with each drawing."""


def drawn_from(race: Race, backend: Backend, store: EventStore) -> Mapping[str, Sequence[Any]]:
    """The values that a race's parameters may take on a backend: those that it can offer."""
    values = dict(race.varies)
    batches = has_ability(store, "batch") and not {"batch", "coalescing"} & set(backend.declined)
    if not batches or backend.batch_scope != "store":
        values.pop("linger", None)
        values.pop("max_batch", None)
    if "scoping" in backend.declined:
        values.pop("tenant", None)
    return values


def drawings(race: Race, values: Mapping[str, Sequence[Any]]) -> st.SearchStrategy[Parameters]:
    """The race's first variant with other values for what is left open."""
    first = race.variants[0]

    def ordered(name: str, options: Sequence[Any]) -> list[Any]:
        """The first variant's value first: that is what a loss shrinks to."""
        return sorted(options, key=lambda option: option != getattr(first, name))

    chosen = st.fixed_dictionaries(
        {name: st.sampled_from(ordered(name, options)) for name, options in values.items()}
    )
    return chosen.map(lambda changes: replace(first, **changes))


def playable(race: Race) -> Iterator[Parameters]:
    """Every value of the parameters that the kit ever plays a race with, its variants first."""
    yield from race.variants
    names = list(race.varies)
    for values in product(*race.varies.values()):
        drawn = replace(race.variants[0], **dict(zip(names, values, strict=True)))
        if drawn not in race.variants:
            yield drawn


def smallest_loss(
    race: Race,
    backend: Backend,
    values: Mapping[str, Sequence[Any]],
    *,
    examples: int,
    choice: int,
    subject: Subject = KIT,
    runtime: str = "",
    called: str = "",
    seconds: float = 60.0,
    patience: float = 10.0,
) -> RaceVerdict | None:
    """Draw parameters and schedules; the loss with the smallest ones, or `None` where none is.

    Call it outside of any running event loop.

    Args:
        race: the race.
        backend: a started instance.
        values: what the parameters may be; see `drawn_from`.
        examples: how many drawings are tried.
        choice: the seed of the drawings.
        subject: what runs the race; the kit's runtime by default.
        runtime: how it is called.
        called: how the backend is called in commands.
        seconds: how long one drawing may be explored.
        patience: the seconds that a call may take.
    """
    found: list[RaceVerdict] = []

    @seed(choice)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @given(drawings(race, values), st.integers(0, 2**16))
    def holds(parameters: Parameters, schedules: int) -> None:
        verdict = play_race(
            race,
            backend,
            parameters,
            subject=subject,
            runtime=runtime,
            called=called,
            reach=Reach("pct", schedules=SCHEDULES),
            limits=Limits(seconds=seconds, patience=patience, replays=3),
            seed=schedules,
        )
        if not verdict.holds:
            found.append(verdict)
            raise AssertionError(verdict.title)

    try:
        holds()
    except AssertionError:
        if not found:
            raise
        return found[-1]
    return None
