"""The certificate for a pull request: Markdown as GitHub and others show it."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any, Final

from .diagnosis import diagnosis_title, suspicion_text
from .document import Document
from .evidence import evidence_text
from .outcomes import WORST_FIRST, Outcome
from .sight import sight
from .text import printable, shortened

SIGNS: Final = {
    "conforms": "✅",
    "does not conform": "❌",
    "undecided": "⚠️",
    "nothing run": "⚠️",
}

MOST_FAILURES: Final = 10


def markdown(reports: Sequence[Document]) -> str:
    """Each report's certificate, its profiles as a table, and what did not pass."""
    return "\n".join(line for report in reports for line in _one(report)) + "\n"


def _one(report: Document) -> list[str]:
    said = report["certificate"]
    lines = [
        f"## {SIGNS[said['verdict']]} {_text(report['backend']['name'])}: {said['verdict']}",
        "",
        _text(said["line"]),
        "",
        "| profile | outcome | behind it | known faults it catches |",
        "|---|---|---|---|",
    ]
    for profile in report["profiles"]:
        name = profile["profile"]
        counts = ", ".join(f"{count} {outcome}" for outcome, count in profile["outcomes"].items())
        proven = "**proven**" if name in said["proven"] else _text(said["not_proven"].get(name, ""))
        caught = sight()[name].wrong_stores if name in sight() else 0
        behind = evidence_text(profile["evidence"])
        lines.append(f"| {_text(name)} | {proven} ({counts}) | {behind} | {caught} |")
    lines.append("")
    title = diagnosis_title(report["diagnosis"]).capitalize()
    for one in report["diagnosis"]:
        sentence = suspicion_text(one)
        lines += [f"- {title}, {_text(one['family'])}: {_text(sentence)}"]
    lines += ["", *_failures(report)]
    backend = report["backend"]
    build = f" ({backend['build']})" if backend["build"] else ""
    lines += [
        f"<sub>{_text(backend['spec'] + build)}; loom-conformance {_text(report['kit_version'])}, "
        f"rule set {report['rule_set_digest']}, {report['depth']} depth, seed {report['seed']}, "
        f"{_text(report['python'])}</sub>",
        "",
    ]
    return lines


def _failures(report: Document) -> list[str]:
    found: list[tuple[dict[str, Any], Outcome]] = []
    for outcome in WORST_FIRST:
        if outcome.fails_the_run or outcome in (Outcome.KNOWN_FAILING, Outcome.ADVICE):
            found += [(rule, outcome) for rule in report["rules"] if rule["outcome"] == outcome]
    lines = []
    for rule, outcome in found[:MOST_FAILURES]:
        text = rule["failures"][0]["text"] if rule["failures"] else rule["reason"]
        lines += [
            f"<details><summary><b>{rule['id']}</b> {outcome}: "
            f"{html.escape(printable(shortened(rule['reason'], 160)))}</summary>",
            "",
            *_fenced(text),
            "",
            "</details>",
            "",
        ]
    if len(found) > MOST_FAILURES:
        names = ", ".join(rule["id"] for rule, _ in found[MOST_FAILURES:])
        lines += [f"And {names}.", ""]
    return lines


def _fenced(text: str) -> list[str]:
    """A block of code that no run of backticks within it ends."""
    lines = [printable(line) for line in text.splitlines()]
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}text", *lines, fence]


def _text(text: str) -> str:
    """Text that means nothing to Markdown, HTML, or those who look for mentions."""
    escaped = html.escape(printable(text), quote=False)
    return re.sub(r"([\\`*_{}\[\]#|!~@])", r"\\\1", escaped)
