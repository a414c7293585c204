"""The gallery's reports, made anew for each build of the site by the kit itself."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from contract import filled

from loom_conformance.report.document import Document, read
from loom_conformance.report.html import render
from loom_conformance.report.text import listed

PAGE: Final = "gallery.md"

SITE: Final = ".."
"""Where the site is, as seen from a page of the gallery."""

SOME: Final = ("--profile", "batch", "--profile", "range", "--profile", "fencing")
"""The rules by which backends are compared: those that take seconds."""

TIMEOUT: Final = 300.0

NOT_TO_BE_HAD: Final = (2, 3)
"""The exit status of a check whose backend's driver, or whose server, is not here."""

_FILE: Final = re.compile(
    r"<!-- file=(?P<name>[\w.]+) -->\n```python\n(?P<body>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True, slots=True)
class Gallery:
    """What was made.

    Attributes:
        pages: the reports as pages, by their paths in the site.
        words: what the gallery's own page says of them, by placeholder.
    """

    pages: Mapping[str, str]
    words: Mapping[str, str]


@cache
def gallery(folder: Path) -> Gallery:
    """Run the checks of the gallery and make its pages.

    Args:
        folder: the folder of the documentation.

    Raises:
        RuntimeError: a check did not end as it should.
    """
    text = (folder / PAGE).read_text("utf-8")
    with tempfile.TemporaryDirectory(prefix="loom-gallery-") as name:
        place = Path(name)
        for found in _FILE.finditer(text):
            (place / found["name"]).write_text(found["body"], "utf-8")
        asked: dict[str, tuple[str, Sequence[str], Sequence[int]]] = {
            "conforming": ("memory", (), (0,)),
            "failing": ("hasty:HastyBackend", (), (1,)),
            "memory": ("memory", SOME, (0, 1)),
            "sqlite": ("sqlite", SOME, (0, 1)),
            "postgres": ("postgres", SOME, (0, 1)),
        }
        with ThreadPoolExecutor(2) as pool:
            made = dict(
                zip(
                    asked,
                    pool.map(lambda key: _checked(place, key, *asked[key]), asked),
                    strict=True,
                )
            )
    compared = [made[key] for key in ("memory", "sqlite", "postgres")]
    there = [report for report in compared if report is not None]
    names = [report["backend"]["name"] for report in there]
    told = f"The reports of {listed(names)}"
    if len(there) < len(compared):
        told += " (no PostgreSQL was found where this site was built)"
    pages: dict[str, list[Document]] = {
        "conforming": [one for one in (made["conforming"],) if one],
        "failing": [one for one in (made["failing"],) if one],
        "compared": there,
    }
    return Gallery(
        {f"gallery/{key}.html": render(reports, docs=SITE) for key, reports in pages.items()},
        {"compared": told},
    )


def filled_gallery(markdown: str, folder: Path) -> str:
    """The gallery's own page with what was found put in."""
    return filled(markdown, dict(gallery(folder).words))


def _checked(
    folder: Path, key: str, spec: str, words: Sequence[str], expected: Sequence[int]
) -> Document | None:
    """The report of one check; `None` where the backend is not to be had here."""
    path = folder / f"{key}.json"
    command = [sys.executable, "-m", "loom_conformance", "check", spec, *words]
    done = subprocess.run(
        [*command, "--seed", "1", "--report", str(path)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    if done.returncode in NOT_TO_BE_HAD and spec == "postgres":
        return None
    if done.returncode not in expected:
        raise RuntimeError(
            f"the gallery's check of {spec} ended with {done.returncode}, not {expected}:\n"
            f"{done.stdout[-3000:]}"
        )
    return read(path)
