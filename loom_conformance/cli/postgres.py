"""`loom-conformance postgres`: which server the Postgres backend would use."""

from __future__ import annotations

import argparse

from ..report.text import wrapped
from . import CONFORMS, COULD_NOT_RUN
from .console import say, stderr, stdout


def configure(parser: argparse.ArgumentParser) -> None:
    """`postgres` takes no arguments."""


def run(options: argparse.Namespace) -> int:
    """Say where PostgreSQL comes from; exit code 3 where there is none."""
    try:
        from loom_backends.postgres.discovery import PostgresNotFoundError, find
    except ModuleNotFoundError as error:
        say(
            stderr(),
            [f"the Postgres backend needs {error.name}: pip install 'loom-conformance[postgres]'"],
        )
        return COULD_NOT_RUN
    try:
        source = find()
    except PostgresNotFoundError as error:
        say(stderr(), wrapped(str(error)))
        return COULD_NOT_RUN
    say(stdout(), [f"PostgreSQL comes from {source.detail}"])
    return CONFORMS
