"""The code blocks of a Markdown page, and running them as a reader would, in order.

The comment before a block says what it is:

    <!-- run -->             shell commands that succeed; `<!-- run exit=1 -->` that do not
    <!-- file=mystore.py --> a file that the reader writes
    <!-- python -->          a script
    <!-- output -->          what the commands before it print; a line `…` stands for any
                             lines, and a `…` at the end of a line for its rest
    <!-- not run: why -->    nothing that can be run here

`python tests/docs/docs_support.py PAGE…` puts the present output into the output blocks that have
no `…` in them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 600

FENCE = re.compile(
    r"^(?P<indent> *)(?:<!-- (?P<mark>[^>]*?) -->\n(?:[ \n]*\n)?(?P=indent))?"
    r"(?P<ticks>```+)(?P<language>[\w-]*)[^\n]*\n(?P<body>.*?)^(?P=indent)(?P=ticks)$",
    re.MULTILINE | re.DOTALL,
)

VARYING = [
    (re.compile(r"\bseed[ =]\d+"), "seed N"),
    (re.compile(r"\b\d+\.\d+ ?s\b"), "N s"),
    (re.compile(r"\brule set\s+[0-9a-f]{16}"), "rule set D"),
    (re.compile(r"\b0x[0-9a-f]+"), "0xN"),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
]
"""What differs from run to run, and what stands for it when outputs are compared."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    mark: str | None
    body: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order, without their indentation."""
    text = page.read_text("utf-8")
    found = []
    for match in FENCE.finditer(text):
        indent = match["indent"]
        body = "".join(
            line.removeprefix(indent) for line in match["body"].splitlines(keepends=True)
        )
        found.append(
            Block(
                page=page,
                line=text.count("\n", 0, match.start("ticks")) + 1,
                language=match["language"],
                mark=match["mark"],
                body=body,
                start=match.start("body"),
                end=match.end("body"),
            )
        )
    return found


def commands_of(body: str) -> Iterator[str]:
    """The commands of a shell block; a backslash continues a line."""
    for line in body.replace("\\\n", " ").splitlines():
        command = line.strip().removeprefix("$ ")
        if command and not command.startswith("#"):
            yield command


class Session:
    """A reader's folder, in which the blocks of one page are followed in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.printed = ""

    def follow(self, block: Block) -> None:
        """Do what the block says.

        Raises:
            AssertionError: it does not do what the page says that it does.
        """
        mark = block.mark or ""
        if mark.startswith("file="):
            place = self.folder / mark.removeprefix("file=")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(block.body, "utf-8")
        elif mark == "python":
            self._run([sys.executable, "-c", block.body], 0, str(block))
        elif mark.startswith("run"):
            expected = int(mark.partition("exit=")[2] or 0)
            commands = list(commands_of(block.body))
            assert commands, f"{block}: no command"
            for number, command in enumerate(commands, 1):
                wanted = expected if number == len(commands) else 0
                self._run(["bash", "-c", command], wanted, f"{block}: {command}")
        elif mark == "output":
            difference = missing_line(block.body, self.printed)
            assert difference is None, (
                f"{block}: the page shows what is not printed: {difference!r}\n\n{self.printed}"
            )
        else:
            assert mark.startswith("not run: "), f"{block}: it does not say what it is"

    def _run(self, words: list[str], expected: int, what: str) -> None:
        binaries = str(Path(sys.executable).parent)
        done = subprocess.run(
            words,
            cwd=self.folder,
            env={
                **{key: value for key, value in os.environ.items() if "PYTEST" not in key},
                "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
                "COLUMNS": "80",
                "NO_COLOR": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT,
            check=False,
        )
        self.printed = done.stdout.decode("utf-8", "replace").replace(str(self.folder), ".")
        assert done.returncode == expected, (
            f"{what}: exit {done.returncode}, not {expected}\n\n{self.printed}"
        )


def missing_line(shown: str, printed: str) -> str | None:
    """The first line that is shown and not printed in its place, or `None`."""
    wanted, given = steady(shown).splitlines(), steady(printed).splitlines()
    place, anywhere = 0, True
    for line in wanted:
        if line.strip() == "…":
            anywhere = True
            continue
        rest = given[place:] if anywhere else given[place : place + 1]
        found = next((number for number, one in enumerate(rest) if _agree(line, one)), None)
        if found is None:
            return line
        place += found + 1
        anywhere = False
    return None


def _agree(shown: str, printed: str) -> bool:
    """Whether a printed line is the one shown, which may be cut by a `…` at its end."""
    if shown.endswith("…"):
        return printed.startswith(shown[:-1].rstrip())
    return shown == printed


def steady(text: str) -> str:
    """The text without what differs from run to run."""
    for pattern, instead in VARYING:
        text = pattern.sub(instead, text)
    return text


def update(page: Path) -> None:
    """Put what is printed now into the page's output blocks."""
    text = page.read_text("utf-8")
    shift = 0
    with tempfile.TemporaryDirectory() as name:
        session = Session(Path(name))
        for block in blocks_of(page):
            if block.mark == "output" and "…" not in block.body:
                body = session.printed.rstrip("\n") + "\n"
                text = text[: block.start + shift] + body + text[block.end + shift :]
                shift += len(body) - (block.end - block.start)
            elif block.mark != "output":
                session.follow(block)
    page.write_text(text, "utf-8")


if __name__ == "__main__":
    for given in sys.argv[1:]:
        update(Path(given).resolve())
