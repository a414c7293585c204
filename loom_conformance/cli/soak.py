"""`loom-conformance soak BACKEND`: load and faults together, for as long as asked."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..lab.selection import SHORT_NAMES, SelectionError, select
from ..report.text import listed
from . import USAGE
from .console import say, stderr, stdout


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `soak`."""
    parser.add_argument(
        "backend", help=f"MODULE:CLASS of a Backend, or {listed(SHORT_NAMES, 'or')}"
    )
    parser.add_argument(
        "--minutes", type=float, default=10.0, metavar="N", help="how long (default: 10)"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="chooses loads and faults")
    parser.add_argument(
        "--processes", type=int, default=3, metavar="N", help="how many call together (default: 3)"
    )
    parser.add_argument(
        "--report", type=Path, metavar="PATH", help="write what was found to PATH, as JSON"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="where histories that are not legal are kept"
    )
    parser.epilog = (
        "exit codes: 0 all legal, 1 a history is illegal or the storage did not recover, "
        "2 the command line is wrong, 3 the checker gave up or the soak could not run"
    )


def run(options: argparse.Namespace) -> int:
    """Soak the backend."""
    from ..lab.soak import run as soak

    for name, value in (("--minutes", options.minutes), ("--processes", options.processes)):
        if not value > 0:
            say(stderr(), [f"{name} must be more than 0, not {value:g}"])
            return USAGE
    if options.report is not None and not options.report.absolute().parent.is_dir():
        say(stderr(), [f"--report: there is no folder {str(options.report.parent)!r}"])
        return USAGE
    sys.path.insert(0, "")
    try:
        backend = select(options.backend)
    except SelectionError as error:
        say(stderr(), str(error).splitlines())
        return USAGE
    console = stdout()
    return soak(
        backend,
        minutes=options.minutes,
        seed=options.seed,
        processes=options.processes,
        report=options.report,
        keep=options.keep,
        write=lambda line: say(console, line.splitlines() or [""]),
    )
