"""How a test says what it found: exceptions that carry what a person needs to know.

A test that returns has passed. Everything else is one of these; any other exception that leaves a
test is an error of the kit or of the backend's own factory, and is reported as one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Failure:
    """What is known of a broken rule, as plain data: it crosses process borders as JSON.

    Attributes:
        rule: the rule's id.
        expected: what the rule wanted at that moment, one sentence.
        got: what the store did instead, one sentence.
        steps: what was done, in order, one line each, with what came back.
        log: what a fresh handle reads after it, one line an envelope.
        path: the write path, or `None` where the rule is not about writing.
        seed: the seed that chose values or schedules, where one did.
        replay: extra words for the replay command, such as a schedule token.
        trace: a timeline drawn as text, where calls were simultaneous.
        picture: the same as data, for the HTML report.
        advice: whether this part of the rule is a SHOULD although the rule is a MUST.
    """

    rule: str
    expected: str
    got: str
    steps: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    path: str | None = None
    seed: int | None = None
    replay: list[str] = field(default_factory=list)
    trace: str | None = None
    picture: dict[str, Any] | None = None
    advice: bool = False


class RuleBroken(AssertionError):
    """The store broke the rule under test; raised by the rule's own assertion only."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.rule}: expected {failure.expected}; got {failure.got}")
        self.failure = failure


class Inconclusive(Exception):
    """The rule could not be judged: its set-up failed, calls did not overlap, a call hung.

    Attributes:
        failure: another rule that was seen broken on the way (a hung call breaks LIVE-1).
    """

    def __init__(self, reason: str, failure: Failure | None = None) -> None:
        super().__init__(reason)
        self.failure = failure


class NotOffered(Exception):
    """The store does not have the ability that the rule is about."""


class Declined(Exception):
    """The backend declines the rule's profile; the message is its reason."""


class CouldNotRun(Exception):
    """The backend could not be opened at all, so no rule of it can be judged.

    Attributes:
        first: whether this is the first time it is said; the rest need not say it at length.
    """

    def __init__(self, reason: str, *, first: bool) -> None:
        super().__init__(reason)
        self.first = first


class UncleanWarning(UserWarning):
    """A backend did not remove a storage, or did not stop its server."""
