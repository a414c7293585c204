"""How a suite is written: async methods under `@rule`, collected as plain tests.

`@rule("SEQ-1")` turns an async method into a plain pytest test that runs on the session's own event
loop, so that no async plugin of the user's project is needed or in the way. The bare method stays
reachable as a `Case`, so that suites run without pytest too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

import pytest

from ..backend import Backend
from ..contract.rules import Rule, rules
from ..lab.paths import WRITE_PATHS, WritePath
from ..lab.selection import current
from ..lab.session import Session
from ..lab.stage import Stage
from ..lab.verdict import Declined

Test = Callable[..., Any]
F = TypeVar("F", bound=Callable[..., Any])

_ON_PATHS: Final = "loom_on_paths"
_ON_SESSION: Final = "loom_on_session"
_CASE: Final = "loom_case"
_SESSIONS = pytest.StashKey[dict[type[Backend], Session]]()


@dataclass(frozen=True, slots=True)
class Case:
    """One test of one rule.

    Attributes:
        rule: the rule that it tests.
        name: the test's name, a sentence in snake case.
        method: the async method, called with the suite, the stage and, on every write path, that.
        paths: the write paths that it is tried on; empty where it is not about writing.
    """

    rule: Rule
    name: str
    method: Test
    paths: tuple[WritePath, ...]

    @property
    def sentence(self) -> str:
        """The name as words."""
        return self.name.removeprefix("test_").replace("_", " ")

    def runs(self) -> Iterator[WritePath | None]:
        """One entry a run of the case."""
        if self.paths:
            yield from self.paths
        else:
            yield None

    def run(self, session: Session, path: WritePath | None) -> None:
        """Run it on a session.

        Raises:
            RuleBroken, Inconclusive, NotOffered, Declined, CouldNotRun: what came of it.
        """
        declined = session.backend.declined.get(self.rule.profile)
        if declined is not None:
            raise Declined(declined)
        if getattr(self.method, _ON_SESSION, False):
            session.run_sync(lambda: self.method(None, session))
            return
        arguments = (path,) if self.paths else ()

        async def body(stage: Stage) -> None:
            await self.method(None, stage, *arguments)

        session.run(self.rule.id, f"{self.name}[{path}]", body, path)


def on_every_write_path(method: F) -> F:
    """Try the rule on each write path; stands below `@rule`."""
    setattr(method, _ON_PATHS, WRITE_PATHS)
    return method


def on_write_paths(*names: str) -> Callable[[F], F]:
    """Try the rule on these write paths; stands below `@rule`."""

    def mark(method: F) -> F:
        setattr(method, _ON_PATHS, tuple(path for path in WRITE_PATHS if path.name in names))
        return method

    return mark


def on_the_session(method: F) -> F:
    """Hand the session itself to a plain method, which drives the loop; stands below `@rule`."""
    setattr(method, _ON_SESSION, True)
    return method


def rule(id: str) -> Callable[[Test], Callable[..., None]]:
    """Make an async method the test of a rule.

    Raises:
        KeyError: the contract has no such rule.
    """
    subject = rules()[id]

    def decorate(method: Test) -> Callable[..., None]:
        name = method.__name__
        paths: tuple[WritePath, ...] = getattr(method, _ON_PATHS, ())
        case = Case(subject, name, method, paths)

        if paths:

            def test(self: object, request: pytest.FixtureRequest, path: WritePath) -> None:
                _run(case, request, path)

            test = pytest.mark.parametrize("path", paths, ids=str)(test)
        else:

            def test(self: object, request: pytest.FixtureRequest) -> None:  # type: ignore[misc]
                _run(case, request, None)

        test.__name__ = name
        test.__qualname__ = method.__qualname__
        test.__module__ = method.__module__
        test.__doc__ = method.__doc__
        setattr(test, _CASE, case)
        test = pytest.mark.loom_rule(id)(test)
        return cast("Callable[..., None]", pytest.mark.loom_profile(subject.profile)(test))

    return decorate


def _run(case: Case, request: pytest.FixtureRequest, path: WritePath | None) -> None:
    session = session_of(request)
    case.run(session, path)
    if session.shown:
        # What it put the store through, in words that survive an xdist worker and a JUnit file.
        request.node.user_properties.append(("loom_shown", json.dumps(session.shown)))


def session_of(request: pytest.FixtureRequest) -> Session:
    """The pytest run's session for the backend of the class that asks."""
    backend: type[Backend] = request.cls.backend
    root = request.session
    sessions = root.stash.setdefault(_SESSIONS, {})
    if backend not in sessions:
        sessions[backend] = Session(backend, current().settings)
        # A plugin that runs the last test again comes back after this: it gets a new session.
        root.addfinalizer(lambda: sessions.pop(backend).close())
    return sessions[backend]


def cases_of(suite: type) -> list[Case]:
    """The cases of a suite class, in the order in which they are written."""
    found = []
    for base in reversed(suite.__mro__):
        for value in vars(base).values():
            case = getattr(value, _CASE, None)
            if isinstance(case, Case):
                found.append(case)
    return found


def is_test_name(name: str) -> bool:
    """Whether a name is a sentence that pytest collects."""
    return re.fullmatch(r"test_[a-z0-9]+(_[a-z0-9]+)+", name) is not None
