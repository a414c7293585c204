"""`loom-conformance rules [ID]`: the contract, from the data that tests and docs use too."""

from __future__ import annotations

import argparse
import difflib

from ..contract.rules import PROFILES, Rule, digest, rules, rules_of
from ..report.text import counted, listed, wrapped
from . import CONFORMS, USAGE
from .check import known_profile
from .console import say, stderr, stdout


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rules`."""
    parser.add_argument("id", nargs="*", metavar="ID", help="explain these rules")
    parser.add_argument(
        "--profile",
        type=known_profile,
        metavar="NAME",
        help=f"list only the rules of this profile: {listed(PROFILES, 'or')}",
    )


def run(options: argparse.Namespace) -> int:
    """List the rules, or explain some."""
    lines: list[str] = []
    for given in options.id:
        rule = rules().get(given.upper())
        if rule is None:
            near = difflib.get_close_matches(given.upper(), rules())
            hint = f"; did you mean {near[0]}?" if near else ""
            say(stderr(), [f"there is no rule {given!r}{hint}"])
            return USAGE
        lines += [*([""] if lines else []), *explained(rule)]
    if not lines:
        lines = listing((options.profile,) if options.profile else PROFILES)
    say(stdout(), lines)
    return CONFORMS


def listing(profiles: tuple[str, ...]) -> list[str]:
    """Every rule with its promise, by profile."""
    lines = []
    for profile in profiles:
        lines.append(profile)
        for rule in rules_of(profile):
            should = "(should) " if rule.level == "SHOULD" else ""
            lines += wrapped(f"{should}{_plain(rule.promise)}", f"  {rule.id:<11}")
        lines.append("")
    count = sum(len(rules_of(profile)) for profile in profiles)
    return [*lines, f"{counted(count, 'rule')}, rule set {digest()}"]


def explained(rule: Rule) -> list[str]:
    """All that the contract's data say of one rule."""
    from ..suites import catalogue

    lines = [f"{rule.id} ({rule.profile}, {rule.level})", *wrapped(_plain(rule.promise), "  "), ""]
    if rule.why:
        lines += wrapped(_plain(rule.why), "  why     ")
    if rule.source:
        lines += wrapped(_plain(rule.source), "  source  ")
    label = "  causes  "
    for cause in rule.causes:
        lines += wrapped(_plain(cause), label)
        label = "          "
    label = "  tests   "
    for case in catalogue():
        if case.rule.id == rule.id:
            paths = f" (on {counted(len(case.paths), 'write path')})" if case.paths else ""
            lines += wrapped(f"{case.sentence}{paths}", label)
            label = "          "
    return lines


def _plain(text: str) -> str:
    return text.replace("`", "").replace("**", "")
