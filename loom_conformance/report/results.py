"""From what a test raised to what it found."""

from __future__ import annotations

import dataclasses
import traceback
from pathlib import Path
from typing import Final

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
from .text import command, printable, wrapped

_MACHINERY: Final = frozenset(("_pytest", "pluggy", "asyncio", "loom_conformance"))
"""Packages whose frames mean nothing to the author of a store."""


class ProcessLost(Exception):
    """The process that ran a test ended in it; the message says how."""


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
    more = failure.replay if failure else []
    return [*words, *(dashes + word[2:] if word.startswith("--") else word for word in more)]


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
        result.text = told(result, subject.name)
        return [result, broken]
    result.reason = printable(str(error)) or type(error).__name__
    if isinstance(error, Inconclusive):
        result.outcome = Outcome.INCONCLUSIVE
        result.text = told(result, subject.name)
        if error.failure is not None and error.failure.rule != rule:
            return [result, _broken(subject, settings, error.failure, test, path)]
    elif isinstance(error, Declined):
        result.outcome = Outcome.DECLINED
    elif isinstance(error, NotOffered):
        result.outcome = Outcome.NOT_OFFERED
    elif isinstance(error, CouldNotRun) and not error.first:
        result.outcome = Outcome.NOT_RUN
    else:
        result.outcome = Outcome.ERROR
        if not isinstance(error, CouldNotRun | ProcessLost):
            result.reason = printable(f"{type(error).__name__}: {error}".rstrip(": "))
            result.text = _error_text(result, error, subject.name)
            return [result]
    result.text = told(result, subject.name) if result.outcome.fails_the_run else ""
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


def told(result: TestResult, backend: str) -> str:
    """A result without a failure text of its own, in a few lines."""
    where = f" on {printable(result.path)}" if result.path else ""
    lines = [f"{result.outcome.upper()} {result.rule} [{printable(backend)}]{where}"]
    lines += wrapped(result.reason, "  ")
    return "\n".join([*lines, f"  Replay: {result.replay}"])


def _error_text(result: TestResult, error: BaseException, backend: str) -> str:
    """The error with the frames that its reader can do something about."""
    trace = traceback.TracebackException.from_exception(error)
    own = [frame for frame in trace.stack if not _is_machinery(frame.filename)]
    trace.stack = traceback.StackSummary.from_list(own or trace.stack[-1:])
    heading, *rest = told(result, backend).splitlines()
    lines = "".join(trace.format(chain=False)).rstrip().splitlines()
    return "\n".join([heading, "", *(f"  {printable(line)}" for line in lines), "", rest[-1]])


def _is_machinery(filename: str) -> bool:
    return any(part in _MACHINERY for part in Path(filename).parts)
