from __future__ import annotations

import re
import tomllib
from importlib.resources import files

import pytest

from loom_conformance.contract.rules import PROFILES, Rule, digest, rules, rules_of

FAMILIES = {
    "core": {"APPEND", "SEQ", "ID", "KEY", "ERR", "READ", "DATA", "LIVE"},
    "batch": {"BATCH"},
    "range": {"RANGE"},
    "fencing": {"FENCE"},
    "durability": {"DUR"},
    "faults": {"FAULT"},
    "coalescing": {"COAL"},
    "scoping": {"SCOPE"},
    "leases": {"LEASE"},
    "races": {"RACE"},
}


@pytest.fixture(params=list(rules().values()), ids=list(rules()))
def rule(request: pytest.FixtureRequest) -> Rule:
    found: Rule = request.param
    return found


def test_every_profile_has_its_file_and_no_file_is_left_over() -> None:
    folder = files("loom_conformance.contract")
    found = {entry.name for entry in folder.iterdir() if entry.name.endswith(".toml")}
    assert found == {f"{profile}.toml" for profile in PROFILES}
    assert set(PROFILES) == set(FAMILIES)


def test_an_id_names_a_family_of_its_profile(rule: Rule) -> None:
    matched = re.fullmatch(r"([A-Z]+)-([1-9][0-9]*)", rule.id)
    assert matched is not None
    assert matched[1] in FAMILIES[rule.profile]


def test_ids_stand_once_and_in_order() -> None:
    given = [
        entry["id"]
        for profile in PROFILES
        for entry in tomllib.loads(
            files("loom_conformance.contract").joinpath(f"{profile}.toml").read_text("utf-8")
        )["rule"]
    ]
    assert given == list(rules())
    for family in set().union(*FAMILIES.values()):
        numbers = [int(id.split("-")[1]) for id in given if id.startswith(f"{family}-")]
        assert numbers == sorted(set(numbers)), family
        assert numbers, family


def test_a_level_is_must_or_should(rule: Rule) -> None:
    assert rule.level in ("MUST", "SHOULD")


def test_nothing_is_empty_or_padded(rule: Rule) -> None:
    texts = [rule.promise, rule.why, rule.source, *rule.causes]
    assert rule.causes
    for text in texts:
        assert text
        assert text == " ".join(text.split())


def test_sentences_end_and_sources_do_not(rule: Rule) -> None:
    for text in (rule.promise, rule.why, *rule.causes):
        assert text.endswith("."), text
    assert not rule.source.endswith(".")


def test_words_are_few_enough_to_be_read_at_night(rule: Rule) -> None:
    assert len(rule.why) <= 300
    assert len(rule.source) <= 240
    assert all(len(cause) <= 160 for cause in rule.causes)
    assert len(rule.causes) <= 6


def test_causes_of_a_rule_differ(rule: Rule) -> None:
    assert len(set(rule.causes)) == len(rule.causes)


def test_the_markup_is_code_spans_only(rule: Rule) -> None:
    for text in (rule.promise, rule.why, rule.source, *rule.causes):
        assert text.count("`") % 2 == 0, text
        assert not re.search(r"\*\*|\]\(|<[a-z]", re.sub(r"`[^`]*`", "", text)), text


def test_no_two_rules_promise_the_same() -> None:
    promises = [rule.promise for rule in rules().values()]
    assert len(set(promises)) == len(promises)


def test_a_profile_has_its_rules_in_order() -> None:
    assert [rule.id for profile in PROFILES for rule in rules_of(profile)] == list(rules())


def test_the_digest_is_of_what_a_rule_means() -> None:
    assert re.fullmatch(r"[0-9a-f]{16}", digest())
