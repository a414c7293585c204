"""What known faults look like: which rules a store breaks that has one, and the usual repair.

The wrong stores of the kit's own tests prove every entry, so a report may compare a run with them:
"these three failures are the signature of check-then-insert".
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Claim:
    """One fault and the exact set of rules that a store with it breaks.

    Attributes:
        name: the wrong store's lasting name, in kebab case.
        family: the kind of fault, such as `check-then-insert`.
        fault: what is wrong, one sentence.
        fix: the usual repair, one sentence.
        source: where it was met: a public tracker's issue, a paper, a known trap.
        breaks: the rules that fail, by id.
        inconclusive: the rules that cannot be judged for it, since their set-up fails.
        advice: the SHOULD rules, or such parts of a rule, that are not followed.
    """

    name: str
    family: str
    fault: str
    fix: str
    source: str
    breaks: frozenset[str]
    inconclusive: frozenset[str] = frozenset()
    advice: frozenset[str] = frozenset()


@cache
def claims() -> Mapping[str, Claim]:
    """Every claim by its name, in the order of the data files beside this module.

    Raises:
        ValueError: two claims have one name.
    """
    found: dict[str, Claim] = {}
    beside = sorted(files(__package__).iterdir(), key=lambda entry: entry.name)
    for entry in beside:
        if not entry.name.endswith(".toml"):
            continue
        for given in tomllib.loads(entry.read_text("utf-8")).get("claim", []):
            claim = Claim(
                **{
                    **given,
                    "breaks": frozenset(given["breaks"]),
                    "inconclusive": frozenset(given.get("inconclusive", ())),
                    "advice": frozenset(given.get("advice", ())),
                }
            )
            if claim.name in found:
                raise ValueError(f"two claims are named {claim.name!r}")
            found[claim.name] = claim
    return found
