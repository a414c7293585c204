"""Wrapping, escaping and counting."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st

from loom_conformance.report.text import command, counted, listed, printable, shortened, wrapped


@given(st.text(st.characters(categories=None), max_size=60))
def test_printable_text_can_be_printed_and_encoded(text: str) -> None:
    safe = printable(text)
    assert safe.isprintable()
    safe.encode("utf-8")


@given(st.text(max_size=400), st.integers(40, 100))
def test_wrapped_text_fits(text: str, width: int) -> None:
    assert all(len(line) <= width for line in wrapped(text, "  label  ", width=width))


@given(st.lists(st.text(st.characters(codec="ascii", exclude_categories=["C"])), min_size=1))
def test_a_command_is_read_back_as_its_words(words: list[str]) -> None:
    assert shlex.split(command(words)) == words


def test_lists_and_counts() -> None:
    assert [listed(list("abc")[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert listed(["a", "b"], "or") == "a or b"
    assert (counted(1, "rule"), counted(2, "rule")) == ("1 rule", "2 rules")
    assert counted(0, "class", "classes") == "0 classes"
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abcd …"
