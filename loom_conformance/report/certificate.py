"""What a run has proven about a backend, and what it has not, in words that hide nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..contract.rules import PROFILES
from .evidence import evidence, evidence_text
from .outcomes import Outcome, RuleResult
from .text import counted, listed


class Verdict(StrEnum):
    """What a run allows to be said of a backend."""

    CONFORMS = "conforms"
    """Every MUST of every profile that the backend offers was proven, core among them."""
    DOES_NOT_CONFORM = "does not conform"
    """A MUST is broken, known or not."""
    UNDECIDED = "undecided"
    """Nothing was found broken, but not everything that is offered was proven."""
    NOTHING_RUN = "nothing run"
    """No rule was judged at all: there is no certificate."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The verdict on a backend, and what stands behind it.

    Attributes:
        verdict: the verdict.
        proven: the profiles whose every rule was proven (advice aside).
        unproven: every other profile, with the reason in words.
        limits: what the proven profiles leave out, by declaration or for want of an ability.
        evidence: the schedules, histories, calls of them and faults that the rules which passed
            rest on.
        line: all of it as one sentence or two.
    """

    verdict: Verdict
    proven: tuple[str, ...]
    unproven: dict[str, str]
    limits: tuple[str, ...]
    evidence: Mapping[str, int]
    line: str


def certify(
    name: str,
    results: Sequence[RuleResult],
    declarations: Mapping[str, Any],
    selected: str = "",
    stopped: str = "",
) -> Certificate:
    """Say what these results prove about a backend.

    Args:
        name: the backend's.
        results: what became of every rule of the contract.
        declarations: what the backend says of itself.
        selected: the part of the contract that was asked for, in words; `""` for all of it.
        stopped: how the run was ended before its time, such as `"interrupted"`; `""` if it was not.

    A profile is proven when each of its rules passed, was not offered or was declined, and at
    least one MUST among them passed. Advice does not stand in the way; everything else does.
    """
    proven: list[str] = []
    unproven: dict[str, str] = {}
    for profile in PROFILES:
        reason = _why_not([one for one in results if one.rule.profile == profile])
        if reason:
            unproven[profile] = reason
        else:
            proven.append(profile)
    verdict = _verdict(results, proven)
    if stopped and verdict is Verdict.CONFORMS:
        verdict = Verdict.UNDECIDED
    limits = _limits(results, proven, declarations)
    if stopped:
        line = _line_of_stopped(name, results, stopped)
    elif selected and verdict is not Verdict.NOTHING_RUN:
        line = _line_of_part(name, results, selected)
    else:
        line = _line(name, verdict, results, proven, unproven, limits)
    numbers = evidence(results)
    behind = evidence_text(numbers)
    if behind:
        line += f" Behind what passed: {behind}."
    return Certificate(verdict, tuple(proven), unproven, limits, numbers, line)


def _why_not(results: Sequence[RuleResult]) -> str:
    """Why a profile is not proven; `""` where it is."""
    groups: dict[Outcome, list[RuleResult]] = {}
    for one in results:
        groups.setdefault(one.outcome, []).append(one)
    parts = []
    for outcome, group in sorted(groups.items(), key=lambda item: list(Outcome).index(item[0])):
        if outcome.unproven:
            parts.append(f"{outcome}: {_ids(group)}" if len(group) < len(results) else outcome)
    if parts:
        return "; ".join(parts)
    if any(one.rule.level == "MUST" for one in groups.get(Outcome.PASSED, ())):
        return ""
    for outcome in (Outcome.DECLINED, Outcome.NOT_OFFERED):
        if outcome in groups:
            reason = groups[outcome][0].reason
            return f"{outcome}: {reason}" if reason else str(outcome)
    return "no rule of it passed"


def _verdict(results: Sequence[RuleResult], proven: Sequence[str]) -> Verdict:
    outcomes = {one.outcome for one in results}
    if not any(one.judged for one in results):
        return Verdict.NOTHING_RUN
    if outcomes & {Outcome.FAILED, Outcome.KNOWN_FAILING}:
        return Verdict.DOES_NOT_CONFORM
    if any(outcome.unproven for outcome in outcomes) or "core" not in proven:
        return Verdict.UNDECIDED
    return Verdict.CONFORMS


def _limits(
    results: Sequence[RuleResult], proven: Sequence[str], declarations: Mapping[str, Any]
) -> tuple[str, ...]:
    alike: dict[str, list[RuleResult]] = {}
    for one in results:
        left_out = one.outcome in (Outcome.NOT_OFFERED, Outcome.DECLINED)
        if left_out and one.rule.profile in proven and one.rule.level == "MUST":
            why = f" ({one.reason})" if one.reason else ""
            alike.setdefault(f"{one.outcome}{why}", []).append(one)
    limits = [f"{_ids(group)} {told}" for told, group in alike.items()]
    if declarations["max_batch"] is not None and "batch" in proven:
        limits.append(f"at most {declarations['max_batch']} envelopes a batch")
    if declarations["one_process_at_a_time"]:
        limits.append("one process at a time")
    return tuple(limits)


def _line(
    name: str,
    verdict: Verdict,
    results: Sequence[RuleResult],
    proven: Sequence[str],
    unproven: Mapping[str, str],
    limits: Sequence[str],
) -> str:
    if verdict is Verdict.NOTHING_RUN:
        reasons = _left_out(results)
        return f"{name}: nothing was judged{reasons}, so there is no certificate."
    broken = [one for one in results if one.outcome is Outcome.FAILED]
    known = [one for one in results if one.outcome is Outcome.KNOWN_FAILING]
    advice = [one for one in results if one.outcome is Outcome.ADVICE]
    passed = sum(one.outcome is Outcome.PASSED for one in results)
    if verdict is Verdict.CONFORMS:
        text = f"{name} conforms: {counted(passed, 'rule')} proven in {listed(proven)}."
    elif verdict is Verdict.DOES_NOT_CONFORM:
        faults = []
        if broken:
            faults.append(f"{_ids(broken)} failed")
        if known:
            faults.append(f"{_ids(known)} known to fail")
        text = f"{name} does not conform: {'; '.join(faults)}."
    else:
        text = f"{name}: no verdict, since not all was proven."
    if verdict is not Verdict.CONFORMS and proven:
        text += f" Proven: {listed(proven)}."
    if unproven:
        text += f" Not proven: {'; '.join(f'{key} ({why})' for key, why in unproven.items())}."
    if limits:
        text += f" Limits: {'; '.join(limits)}."
    if advice:
        text += f" Advice: {_ids(advice)}."
    return text


def _left_out(results: Sequence[RuleResult]) -> str:
    """Why rules were left out where none was judged, in brackets; `""` if none was."""
    told: dict[str, list[RuleResult]] = {}
    for one in results:
        if one.outcome in (Outcome.DECLINED, Outcome.NOT_OFFERED):
            why = f": {one.reason}" if one.reason else ""
            told.setdefault(f"{one.outcome}{why}", []).append(one)
    reasons = [f"{_ids(group)} {reason}" for reason, group in told.items()]
    return f" ({'; '.join(reasons)})" if reasons else ""


def _line_of_stopped(name: str, results: Sequence[RuleResult], stopped: str) -> str:
    """What a run says that somebody stopped."""
    bad = [one for one in results if one.outcome.fails_the_run]
    told = [f"{one.rule.id} {one.outcome}" for one in bad]
    so_far = f" Until then: {'; '.join(told)}." if told else ""
    return f"{name}: the run was {stopped} before its end, so there is no certificate.{so_far}"


def _line_of_part(name: str, results: Sequence[RuleResult], selected: str) -> str:
    """What a run of chosen rules says, which is never that a backend conforms."""
    tests = [
        test
        for one in results
        for test in one.tests
        if test.outcome not in (Outcome.NOT_RUN, Outcome.NOT_OFFERED, Outcome.DECLINED)
    ]
    bad = [one for one in results if one.outcome.fails_the_run]
    known = [one for one in results if one.outcome is Outcome.KNOWN_FAILING]
    if bad:
        text = f"{name}: {'; '.join(f'{one.rule.id} {one.outcome}' for one in bad)}."
    else:
        passed = sum(test.outcome is Outcome.PASSED for test in tests)
        text = f"{name}: {passed} of the {counted(len(tests), 'test')} that ran passed."
    if known:
        text += f" Known to fail: {_ids(known)}."
    return f"{text} This is no certificate: only {selected} ran."


def _ids(results: Iterable[RuleResult], at_most: int = 8) -> str:
    names = [one.rule.id for one in results]
    if len(names) > at_most:
        return f"{', '.join(names[:at_most])} and {len(names) - at_most} more"
    return listed(names)
