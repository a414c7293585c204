"""What is made while the site is built: the architecture's picture, the gallery, and the nav."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gallery import PAGE, filled_gallery, gallery
from mkdocs.structure.files import File
from rooms import filled_architecture

OPTIONAL: Final = frozenset({"faults.md"})
"""Pages that the nav lists where they exist."""


def on_config(config: Any) -> Any:
    """Leave out of the nav what is not there, if it need not be."""
    config["nav"] = _present(config["nav"], Path(config["docs_dir"]))
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the gallery's reports, which no page of the documentation is made of."""
    for place, text in gallery(Path(config["docs_dir"])).pages.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Fill the architecture page from the code, and the gallery's from its reports."""
    if page.file.src_uri == "architecture.md":
        return filled_architecture(markdown)
    if page.file.src_uri == PAGE:
        return filled_gallery(markdown, Path(config["docs_dir"]))
    return markdown


def _present(nav: list[Any], folder: Path) -> list[Any]:
    kept: list[Any] = []
    for entry in nav:
        ((title, value),) = entry.items()
        if isinstance(value, list):
            inner = _present(value, folder)
            if inner:
                kept.append({title: inner})
        elif value not in OPTIONAL or (folder / value).is_file():
            kept.append(entry)
    return kept
