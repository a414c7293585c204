"""How hard and how patiently the kit tries."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

Depth = Literal["quick", "default", "thorough"]
DEPTHS: Final[tuple[Depth, ...]] = get_args(Depth)

_FACTORS: Final[dict[Depth, float]] = {"quick": 0.4, "default": 1.0, "thorough": 10.0}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user may set for a run.

    Attributes:
        deadline: seconds within which one call must settle; large work gets a multiple of it.
        seed: chooses generated values and orders; one seed gives one run of them.
        depth: how many rounds and examples; `"thorough"` is meant for nightly runs.
        schedule: a token of one schedule of a stepped test, to run that one alone.
    """

    deadline: float = 10.0
    seed: int = field(default_factory=lambda: random.SystemRandom().randrange(2**32))
    depth: Depth = "default"
    schedule: str | None = None

    def rounds(self, default: int) -> int:
        """How many rounds to play where `default` is right at the default depth."""
        return max(1, round(default * _FACTORS[self.depth]))
