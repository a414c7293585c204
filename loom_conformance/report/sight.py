"""How much the kit can see: the faults that it is known to catch, and what it is blind to."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ..contract.rules import PROFILES, rules
from .claims import claims


@dataclass(frozen=True, slots=True)
class Sight:
    """What stands behind "nothing was found" in one profile.

    Attributes:
        wrong_stores: how many different faults break a rule of the profile when the kit tests
            the store that has them; each is proven by the kit's own tests.
        blind_spots: what no rule of the profile can see, in words.
    """

    wrong_stores: int
    blind_spots: tuple[str, ...]


@cache
def sight() -> Mapping[str, Sight]:
    """The kit's sight by profile."""
    text = files(__package__).joinpath("blind_spots.toml").read_text("utf-8")
    blind: Mapping[str, list[str]] = tomllib.loads(text)
    profile_of = {rule.id: rule.profile for rule in rules().values()}
    found = {}
    for profile in PROFILES:
        caught = sum(
            any(profile_of.get(rule) == profile for rule in claim.breaks | claim.advice)
            for claim in claims().values()
        )
        found[profile] = Sight(caught, tuple(blind.get(profile, ())))
    return found
