"""What became of each test, and from that what became of each rule.

Only what ran and passed counts as passed: a test that is missing, deselected, skipped, overridden
or cut short leaves its rule unproven, whatever the others say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from ..contract.rules import Rule


class Outcome(StrEnum):
    """What became of a test or a rule."""

    FAILED = "failed"
    """The store broke a MUST, or a rule listed in `known_failing` holds after all."""
    ERROR = "error"
    """The test itself broke: the factory raised, the process died, the kit is at fault."""
    INCONCLUSIVE = "inconclusive"
    """The rule could not be judged: set-up failed, calls did not overlap, a call hung."""
    OVERRIDDEN = "overridden"
    """A test of the kit was replaced, so what ran says nothing about the rule."""
    NOT_RUN = "not run"
    """A test of the rule was deselected, skipped, deleted or never reached."""
    KNOWN_FAILING = "known failing"
    """The store broke a rule that the backend lists in `known_failing`, with its reason."""
    ADVICE = "advice"
    """The store does not follow a SHOULD."""
    PASSED = "passed"
    """Every test of the rule that the store can take ran and passed."""
    DECLINED = "declined"
    """The backend declines the rule's profile, with its reason."""
    NOT_OFFERED = "not offered"
    """The store lacks the ability that the rule is about."""

    @property
    def fails_the_run(self) -> bool:
        """Whether a run with this outcome must not end well."""
        return self in (Outcome.FAILED, Outcome.ERROR, Outcome.INCONCLUSIVE)

    @property
    def unproven(self) -> bool:
        """Whether the rule was neither shown to hold nor rightly left out."""
        return self not in (
            Outcome.PASSED,
            Outcome.ADVICE,
            Outcome.DECLINED,
            Outcome.NOT_OFFERED,
        )


WORST_FIRST: Final[tuple[Outcome, ...]] = tuple(Outcome)
"""The order in which one outcome outweighs another: the order of the enumeration."""


LEFT_OUT: Final = (Outcome.DECLINED, Outcome.NOT_OFFERED)
"""What says that a rule is not for this store, and nothing of the store."""


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome that outweighs the others; `NOT_RUN` where there is none.

    `PASSED` outweighs `DECLINED` and `NOT_OFFERED`: a rule holds when it holds on the write paths
    that the store has.
    """
    return min(outcomes, key=WORST_FIRST.index, default=Outcome.NOT_RUN)


@dataclass(frozen=True, slots=True, order=True)
class Expected:
    """A test that the kit has for a rule, and so must be accounted for.

    Attributes:
        rule: the rule's id.
        test: the name of the test function.
        path: the write path, or `""` where the test has none.
    """

    rule: str
    test: str
    path: str = ""


@dataclass(slots=True)
class TestResult:
    """What became of one test.

    Attributes:
        rule: the id of the rule that it tests.
        test: the name of the test function.
        path: the write path, or `""`.
        outcome: what became of it.
        reason: why, in one or two sentences; `""` for a test that passed.
        duration_s: how long it took, set-up and tear-down included.
        text: the whole failure text as a person reads it, or `""`.
        failure: the failure as data (see `lab.verdict.Failure`), or `None`.
        replay: the command that runs it again.
        shown: what it put the store through, where it passed (see `evidence`).
    """

    rule: str
    test: str
    path: str
    outcome: Outcome
    reason: str = ""
    duration_s: float = 0.0
    text: str = ""
    failure: Mapping[str, Any] | None = None
    replay: str = ""
    shown: Sequence[Mapping[str, Any]] = ()

    __test__ = False

    @property
    def expected(self) -> Expected:
        """The entry of the catalogue that this result accounts for."""
        return Expected(self.rule, self.test, self.path)

    def absorb(self, other: TestResult) -> None:
        """Take in another phase of the same test (its tear-down): the worse outcome stands."""
        self.duration_s += other.duration_s
        if WORST_FIRST.index(other.outcome) < WORST_FIRST.index(self.outcome):
            self.outcome, self.reason = other.outcome, other.reason
            self.text, self.failure = other.text, other.failure


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What became of one rule on one backend.

    Attributes:
        rule: the rule.
        outcome: the worst of its tests' outcomes.
        reason: the reason that goes with it.
        paths: what became of it on each write path that it was tried on, in order.
        tests: the results of its tests, in the order in which they ended.
        missing: the tests that left no result.
        duration_s: how long all its tests took together.
    """

    rule: Rule
    outcome: Outcome
    reason: str
    paths: Mapping[str, Outcome]
    tests: Sequence[TestResult] = ()
    missing: Sequence[Expected] = ()
    duration_s: float = 0.0

    @property
    def wrongly_listed(self) -> bool:
        """Whether it failed only because the backend lists it as known to fail, and it holds."""
        return (
            self.outcome is Outcome.FAILED
            and bool(self.tests)
            and all(test.outcome is not Outcome.FAILED for test in self.tests)
        )

    @property
    def judged(self) -> bool:
        """Whether any test of it came to a judgement."""
        return any(
            test.outcome not in (*LEFT_OUT, Outcome.ERROR, Outcome.OVERRIDDEN, Outcome.NOT_RUN)
            for test in self.tests
        )


def judge(
    rule: Rule,
    results: Sequence[TestResult],
    expected: Iterable[Expected],
    known_failing: str | None = None,
    why_missing: str = "",
) -> RuleResult:
    """Say what became of a rule.

    Args:
        rule: the rule.
        results: the results of its tests.
        expected: its entries of the catalogue.
        known_failing: the backend's reason for listing the rule as known to fail, if it does.
        why_missing: why tests may be missing, for the reason.
    """
    accounted = {result.expected for result in results}
    missing = sorted(entry for entry in expected if entry not in accounted)
    outcome = worst(
        [result.outcome for result in results] + [Outcome.NOT_RUN] * bool(missing or not results)
    )
    if known_failing is not None and outcome in (Outcome.PASSED, Outcome.ADVICE):
        outcome = Outcome.FAILED
        reason = (
            f"listed in known_failing ({known_failing}), but all of its tests pass: "
            "take it off the list"
        )
    else:
        reason = _reason(outcome, results, missing, why_missing)
    return RuleResult(
        rule=rule,
        outcome=outcome,
        reason=reason,
        paths=_paths(results, missing),
        tests=results,
        missing=missing,
        duration_s=sum(result.duration_s for result in results),
    )


def _reason(
    outcome: Outcome,
    results: Sequence[TestResult],
    missing: Sequence[Expected],
    why_missing: str,
) -> str:
    given = [result.reason for result in results if result.outcome is outcome and result.reason]
    if given:
        others = len(set(given)) - 1
        more = f" (and {others} more)" if others else ""
        return f"{given[0]}{more}"
    if outcome is not Outcome.NOT_RUN:
        return ""
    why = f": {why_missing}" if why_missing else ""
    if not results:
        return f"no test of it ran{why}"
    told = f"{len(missing)} of its {len(missing) + len(results)} tests did not run{why}"
    if all(result.outcome is Outcome.PASSED for result in results):
        told += "; what ran passed"
    return told


def _paths(results: Sequence[TestResult], missing: Sequence[Expected]) -> dict[str, Outcome]:
    seen: dict[str, list[Outcome]] = {}
    for result in results:
        if result.path:
            seen.setdefault(result.path, []).append(result.outcome)
    for entry in missing:
        if entry.path:
            seen.setdefault(entry.path, []).append(Outcome.NOT_RUN)
    return {path: worst(outcomes) for path, outcomes in seen.items()}
