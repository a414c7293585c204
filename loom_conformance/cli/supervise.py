"""Running the suites in a child process, so that nothing a store does can take the verdict away.

The child runs pytest and appends what happens to a file, one JSON line an event; the parent reads
along. When the child dies or stands still, the test that it was in is an error, the other tests
of that rule are left out, and a new child goes on with the rest. Several may work side by side,
each on profiles of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias

from ..contract.rules import PROFILES, rules
from ..lab.paths import WRITE_PATHS
from ..lab.settings import Settings
from ..lab.verdict import Failure, Inconclusive
from ..report.results import ProcessLost, results_of
from ..report.run import Choice, Event, Run, result_event

SUITES: Final = "loom_conformance.suites.test_backend"

POLL: Final = 0.05
"""Seconds between two looks at what the child has written."""

GRACE: Final = 2.0
"""Seconds that a child has to go away once it has said that it is done, or was asked to."""

START_UP: Final = 120.0
"""Seconds that a child has at least until its first news: the backend's module is imported then."""

LONGEST_TEST: Final = 10
"""How many times as long as the wait for news one test may take while there is news."""

MOST_STALLS: Final = 3
"""After so many children that stood still, the rest of the tests are given up."""

MOST_FUTILE: Final = 20
"""After so many children in a row that ended in their first test, the rest are given up."""

SHARES: Final = (
    (),
    (("races", "durability", "faults", "coalescing", "scoping", "leases", "range"),),
    (("races",), ("durability", "faults", "fencing", "batch", "coalescing", "scoping", "leases")),
)
"""By how many processes there are besides the one that takes what is left over: the profiles of
each. So they take about the same time, and what kills processes and servers stays together."""

MOST_JOBS: Final = len(SHARES)

USAGE_ERROR: Final = 4
"""pytest's exit status for a wrong command line."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to run.

    Attributes:
        spec: the backend, as the plugin takes it.
        settings: the deadline, the seed and the depth.
        choice: which rules, profiles and paths.
        pytest: further arguments for pytest.
        patience: seconds without any news after which a child is given up.
        suites: the module that holds the tests.
        jobs: how many processes share the profiles.
    """

    spec: str
    settings: Settings
    choice: Choice = field(default_factory=Choice)
    pytest: tuple[str, ...] = ()
    patience: float = 0.0
    suites: str = SUITES
    jobs: int = 1

    @property
    def stall(self) -> float:
        """Seconds without a call that begins or ends which are too many, at this deadline."""
        rounds = 10 if self.settings.depth == "thorough" else 1
        return self.patience or rounds * (60 + 12 * self.settings.deadline)


@dataclass(slots=True)
class Ending:
    """How the run ended, apart from what it found.

    Attributes:
        problem: why there is nothing to report, as pytest said it; `""` where there is.
        usage: whether that was for a wrong command line.
        stopped: `"interrupted"` or `"terminated"` where somebody stopped it.
        cut: whether it ended before its time for no fault of a test.
        threads: what the store left running that would keep a process alive.
    """

    problem: str = ""
    usage: bool = False
    stopped: str = ""
    cut: bool = False
    threads: tuple[str, ...] = ()


def supervise(request: Request, run: Run, listen: Callable[[Event], None]) -> Ending:
    """Run the suites until every test is accounted for, adding what is found to `run`.

    Args:
        request: what to run.
        run: takes every event.
        listen: is told each event after the run has taken it.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="loom-check-") as name, _told_to_end():
        work = []
        for number, share in enumerate(_shares(request)):
            folder = Path(name) / str(number)
            folder.mkdir()
            work.append(_Supervisor(share, run, listen, folder).go())
        ending = _together(work)
    run.duration_s = time.monotonic() - began
    if ending.stopped:
        run.stopped = ending.stopped
        run.why_missing = f"the run was {ending.stopped}"
    return ending


def _shares(request: Request) -> list[Request]:
    """The request in as many parts as there is work for, each for profiles of its own."""
    wanted = {
        rule.profile
        for rule in rules().values()
        if any(request.choice.wants(rule.id, path) for path in ("", *map(str, WRITE_PATHS)))
    }
    apart = SHARES[request.jobs - 1]
    taken = {profile for share in apart for profile in share}
    rest = tuple(profile for profile in PROFILES if profile not in taken)
    parts = [tuple(one for one in share if one in wanted) for share in (rest, *apart)]
    parts = [part for part in parts if part]
    if len(parts) < 2:
        return [request]
    return [replace(request, choice=replace(request.choice, profiles=part)) for part in parts]


def _together(work: list[Work]) -> Ending:
    """Lead several supervisors in turn, and say how they ended as if they had been one."""
    endings: list[Ending] = []
    stopped = ""
    while work and not stopped:
        try:
            _turn(work, endings)
            if work:
                time.sleep(POLL)
        except KeyboardInterrupt as stop:
            stopped = "terminated" if isinstance(stop, _Terminated) else "interrupted"
    for one in work:
        with suppress(KeyboardInterrupt):
            one.throw(KeyboardInterrupt)
    return Ending(
        problem=next((one.problem for one in endings if one.problem), ""),
        usage=any(one.usage for one in endings),
        stopped=stopped,
        cut=any(one.cut for one in endings),
        threads=tuple(dict.fromkeys(thread for one in endings for thread in one.threads)),
    )


def _turn(work: list[Work], endings: list[Ending]) -> None:
    """Let each of them take what is new."""
    for one in list(work):
        try:
            next(one)
        except StopIteration as over:
            work.remove(one)
            endings.append(over.value)


Work: TypeAlias = Generator[None, None, Ending]
"""A supervisor at work: it yields whenever there is nothing new, and returns how it ended."""


class _Terminated(KeyboardInterrupt):
    """SIGTERM came: the run ends as it does when a user interrupts it."""


@contextmanager
def _told_to_end() -> Iterator[None]:
    """Turn SIGTERM into an exception, where signals can be turned into anything."""

    def end(number: int, frame: object) -> None:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Supervisor:
    def __init__(
        self, request: Request, run: Run, listen: Callable[[Event], None], folder: Path
    ) -> None:
        self.request = request
        self.run = run
        self.listen = listen
        self.folder = folder
        self.skip: list[str] = []
        self.stalls = 0
        self.futile = 0
        self.children = 0

    def go(self) -> Work:
        """Have the suites run, and yield whenever there is nothing new."""
        (self.folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
        while True:
            child = _Child(self.request, self.folder, self.skip, self.children)
            self.children += 1
            try:
                with child.running():
                    for event in child.events(self.request.stall):
                        if event is None:
                            yield
                        else:
                            self._take(event)
            except KeyboardInterrupt:
                for event in child.unheard():
                    self._take(event)
                raise
            if child.ended and not child.open:
                return self._closed(child)
            if not child.open:
                if not self.run.subjects:
                    usage = child.status == USAGE_ERROR
                    return Ending(problem=child.said() or child.how(), usage=usage)
                if not child.finished:
                    self.run.why_missing = f"the tests could not go on: {child.how()}"
                    return Ending(cut=True)
            self._account(child)
            self.stalls += bool(child.stalled)
            self.futile = 0 if child.finished else self.futile + 1
            if self.stalls >= MOST_STALLS or self.futile >= MOST_FUTILE:
                times = self.stalls if self.stalls >= MOST_STALLS else self.futile
                self.run.why_missing = f"given up after {times} processes that had to be replaced"
                return Ending()

    def _take(self, event: Event) -> None:
        self.run.take(event)
        self.listen(event)

    def _closed(self, child: _Child) -> Ending:
        if not self.run.subjects:
            return Ending(problem=child.said())
        return Ending(threads=child.threads)

    def _account(self, child: _Child) -> None:
        """Make the tests in which a child died errors, and leave out the rest of their rules."""
        rules = set()
        for nodeid in child.open:
            for subject, entry in self.run.named(nodeid):
                rules.add(entry.rule)
                for result in results_of(
                    self.run.subjects[subject].subject,
                    self.request.settings,
                    rule=entry.rule,
                    test=entry.test,
                    path=entry.path,
                    error=_lost(child),
                    duration_s=child.stalled,
                ):
                    self._take(result_event(subject, result))
        self.skip += [*child.finished, *child.open]
        for key, one in self.run.subjects.items():
            for entry in one.subject.catalogue:
                if entry.rule in rules:
                    path = f"[{entry.path}]" if entry.path else ""
                    self.skip.append(f"{key}::{entry.test}{path}")


def _lost(child: _Child) -> Exception:
    if not child.stalled:
        return ProcessLost(child.how())
    if not child.silent:
        return Inconclusive(child.how())
    failure = Failure("LIVE-1", "every call to settle within its deadline", child.how())
    return Inconclusive(child.how(), failure)


class _Child:
    """One pytest process and what it has said so far."""

    def __init__(self, request: Request, folder: Path, skip: Sequence[str], number: int) -> None:
        self._stream = folder / f"events-{number}.jsonl"
        self._output = folder / f"output-{number}.txt"
        self._skip = folder / f"skip-{number}.txt"
        self._skip.write_text("\n".join(skip), "utf-8")
        self._stream.touch()
        self._words = _words(request, folder, self._stream, self._skip)
        self._process: subprocess.Popen[bytes] | None = None
        self.open: list[str] = []
        self.finished: list[str] = []
        self.ended = False
        self.status: int | None = None
        self.stalled = 0.0
        self.silent = False
        self.started = False
        self.threads: tuple[str, ...] = ()
        self._heard = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the process, and see to it that it and all its children are gone afterwards."""
        environment = dict(os.environ, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
        for name in ("PYTEST_ADDOPTS", "GITHUB_STEP_SUMMARY"):
            environment.pop(name, None)
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        try:
            yield
        except KeyboardInterrupt:
            self._signal(signal.SIGINT)
            self._wait(GRACE)
            raise
        finally:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def events(self, stall: float) -> Iterator[Event | None]:
        """What the child says, until it is done, is dead, or has said nothing for too long.

        `None` says that there is nothing new.
        """
        process = self._process
        assert process is not None
        rest = b""
        heard = changed = time.monotonic()
        with self._stream.open("rb") as stream:
            while not self.ended:
                over = process.poll() is not None
                rest += stream.read()
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    heard = time.monotonic()
                    event = json.loads(line)
                    if event["event"] != "alive":
                        changed = heard
                    self._note(event)
                    yield event
                    self._heard += len(line) + 1
                if over and not self.ended:
                    self.status = process.returncode
                    return
                now = time.monotonic()
                limit = stall if self.started else max(stall, START_UP)
                if now - heard > limit or now - changed > LONGEST_TEST * stall:
                    self.stalled = now - changed
                    self.silent = now - heard > limit
                    return
                if not lines:
                    yield None
        if self._wait(GRACE):
            self.threads = ()

    def unheard(self) -> Iterator[Event]:
        """What was found, and was not read when somebody stopped the run."""
        *lines, _ = self._stream.read_bytes()[self._heard :].split(b"\n")
        for line in lines:
            event = json.loads(line)
            if event["event"] in ("subject", "result", "unclean"):
                yield event

    def _note(self, event: Event) -> None:
        self.started = True
        if event["event"] == "start":
            self.open.append(event["nodeid"])
        elif event["event"] == "done" and event["nodeid"] in self.open:
            self.open.remove(event["nodeid"])
            self.finished.append(event["nodeid"])
        elif event["event"] == "end":
            self.ended = True
            self.status = event["status"]
            self.threads = tuple(event["threads"])

    def how(self) -> str:
        """How the child went, in words."""
        if self.stalled and not self.started:
            return (
                f"nothing came within {START_UP:g} s: does the backend's module wait for something?"
            )
        if self.stalled:
            if self.silent:
                what = "no call of the store began or ended any more; see LIVE-1"
            else:
                what = "it had still not ended"
            return f"the test was given up after {self.stalled:.0f} s, since {what}"
        if self.ended and self.open:
            return "the store interrupted the run (KeyboardInterrupt, pytest.exit) in this test"
        when = " during this test" if self.open else ""
        status = self.status
        if status is not None and status < 0:
            return f"the process was killed by {signal.Signals(-status).name}{when}"
        return f"the store ended the process (exit status {status}){when}"

    def said(self) -> str:
        """The last lines that the child printed."""
        text = self._output.read_text("utf-8", "backslashreplace")
        lines = [line for line in text.splitlines() if line.strip()]
        return "\n".join(lines[-30:])

    def _signal(self, number: int) -> None:
        """Reach the child and what it started; they share a process group."""
        assert self._process is not None
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return

    def _wait(self, seconds: float) -> bool:
        """Whether the child went away by itself in that time."""
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def _words(request: Request, folder: Path, stream: Path, skip: Path) -> list[str]:
    """The child's command line."""
    settings = request.settings
    words = [sys.executable, "-m", "pytest", "--pyargs", request.suites]
    words += ["-c", str(folder / "pytest.ini"), "--rootdir", str(folder)]
    words += ["--noconftest", "-p", "no:cacheprovider", "-p", "loom_conformance.plugin", "-q"]
    if any(word.startswith(("-n", "--numprocesses")) for word in request.pytest):
        words += ["-p", "xdist"]
    words += ["--loom-backend", request.spec, "--loom-stream", str(stream)]
    words += ["--loom-skip", str(skip), "--loom-seed", str(settings.seed)]
    words += ["--loom-depth", settings.depth, "--loom-deadline", repr(settings.deadline)]
    if settings.schedule is not None:
        words += ["--loom-schedule", settings.schedule]
    for name, chosen in _chosen(request.choice):
        for value in chosen:
            words += [f"--loom-{name}", value]
    return [*words, *request.pytest]


def _chosen(choice: Choice) -> Iterable[tuple[str, tuple[str, ...]]]:
    return (("profile", choice.profiles), ("rule", choice.rules), ("path", choice.paths))
