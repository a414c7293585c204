"""Plain text for people: wrapped, and safe to print whatever a store put into it."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable
from typing import Final

WIDTH: Final = 80
HEAD: Final = 3
TAIL: Final = 17


def printable(text: str) -> str:
    """Text with everything that a terminal might act upon, or could not encode, escaped.

    Newlines and tabs become spaces; control characters, direction marks and lone surrogates
    become escapes such as `\\x1b`.
    """
    flat = text.replace("\r\n", " ").replace("\n", " ").replace("\t", " ")
    if flat.isprintable():
        return flat
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape", "backslashreplace").decode("ascii")
        for character in flat
    )


def wrapped(text: str, first: str = "", rest: str | None = None, width: int = WIDTH) -> list[str]:
    """Lines of at most `width` columns, with one prefix for the first and one for the rest."""
    return textwrap.wrap(
        printable(text),
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first) if rest is None else rest,
        break_on_hyphens=False,
        drop_whitespace=True,
    ) or [first.rstrip()]


def numbered(lines: Iterable[str], indent: str, width: int = WIDTH) -> list[str]:
    """Each entry with its number, its later lines hanging under its first.

    Of many entries only the first few and the last ones are given, which are those that tell.
    """
    entries = list(enumerate(lines, 1))
    digits = len(str(len(entries)))
    left_out = len(entries) - HEAD - TAIL
    if left_out > 1:
        entries = [*entries[:HEAD], (0, f"({left_out} more)"), *entries[-TAIL:]]
    out: list[str] = []
    for number, line in entries:
        out += wrapped(line, f"{indent}{number or '':>{digits}}  ", width=width)
    return out


def shortened(text: str, longest: int) -> str:
    """Text of at most `longest` characters, cut at the end."""
    return text if len(text) <= longest else f"{text[: longest - 2]} …"


def command(words: Iterable[str]) -> str:
    """A command line that a POSIX shell reads back as these words."""
    return shlex.join(printable(word) for word in words)


def listed(words: Iterable[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    items = list(words)
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 rule`, `2 rules`, `1,000 rules`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
