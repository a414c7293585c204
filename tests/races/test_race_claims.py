"""The kit's runtime wins every race, and what is wrong loses exactly the races that it claims."""

from __future__ import annotations

from functools import cache

import pytest

from loom_backends.memory import MemoryBackend
from loom_conformance.backend import Backend
from loom_conformance.interleave.explore import Limits
from loom_conformance.interleave.verdict import Finding
from loom_conformance.races.catalogue import RACES
from loom_conformance.races.exploring import RaceVerdict, play_race, replay_race
from loom_conformance.races.race import Parameters, Race, Reach
from loom_conformance.races.wrong import WRONG, Wrong

VARIANTS = [(race, parameters) for race in RACES.values() for parameters in race.variants]
NAMES = [f"{race.id} {parameters}".strip() for race, parameters in VARIANTS]
FEW = Limits(schedules=40, seconds=60, replays=1)


@pytest.mark.parametrize(("race", "parameters"), VARIANTS, ids=NAMES)
def test_the_runtime_wins_in_every_schedule_that_is_reached(
    race: Race, parameters: Parameters
) -> None:
    verdict = play_race(race, MemoryBackend(), parameters)
    expected = (
        Finding.HOLDS if race.reach(parameters).search == "all" else Finding.HOLDS_IN_THOSE_RUN
    )
    assert verdict.verdict.finding is expected, str(verdict)
    assert verdict.verdict.schedules >= 1


@pytest.mark.parametrize(("race", "parameters"), VARIANTS, ids=NAMES)
def test_the_runtime_wins_on_every_backend(
    race: Race, parameters: Parameters, backend: Backend
) -> None:
    verdict = play_race(
        race, backend, parameters, reach=Reach("bounded", preemptions=1), limits=FEW
    )
    assert verdict.holds, str(verdict)


@cache
def loss_of(name: str, race_id: str) -> RaceVerdict | None:
    """How something wrong loses a race in memory, or `None` where it does not in a few runs."""
    wrong, race = WRONG[name], RACES[race_id]
    for parameters in race.variants:
        limits = Limits(schedules=3000, seconds=60, replays=3) if race_id in wrong.loses else FEW
        verdict = play_race(
            race,
            MemoryBackend(),
            parameters,
            subject=wrong.subject,
            runtime=name,
            reach=Reach("bounded", preemptions=3),
            limits=limits,
        )
        if verdict.lost:
            return verdict
        assert verdict.holds, str(verdict)
    return None


@pytest.mark.parametrize("name", list(WRONG))
def test_what_is_wrong_loses_exactly_what_it_claims(name: str) -> None:
    lost = {race_id for race_id in RACES if loss_of(name, race_id) is not None}
    assert lost == WRONG[name].loses


BENEATH = {
    "takes-missing-tokens": {"FENCE-4"},
    "takes-stale-tokens": {"FENCE-3", "FENCE-7"},
    "swallows-conflicts": {"SEQ-1", "SEQ-2", "BATCH-2", "BATCH-3"},
    "exclusive-ranges": {"RANGE-1"},
}
"""The rules that a store's fault breaks; what is wrong above the store breaks none."""


@pytest.mark.parametrize("name", list(WRONG))
def test_the_rule_beneath_a_loss_is_named_where_the_store_is_at_fault(name: str) -> None:
    for race_id in WRONG[name].loses:
        found = loss_of(name, race_id)
        assert found is not None
        assert found.loss is not None
        beneath = found.loss.beneath
        if name in BENEATH:
            assert beneath is not None, race_id
            assert beneath.rule in BENEATH[name], race_id
            assert beneath.rule in str(found)
        else:
            assert beneath is None, f"{race_id}: {beneath}"


@pytest.mark.parametrize("name", list(WRONG))
def test_the_same_token_loses_on_every_backend(name: str, backend: Backend) -> None:
    wrong = WRONG[name]
    for race_id in sorted(wrong.loses):
        found = loss_of(name, race_id)
        assert found is not None
        assert found.verdict.counterexample is not None
        assert found.loss is not None
        token = found.verdict.counterexample.token
        assert token is not None
        again = replay_race(
            found.race,
            backend,
            token,
            found.parameters,
            subject=wrong.subject,
            runtime=name,
        )
        assert again.lost, f"{race_id}: {again}"
        assert again.loss is not None
        assert again.loss.findings == found.loss.findings


@pytest.mark.parametrize("race", list(RACES.values()), ids=list(RACES))
def test_a_races_own_wrong_runtime_shows_what_it_is_known_for(race: Race) -> None:
    verdict = headline(race)
    assert verdict.lost, str(verdict)
    assert verdict.loss is not None
    assert len(verdict.loss.findings) >= 1


def headline(race: Race) -> RaceVerdict:
    """The race's own wrong runtime, judged by what the race is known for."""
    wrong: Wrong = WRONG[race.wrong]
    return play_race(
        race,
        MemoryBackend(),
        subject=wrong.subject,
        runtime=wrong.name,
        headline=True,
        reach=Reach("bounded", preemptions=3),
    )


def test_race_11_takes_tokens_from_1_to_6_and_the_effect_five_or_six_times() -> None:
    loss = headline(RACES["RACE-11"]).loss
    assert loss is not None
    assert loss.evidence.tokens("job") == [1, 2, 3, 4, 5, 6]
    assert len(loss.evidence.ran("job", "audit")) in (5, 6)


def test_race_8_runs_the_effect_twice_once_in_the_recovery() -> None:
    loss = headline(RACES["RACE-8"]).loss
    assert loss is not None
    winner, recovery = loss.evidence.ran("daily@7", "audit")
    assert winner in ("A", "B")
    assert recovery == "R"


def test_race_2_is_lost_by_looking_alone() -> None:
    verdict = headline(RACES["RACE-2"])
    assert verdict.loss is not None
    assert sorted(verdict.loss.evidence.ran("daily@7", "audit")) == ["A", "B"]
    reads = [
        row.text
        for row in verdict.verdict.counterexample.trace.rows  # type: ignore[union-attr]
        if row.text.startswith("read_from")
    ]
    assert reads == ["read_from('daily@7', 0) → []"] * 2
