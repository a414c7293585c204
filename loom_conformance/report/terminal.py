"""The report as plain text: what fits a terminal of 80 columns and a CI log alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from .diagnosis import diagnosis_title, suspicion_text
from .document import Document
from .outcomes import LEFT_OUT, WORST_FIRST, Outcome
from .text import WIDTH, counted, listed, printable, shortened, wrapped

QUIET = (Outcome.PASSED, Outcome.DECLINED, Outcome.NOT_OFFERED, Outcome.NOT_RUN)
"""Outcomes whose rules are counted, and not listed one by one."""

PASSED_FIRST = (Outcome.PASSED, *(one for one in WORST_FIRST if one is not Outcome.PASSED))
"""The order of counts."""

MARGIN = 13
"""Columns of the first column of the tables."""


def summary(report: Document, width: int = WIDTH) -> list[str]:
    """The profiles with their counts, every rule that did not pass, and the certificate."""
    backend = report["backend"]
    build = f" ({backend['build']})" if backend["build"] else ""
    lines = [
        *wrapped(f"{backend['spec']}{build}", _first("backend"), width=width),
        *wrapped(
            f"seed {report['seed']}, {report['depth']} depth, rule set "
            f"{report['rule_set_digest']}, {report['duration_s']:.1f} s",
            _first("run"),
            width=width,
        ),
    ]
    chosen = _selection(report)
    if chosen:
        lines += wrapped(chosen, _first("selected"), width=width)
    if report["declarations"]["durability"]:
        lines += wrapped(report["declarations"]["durability"], _first("power loss"), width=width)
    lines += wrapped(_ran(report), _first("tests"), width=width)
    lines.append("")
    lines += _profiles(report, width)
    for outcome in WORST_FIRST:
        if outcome not in QUIET:
            lines += _rules(report, outcome, width)
    if report["diagnosis"]:
        lines += ["", diagnosis_title(report["diagnosis"])]
        for one in report["diagnosis"]:
            sentence = suspicion_text(one)
            lines += wrapped(f"{one['family']}: {sentence}", "  ", "    ", width)
    for text in report.get("unclean", ()):
        lines += ["", *wrapped(text, _first("clean-up"), width=width)]
    lines.append("")
    lines += wrapped(report["certificate"]["line"], _first("certificate"), width=width)
    return lines


def failures(
    report: Document, outcomes: Iterable[Outcome] = (Outcome.FAILED,), width: int = WIDTH
) -> list[list[str]]:
    """One failure text a rule, the gravest first, with the other write paths on which it is broken.

    Of several failures the one with a timeline is told: it shows how it came about.
    """
    wanted = {outcome.value for outcome in outcomes}
    gravity = [outcome.value for outcome in WORST_FIRST]
    texts = []
    for rule in sorted(report["rules"], key=lambda one: gravity.index(one["outcome"])):
        told = [one for one in rule["failures"] if one["outcome"] in wanted]
        told.sort(key=lambda one: one["trace"] is None)
        if not told:
            continue
        lines = str(told[0]["text"]).splitlines()
        others = dict.fromkeys(_place(one) for one in told[1:])
        others.pop(_place(told[0]), None)
        if others:
            lines += wrapped(f"The same on {listed(others)}.", "  ", width=width)
        texts.append(lines)
    return texts


def wrongly_listed(report: Document, width: int = WIDTH) -> list[list[str]]:
    """One text a rule that the backend lists as known to fail, and that holds."""
    return [
        [
            f"FAIL {rule['id']} [{printable(report['backend']['name'])}]",
            *wrapped(rule["reason"], "  ", width=width),
        ]
        for rule in report["rules"]
        if rule["outcome"] == Outcome.FAILED and not rule["failures"]
    ]


def _first(label: str) -> str:
    return f"{label:<{MARGIN}}"


def _place(failure: dict[str, Any]) -> str:
    return str(failure["path"] or failure["test"])


def _selection(report: Document) -> str:
    return "; ".join(
        f"{name} {', '.join(chosen)}" for name, chosen in report["selection"].items() if chosen
    )


def _profiles(report: Document, width: int) -> list[str]:
    """A line a profile; those of which nothing ran, for one reason, share theirs."""
    lines: list[str] = []
    idle: dict[str, list[str]] = {}
    for profile in report["profiles"]:
        told = _counts(report, profile)
        if list(profile["outcomes"]) == [Outcome.NOT_RUN]:
            idle.setdefault(told, []).append(profile["profile"])
        else:
            lines += wrapped(told, _first(profile["profile"]), width=width)
    for told, names in idle.items():
        first = _first(names[0] if len(names) == 1 else "not run")
        rest = told.removeprefix(f"{Outcome.NOT_RUN}: ")
        lines += wrapped(
            told if len(names) == 1 else f"{listed(names)}: {rest}", first, width=width
        )
    return lines


def _counts(report: Document, profile: dict[str, Any]) -> str:
    """`38 passed, 1 failed`, or the reason where all of a profile is left out."""
    counts = profile["outcomes"]
    parts = []
    for outcome in PASSED_FIRST:
        if outcome in counts:
            parts.append(f"{counts[outcome]} {outcome}")
    told = ", ".join(parts) or "no rules"
    if len(counts) == 1:
        only = next(iter(counts))
        if only in (*LEFT_OUT, Outcome.NOT_RUN):
            reasons = _reasons(report, profile["profile"])
            return f"{only}: {reasons[0]}" if len(reasons) == 1 else str(only)
    seconds = sum(
        rule["duration_s"] for rule in report["rules"] if rule["profile"] == profile["profile"]
    )
    return f"{told} ({seconds:.1f} s)"


def _ran(report: Document) -> str:
    """How many tests ran, and what became of them."""
    tests = Counter(test["outcome"] for rule in report["rules"] for test in rule["tests"])
    missing = tests.pop(Outcome.NOT_RUN, 0)
    left_out = [f"{tests.pop(one)} {one}" for one in LEFT_OUT if one in tests]
    parts = [f"{tests[one]} {one}" for one in PASSED_FIRST if one in tests]
    told = [f"{tests.total()} ran: {', '.join(parts)}" if parts else "none ran", *left_out]
    return "; ".join([*told, f"{missing} did not run"] if missing else told)


def _reasons(report: Document, profile: str) -> Sequence[str]:
    reasons = {
        str(rule["reason"]): None
        for rule in report["rules"]
        if rule["profile"] == profile and rule["reason"]
    }
    return list(reasons)


def _rules(report: Document, outcome: Outcome, width: int) -> list[str]:
    found = [rule for rule in report["rules"] if rule["outcome"] == outcome]
    if not found:
        return []
    lines = ["", f"{outcome} ({counted(len(found), 'rule')})"]
    alike: dict[str, list[str]] = {}
    for rule in found:
        bad = [one["path"] for one in rule["paths"] if one["outcome"] == outcome]
        where = f" [{', '.join(bad)}]" if bad and len(bad) < len(rule["paths"]) else ""
        told = printable(f"{shortened(rule['reason'], 200)}{where}")
        alike.setdefault(told, []).append(rule["id"])
    for told, ids in alike.items():
        if len(ids) == 1:
            lines += wrapped(told, f"  {ids[0]:<{MARGIN - 2}}", width=width)
        else:
            lines += wrapped(listed(ids), "  ", width=width)
            lines += wrapped(told, " " * MARGIN, width=width)
    return lines
