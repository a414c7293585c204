"""`loom-conformance races`: the named races, and what must lose each."""

from __future__ import annotations

import argparse

from .console import say, stdout


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `races`."""
    parser.add_argument(
        "--wrong", action="store_true", help="list what must lose, and which races, instead"
    )


def run(options: argparse.Namespace) -> int:
    """List them."""
    from ..races import command

    answer = command.wrong() if options.wrong else command.races()
    say(stdout(), answer.lines)
    return answer.code
