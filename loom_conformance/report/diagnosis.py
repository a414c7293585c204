"""From the rules that fail to the likely fault, by what known faults look like."""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any, Final, TypeAlias, cast

from ..lab.paths import WRITE_PATHS, WritePath
from .claims import Claim, claims
from .outcomes import Outcome, RuleResult
from .text import listed

LEAST_LIKENESS: Final = 0.05
"""Below this a known fault is not worth a mention."""

NEAR_ENOUGH: Final = 0.4
"""Below this a known fault is mentioned for its family alone."""

BROKEN: Final = 1.0
ADVICE: Final = 0.7
UNCLEAR: Final = 0.2
GROUP: Final = 0.3
"""How strong a sign it is that a rule is broken, that its advice is not followed, that it cannot be
judged, and that anything at all of a group of rules (the letters of an id) is not as it should be.
"""

UNJUDGED: Final = 0.1
UNASKED: Final = 0.4
"""How much a sign of a known fault keeps of its strength where its rule does not apply to the
store, and where it was not asked for: what would show is not known then.
"""

SHARPNESS: Final = 6
"""The power of a likeness with which a known fault speaks for its family: a few close ones count
for more than many distant ones."""

Signs: TypeAlias = Mapping[str, float]
"""What is seen of a fault: rules, and groups of rules, each with its strength."""


class Fit(StrEnum):
    """How a known fault fits what was found."""

    EXACT = "exact"
    """Just the rules that it breaks are broken."""
    PART = "part"
    """All rules that it breaks are broken, and others too."""
    NEAR = "near"
    """Many of the rules that it breaks are broken, not all."""
    FAR = "far"
    """It is no more than the nearest that is known."""


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

    def to_json(self, where: str = "") -> dict[str, object]:
        """The suspicion as an entry of a report's `diagnosis`; for `where` see `where_it_fails`."""
        return {
            "where": where,
            "name": self.claim.name,
            "family": self.claim.family,
            "kind": families().get(self.claim.family, ""),
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
    """The likeliest faults, one a family, the likeliest family first.

    There is none where no rule is broken and no advice is passed over. Rules that were not judged
    say nothing for or against a fault. Races are left out: they follow from the rules beneath them.

    What is rare among the known faults tells more than what most of them break, and the faults of
    a family speak for it together: it is the family that is looked for, and one fault of it that is
    shown, the likest.

    Args:
        results: what became of the rules.
        known: the known faults; by default the kit's own claims.
        at_most: how many families.
    """
    judged: dict[str, Outcome] = {}
    unasked: set[str] = set()
    for one in results:
        if one.outcome is Outcome.NOT_RUN:
            unasked.add(one.rule.id)
        if one.rule.profile != "races" and one.outcome not in _SILENT:
            judged[one.rule.id] = Outcome.PASSED if one.wrongly_listed else one.outcome
    broken = {rule for rule, outcome in judged.items() if outcome in _BROKEN}
    advice = {rule for rule, outcome in judged.items() if outcome is Outcome.ADVICE}
    unclear = {rule for rule, outcome in judged.items() if outcome is Outcome.INCONCLUSIVE}
    if not broken and not advice:
        return []
    faults = claims() if known is None else known
    seen = _signs(broken, advice, unclear)
    weigh = _weighing(faults.values())
    families: dict[str, list[Suspicion]] = {}
    for claim in faults.values():
        likeness = _likeness(claim, seen, judged.keys(), unasked, weigh)
        fit = _fit(claim, broken, advice, judged.keys(), unasked, likeness)
        families.setdefault(claim.family, []).append(Suspicion(claim, fit, likeness))
    found = []
    for members in families.values():
        members.sort(key=lambda one: (-one.likeness, one.claim.name))
        if members[0].likeness >= LEAST_LIKENESS:
            found.append((sum(one.likeness**SHARPNESS for one in members), members[0]))
    found.sort(key=lambda one: (-one[0], one[1].claim.name))
    likest = [suspicion for _, suspicion in found[:at_most]]
    # One that is far is worth a look only where nothing is nearer, and then one is enough.
    return [one for one in likest if one.fit is not Fit.FAR] or likest[:1]


_SILENT: Final = (Outcome.NOT_RUN, Outcome.DECLINED, Outcome.NOT_OFFERED, Outcome.OVERRIDDEN)
_BROKEN: Final = (Outcome.FAILED, Outcome.KNOWN_FAILING)


def _signs(broken: Iterable[str], advice: Iterable[str], unclear: Iterable[str]) -> Signs:
    found: dict[str, float] = {}
    for strength, which in ((UNCLEAR, unclear), (ADVICE, advice), (BROKEN, broken)):
        for rule in which:
            found[rule] = strength
            if strength != UNCLEAR:
                found[rule.partition("-")[0]] = GROUP
    return found


def _weighing(faults: Collection[Claim]) -> Callable[[str], float]:
    """How much each sign tells: the fewer of the known faults have it, the more."""
    common = Counter(
        sign for claim in faults for sign in _signs(claim.breaks, claim.advice, claim.inconclusive)
    )
    return lambda sign: math.log((len(faults) + 1.5) / (common[sign] + 0.5))


def _likeness(
    claim: Claim,
    seen: Signs,
    judged: Collection[str],
    unasked: Collection[str],
    weigh: Callable[[str], float],
) -> float:
    """The share that a known fault's signs and those that are seen have in common, by weight."""
    parts = (claim.breaks, claim.advice, claim.inconclusive)
    here = _signs(*(part.intersection(judged) for part in parts))
    shared = every = 0.0
    for sign in here.keys() | seen.keys():
        theirs, ours = here.get(sign, 0.0), seen.get(sign, 0.0)
        shared += weigh(sign) * min(theirs, ours)
        every += weigh(sign) * max(theirs, ours)
    for sign, strength in _signs(*parts).items():
        if sign not in here:
            every += (UNASKED if sign in unasked else UNJUDGED) * weigh(sign) * strength
    return shared / every if every else 0.0


def _fit(
    claim: Claim,
    broken: Collection[str],
    advice: Collection[str],
    judged: Collection[str],
    unasked: Collection[str],
    likeness: float,
) -> Fit:
    """How the rules that it breaks fit those that are broken, or else the advice."""
    theirs, ours = (claim.breaks, set(broken)) if broken else (claim.advice, set(advice))
    here = theirs.intersection(judged)
    if here == ours:
        return Fit.NEAR if theirs.intersection(unasked) else Fit.EXACT
    if likeness < NEAR_ENOUGH:
        return Fit.FAR
    return Fit.PART if here and here < ours else Fit.NEAR


def where_it_fails(results: Iterable[RuleResult]) -> str:
    """On which write paths alone the broken rules fail, in a sentence; `""` where none stands out.

    `FENCE-3 and FENCE-9 fail on batches only.`: what holds on the others says where to look.
    """
    found: list[RuleResult] = []
    failing: set[str] = set()
    held: set[str] = set()
    for one in results:
        here = {path for path, outcome in one.paths.items() if outcome in _BROKEN}
        if here and one.rule.profile != "races":
            found.append(one)
            failing |= here
            held |= {path for path, outcome in one.paths.items() if outcome is Outcome.PASSED}
    for words, belongs in _PLACES:
        those = {path.name for path in WRITE_PATHS if belongs(path)}
        if failing and failing <= those and held - those and not held & failing:
            ids = [one.rule.id for one in found]
            who = listed(ids) if len(ids) <= 4 else "The rules about writing that are broken"
            return f"{who} {'fails' if len(ids) == 1 else 'fail'} {words} only."
    return ""


_PLACES: Final[tuple[tuple[str, Callable[[WritePath], bool]], ...]] = (
    ("behind the coalescing decorator", lambda path: path.coalesced),
    ("in batches of several", lambda path: path.place != "alone" or path.shares_flushes),
    ("on batches", lambda path: path.batch or path.coalesced),
    ("on single appends", lambda path: not path.batch),
)
"""The groups of write paths that tell something, the narrowest first."""


@cache
def families() -> Mapping[str, str]:
    """The kinds of faults, each with what its faults have in common."""
    text = files(__package__).joinpath("families.toml").read_text("utf-8")
    return cast("Mapping[str, str]", tomllib.loads(text))


def diagnosis_title(diagnosis: Sequence[Mapping[str, Any]]) -> str:
    """What a report's `diagnosis` is called: what is merely the nearest is no likely fault."""
    far = all(Fit(one["fit"]) is Fit.FAR for one in diagnosis)
    return "nearest known fault" if far else "likely fault"


def suspicion_text(suspicion: Mapping[str, Any]) -> str:
    """An entry of a report's `diagnosis` in a few sentences."""
    head = {
        Fit.EXACT: "Just what this fault looks like",
        Fit.PART: "Part of it looks like this fault",
        Fit.NEAR: "It looks much like this fault",
        Fit.FAR: "Nothing known is quite like it; the nearest is this fault",
    }[Fit(suspicion["fit"])]
    first = "".join(f"{suspicion[name]} " for name in ("where", "kind") if suspicion[name])
    return f"{first}{head}: {suspicion['fault']} {suspicion['fix']}"
