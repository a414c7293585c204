"""From the rules that fail to the likely fault, by what known faults look like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ..contract.rules import rules
from .claims import Claim, claims
from .outcomes import Outcome, RuleResult

LEAST_LIKENESS: Final = 0.4
"""Below this a known fault is not worth a mention."""

SMALL_PRINT: Final = 0.1
"""How much rules that are inconclusive or advice weigh, beside the broken ones."""


class Fit(StrEnum):
    """How a known fault fits what was found."""

    EXACT = "exact"
    """Just the rules that it breaks are broken."""
    PART = "part"
    """All rules that it breaks are broken, and others too."""
    NEAR = "near"
    """Many of the rules that it breaks are broken, not all."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A known fault that may be this store's.

    Attributes:
        claim: the fault.
        fit: how it fits.
        likeness: from 0 to 1; 1 where all that was judged fits.
    """

    claim: Claim
    fit: Fit
    likeness: float

    def to_json(self) -> dict[str, object]:
        """The suspicion as an entry of a report's `diagnosis`."""
        return {
            "name": self.claim.name,
            "family": self.claim.family,
            "fault": self.claim.fault,
            "fix": self.claim.fix,
            "source": self.claim.source,
            "fit": self.fit.value,
            "likeness": round(self.likeness, 3),
        }


def diagnose(
    results: Iterable[RuleResult],
    known: Mapping[str, Claim] | None = None,
    at_most: int = 3,
) -> list[Suspicion]:
    """The likeliest faults, one a family, the likeliest first; none where no rule is broken.

    Rules that were not judged say nothing for or against a fault. Races are left out: they follow
    from the rules beneath them.

    Args:
        results: what became of the rules.
        known: the known faults; by default the kit's own claims.
        at_most: how many families.
    """
    judged: dict[str, Outcome] = {}
    for one in results:
        if one.rule.profile != "races" and one.outcome not in _SILENT:
            judged[one.rule.id] = one.outcome
    broken = {rule for rule, outcome in judged.items() if outcome in _BROKEN}
    beside = {rule for rule, outcome in judged.items() if outcome in _BESIDE}
    if not broken:
        return []
    found = []
    for claim in (claims() if known is None else known).values():
        suspicion = _compare(claim, broken, beside, judged.keys())
        if suspicion is not None:
            found.append(suspicion)
    found.sort(key=lambda one: (one.fit is not Fit.EXACT, -one.likeness, one.claim.name))
    families: dict[str, Suspicion] = {}
    for suspicion in found:
        families.setdefault(suspicion.claim.family, suspicion)
    return list(families.values())[:at_most]


_SILENT: Final = (Outcome.NOT_RUN, Outcome.DECLINED, Outcome.NOT_OFFERED, Outcome.OVERRIDDEN)
_BROKEN: Final = (Outcome.FAILED, Outcome.KNOWN_FAILING)
_BESIDE: Final = (Outcome.INCONCLUSIVE, Outcome.ADVICE)


def _compare(
    claim: Claim, broken: set[str], beside: set[str], judged: Iterable[str]
) -> Suspicion | None:
    seen = set(judged) & rules().keys()
    breaks = claim.breaks & seen
    if not breaks:
        return None
    more = (claim.inconclusive | claim.advice) & seen
    likeness = (_alike(breaks, broken) + SMALL_PRINT * _alike(more, beside)) / (1 + SMALL_PRINT)
    if breaks == broken:
        return Suspicion(claim, Fit.EXACT, likeness)
    if breaks < broken:
        return Suspicion(claim, Fit.PART, likeness) if likeness >= LEAST_LIKENESS else None
    return Suspicion(claim, Fit.NEAR, likeness) if likeness >= LEAST_LIKENESS else None


def _alike(one: Iterable[str], other: Iterable[str]) -> float:
    """The share that two sets have in common; two empty ones are alike."""
    left, right = set(one), set(other)
    return len(left & right) / len(left | right) if left | right else 1.0


def suspicion_text(fit: str, fault: str, fix: str) -> str:
    """A suspicion as a sentence or two."""
    head = {
        Fit.EXACT: "Just what this fault looks like",
        Fit.PART: "Part of it looks like this fault",
        Fit.NEAR: "It looks much like this fault",
    }[Fit(fit)]
    return f"{head}: {fault} {fix}"
