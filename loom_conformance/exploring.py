"""Explorations inside pytest: the backend and the token of the command line, and failures told."""

from __future__ import annotations

import shlex
from typing import Any, Final

import pytest

from .backend import Backend
from .interleave.explore import explore, on_loop, replay
from .interleave.scenario import Scenario
from .interleave.verdict import Verdict
from .lab.selection import select

_STARTED: Final = pytest.StashKey[dict[type[Backend], Backend]]()


class Explorer:
    """What the fixture `loom_explore` gives to a test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._config = request.config
        self._node = request.node

    def __call__(
        self, scenario: Scenario, backend: Backend | type[Backend] | None = None, **options: Any
    ) -> Verdict:
        """Explore a scenario, or replay the token of `--loom-schedule`.

        Args:
            scenario: what to explore.
            backend: a backend class, which is started once a session and stopped at its end; an
                instance, which is taken as it is; by default the one of `--loom-backend`, or
                memory.
            options: those of `explore`; none counts where a token is replayed.

        Returns:
            The verdict, where it holds.

        Raises:
            AssertionError: it fails, or nothing can be said, with all that is known.
            BadToken: the token is none, or one of another scenario.
        """
        __tracebackhide__ = True
        place = self._backend(backend)
        token = str(self._config.getoption("loom_schedule") or "").strip()
        if token:
            kept = {name: options[name] for name in ("limits", "fresh_storage") if name in options}
            verdict = replay(scenario, place, token, **kept)
        else:
            verdict = explore(scenario, place, **options)
        self._node.user_properties.append(("loom_verdict", verdict.lines()[0]))
        if not verdict.holds:
            raise AssertionError("\n".join(self._lines(verdict)))
        return verdict

    def _lines(self, verdict: Verdict) -> list[str]:
        found = verdict.counterexample
        if found is None or found.token is None:
            return verdict.lines()
        spec = str(self._config.getoption("loom_backend") or "").strip()
        backend = f" --loom-backend {shlex.quote(spec)}" if spec else ""
        command = f"pytest {self._node.nodeid}{backend} --loom-schedule {found.token}"
        return [*verdict.lines()[:-1], f"  Replay: {command}"]

    def _backend(self, given: Backend | type[Backend] | None) -> Backend:
        if isinstance(given, Backend):
            return given
        if given is None:
            spec = str(
                self._config.getoption("loom_backend") or self._config.getini("loom_backend")
            )
            given = select(spec.strip() or "memory")
        started = self._config.stash.setdefault(_STARTED, {})
        if given not in started:
            backend = given()
            on_loop(backend.start)
            self._config.add_cleanup(lambda: on_loop(backend.stop))
            started[given] = backend
        return started[given]
