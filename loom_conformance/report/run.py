"""What is known of a run, put together from events as they come.

The plugin makes the events, the command line reads them from a child process, and both build
the same `Run` from them. An event is a JSON object; so a run can be followed from outside, and what
a run had found survives its sudden end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..contract.rules import rules
from ..lab.settings import Settings
from .outcomes import Expected, Outcome, RuleResult, TestResult, judge
from .subject import Subject

Event: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which part of the rules a run was asked for; empty tuples mean all."""

    profiles: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @property
    def everything(self) -> bool:
        """Whether nothing was left out by choice."""
        return not (self.profiles or self.rules or self.paths)

    def wants(self, rule: str, path: str) -> bool:
        """Whether a test of this rule on this path was asked for."""
        known = rules().get(rule)
        return (
            (not self.profiles or (known is not None and known.profile in self.profiles))
            and (not self.rules or rule in self.rules)
            and (not self.paths or path in self.paths)
        )

    def told(self) -> str:
        """The choice as one line, such as `rules FENCE-8`; `""` for everything."""
        parts = []
        for name, chosen in (
            ("profiles", self.profiles),
            ("rules", self.rules),
            ("paths", self.paths),
        ):
            if chosen:
                parts.append(f"{name} {', '.join(chosen)}")
        return "; ".join(parts)


def result_event(subject: str, result: TestResult) -> Event:
    """The event that says what one test found."""
    data = {item.name: getattr(result, item.name) for item in dataclasses.fields(result)}
    return {"event": "result", "subject": subject, **data, "outcome": result.outcome.value}


def subject_event(subject: Subject) -> Event:
    """The event that introduces a backend under test."""
    return {"event": "subject", "subject": subject.to_json()}


@dataclass(slots=True)
class SubjectRun:
    """One backend's results so far."""

    subject: Subject
    results: dict[Expected, TestResult] = field(default_factory=dict)

    def take(self, result: TestResult) -> None:
        """Add a result; the worse one stands where a test reports twice."""
        before = self.results.get(result.expected)
        if before is None:
            self.results[result.expected] = result
        else:
            before.absorb(result)

    def rule_results(self, choice: Choice, why_missing: str = "") -> list[RuleResult]:
        """What became of every rule of the contract, in the order of the contract."""
        by_rule: dict[str, list[TestResult]] = {}
        for result in self._with_overridden():
            by_rule.setdefault(result.rule, []).append(result)
        expected: dict[str, list[Expected]] = {}
        for entry in self.subject.catalogue:
            expected.setdefault(entry.rule, []).append(entry)
        found = []
        for rule in rules().values():
            entries = expected.get(rule.id, [])
            chosen = any(choice.wants(rule.id, entry.path) for entry in entries) or (
                not entries and choice.wants(rule.id, "")
            )
            found.append(
                judge(
                    rule,
                    by_rule.get(rule.id, []),
                    entries,
                    self.subject.known_failing.get(rule.id),
                    why_missing if chosen else "it was not selected",
                )
            )
        return found

    def _with_overridden(self) -> Sequence[TestResult]:
        """The results, with those of replaced tests as such, whatever the replacement found."""
        replaced = set(self.subject.overridden)
        kept = [result for result in self.results.values() if result.test not in replaced]
        for entry in self.subject.catalogue:
            if entry.test in replaced:
                kept.append(
                    TestResult(
                        entry.rule,
                        entry.test,
                        entry.path,
                        Outcome.OVERRIDDEN,
                        f"{self.subject.key} replaces the kit's {entry.test}",
                    )
                )
        return kept


@dataclass(slots=True)
class Run:
    """A run of the kit, over one or more backends.

    Attributes:
        settings: the deadline, the seed and the depth.
        choice: which part of the rules was asked for.
        python: the version that ran it.
        platform: the system that ran it.
        started_at: when it began, ISO 8601, UTC.
        duration_s: how long it took, once it has ended.
        why_missing: why tests have no result, where that is known.
        stopped: `"interrupted"` or `"terminated"` where somebody stopped it before its end.
        unclean: what backends did not clean up, each once.
        subjects: what was tested, by key.
    """

    settings: Settings
    choice: Choice = field(default_factory=Choice)
    python: str = ""
    platform: str = ""
    started_at: str = ""
    duration_s: float = 0.0
    why_missing: str = ""
    stopped: str = ""
    unclean: list[str] = field(default_factory=list)
    subjects: dict[str, SubjectRun] = field(default_factory=dict)

    def take(self, event: Mapping[str, Any]) -> None:
        """Add what an event says; events of other kinds are passed over."""
        if event["event"] == "subject":
            subject = Subject.from_json(event["subject"])
            self.subjects.setdefault(subject.key, SubjectRun(subject))
        elif event["event"] == "result":
            data = {key: value for key, value in event.items() if key not in ("event", "subject")}
            data["outcome"] = Outcome(data["outcome"])
            self.subjects[event["subject"]].take(TestResult(**data))
        elif event["event"] == "unclean" and event["text"] not in self.unclean:
            self.unclean.append(event["text"])

    def rule_results(self, key: str) -> list[RuleResult]:
        """What became of every rule on one backend."""
        return self.subjects[key].rule_results(self.choice, self.why_missing)

    def named(self, nodeid: str) -> Iterator[tuple[str, Expected]]:
        """The entries of the catalogues that a node id stands for, with their subjects' keys."""
        key, _, name = nodeid.rpartition("::")
        test, _, path = name.rstrip("]").partition("[")
        if key in self.subjects:
            for entry in self.subjects[key].subject.catalogue:
                if entry.test == test and entry.path == path:
                    yield key, entry

    @property
    def fails(self) -> bool:
        """Whether anything was found that must not end well."""
        return any(
            rule.outcome.fails_the_run for key in self.subjects for rule in self.rule_results(key)
        )
