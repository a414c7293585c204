"""`loom-conformance backends`: the reference backends, and what each still needs here."""

from __future__ import annotations

import argparse

from ..lab.selection import SHORT_NAMES, SelectionError, select
from ..report.text import wrapped
from . import CONFORMS
from .console import say, stdout


def configure(parser: argparse.ArgumentParser) -> None:
    """`backends` takes no arguments."""


def run(options: argparse.Namespace) -> int:
    """List them."""
    lines = []
    for name, spec in SHORT_NAMES.items():
        lines.append(f"{name:<10}{spec}")
        try:
            select(name)
        except SelectionError as error:
            lines += wrapped(str(error), "          ")
    lines += ["", "Your own: loom-conformance check MODULE:CLASS"]
    say(stdout(), lines)
    return CONFORMS
