"""What the commands print: plain lines, and a live line of progress where there is a terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text


class Meter(Protocol):
    """How far the work is."""

    def expect(self, total: int) -> None:
        """Say how many steps there will be."""

    def advance(self, now: str) -> None:
        """Say that one more step is done, and what comes next or was last."""

    def note(self, line: str, style: str = "") -> None:
        """Print a line that stays."""


def stdout() -> Console:
    """A console for results: colour only on a terminal, and never an encoding error."""
    return _console(sys.stdout)


def stderr() -> Console:
    """A console for progress and complaints."""
    return _console(sys.stderr)


def _console(stream: io.TextIOBase | object) -> Console:
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return Console(
        file=stream,  # type: ignore[arg-type]
        soft_wrap=True,
        highlight=False,
        markup=False,
        emoji=False,
    )


def say(console: Console, lines: Iterable[str]) -> None:
    """Print lines as they are; words that head a failure stand out on a terminal."""
    for line in lines:
        console.print(Text(line, _style(line)))


def _style(line: str) -> str:
    for word, style in (
        ("FAIL ", "bold red"),
        ("ERROR ", "bold red"),
        ("INCONCLUSIVE ", "bold yellow"),
        ("KNOWN FAILING ", "yellow"),
        ("ADVICE ", "yellow"),
    ):
        if line.startswith(word):
            return style
    return ""


@contextmanager
def meter(console: Console, what: str) -> Iterator[Meter]:
    """Show progress: a live line on a terminal, nothing but its notes elsewhere."""
    if not console.is_terminal:
        yield _Plain(console)
        return
    progress = Progress(
        SpinnerColumn(),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=console,
        transient=True,
    )
    with progress:
        yield _Live(progress, what)


class _Plain:
    def __init__(self, console: Console) -> None:
        self._console = console

    def expect(self, total: int) -> None:
        """Nothing to show."""

    def advance(self, now: str) -> None:
        """Nothing to show."""

    def note(self, line: str, style: str = "") -> None:
        self._console.print(Text(line, style))


class _Live:
    def __init__(self, progress: Progress, what: str) -> None:
        self._progress = progress
        self._task = progress.add_task(what, total=None)

    def expect(self, total: int) -> None:
        self._progress.update(self._task, total=total)

    def advance(self, now: str) -> None:
        width = max(10, self._progress.console.width - 45)
        self._progress.update(self._task, advance=1, description=now[:width])

    def note(self, line: str, style: str = "") -> None:
        self._progress.console.print(Text(line, style))
