"""From pytest's items and reports to events, and from events to what pytest shows.

Each process that runs tests turns what they raised into events, and hangs them on pytest's
reports; the process that the user sees takes them off again. So it works under xdist.
"""

from __future__ import annotations

import inspect
import json
import os
import platform
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from ..backend import Backend
from ..lab.calls import ticks
from ..lab.settings import Settings
from .document import document
from .files import append_summary, write_reports
from .outcomes import Expected, Outcome, TestResult
from .results import ProcessLost, results_of
from .run import Choice, Event, Run, result_event, subject_event
from .subject import Subject, describe

ATTRIBUTE: Final = "loom"
"""The attribute of a report that holds its events, as JSON text."""

SHOWN: Final = "loom_shown"
"""The user property in which a suite leaves what its test put the store through."""

HEARTBEAT: Final = 1.0
"""Seconds between two signs of life."""

WORDS: Final[Mapping[Outcome, tuple[str, str, str | tuple[str, Mapping[str, bool]]]]] = {
    Outcome.ERROR: ("error", "E", "ERROR"),
    Outcome.INCONCLUSIVE: ("inconclusive", "I", ("INCONCLUSIVE", {"yellow": True})),
    Outcome.KNOWN_FAILING: ("known failing", "k", ("KNOWN FAILING", {"yellow": True})),
    Outcome.ADVICE: ("advice", "a", ("ADVICE", {"yellow": True})),
    Outcome.DECLINED: ("declined", "d", ("DECLINED", {"yellow": True})),
    Outcome.NOT_RUN: ("not run", "-", ("NOT RUN", {"yellow": True})),
    Outcome.NOT_OFFERED: ("not offered", "n", ("NOT OFFERED", {"yellow": True})),
}
"""What pytest calls each outcome: its category, its letter and its word."""


@dataclass(frozen=True, slots=True)
class KitTest:
    """An item that tests a rule of the contract."""

    rule: str
    test: str
    path: str
    backend: type[Backend]
    key: str


def kit_test(item: pytest.Item) -> KitTest | None:
    """What an item tests, or `None` where it is no test of the kit."""
    marker = item.get_closest_marker("loom_rule")
    owner = getattr(item, "cls", None)
    backend = getattr(owner, "backend", None)
    if marker is None or item.parent is None:
        return None
    if not (inspect.isclass(backend) and issubclass(backend, Backend)):
        return None
    callspec = getattr(item, "callspec", None)
    path = callspec.params.get("path") if callspec is not None else None
    return KitTest(
        rule=str(marker.args[0]),
        test=getattr(item, "originalname", None) or item.name,
        path="" if path is None else str(path),
        backend=backend,
        key=item.parent.nodeid,
    )


def originals(owner: type) -> dict[str, Any]:
    """The kit's own test functions of a composed class, by name, whatever a subclass put over."""
    found: dict[str, Any] = {}
    for base in reversed(owner.__mro__):
        for name, value in vars(base).items():
            if hasattr(value, "loom_case"):
                found.setdefault(name, value)
    return found


def catalogue_of(tests: Mapping[str, Any]) -> Iterator[Expected]:
    """Every test that the kit's functions stand for: one a write path where there are any."""
    for name, function in tests.items():
        case = function.loom_case
        for path in case.paths or ("",):
            yield Expected(case.rule.id, name, str(path))


@dataclass(slots=True)
class Recorder:
    """What one pytest process knows of the kit's tests.

    Attributes:
        run: what was found so far; complete only in the process that the user sees.
        began: when the run began, as `time.time()` says it.
        worker: whether this process is an xdist worker, which only passes events on.
        spec: the backend as `--loom-backend` names it, or `""`.
        stream: the file to which each event is appended as a JSON line, or `None`.
        crashed: the node ids of tests in which an xdist worker died.
        written: what became of the report files, a line each.
    """

    run: Run
    began: float
    worker: bool = False
    spec: str = ""
    stream: Path | None = None
    crashed: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    _introduced: set[str] = field(default_factory=set)
    _subjects: dict[str, Subject] = field(default_factory=dict)

    @classmethod
    def begin(
        cls,
        settings: Settings,
        choice: Choice,
        *,
        began: float,
        worker: bool,
        spec: str,
        stream: Path | None,
    ) -> Recorder:
        """Begin to record a run."""
        run = Run(
            settings=settings,
            choice=choice,
            python=f"{platform.python_implementation()} {platform.python_version()}",
            platform=platform.platform(),
            started_at=datetime.fromtimestamp(began, UTC).isoformat(timespec="seconds"),
        )
        return cls(run, began, worker=worker, spec=spec, stream=None if worker else stream)

    # --- in the process that runs tests ---

    def subject(self, item: pytest.Item, test: KitTest) -> Subject:
        """The backend that an item tests."""
        if test.key not in self._subjects:
            owner = getattr(item, "cls", object)
            tests = originals(owner)
            by_check = bool(self.spec) and item.module.__name__.endswith("suites.test_backend")  # type: ignore[attr-defined]
            command = (
                ("loom-conformance", "check", self.spec)
                if by_check
                else ("pytest", _from_here(item, test.key))
            )
            self._subjects[test.key] = describe(
                test.backend,
                key=test.key,
                catalogue=catalogue_of(tests),
                overridden=(
                    name
                    for name, function in tests.items()
                    if inspect.getattr_static(owner, name, None) is not function
                ),
                command=command,
                by_check=by_check,
                spec=self.spec if by_check and ":" in self.spec else "",
            )
        return self._subjects[test.key]

    def record(
        self, item: pytest.Item, test: KitTest, call: pytest.CallInfo[None], report: Any
    ) -> None:
        """Say on a report what the test found, in pytest's words and in events."""
        error = call.excinfo.value if call.excinfo is not None else None
        if error is None and report.when != "call":
            return
        subject = self.subject(item, test)
        shown = json.loads(str(dict(item.user_properties).get(SHOWN, "[]")))
        results = list(self._results(subject, test, error, call.duration, shown))
        events = [result_event(test.key, result) for result in results]
        if test.key not in self._introduced:
            self._introduced.add(test.key)
            events.insert(0, subject_event(subject))
        setattr(report, ATTRIBUTE, json.dumps(events, default=repr))
        show(report, item, results)

    def _results(
        self,
        subject: Subject,
        test: KitTest,
        error: BaseException | None,
        duration_s: float,
        shown: Sequence[Mapping[str, Any]],
    ) -> Iterable[TestResult]:
        if isinstance(error, pytest.skip.Exception | pytest.xfail.Exception):
            reason = f"skipped: {error.msg}"
            yield TestResult(
                test.rule, test.test, test.path, Outcome.NOT_RUN, reason, duration_s=duration_s
            )
            return
        found = results_of(
            subject,
            self.run.settings,
            rule=test.rule,
            test=test.test,
            path=test.path,
            error=error,
            duration_s=duration_s,
        )
        if error is None:
            found[0].shown = shown
        yield from found

    # --- in the process that the user sees ---

    def introduce(self, items: Iterable[pytest.Item]) -> None:
        """Make the backends of the collected tests known before any test runs."""
        for item in items:
            test = kit_test(item)
            if test is not None and test.key not in self._introduced:
                self._introduced.add(test.key)
                event = subject_event(self.subject(item, test))
                self.run.take(event)
                self._write(event)

    def told(self, event: str, nodeid: str) -> None:
        """Tell those who follow the run that a test starts, or that it is done."""
        self._write({"event": event, "nodeid": nodeid})

    def left(self, text: str) -> None:
        """Note what a backend did not clean up."""
        if not self.worker:
            event = {"event": "unclean", "text": text}
            self.run.take(event)
            self._write(event)

    def take(self, report: Any) -> None:
        """Take the events off a report."""
        if self.worker:
            return
        text = getattr(report, ATTRIBUTE, None)
        if text is None:
            if report.failed and report.when not in ("setup", "call", "teardown"):
                self.crashed.append(report.nodeid)
            return
        for event in json.loads(text):
            self.run.take(event)
            self._write(event)

    def end(self, status: int) -> None:
        """Close the account: no more reports will come, and pytest ends with this status."""
        self.run.duration_s = max(0.0, time.time() - self.began)
        for nodeid in self.crashed:
            for subject, entry in self.run.named(nodeid):
                for result in results_of(
                    self.run.subjects[subject].subject,
                    self.run.settings,
                    rule=entry.rule,
                    test=entry.test,
                    path=entry.path,
                    error=ProcessLost("the process that ran this test died in it"),
                    duration_s=0.0,
                ):
                    event = result_event(subject, result)
                    self.run.take(event)
                    self._write(event)
        self._write({"event": "end", "status": status, "threads": self.left_threads()})

    def write_reports(self, paths: Iterable[Path]) -> None:
        """Write the reports, and the summary of the CI system that this runs on."""
        reports = [document(self.run, key) for key in self.run.subjects]
        try:
            self.written += [f"report       {path}" for path in write_reports(reports, paths)]
            summary = os.environ.get("GITHUB_STEP_SUMMARY")
            if summary:
                append_summary(Path(summary), reports)
        except OSError as error:
            self.written.append(f"a report could not be written: {error}")

    @staticmethod
    def left_threads() -> list[str]:
        """The names of the threads that will keep the interpreter from ending.

        Those of executors end by themselves when they have nothing to do.
        """
        return [
            thread.name
            for thread in threading.enumerate()
            if thread is not threading.main_thread()
            and not thread.daemon
            and not thread.name.startswith(("asyncio_", "ThreadPoolExecutor-"))
        ]

    def beat(self) -> None:
        """Keep telling those who follow the run that calls of the store still begin and end."""
        if self.stream is not None:
            threading.Thread(target=self._beat, name="loom-heartbeat", daemon=True).start()

    def _beat(self) -> None:
        before = ticks()
        while True:
            time.sleep(HEARTBEAT)
            now = ticks()
            if now != before:
                self._write({"event": "alive", "calls": now})
            before = now

    def _write(self, event: Event) -> None:
        """Append a line in one write, so that lines of two threads do not mix."""
        if self.stream is None:
            return
        line = json.dumps(event).encode("ascii") + b"\n"
        descriptor = os.open(self.stream, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


def _from_here(item: pytest.Item, key: str) -> str:
    """A class's node id as one types it in the folder where pytest was started."""
    here = item.config.invocation_params.dir
    return f"{os.path.relpath(item.path, here)}::{key.partition('::')[2]}"


def show(report: Any, item: pytest.Item, results: Iterable[TestResult]) -> None:
    """Put a test's outcome in pytest's words: passed, failed or skipped, and one text."""
    result = next(iter(results))
    outcome = result.outcome
    properties = [("loom_rule", result.rule), ("loom_outcome", outcome.value)]
    report.user_properties.extend(properties)
    item.user_properties[:] = [
        *(one for one in item.user_properties if one[0] not in dict(properties)),
        *properties,
    ]
    if outcome is Outcome.NOT_RUN and report.outcome == "skipped":
        return
    if hasattr(report, "wasxfail"):
        del report.wasxfail
    if outcome is Outcome.PASSED:
        report.outcome, report.longrepr = "passed", None
    elif outcome.fails_the_run:
        report.outcome, report.longrepr = "failed", result.text
    else:
        path, line, _ = item.location
        report.outcome = "skipped"
        report.longrepr = (path, line or 0, f"{outcome}: {result.reason}")
        if outcome is Outcome.KNOWN_FAILING:
            report.wasxfail = f"known failing: {result.reason}"


def status(report: Any) -> tuple[str, str, str | tuple[str, Mapping[str, bool]]] | None:
    """What pytest's terminal calls a report, where it is one of the kit's."""
    if getattr(report, ATTRIBUTE, None) is None:
        return None
    outcome = dict(report.user_properties).get("loom_outcome")
    return WORDS.get(Outcome(outcome)) if outcome else None
