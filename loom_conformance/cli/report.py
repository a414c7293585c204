"""`loom-conformance report a.json b.json …`: reports side by side, as a page or in other forms."""

from __future__ import annotations

import argparse
from pathlib import Path
from urllib.parse import urlsplit

from ..report.document import DocumentError, read
from ..report.files import check_path, write_reports
from ..report.terminal import summary
from . import CONFORMS, COULD_NOT_RUN, USAGE
from .console import say, stderr, stdout


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `report`."""
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT", help="JSON reports")
    parser.add_argument(
        "--output",
        "-o",
        action="append",
        default=[],
        type=Path,
        metavar="PATH",
        help="write PATH: .html, .md, .svg or certificate.json; may be given again "
        "(default: print the summaries)",
    )
    parser.add_argument(
        "--docs",
        default="",
        type=_address,
        metavar="URL",
        help="where the kit's documentation site is, to link each rule's page there",
    )


def run(options: argparse.Namespace) -> int:
    """Write what was asked for, or print the summaries."""
    for path in options.output:
        fault = check_path(path)
        if fault:
            say(stderr(), [f"--output: {fault}"])
            return USAGE
    try:
        reports = [read(path) for path in options.reports]
    except DocumentError as error:
        say(stderr(), [str(error)])
        return USAGE
    if not options.output:
        for report in reports:
            say(stdout(), [*summary(report), ""])
        return CONFORMS
    try:
        written = write_reports(reports, options.output, options.docs)
    except OSError as error:
        say(stderr(), [f"a report could not be written: {error}"])
        return COULD_NOT_RUN
    say(stdout(), [f"report       {path}" for path in written])
    return CONFORMS


def _address(text: str) -> str:
    """An address of a site, which no browser takes for a script."""
    if urlsplit(text).scheme in ("", "http", "https", "file"):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is no http address, and no relative one")
