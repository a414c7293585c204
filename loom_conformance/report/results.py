"""From what a test raised to what it found."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Sequence

from ..contract.rules import rules
from ..lab.settings import Settings
from ..lab.verdict import (
    CouldNotRun,
    Declined,
    Failure,
    Inconclusive,
    NotOffered,
    RuleBroken,
)
from .failure import failure_text
from .outcomes import Outcome, TestResult
from .subject import Subject
from .text import command, printable


def replay_words(
    subject: Subject, settings: Settings, rule: str, path: str = "", failure: Failure | None = None
) -> list[str]:
    """The command that runs one rule again, on one write path, with the same seed."""
    dashes = "--" if subject.by_check else "--loom-"
    words = [*subject.command, f"{dashes}rule", rule]
    if path:
        words += [f"{dashes}path", path]
    seed = settings.seed if failure is None or failure.seed is None else failure.seed
    words += [f"{dashes}seed", str(seed)]
    if settings.depth != "default":
        words += [f"{dashes}depth", settings.depth]
    if settings.deadline != Settings(seed=0).deadline:
        words += [f"{dashes}deadline", f"{settings.deadline:g}"]
    return [*words, *(failure.replay if failure else ())]


def results_of(
    subject: Subject,
    settings: Settings,
    *,
    rule: str,
    test: str,
    path: str,
    error: BaseException | None,
    duration_s: float,
) -> list[TestResult]:
    """What a test found out, in most cases about its own rule alone.

    A test may see another rule broken on the way (a call that hangs breaks LIVE-1): that makes
    a second result, for the other rule.
    """
    result = TestResult(rule, test, path, Outcome.PASSED, duration_s=duration_s)
    result.replay = command(replay_words(subject, settings, rule, path))
    if error is None:
        return [result]
    if isinstance(error, RuleBroken):
        broken = _broken(subject, settings, error.failure, test, path)
        if error.failure.rule == rule:
            broken.duration_s = duration_s
            return [broken]
        result.outcome = Outcome.INCONCLUSIVE
        result.reason = f"{broken.rule} was broken before this rule could be judged"
        return [result, broken]
    result.reason = printable(str(error)) or type(error).__name__
    if isinstance(error, Inconclusive):
        result.outcome = Outcome.INCONCLUSIVE
        if error.failure is not None and error.failure.rule != rule:
            return [result, _broken(subject, settings, error.failure, test, path)]
    elif isinstance(error, Declined):
        result.outcome = Outcome.DECLINED
    elif isinstance(error, NotOffered):
        result.outcome = Outcome.NOT_OFFERED
    else:
        result.outcome = Outcome.ERROR
        if not isinstance(error, CouldNotRun):
            result.reason = printable(f"{type(error).__name__}: {error}".rstrip(": "))
            result.text = _traceback(error)
    return [result]


def _broken(
    subject: Subject, settings: Settings, failure: Failure, test: str, path: str
) -> TestResult:
    rule = rules()[failure.rule]
    known = subject.known_failing.get(rule.id, "")
    if known:
        outcome = Outcome.KNOWN_FAILING
    elif rule.level == "SHOULD" or failure.advice:
        outcome = Outcome.ADVICE
    else:
        outcome = Outcome.FAILED
    words = replay_words(subject, settings, rule.id, failure.path or "", failure)
    return TestResult(
        rule=rule.id,
        test=test,
        path=path,
        outcome=outcome,
        reason=known or printable(f"expected {failure.expected}; got {failure.got}"),
        text=failure_text(
            failure, rule, backend=subject.name, replay=words, outcome=outcome, known=known
        ),
        failure=dataclasses.asdict(failure),
        replay=command(words),
    )


def _traceback(error: BaseException) -> str:
    lines: Sequence[str] = traceback.format_exception(error)
    text = "".join(lines).rstrip()
    return "\n".join(printable(line) for line in text.splitlines())
