"""The pytest plugin: options, markers, what tests are selected, and what is shown of them.

It does nothing in a project without tests of the kit, and imports no suite.
"""

from __future__ import annotations

import difflib
import gc
import sys
import time
import warnings
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from .lab import selection
from .lab.lifeline import end_with_parent
from .lab.selection import Selection, SelectionError
from .lab.settings import DEPTHS, Settings
from .lab.streams import kept_open

if TYPE_CHECKING:
    from .exploring import Explorer
    from .report.recorder import Recorder

OPTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "backend": ("SPEC", "the backend to test: memory, sqlite, postgres or MODULE:CLASS"),
    "profile": ("NAME", "test only the rules of this profile; may be given again"),
    "rule": ("ID", "test only this rule, such as FENCE-8; may be given again"),
    "path": ("NAME", "test only on this write path, such as batch-first; may be given again"),
    "seed": ("N", "the seed of generated values and orders; shown with every failure"),
    "depth": ("DEPTH", "how many rounds and examples: quick, default or thorough"),
    "deadline": ("SECONDS", "how long one call may take; raise it for a slow store"),
    "schedule": ("TOKEN", "lead the simultaneous calls of a test through this one schedule"),
    "report": ("PATH", "write the report to PATH (.json, .html, .md, .svg); may be given again"),
    "stream": ("PATH", "append each event of the run to PATH as a line of JSON"),
    "skip": ("PATH", "pass over the tests whose ids PATH lists, one a line: a run is resumed"),
}
"""Every `--loom-NAME`, which also stands as `loom_NAME` in an ini file."""

MANY: Final = ("profile", "rule", "path", "report")

_RECORDER: pytest.StashKey[Recorder] = pytest.StashKey()
_SELECTION = pytest.StashKey[Selection]()
_BEGAN = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the `--loom-…` options and their ini equivalents."""
    group = parser.getgroup("loom-conformance", "conformance of Loom event stores")
    for name, (metavar, text) in OPTIONS.items():
        group.addoption(
            f"--loom-{name}",
            action="append" if name in MANY else "store",
            default=None,
            metavar=metavar,
            help=text,
        )
        if name in MANY:
            parser.addini(f"loom_{name}", f"{text} (one a line)", type="linelist", default=[])
        else:
            parser.addini(f"loom_{name}", text, type="string", default="")


@pytest.fixture
def loom_explore(request: pytest.FixtureRequest) -> Explorer:
    """Runs a scenario of one's own under every schedule; see `exploring.Explorer`."""
    from .exploring import Explorer

    return Explorer(request)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and settle what the run is asked for."""
    config.addinivalue_line("markers", "loom_rule(id): a test of this rule of Loom's contract")
    config.addinivalue_line("markers", "loom_profile(name): a test of this profile of rules")
    chosen = Selection(_backend(config), _settings(config))
    selection.enter(chosen)
    config.stash[_SELECTION] = chosen
    config.stash[_BEGAN] = time.time()
    config.pluginmanager.register(_Listener(config), "loom-conformance-listener")
    if _one(config, "stream") and not hasattr(config, "workerinput"):
        end_with_parent()
    _check_choice(config)
    for path in _many(config, "report"):
        _check_report(Path(path))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give an xdist worker the seed of the run."""
    node.workerinput["loom_seed"] = str(node.config.stash[_SELECTION].settings.seed)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave the selection, for the run around this one."""
    if _SELECTION in config.stash:
        selection.leave(config.stash[_SELECTION])


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say what the kit was asked for, where it was asked at all."""
    if not any(
        _many(config, name) if name in MANY else _one(config, name)
        for name in OPTIONS
        if name not in ("seed", "stream", "skip")
    ):
        return None
    spec = _one(config, "backend")
    return f"loom-conformance: {f'backend {spec}, ' if spec else ''}{_told_settings(config)}"


def pytest_report_collectionfinish(
    config: pytest.Config, items: Sequence[pytest.Item]
) -> str | None:
    """Say how many tests of the kit there are, where the header did not know yet."""
    rules = [marker.args[0] for item in items if (marker := item.get_closest_marker("loom_rule"))]
    if not rules:
        return None
    from .report.text import counted

    return (
        f"loom-conformance: {counted(len(rules), 'test')} of {counted(len(set(rules)), 'rule')}, "
        f"{_told_settings(config)}"
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let `-k` know a test of the kit by its rule and its profile too."""
    for name in ("loom_rule", "loom_profile"):
        marker = item.get_closest_marker(name)
        if marker is not None:
            item.extra_keyword_matches.add(marker.args[0])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of the kit that were not asked for; no other test is touched."""
    skip = _one(config, "skip")
    if not skip and not _has_choice(config):
        return
    from .report.recorder import kit_test

    choice = _recorder(config).run.choice
    done = set(Path(skip).read_text("utf-8").splitlines()) if skip else set()
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        test = kit_test(item)
        wanted = test is None or choice.wants(test.rule, test.path)
        (kept if wanted and str(item.nodeid) not in done else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Note which backends are under test, so that a test that never runs is missed."""
    if any(item.get_closest_marker("loom_rule") for item in session.items):
        recorder = _recorder(session.config)
        if not recorder.worker:
            recorder.introduce(session.items)
            recorder.beat()
    if _one(session.config, "stream"):
        # A process of the kit's own: what it holds by now stays, and need not be gone through by
        # every collection.
        gc.collect()
        gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn what a test of the kit raised into an outcome."""
    test = None
    if item.get_closest_marker("loom_rule") is not None:
        from .report.recorder import kit_test

        test = kit_test(item)
        if test is not None:
            # The outcome has its own words; pytest's would parse each source file on the way.
            item.repr_failure = _worded  # type: ignore[method-assign]
    report = yield
    if test is not None:
        _recorder(item.config).record(item, test, call, report)
    return report


def _worded(excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
    return excinfo.exconly()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Keep a backend from closing pytest's streams while it starts."""
    with _streams_of(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Keep a store from closing pytest's streams."""
    with _streams_of(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Keep a backend from closing pytest's streams while it stops."""
    with _streams_of(item):
        return (yield)


def _streams_of(item: pytest.Item) -> AbstractContextManager[None]:
    return kept_open() if item.get_closest_marker("loom_rule") else nullcontext()


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: Any) -> Any:
    """Call the kit's outcomes by their names."""
    if not hasattr(report, "loom"):
        return None
    from .report.recorder import status

    return status(report)


class _Listener:
    """The hooks that have no access to the configuration of their own."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Tell those who follow the run which test begins."""
        if _one(self._config, "stream"):
            _recorder(self._config).told("start", str(nodeid))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Tell those who follow the run that a test is done."""
        if _one(self._config, "stream"):
            _recorder(self._config).told("done", str(nodeid))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage) -> None:
        """Take in what a backend did not clean up, here or in an xdist worker."""
        from .lab.verdict import UncleanWarning

        if issubclass(warning_message.category, UncleanWarning):
            _recorder(self._config).left(str(warning_message.message))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in what a test found, here or in an xdist worker."""
        if hasattr(report, "loom") or report.when not in ("setup", "call", "teardown"):
            _recorder(self._config).take(report)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Close the account and write the reports; a run that found a fault never ends well."""
    config = session.config
    if _RECORDER not in config.stash or _recorder(config).worker:
        return
    recorder = _recorder(config)
    recorder.end(int(session.exitstatus))
    if recorder.run.fails and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if recorder.run.subjects and not config.option.collectonly:
        recorder.write_reports([Path(path) for path in _many(config, "report")])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Show the summary and the certificate of each backend."""
    if _RECORDER not in config.stash or _recorder(config).worker or config.option.collectonly:
        return
    recorder = _recorder(config)
    from .report import terminal
    from .report.document import document
    from .report.outcomes import Outcome

    unshown = (Outcome.INCONCLUSIVE, Outcome.ADVICE, Outcome.KNOWN_FAILING)
    for key in recorder.run.subjects:
        report = document(recorder.run, key)
        terminalreporter.section(f"loom-conformance: {report['backend']['name']}", sep="=")
        for text in [*terminal.failures(report, unshown), *terminal.wrongly_listed(report)]:
            for line in [*text, ""]:
                terminalreporter.line(line)
        for line in terminal.summary(report):
            terminalreporter.line(line)
    if not recorder.run.subjects and _one(config, "backend"):
        terminalreporter.section("loom-conformance")
        terminalreporter.line("No test of the kit ran: there is no certificate.")
    threads = recorder.left_threads() if recorder.run.subjects else []
    if threads:
        terminalreporter.line(
            f"note         left running, and keeping this process alive: {', '.join(threads)}"
        )
    for line in recorder.written:
        terminalreporter.line(line)


# --- options ----------------------------------------------------------------------------------


def _one(config: pytest.Config, name: str) -> str:
    given = config.getoption(f"loom_{name}")
    return str(given if given is not None else config.getini(f"loom_{name}")).strip()


def _many(config: pytest.Config, name: str) -> list[str]:
    given = config.getoption(f"loom_{name}")
    values: Iterable[str] = given if given is not None else config.getini(f"loom_{name}")
    if name == "report":
        return list(values)
    parts = [part.strip() for value in values for part in value.split(",") if part.strip()]
    if name == "rule":
        return [part.upper() for part in parts]
    return [part.lower() for part in parts] if name == "profile" else parts


def _backend(config: pytest.Config) -> Any:
    spec = _one(config, "backend")
    if not spec:
        return None
    # As `python -m pytest` does: a backend is found in the folder from which the tests are run.
    folder = str(config.invocation_params.dir)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return selection.select(spec)
    except SelectionError as error:
        raise pytest.UsageError(f"--loom-backend: {error}") from error


def _settings(config: pytest.Config) -> Settings:
    given: dict[str, Any] = {}
    seed, depth, deadline = (_one(config, name) for name in ("seed", "depth", "deadline"))
    seed = getattr(config, "workerinput", {}).get("loom_seed", seed)
    if seed:
        if not seed.isascii() or not seed.isdigit():
            raise pytest.UsageError(f"--loom-seed must be a whole number from 0, not {seed!r}")
        given["seed"] = int(seed)
    if depth:
        if depth not in DEPTHS:
            raise pytest.UsageError(f"--loom-depth must be {_either(DEPTHS)}, not {depth!r}")
        given["depth"] = depth
    if deadline:
        try:
            given["deadline"] = float(deadline)
        except ValueError:
            given["deadline"] = 0.0
        if not 0 < given["deadline"] < 86_400:
            raise pytest.UsageError(
                f"--loom-deadline must be a number of seconds above 0, not {deadline!r}"
            )
    schedule = _one(config, "schedule")
    if schedule:
        from .interleave.token import BadToken, Token

        try:
            Token.parse(schedule)
        except BadToken as error:
            raise pytest.UsageError(f"--loom-schedule: {error}") from error
        given["schedule"] = schedule
    return Settings(**given)


def _has_choice(config: pytest.Config) -> bool:
    return any(_many(config, name) for name in ("profile", "rule", "path"))


def _check_choice(config: pytest.Config) -> None:
    """Refuse a profile, rule or path that does not exist.

    Raises:
        pytest.UsageError: with the nearest name that does.
    """
    if not _has_choice(config):
        return
    from .contract.rules import PROFILES, rules
    from .lab.paths import WRITE_PATHS

    known: dict[str, Iterable[str]] = {
        "profile": PROFILES,
        "rule": rules(),
        "path": [path.name for path in WRITE_PATHS],
    }
    for name, values in known.items():
        for value in _many(config, name):
            if value not in values:
                near = difflib.get_close_matches(value, values)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(values)}"
                raise pytest.UsageError(f"--loom-{name}: there is no {name} {value!r}; {hint}")


def _check_report(path: Path) -> None:
    """Refuse a report path now rather than at the end of the run.

    Raises:
        pytest.UsageError: the kind is unknown, or the folder does not exist.
    """
    from .report.files import check_path

    fault = check_path(path)
    if fault:
        raise pytest.UsageError(f"--loom-report: {fault}")


def _either(names: Iterable[str]) -> str:
    from .report.text import listed

    return listed(names, "or")


def _told_settings(config: pytest.Config) -> str:
    settings = config.stash[_SELECTION].settings
    return f"seed {settings.seed}, {settings.depth} depth"


def _recorder(config: pytest.Config) -> Recorder:
    """This process's recorder, made when it is first needed."""
    if _RECORDER not in config.stash:
        from .report.recorder import Recorder
        from .report.run import Choice

        stream = _one(config, "stream")
        config.stash[_RECORDER] = Recorder.begin(
            config.stash[_SELECTION].settings,
            Choice(*(tuple(_many(config, name)) for name in ("profile", "rule", "path"))),
            began=config.stash[_BEGAN],
            worker=hasattr(config, "workerinput"),
            spec=_one(config, "backend"),
            stream=Path(stream).absolute() if stream else None,
        )
    return config.stash[_RECORDER]
