"""The page itself: templates filled with one or more reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ...contract.rules import PROFILES, Rule, rules
from ...lab.paths import WRITE_PATHS
from ..diagnosis import diagnosis_title, suspicion_text
from ..document import Document
from ..evidence import evidence_text
from ..outcomes import WORST_FIRST, Outcome
from ..text import printable
from .diagrams import diagram

SYMBOLS: Final[Mapping[str, str]] = {
    Outcome.PASSED: "✓",
    Outcome.FAILED: "✗",
    Outcome.ERROR: "⚠",
    Outcome.INCONCLUSIVE: "?",
    Outcome.OVERRIDDEN: "⇄",
    Outcome.NOT_RUN: "–",
    Outcome.KNOWN_FAILING: "✗",
    Outcome.ADVICE: "i",
    Outcome.DECLINED: "○",
    Outcome.NOT_OFFERED: "○",
}
"""A sign beside each word, so that no outcome is told by colour alone."""


@dataclass(frozen=True, slots=True)
class Column:
    """One report, as a column of the matrix."""

    number: int
    title: str
    report: Document
    rules: Mapping[str, Mapping[str, Any]]


def render(
    reports: Sequence[Document], title: str = "Conformance report", *, docs: str = ""
) -> str:
    """One page about these reports, side by side.

    Args:
        reports: the reports, at least one.
        title: what stands over it.
        docs: the address of the kit's documentation site, relative to the page or absolute, to
            link each rule's page there; with `""` a rule's own part of the page is all there is.

    Raises:
        ValueError: there is no report.
    """
    if not reports:
        raise ValueError("a page needs at least one report")
    columns = _columns(reports)
    return (
        _environment()
        .get_template("report.html")
        .render(
            title=title,
            docs=docs.rstrip("/"),
            columns=columns,
            groups=_groups(columns),
            failures=_failures(columns),
            outcomes=[one for one in WORST_FIRST if _occurs(columns, one)],
            paths=[path.name for path in WRITE_PATHS],
            digests=sorted({report["rule_set_digest"] for report in reports}),
            style=_text("style.css"),
            script=_text("report.js"),
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.globals.update(
        symbols=SYMBOLS, diagram=diagram, slug=slug, grouped=grouped, places_of=places_of
    )
    environment.globals.update(
        diagnosis_title=diagnosis_title,
        suspicion_text=suspicion_text,
        evidence_text=evidence_text,
    )
    environment.filters["plain"] = lambda text: text.replace("`", "")
    return environment


def _shown(value: object) -> object:
    """Every text on the page, made printable line by line."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return "\n".join(printable(line) for line in value.split("\n"))
    return value


def _text(name: str) -> Markup:
    """A file of ours, to stand in the page as it is."""
    return Markup(files(__package__).joinpath("templates", name).read_text("utf-8"))


def slug(text: str) -> str:
    """A word for class names and anchors."""
    return "".join(one if one.isalnum() and one.isascii() else "-" for one in text.lower())


def _columns(reports: Sequence[Document]) -> list[Column]:
    names = [str(report["backend"]["name"]) for report in reports]
    columns = []
    for number, (name, report) in enumerate(zip(names, reports, strict=True)):
        again = f" ({names[: number + 1].count(name)})" if names.count(name) > 1 else ""
        by_id = {rule["id"]: rule for rule in report["rules"]}
        columns.append(Column(number, f"{name}{again}", report, by_id))
    return columns


def _groups(columns: Sequence[Column]) -> list[tuple[str, list[dict[str, Any]]]]:
    """The rules of all reports by profile; what the contract no longer has stands last."""
    seen: dict[str, Mapping[str, Any]] = {}
    for column in columns:
        for rule_id, rule in column.rules.items():
            seen.setdefault(rule_id, rule)
    profiles = [*PROFILES, *dict.fromkeys(rule["profile"] for rule in seen.values())]
    groups = []
    for profile in dict.fromkeys(profiles):
        entries = [
            {
                "id": rule_id,
                "level": rule["level"],
                "promise": rule["promise"],
                "known": rules().get(rule_id),
                "cells": [(column, column.rules.get(rule_id)) for column in columns],
            }
            for rule_id, rule in seen.items()
            if rule["profile"] == profile
        ]
        if entries:
            groups.append((profile, entries))
    return groups


def _failures(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Each broken rule of each backend with its failures, the gravest first."""
    found: list[dict[str, Any]] = []
    for column in columns:
        for rule in column.rules.values():
            if rule["failures"]:
                known: Rule | None = rules().get(rule["id"])
                # The one that is drawn tells most; the others are folded away below it.
                first = sorted(rule["failures"], key=lambda one: one["picture"] is None)
                shown = {**rule, "failures": first}
                found.append({"column": column, "rule": shown, "known": known})
    order = [outcome.value for outcome in WORST_FIRST]
    found.sort(key=lambda one: order.index(one["rule"]["outcome"]))
    return found


def _occurs(columns: Iterable[Column], outcome: Outcome) -> bool:
    return any(rule["outcome"] == outcome for one in columns for rule in one.rules.values())


def places_of(rule: Mapping[str, Any]) -> dict[str, str]:
    """What became of a rule by write path."""
    return {one["path"]: one["outcome"] for one in rule["paths"]}


def grouped(tests: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tests with one line for all write paths on which the same became of them."""
    lines: dict[tuple[str, str, str], dict[str, Any]] = {}
    for test in tests:
        key = (test["test"], test["outcome"], test["reason"])
        line = lines.setdefault(key, {**test, "paths": [], "duration_s": 0.0})
        line["duration_s"] += test["duration_s"]
        if test["path"]:
            line["paths"].append(test["path"])
    return list(lines.values())
