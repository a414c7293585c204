"""The races and what must lose them, as data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loom_conformance.contract.rules import rules, rules_of
from loom_conformance.races.catalogue import RACES
from loom_conformance.races.race import Parameters, Race
from loom_conformance.races.wrong import WRONG
from loom_conformance.suites.case import cases_of
from loom_conformance.suites.killed import KilledSuite
from loom_conformance.suites.races import RacesSuite


@pytest.fixture(params=list(RACES.values()), ids=list(RACES))
def race(request: pytest.FixtureRequest) -> Race:
    found: Race = request.param
    return found


def test_the_races_are_the_rules_of_their_profile_in_order() -> None:
    assert list(RACES) == [rule.id for rule in rules_of("races")]
    assert list(RACES) == [f"RACE-{number}" for number in range(1, 21)]


def test_every_race_has_its_test_in_the_suite() -> None:
    assert [case.rule.id for case in cases_of(RacesSuite)] == list(RACES)
    assert {case.rule.id for case in cases_of(KilledSuite)} == {"RACE-5", "RACE-18", "RACE-19"}


def test_a_race_rests_on_rules_of_the_contract(race: Race) -> None:
    assert race.rests_on
    assert set(race.rests_on) <= set(rules()) - set(RACES)
    assert len(set(race.rests_on)) == len(race.rests_on)


def test_a_race_has_a_wrong_runtime_of_its_own_that_claims_to_lose_it(race: Race) -> None:
    assert race.id in WRONG[race.wrong].loses


def test_a_race_varies_parameters_that_there_are(race: Race) -> None:
    assert race.varies
    for name, values in race.varies.items():
        assert values
        for value in values:
            replace(Parameters(), **{name: value})


def test_the_first_variant_is_drawn_too(race: Race) -> None:
    for name, values in race.varies.items():
        first = [getattr(variant, name) for variant in race.variants]
        assert set(first) <= set(values), name


def test_there_are_twenty_wrong_runtimes_and_more() -> None:
    assert sum(wrong.part == "runtime" for wrong in WRONG.values()) >= 20
    assert {wrong.part for wrong in WRONG.values()} == {"runtime", "store", "coalescer"}


@pytest.mark.parametrize("name", list(WRONG))
def test_what_is_wrong_has_a_fault_a_source_and_a_claim(name: str) -> None:
    wrong = WRONG[name]
    assert wrong.name == name
    assert wrong.fault.endswith(".")
    assert wrong.source
    assert not wrong.source.endswith(".")
    assert wrong.loses
    assert wrong.loses <= set(RACES)


def test_parameters_say_in_words_what_is_not_the_default() -> None:
    assert str(Parameters()) == ""
    told = str(Parameters(nodes=3, fenced=True, linger=0.01, tenant="acme", lag=2, crash=1))
    assert told == (
        "3 nodes, fenced, coalesced with a linger of 0.01 s, tenant 'acme', "
        "a replica 2 writes behind, dies after 1"
    )
