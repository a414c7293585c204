"""`loom-conformance judge FILE…`: a verdict on recorded histories, from their files alone."""

from __future__ import annotations

import argparse
from pathlib import Path

from .console import say, stdout


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `judge`."""
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="histories, or folders of *.jsonl files"
    )
    parser.add_argument(
        "--format", choices=("loom", "jepsen"), default="loom", help="how the files are written"
    )
    parser.add_argument(
        "--model",
        choices=("store", "register"),
        default="store",
        help="what they are histories of; register goes with jepsen",
    )
    parser.add_argument(
        "--envelope-ids",
        choices=("store", "execution"),
        help="the scope of envelope ids, where the files do not say it",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=60.0,
        metavar="N",
        help="how long the search may take, for each history (default: 60)",
    )
    parser.add_argument(
        "--no-pictures", action="store_true", help="leave out the drawings of calls"
    )
    parser.epilog = (
        "exit codes: 0 all legal, 1 one is illegal, 2 a file cannot be used, 3 the checker gave up"
    )


def run(options: argparse.Namespace) -> int:
    """Judge the files."""
    from ..lab.judge import run as judge

    console = stdout()
    return judge(
        options.files,
        format=options.format,
        model=options.model,
        declared={"envelope_ids": options.envelope_ids} if options.envelope_ids else None,
        seconds=options.seconds,
        pictures=not options.no_pictures,
        write=lambda line: say(console, line.splitlines() or [""]),
    )
