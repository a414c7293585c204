"""How well the diagnosis does: each known fault is left out, and looked for by the others.

`python -m loom_conformance.report.left_out` prints it, and with `--missed` what was taken for what.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..contract.rules import rules
from .claims import Claim, claims
from .diagnosis import diagnose
from .outcomes import Outcome, RuleResult


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What became of the known faults, each left out in its turn.

    Attributes:
        all: how many known faults there are.
        siblings: how many of them have another one in their family. The others cannot be found.
        first: how many had their family named first.
        among: how many had it named among the first three.
        missed: the faults whose family was not named first, each with what was named.
    """

    all: int
    siblings: int
    first: int
    among: int
    missed: Mapping[str, tuple[str, ...]]

    def __str__(self) -> str:
        return (
            f"{self.first} of {self.all} known faults had their family named first when they were "
            f"left out: {self.first / self.siblings:.0%} of the {self.siblings} whose family has "
            f"another fault, {self.first / self.all:.0%} of all; "
            f"{self.among} had it among the first three"
        )


def left_out(known: Mapping[str, Claim] | None = None) -> LeftOut:
    """Leave out each fault, and diagnose it from the others.

    Args:
        known: the known faults; by default the kit's own claims.
    """
    faults = claims() if known is None else known
    sizes = Counter(one.family for one in faults.values())
    first = among = 0
    missed: dict[str, tuple[str, ...]] = {}
    for name, fault in faults.items():
        others = {other: one for other, one in faults.items() if other != name}
        named = tuple(one.claim.family for one in diagnose(looks(fault), others))
        among += fault.family in named
        if named[:1] == (fault.family,):
            first += 1
        else:
            missed[name] = named
    siblings = sum(sizes[one.family] > 1 for one in faults.values())
    return LeftOut(len(faults), siblings, first, among, missed)


def looks(fault: Claim) -> Iterator[RuleResult]:
    """What a whole run finds on a store with this fault, and with nothing else wrong."""
    for rule in rules().values():
        outcome = Outcome.PASSED
        if rule.id in fault.breaks:
            outcome = Outcome.FAILED
        elif rule.id in fault.advice:
            outcome = Outcome.ADVICE
        elif rule.id in fault.inconclusive:
            outcome = Outcome.INCONCLUSIVE
        yield RuleResult(rule, outcome, "", {})


def main() -> int:
    """Print the measure."""
    parser = argparse.ArgumentParser(prog="python -m loom_conformance.report.left_out")
    parser.add_argument("--missed", action="store_true", help="say what was taken for what")
    options = parser.parse_args()
    found = left_out()
    sys.stdout.write(f"{found}\n")
    if options.missed:
        for name, named in found.missed.items():
            told = ", ".join(named) or "nothing"
            sys.stdout.write(f"  {name} ({claims()[name].family}): {told}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
