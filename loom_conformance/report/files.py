"""Which kinds of report files there are, and the writing of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from .document import Document, document, write
from .run import Run

KINDS: Final = (".json",)
"""The suffixes that `--loom-report` takes."""


def write_reports(run: Run, paths: Iterable[Path]) -> None:
    """Write each report of a run that has ended.

    A JSON report is about one backend; where a run tested several, each has a file of its own,
    with the backend's name put before the suffix.
    """
    documents = {key: document(run, key) for key in run.subjects}
    for path in paths:
        for place, report in zip(
            _places(path, documents.values()), documents.values(), strict=True
        ):
            write(place, report)


def _places(path: Path, reports: Iterable[Document]) -> list[Path]:
    names = [re.sub(r"[^\w.-]+", "-", report["backend"]["name"]) for report in reports]
    if len(names) == 1:
        return [path]
    places = []
    for place, name in enumerate(names):
        number = f"-{names[: place + 1].count(name)}" if names.count(name) > 1 else ""
        places.append(path.with_name(f"{path.stem}-{name}{number}{path.suffix}"))
    return places
