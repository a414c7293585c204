"""`loom-conformance race RACE-2 --backend postgres`: every schedule of a race, on a backend."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ..lab.selection import SHORT_NAMES
from ..report.text import listed
from .console import say, stderr, stdout

if TYPE_CHECKING:
    from ..races.command import Answer, Asked


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `race`."""
    configure_asked(parser)
    parser.add_argument(
        "--all", action="store_true", help="run every schedule, however long that takes"
    )
    parser.add_argument(
        "--seconds", type=float, metavar="N", help="how long one variant may be explored"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="chooses schedules where chance does"
    )


def configure_asked(parser: argparse.ArgumentParser) -> None:
    """Add what `race` and `replay` share."""
    parser.add_argument("race", metavar="RACE", help="the race's id, such as RACE-2")
    parser.add_argument(
        "--backend",
        default="memory",
        help=f"MODULE:CLASS of a Backend, or {listed(SHORT_NAMES, 'or')} (default: memory)",
    )
    parser.add_argument(
        "--runtime",
        default="",
        metavar="NAME",
        help="run something wrong, as `races` names it, or MODULE:ASSEMBLY of your own",
    )
    parser.add_argument(
        "--steps",
        action="store_true",
        help="lead the store's own methods one resumption at a time, to look inside them",
    )
    parser.add_argument("--nodes", type=int, metavar="N", help="how many nodes take part")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set a parameter of the race, such as fenced=true; may be given again",
    )


def run(options: argparse.Namespace) -> int:
    """Explore the race and tell what was found."""
    from ..races import command

    status = command.Status()
    try:
        answer = command.race(asked(options), status)
    finally:
        status.clear()
    return tell(answer)


def asked(options: argparse.Namespace) -> Asked:
    """The options as what the races take."""
    from ..races.command import Asked

    sys.path.insert(0, "")
    return Asked(
        race=options.race,
        backend=options.backend,
        runtime=options.runtime,
        nodes=options.nodes,
        given=options.set,
        everything=getattr(options, "all", False),
        seconds=getattr(options, "seconds", None),
        seed=getattr(options, "seed", 0),
        steps=options.steps,
    )


def tell(answer: Answer) -> int:
    """Print an answer; returns its exit code."""
    say(stderr() if answer.complaint else stdout(), answer.lines)
    return answer.code
