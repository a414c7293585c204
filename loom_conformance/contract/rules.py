"""The rules of the contract, read from the data files beside this module.

Tests, reports and docs take their words from here. A rule's id never changes its meaning, and a
rule that is dropped leaves its number unused.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final, Literal

PROFILES: Final = (
    "core",
    "batch",
    "range",
    "fencing",
    "durability",
    "faults",
    "coalescing",
    "scoping",
    "leases",
    "races",
)
"""The profiles in the order of the contract page; each has a data file of its name."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One numbered promise of a Loom event store.

    Attributes:
        id: the rule's lasting name, such as `FENCE-8`.
        profile: the group of rules it belongs to.
        level: `"MUST"`, or `"SHOULD"` for advice.
        promise: what a store promises, one sentence or two.
        why: what the runtime would lose without it.
        source: where the rule comes from: an ADR section, a paper, a public fault.
        causes: what usually breaks it, most frequent first.
    """

    id: str
    profile: str
    level: Literal["MUST", "SHOULD"]
    promise: str
    why: str
    source: str
    causes: tuple[str, ...]


@cache
def rules() -> Mapping[str, Rule]:
    """Every rule by its id, in the order of the contract page."""
    found: dict[str, Rule] = {}
    for profile in PROFILES:
        text = files(__package__).joinpath(f"{profile}.toml").read_text("utf-8")
        for entry in tomllib.loads(text)["rule"]:
            rule = Rule(profile=profile, **{**entry, "causes": tuple(entry["causes"])})
            if rule.id in found:
                raise ValueError(f"{rule.id} stands twice in the contract's data")
            found[rule.id] = rule
    return found


def rules_of(profile: str) -> list[Rule]:
    """The rules of one profile, in order."""
    return [rule for rule in rules().values() if rule.profile == profile]


@cache
def digest() -> str:
    """A short name of this rule set: it changes when a promise, a level or an id does."""
    meaning = [[rule.id, rule.profile, rule.level, rule.promise] for rule in rules().values()]
    text = json.dumps(meaning, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]
