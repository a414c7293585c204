"""Races inside a store's methods: found by steps, and invisible at the store's boundary."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loom_backends.memory import MemoryBackend, MemoryEventStore
from loom_conformance.backend import Backend
from loom_conformance.interleave.token import BadToken
from loom_conformance.races.catalogue import RACES
from loom_conformance.races.exploring import play_race
from loom_conformance.races.race import Parameters
from loom_conformance.races.stepping import step_race
from loom_conformance.spi import DuplicateSequenceError, EventEnvelope

STEPPED = [race for race in RACES.values() if race.stepped]


class ChecksThenWrites(MemoryEventStore):
    """Looks whether the slot is free, gives way, and writes over whatever is there by then."""

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Store the envelope."""
        if await self.read_range(envelope.execution_id, envelope.sequence, envelope.sequence):
            raise DuplicateSequenceError(envelope.execution_id, envelope.sequence)
        await asyncio.sleep(0)
        log = self.storage.logs.get(envelope.execution_id)
        if log is not None and envelope.sequence in log.records:
            old = log.records.pop(envelope.sequence)
            log.sequences.remove(envelope.sequence)
            self.storage.ids.discard(old.id)
        await super().append(envelope)


class ChecksThenWritesBackend(MemoryBackend):
    """A backend of such stores."""

    async def connect(self, address: str) -> Any:
        """Open a handle."""
        good = await super().connect(address)
        return ChecksThenWrites(good.storage)


@pytest.mark.parametrize("race", STEPPED, ids=[race.id for race in STEPPED])
def test_the_runtime_wins_by_steps_on_every_backend(race: Any, backend: Backend) -> None:
    verdict = step_race(race, backend, race.variants[0])
    assert verdict.holds, str(verdict)


def test_a_check_before_the_write_is_found_by_steps_alone() -> None:
    race, backend = RACES["RACE-2"], ChecksThenWritesBackend()
    assert play_race(race, backend).holds
    verdict = step_race(race, backend)
    assert verdict.lost, str(verdict)
    assert verdict.loss is not None
    assert any("ran twice" in finding for finding in verdict.loss.findings)
    assert verdict.loss.beneath is not None
    assert verdict.loss.beneath.rule == "SEQ-4"
    assert verdict.replay is not None
    assert verdict.replay.endswith("--steps")
    example = verdict.verdict.counterexample
    assert example is not None
    assert example.token is not None
    again = step_race(race, backend, token=example.token)
    assert again.lost
    good = step_race(race, MemoryBackend(), token=example.token)
    assert not good.lost


def test_a_token_of_another_race_is_refused() -> None:
    found = step_race(RACES["RACE-2"], ChecksThenWritesBackend()).verdict.counterexample
    assert found is not None
    assert found.token is not None
    with pytest.raises(BadToken):
        step_race(RACES["RACE-16"], MemoryBackend(), token=found.token)


def test_a_race_that_is_more_than_starts_cannot_be_stepped() -> None:
    with pytest.raises(ValueError, match="RACE-10 cannot be led by steps"):
        step_race(RACES["RACE-10"], MemoryBackend(), Parameters())
