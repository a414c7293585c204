"""`loom-conformance diff old.json new.json`: what got worse, what got better."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..report.difference import Change, changes
from ..report.document import Document, DocumentError, read
from ..report.text import counted, shortened, wrapped
from . import CONFORMS, DOES_NOT_CONFORM, USAGE
from .console import say, stderr, stdout


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `diff`."""
    parser.add_argument("old", type=Path, help="the earlier JSON report")
    parser.add_argument("new", type=Path, help="the later JSON report")


def run(options: argparse.Namespace) -> int:
    """Compare; exit code 1 where anything got worse."""
    try:
        old, new = read(options.old), read(options.new)
    except DocumentError as error:
        say(stderr(), [str(error)])
        return USAGE
    found = changes(old, new)
    say(stdout(), told(old, new, found))
    return DOES_NOT_CONFORM if any(change.worse for change in found) else CONFORMS


def told(old: Document, new: Document, found: Sequence[Change]) -> list[str]:
    """The comparison in words."""
    lines = []
    for name, key in (("kit", "kit_version"), ("rule set", "rule_set_digest"), ("depth", "depth")):
        if old[key] != new[key]:
            lines.append(f"the {name} changed: {old[key]} → {new[key]}")
    if old["backend"]["spec"] != new["backend"]["spec"]:
        lines.append(
            f"two backends are compared: {old['backend']['spec']} and {new['backend']['spec']}"
        )
    before, after = (one["certificate"]["verdict"] for one in (old, new))
    lines.append(f"verdict: {before}" if before == after else f"verdict: {before} → {after}")
    groups = {
        "worse": [one for one in found if one.worse],
        "better": [one for one in found if one.better],
        "otherwise changed": [one for one in found if not one.worse and not one.better],
    }
    for name, group in groups.items():
        if group:
            lines += ["", f"{name} ({counted(len(group), 'change')})"]
            for change in group:
                lines += _line(change)
    if not found:
        lines.append("no rule changed")
    return lines


def _line(change: Change) -> list[str]:
    where = f" [{change.path}]" if change.path else ""
    before = change.before or "not in the rule set"
    after = change.after or "not in the rule set"
    reason = f": {shortened(change.reason, 160)}" if change.worse and change.reason else ""
    return wrapped(f"{before} → {after}{where}{reason}", f"  {change.rule:<11}")
