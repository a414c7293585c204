from __future__ import annotations

from pathlib import Path

import pytest
from docs_support import ROOT, Block, Session, blocks_of, commands_of, missing_line

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("**/*.md"))]
PAGES = [page for page in PAGES if page.relative_to(ROOT).parts[1:2] != ("generate",)]


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_block_says_what_it_is(page: Path) -> None:
    unsaid = [str(block) for block in blocks_of(page) if not said(block)]
    assert not unsaid, f"say before each block whether it is run, and how: {', '.join(unsaid)}"


def said(block: Block) -> bool:
    mark = block.mark or ""
    if mark.startswith("not run: "):
        return len(mark) > len("not run: because")
    if mark.startswith("file="):
        return True
    if mark.startswith("run"):
        return block.language in ("sh", "bash", "console")
    return mark == {"python": "python", "text": "output", "": "output"}.get(block.language)


def runs(page: Path) -> bool:
    return any((block.mark or "").startswith(("run", "python")) for block in blocks_of(page))


@pytest.mark.parametrize("page", [page for page in PAGES if runs(page)], ids=named)
def test_what_a_page_says_is_so(page: Path, tmp_path: Path) -> None:
    session = Session(tmp_path)
    for block in blocks_of(page):
        session.follow(block)


def test_outputs_are_compared_line_by_line() -> None:
    printed = "one\ntwo 1.5 s\nthree\nfour\n"
    assert missing_line("one\ntwo 9.9 s\n", printed) is None
    assert missing_line("two 0.1 s\n…\nfour\n", printed) is None
    assert missing_line("one\nthree\n", printed) == "three"
    assert missing_line("three\n…\none\n", printed) == "one"
    assert missing_line("seed 5\n", "seed 77\n") is None
    assert missing_line("five\n", printed) == "five"
    assert missing_line("thr …\nfour\n", printed) is None
    assert missing_line("fou …\nthree\n", printed) == "three"


def test_a_backslash_continues_a_command() -> None:
    assert list(commands_of("$ a \\\n  b\n# said\nc\n")) == ["a    b", "c"]


def test_marks_are_found_before_indented_blocks(tmp_path: Path) -> None:
    page = ROOT / "README.md"
    assert blocks_of(page), "the README shows nothing"
    text = "- step\n\n    <!-- run -->\n    ```sh\n    true\n    ```\n"
    place = tmp_path / "page.md"
    place.write_text(text, "utf-8")
    (block,) = blocks_of(place)
    assert (block.mark, block.body, block.language) == ("run", "true\n", "sh")
