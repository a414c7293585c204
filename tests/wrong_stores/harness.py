"""Judging a backend by the whole catalogue in this process, without pytest.

    python -m tests.wrong_stores.harness NAME [--all-paths] [--depth default] [RULE ...]

prints what became of a wrong store or a variant, for work on its claim.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from loom_conformance.lab.session import Session
from loom_conformance.lab.settings import DEPTHS, Depth, Settings
from loom_conformance.lab.verdict import (
    CouldNotRun,
    Declined,
    Failure,
    Inconclusive,
    NotOffered,
    RuleBroken,
)
from loom_conformance.suites import catalogue
from loom_conformance.suites.case import Case
from loom_conformance.suites.faults import FaultSuite
from loom_conformance.suites.histories import HistorySuite
from loom_conformance.suites.model import ModelSuite

from .registry import Subject, variants, wrong_stores

FAULTS, LOAD = FaultSuite.__module__, HistorySuite.__module__
"""The suites that put faults and load on a store: they alone are run at a subject's own depth."""

SEED = 1
"""Values and orders are those of this seed, so that a claim holds or does not."""


@dataclass(slots=True)
class Verdict:
    """What became of the rules on one backend.

    Attributes:
        passed: the rules of which at least one test ran and passed.
        breaks: the MUST rules that are broken, each with the first failure seen.
        advice: the SHOULD rules, and such parts of a rule, that are not followed.
        inconclusive: the rules that could not be judged, each with the first reason.
        elsewhere: rules that were seen broken by a test of another rule, each with its failure; the
            model's random programs say which rule an answer breaks.
        strays: what else left a test: an error of the kit or of the backend's own.
    """

    passed: set[str] = field(default_factory=set)
    breaks: dict[str, Failure] = field(default_factory=dict)
    advice: dict[str, Failure] = field(default_factory=dict)
    inconclusive: dict[str, str] = field(default_factory=dict)
    elsewhere: dict[str, Failure] = field(default_factory=dict)
    strays: list[str] = field(default_factory=list)

    def sets(self) -> dict[str, list[str]]:
        """The rules that stand out, as a claim lists them: the worst outcome of each."""
        breaks = set(self.breaks)
        advice = set(self.advice) - breaks
        inconclusive = set(self.inconclusive) - breaks - advice
        return {
            "breaks": sorted(breaks),
            "inconclusive": sorted(inconclusive),
            "advice": sorted(advice),
        }


def cases() -> list[Case]:
    """The cases by which a store is judged.

    The races are left out: they judge a runtime on a store, and each is proven by a wrong runtime.
    """
    return [case for case in catalogue() if case.rule.profile != "races"]


def judge(
    subject: Subject,
    *,
    depth: Depth | None = None,
    seed: int = SEED,
    only: Collection[str] = (),
    paths: Iterable[str] | None = None,
) -> Verdict:
    """Run the catalogue, or the rules named in `only`, against a subject.

    `paths` and `depth` replace the subject's own.
    """
    verdict = Verdict()
    chosen = set(subject.paths if paths is None else paths)
    usual: Depth = depth or "quick"
    harmful: Depth = depth or subject.depth
    depths: dict[str, Depth] = {FAULTS: harmful, LOAD: harmful if subject.load else "quick"}
    sessions = {
        one: Session(subject.backend, Settings(subject.deadline, seed, one))
        for one in {usual, *depths.values()}
    }
    try:
        for case in cases():
            if only and case.rule.id not in only:
                continue
            session = sessions[depths.get(case.method.__module__, usual)]
            for path in case.runs():
                if path is not None and path.name not in chosen:
                    continue
                if case.rule.id in verdict.breaks:
                    break  # what is broken once is broken
                where = f"{case.rule.id} {case.name} [{path}]"
                should = case.rule.level == "SHOULD"
                own = "" if case.method.__module__ == ModelSuite.__module__ else case.rule.id
                try:
                    case.run(session, path)
                except RuleBroken as broken:
                    _note(verdict, broken.failure, own, should=should)
                except Inconclusive as unclear:
                    if unclear.failure is not None:
                        _note(verdict, unclear.failure, unclear.failure.rule, should=False)
                    verdict.inconclusive.setdefault(case.rule.id, f"{where}: {unclear}")
                except (NotOffered, Declined):
                    continue
                except CouldNotRun as error:
                    verdict.strays.append(f"{where}: could not run: {error}")
                    return verdict
                except Exception as error:  # noqa: BLE001 - every stray is to be told
                    verdict.strays.append(f"{where}: {type(error).__name__}: {error}")
                else:
                    verdict.passed.add(case.rule.id)
    finally:
        for session in sessions.values():
            session.close()
        # What a store leaves open is collected now: another test is not to answer for it.
        gc.collect()
    return verdict


def _note(verdict: Verdict, failure: Failure, rule: str, *, should: bool) -> None:
    if failure.rule != rule:
        verdict.elsewhere.setdefault(failure.rule, failure)
    elif should or failure.advice:
        verdict.advice.setdefault(rule, failure)
    else:
        verdict.breaks.setdefault(rule, failure)


def main(arguments: list[str]) -> int:
    """Print a verdict; 2 where there is no subject of that name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("rules", nargs="*")
    parser.add_argument("--all-paths", action="store_true")
    parser.add_argument("--depth", choices=DEPTHS)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args(arguments)
    found = {name: one.subject for name, one in variants().items()}
    subject = {**found, **wrong_stores()}.get(given.name)
    if subject is None:
        sys.stderr.write(f"no wrong store and no variant is named {given.name!r}\n")
        return 2
    paths = None
    if given.all_paths:
        paths = {path.name for case in cases() for path in case.runs() if path is not None}
    verdict = judge(subject, depth=given.depth, seed=given.seed, only=given.rules, paths=paths)
    for kind, rules in verdict.sets().items():
        sys.stdout.write(f"{kind} = {rules}\n")
    for failure in [*verdict.breaks.values(), *verdict.advice.values()]:
        sys.stdout.write(f"\n{failure.rule} on {failure.path}\n")
        sys.stdout.write(f"  expected {failure.expected}\n  got {failure.got}\n")
    for rule, failure in verdict.elsewhere.items():
        sys.stdout.write(f"\nseen by another rule's test: {rule}: {failure.got}\n")
    for reason in verdict.inconclusive.values():
        sys.stdout.write(f"\ninconclusive: {reason}\n")
    for stray in verdict.strays:
        sys.stdout.write(f"\nSTRAY {stray}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
