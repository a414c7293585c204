"""What an exploration found, never said stronger than it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from .trace import Trace


class Finding(Enum):
    """The four things that can be said."""

    HOLDS = "holds in all schedules"
    HOLDS_IN_THOSE_RUN = "holds in those run"
    FAILS = "fails"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A schedule in which the scenario does not hold.

    Attributes:
        reason: what was wrong, in words.
        token: replays it, on any backend; `None` where it is too wide for a token.
        trace: what happened, step by step.
        preemptions: how often the turn was taken from a strand that could have gone on.
        schedule: the how-manieth schedule it was.
        smallest: whether no schedule has fewer preemptions and fails.
        replayed, replays: how many of how many replays failed in the same way.
        error: what the check raised, where it did.
    """

    reason: str
    token: str | None
    trace: Trace
    preemptions: int
    schedule: int
    smallest: bool
    replayed: int
    replays: int
    error: AssertionError | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "reason": self.reason,
            "token": self.token,
            "preemptions": self.preemptions,
            "schedule": self.schedule,
            "smallest": self.smallest,
            "replayed": self.replayed,
            "replays": self.replays,
            "trace": self.trace.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found, of what, and how far it reaches.

    Attributes:
        scenario: the scenario's name.
        backend: the backend's name.
        finding: what can be said.
        schedules: how many schedules were run to their end.
        bound: which schedules they were, in words.
        reason: why it fails, or why nothing can be said.
        counterexample: the schedule that fails.
        seconds: how long it took, opening and closing included.
        searching: how long the search itself took.
    """

    scenario: str
    backend: str
    finding: Finding
    schedules: int
    bound: str = ""
    reason: str = ""
    counterexample: Counterexample | None = None
    seconds: float = 0.0
    searching: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether nothing wrong was found; `finding` says how much that means."""
        return self.finding in (Finding.HOLDS, Finding.HOLDS_IN_THOSE_RUN)

    def require(self) -> None:
        """Return if it holds in all that was run.

        Raises:
            AssertionError: it fails, or nothing can be said; with all that is known.
        """
        if not self.holds:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        found = self.counterexample
        return {
            "scenario": self.scenario,
            "backend": self.backend,
            "finding": self.finding.value,
            "schedules": self.schedules,
            "bound": self.bound,
            "reason": self.reason,
            "seconds": round(self.seconds, 6),
            "counterexample": None if found is None else found.to_json(),
        }

    def lines(self) -> list[str]:
        """The verdict as a person reads it, in 100 columns."""
        name = f"{self.scenario} [{self.backend}]"
        if self.finding is Finding.HOLDS:
            return [f"{name}: holds in all {_counted(self.schedules)} ({self.bound})"]
        if self.finding is Finding.HOLDS_IN_THOSE_RUN:
            return [f"{name}: holds in the {_counted(self.schedules)} that were run ({self.bound})"]
        if self.finding is Finding.INCONCLUSIVE or self.counterexample is None:
            done = f"after {_counted(self.schedules)}"
            return [f"{name}: inconclusive {done}: {self.reason}"]
        found = self.counterexample
        facts = [
            _counted(found.preemptions, "preemption") + ("" if found.smallest else " (or fewer)"),
            f"schedule {found.schedule}",
            f"replayed {found.replayed} of {found.replays}",
        ]
        lines = [f"FAIL {name}: {found.reason}", "  " + " · ".join(facts), ""]
        lines += found.trace.lines()
        if found.token is not None:
            lines += ["", f"  Replay: {found.token}"]
        return lines


def _counted(number: int, noun: str = "schedule") -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
