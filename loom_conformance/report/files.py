"""Which kinds of report files there are, and the writing of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from .badge import badge
from .certificate_file import certificate
from .document import Document
from .markdown import markdown

CERTIFICATE: Final = "certificate.json"

KINDS: Final = (".json", ".html", ".md", ".svg", CERTIFICATE)
"""How the name of a report may end: the report, the page, the summary, the badge, the certificate.
"""


def kind_of(path: Path) -> str | None:
    """Which of `KINDS` a path names, or `None`."""
    if path.name.endswith(CERTIFICATE):
        return CERTIFICATE
    return path.suffix if path.suffix in KINDS else None


def certifies(path: Path) -> bool:
    """Whether a report of this name vouches for a backend by itself."""
    return kind_of(path) in (CERTIFICATE, ".svg")


def check_path(path: Path) -> str | None:
    """What is wrong with a path for a report, or `None`."""
    if kind_of(path) is None:
        endings = ", ".join(KINDS[:-1])
        return f"{str(path)!r} must end in {endings} or {CERTIFICATE}, to say what to write"
    if not path.absolute().parent.is_dir():
        return f"there is no folder {str(path.parent)!r}"
    return None


def write_reports(reports: Sequence[Document], paths: Iterable[Path], docs: str = "") -> list[Path]:
    """Write each kind of report that the paths ask for.

    A page and a summary hold all reports; of the other kinds there is one file a backend, and
    where there are several, each has the backend's name put before its suffix. With `docs`, the
    address of the documentation site, a page links each rule's part of it.

    Returns:
        the files that were written.

    Raises:
        OSError: a file could not be written.
    """
    written = []
    for path in paths:
        kind = kind_of(path)
        if kind in _TOGETHER:
            _write(path, _TOGETHER[kind](reports, docs))
            written.append(path)
            continue
        for place, report in zip(_places(path, reports), reports, strict=True):
            _write(place, _EACH[kind or ".json"](report))
            written.append(place)
    return written


def _page(reports: Sequence[Document], docs: str) -> str:
    from .html import render

    return render(reports, docs=docs)


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=True) + "\n"


_TOGETHER: Final[Mapping[str | None, Callable[[Sequence[Document], str], str]]] = {
    ".html": _page,
    ".md": lambda reports, docs: markdown(reports),
}

_EACH: Final[Mapping[str, Callable[[Document], str]]] = {
    ".json": _json,
    ".svg": badge,
    CERTIFICATE: lambda report: _json(certificate(report)),
}


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, "utf-8")
    partial.replace(path)


def append_summary(path: Path, reports: Sequence[Document]) -> None:
    """Add the certificates to the summary that a CI system shows (`GITHUB_STEP_SUMMARY`).

    Raises:
        OSError: the file could not be written.
    """
    with path.open("a", encoding="utf-8") as file:
        file.write(markdown(reports))


def _places(path: Path, reports: Iterable[Document]) -> list[Path]:
    names = [re.sub(r"[^\w.-]+", "-", report["backend"]["name"]) for report in reports]
    if len(names) == 1:
        return [path]
    places = []
    for place, name in enumerate(names):
        number = f"-{names[: place + 1].count(name)}" if names.count(name) > 1 else ""
        stem, dot, rest = path.name.partition(".")
        places.append(path.with_name(f"{stem}-{name}{number}{dot}{rest}"))
    return places
