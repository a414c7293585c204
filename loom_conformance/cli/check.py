"""`loom-conformance check MODULE:BACKEND`: every rule, and a verdict."""

from __future__ import annotations

import argparse
import difflib
import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..contract.rules import PROFILES, rules
from ..interleave.token import BadToken, Token
from ..lab.paths import WRITE_PATHS
from ..lab.selection import SHORT_NAMES
from ..lab.settings import DEPTHS, Settings
from ..report.certificate import Verdict
from ..report.document import Document, document
from ..report.files import append_summary, certifies, check_path, write_reports
from ..report.outcomes import Outcome
from ..report.run import Choice, Event, Run
from ..report.terminal import failures, summary, wrongly_listed
from ..report.text import counted, listed
from . import CONFORMS, COULD_NOT_RUN, DOES_NOT_CONFORM, INTERRUPTED, TERMINATED, USAGE
from .console import Meter, meter, say, stderr, stdout
from .supervise import MOST_JOBS, Request, supervise

SHOWN = (
    Outcome.FAILED,
    Outcome.ERROR,
    Outcome.INCONCLUSIVE,
    Outcome.KNOWN_FAILING,
    Outcome.ADVICE,
)
"""The outcomes whose texts are printed before the summary."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `check`."""
    parser.add_argument(
        "backend", help=f"MODULE:CLASS of a Backend, or {listed(SHORT_NAMES, 'or')}"
    )
    parser.add_argument(
        "--profile",
        action="append",
        default=[],
        type=known_profile,
        metavar="NAME",
        help=f"only the rules of this profile ({listed(PROFILES, 'or')}); may be given again",
    )
    parser.add_argument(
        "--rule",
        action="append",
        default=[],
        type=_rule,
        metavar="ID",
        help="only this rule, such as FENCE-8; may be given again",
    )
    parser.add_argument(
        "--path",
        action="append",
        default=[],
        type=_path,
        metavar="NAME",
        help="only on this write path, such as batch-first; may be given again",
    )
    parser.add_argument(
        "--seed", type=_seed, metavar="N", help="the seed of values and orders (printed each time)"
    )
    parser.add_argument(
        "--depth", choices=DEPTHS, default="default", help="how many rounds and examples"
    )
    parser.add_argument(
        "--deadline",
        type=_seconds,
        metavar="SECONDS",
        help="how long one call may take; raise it for a slow store (default: 10)",
    )
    parser.add_argument(
        "--jobs",
        type=_jobs,
        default=1,
        metavar="N",
        help="share the profiles among so many processes, each with storages (and a server, where "
        f"the backend starts one) of its own; {MOST_JOBS} at most",
    )
    parser.add_argument(
        "--schedule",
        type=_schedule,
        metavar="TOKEN",
        help="lead the simultaneous calls of a test through this one schedule",
    )
    parser.add_argument(
        "--report",
        action="append",
        default=[],
        type=_report,
        metavar="PATH",
        help="write the report to PATH: .json, .html (a page), .md (for a pull request), .svg "
        "(a badge) or certificate.json; may be given again",
    )
    parser.usage = (
        f"{parser.prog} MODULE:CLASS [--profile NAME] [--rule ID] [--path NAME]\n"
        "       [--seed N] [--depth DEPTH] [--deadline SECONDS] [--jobs N]\n"
        "       [--schedule TOKEN] [--report PATH] [-- PYTEST-ARGUMENTS]"
    )


def run(options: argparse.Namespace) -> int:
    """Check a backend and print what was found."""
    given: dict[str, Any] = {"depth": options.depth, "schedule": options.schedule}
    if options.seed is not None:
        given["seed"] = options.seed
    if options.deadline is not None:
        given["deadline"] = options.deadline
    settings = Settings(**given)
    choice = Choice(tuple(options.profile), tuple(options.rule), tuple(options.path))
    found = Run(
        settings,
        choice,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=platform.platform(),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    request = Request(options.backend, settings, choice, tuple(options.rest), jobs=options.jobs)
    complaints = stderr()
    say(complaints, [f"checking {options.backend}: seed {settings.seed}, {settings.depth} depth"])
    with meter(complaints, "starting") as progress:
        ending = supervise(request, found, _Watcher(found, progress).hear)
    if ending.problem:
        say(complaints, [_plain(ending.problem)])
        return USAGE if ending.usage else COULD_NOT_RUN
    reports = [document(found, key) for key in found.subjects]
    _show(reports)
    held_back = [path for path in options.report if ending.stopped and certifies(path)]
    say(
        complaints,
        [f"{path} is not written, since the run was {ending.stopped}" for path in held_back],
    )
    paths = [path for path in options.report if path not in held_back]
    if reports and not _written(reports, paths):
        return COULD_NOT_RUN
    if ending.threads:
        threads = ", ".join(ending.threads)
        say(complaints, [f"the store left threads that keep a process alive: {threads}"])
    if ending.stopped:
        say(complaints, [f"{ending.stopped}: what did not run is not proven"])
        return TERMINATED if ending.stopped == "terminated" else INTERRUPTED
    if ending.cut:
        say(complaints, [found.why_missing])
        return COULD_NOT_RUN
    return _exit_code(found, reports)


def _written(reports: list[Document], paths: Iterable[Path]) -> bool:
    """Write the reports, and the summary of the CI system that this runs on."""
    try:
        say(stdout(), [f"report       {path}" for path in write_reports(reports, paths)])
        summary_path = os.environ.get("GITHUB_STEP_SUMMARY")
        if summary_path:
            append_summary(Path(summary_path), reports)
    except OSError as error:
        say(stderr(), [f"a report could not be written: {error}"])
        return False
    return True


def _exit_code(found: Run, reports: list[Document]) -> int:
    verdicts = {report["certificate"]["verdict"] for report in reports}
    if not reports or Verdict.NOTHING_RUN in verdicts:
        return COULD_NOT_RUN
    return DOES_NOT_CONFORM if found.fails else CONFORMS


def _show(reports: Iterable[Document]) -> None:
    console = stdout()
    for report in reports:
        for text in [*failures(report, SHOWN), *wrongly_listed(report)]:
            say(console, [*text, ""])
        say(console, summary(report))


def _plain(problem: str) -> str:
    """pytest's complaint without its own prefix."""
    return problem.removeprefix("ERROR: ").replace("--loom-backend: ", "")


class _Watcher:
    """Turns events into progress."""

    def __init__(self, found: Run, progress: Meter) -> None:
        self._found = found
        self._progress = progress
        self._profiles: set[str] = set()
        self._told: set[tuple[str, str]] = set()
        self._announced = False

    def hear(self, event: Event) -> None:
        """Show what is worth showing of an event."""
        if event["event"] == "subject":
            choice = self._found.choice
            tests = [
                entry
                for one in self._found.subjects.values()
                for entry in one.subject.catalogue
                if choice.wants(entry.rule, entry.path)
            ]
            self._progress.expect(len(tests))
            if not self._announced:
                self._announced = True
                of = counted(len({entry.rule for entry in tests}), "rule")
                self._progress.note(f"{counted(len(tests), 'test')} of {of}", "dim")
        elif event["event"] == "result":
            self._result(event)

    def _result(self, event: Event) -> None:
        rule = rules()[event["rule"]]
        self._progress.advance(f"{rule.id} {event['test'].removeprefix('test_')}")
        if rule.profile not in self._profiles:
            self._profiles.add(rule.profile)
            self._progress.note(f"{rule.profile} …", "dim")
        outcome = Outcome(event["outcome"])
        told = outcome.fails_the_run or outcome is Outcome.KNOWN_FAILING
        if told and (rule.id, outcome) not in self._told:
            self._told.add((rule.id, outcome))
            where = f" [{event['path']}]" if event["path"] else ""
            reason = event["reason"]
            short = f"{reason[:200]} …" if len(reason) > 200 else reason
            word = "FAIL" if outcome is Outcome.FAILED else outcome.upper()
            self._progress.note(
                f"{word} {rule.id}{where} {short}",
                "red" if outcome in (Outcome.FAILED, Outcome.ERROR) else "yellow",
            )


# --- arguments --------------------------------------------------------------------------------


def _rule(text: str) -> str:
    return _known(text.upper(), rules(), "rule", "see loom-conformance rules")


def known_profile(text: str) -> str:
    """The profile of this name, in capitals or not.

    Raises:
        argparse.ArgumentTypeError: there is none.
    """
    return _known(text.lower(), PROFILES, "profile", f"there are {', '.join(PROFILES)}")


def _path(text: str) -> str:
    names = [path.name for path in WRITE_PATHS]
    return _known(text, names, "write path", f"there are {', '.join(names)}")


def _known(text: str, known: Iterable[str], what: str, otherwise: str) -> str:
    names = list(known)
    if text in names:
        return text
    near = difflib.get_close_matches(text, names)
    hint = f"did you mean {near[0]}?" if near else otherwise
    raise argparse.ArgumentTypeError(f"there is no {what} {text!r}; {hint}")


def _jobs(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_JOBS:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number of processes from 1 to {MOST_JOBS}")


def _seed(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0")


def _schedule(text: str) -> str:
    try:
        Token.parse(text)
    except BadToken as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if 0 < value < 86_400:
        return value
    raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")


def _report(text: str) -> Path:
    path = Path(text)
    fault = check_path(path)
    if fault:
        raise argparse.ArgumentTypeError(fault)
    return path
