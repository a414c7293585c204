"""`loom-conformance replay RACE-2 TOKEN --backend sqlite`: the one schedule of a token."""

from __future__ import annotations

import argparse

from .race import asked, configure_asked, tell


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `replay`."""
    configure_asked(parser)
    parser.add_argument("token", metavar="TOKEN", help="the schedule, as a lost race gives it")


def run(options: argparse.Namespace) -> int:
    """Run that schedule again and tell what happened."""
    from ..races import command

    return tell(command.replay(asked(options), options.token))
