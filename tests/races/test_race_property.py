"""Races with other values for what the ADR leaves open."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from loom_backends.memory import MemoryBackend
from loom_conformance.races.catalogue import RACES
from loom_conformance.races.drawing import drawn_from, smallest_loss
from loom_conformance.races.wrong import WRONG
from loom_conformance.spi import EventStore


def connected(backend: MemoryBackend) -> EventStore:
    async def connect() -> EventStore:
        return await backend.connect(await backend.create())

    return asyncio.run(connect())


@pytest.mark.parametrize("race_id", list(RACES))
def test_a_race_holds_whatever_is_left_open(race_id: str) -> None:
    race, backend = RACES[race_id], MemoryBackend()
    values = drawn_from(race, backend, connected(backend))
    assert values == race.varies
    lost = smallest_loss(race, backend, values, examples=25, choice=1)
    assert lost is None, str(lost)


def test_the_smallest_parameters_that_lose_are_found() -> None:
    race, backend = RACES["RACE-2"], MemoryBackend()
    values = drawn_from(race, backend, connected(backend))
    wrong = WRONG["look-before-start"]
    lost = smallest_loss(
        race, backend, values, examples=50, choice=1, subject=wrong.subject, runtime=wrong.name
    )
    assert lost is not None
    assert lost.lost
    assert lost.parameters == race.variants[0]
    assert lost.replay is not None


@dataclass
class Plain:
    """A store without any optional ability."""

    kept: list[object] = field(default_factory=list)


def test_what_a_backend_cannot_offer_is_not_drawn() -> None:
    class Unscoped(MemoryBackend):
        declined = {"scoping": "one tenant"}  # noqa: RUF012

    class OneExecution(MemoryBackend):
        batch_scope = "execution"

    race = RACES["RACE-2"]
    store = connected(MemoryBackend())
    assert "tenant" not in drawn_from(race, Unscoped(), store)
    assert "linger" in drawn_from(race, Unscoped(), store)
    assert not {"linger", "max_batch"} & set(drawn_from(race, OneExecution(), store))
    assert "linger" not in drawn_from(race, MemoryBackend(), Plain())  # type: ignore[arg-type]
