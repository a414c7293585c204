"""Values that stores are known to alter: a corpus for each field, and strategies over the domain.

Each entry of a corpus stands for a fault met in the field: a character that a column type refuses,
a number that a codec rounds, a key that a collation folds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from enum import Enum, IntEnum
from random import Random
from typing import Any, Final
from uuid import UUID

from hypothesis import strategies as st

from ..spi import MAX_EXECUTION_ID, MAX_INTEGER, MAX_SEQUENCE, JsonValue


class Zulu(tzinfo):
    """UTC by a class of its own, as a zone's file or a library brings it."""

    def utcoffset(self, when: datetime | None, /) -> timedelta:
        return timedelta(0)

    def dst(self, when: datetime | None, /) -> timedelta:
        return timedelta(0)

    def tzname(self, when: datetime | None, /) -> str:
        return "Z"


LOOKALIKES: Final[tuple[tuple[str, ...], ...]] = (
    ("a", "A"),
    ("ß", "ss", "SS"),
    ("i", "I", "ı", "İ"),
    ("é", "e", "e\u0301"),
    ("ﬁ", "fi"),
    ("Å", "\u212b", "A\u030a"),
    ("ア", "ｱ", "あ"),
    ("x", "x ", " x", "x\t", "x\u00a0", "x\u200b", "x\n"),
    ("0", "00", "0.0", "-0"),
    ("1e2", "100"),
    ("null", "NULL", "None"),
    ("a/b", "a//b", "a/b/", "a/./b"),
    ("a%", "a_", "a*", "a?", "ab", "a[b]"),
    ("a'b", "a''b", 'a"b', "a\\b", "a\\\\b"),
    ("n:1", "n", "n:1:", ":n:1"),
    ("\ue000", "\U0001f600", "\ud7ff", "\U0010ffff"),
    ("x" * 254, "x" * 255, "x" * 254 + "y"),
    ("é" * 255, "é" * 254 + "e"),
    ("\U0001f9f5" * 255, "\U0001f9f5" * 254),
    ("\ufeffa", "a\ufeff"),
    ("a\r\nb", "a\nb", "a\rb"),
    ("\x01", "\x7f", "\x80", "\x1f"),
    ("plumless", "buckeroo"),  # one CRC-32
    ("Aa", "BB"),  # one hash of Java's
    ("cd", "dC"),  # one hash by 33
    ("m", *(f"m{mark}fence" for mark in ":/-._#"), "m:token", "m:head", "m:meta", "fence:m"),
)
"""Groups of ids that are different by code points and equal to somebody's database."""


def bare_groups(unique: str) -> list[tuple[str, ...]]:
    """Groups of ids whose beginnings and whole forms are at stake, unique by digits of their own.

    Somebody's column takes the first for UUIDs and the second for numbers; somebody's client takes
    a path, a mark or white space off the beginning or the end of the third.
    """
    draw = Random(unique)
    one = UUID(int=0xA << 124 | draw.getrandbits(124))
    number = str(draw.randrange(10**11, 10**12))
    name = f"id{draw.randrange(10**11, 10**12)}"
    return [
        (str(one), str(one).upper(), one.hex, f"{{{one}}}", one.urn),
        (
            number,
            *(f"{sign}{number}" for sign in ("0", "00", "+", "-", " ", "0x")),
            *(f"{number}{end}" for end in (".0", ".", "e0", "L", " ")),
            f"{number[:3]}_{number[3:]}",
            f"{number[:3]},{number[3:]}",
            number.translate(_ARABIC),
        ),
        (
            name,
            *(f"{mark}{name}" for mark in BEGINNINGS),
            *(f"{name}{mark}" for mark in (" ", ".", "/", "..", "\ufeff", "\n")),
            f'"{name}"',
            f"__{name}__",
            f"{name}/../{name}",
            f"%69{name[1:]}",
        ),
    ]


BEGINNINGS: Final = (
    "/",
    "//",
    "./",
    ".",
    "..",
    " ",
    "\t",
    "\n",
    "\u00a0",
    "\ufeff",
    "-",
    "_",
    "$",
    "#",
)
"""What is in danger at an id's beginning."""

_ARABIC: Final = {ord("0") + digit: 0x660 + digit for digit in range(10)}

RESERVED: Final[tuple[str, ...]] = (
    ".",
    "..",
    "/",
    "__name__",
    "__proto__",
    "_all",
    "$all",
    "$",
    "#",
    "*",
    "%",
    "0",
    "-",
    "~",
    "null",
    "None",
    "NULL",
    "default",
    "con",
    "{}",
    '""',
    "''",
    "constructor",
    " ",
    "\ufeff",
)
"""Ids that some system keeps for itself, or takes for none at all."""


def made_unique(group: tuple[str, ...], unique: str, longest: int = MAX_EXECUTION_ID) -> list[str]:
    """The group's ids with a unique beginning, cut to the domain from the front of what follows.

    The beginnings are cut alike, so that what sets the ids apart, their ends and lengths, stays.
    """
    excess = max(0, len(unique) + 1 + max(map(len, group)) - longest)
    return [f"{unique}|{name[excess:]}" for name in group]


def alike(unique: str, most: int = MAX_EXECUTION_ID) -> list[list[str]]:
    """All groups of ids that look alike, of `most` characters at most, unique to their user."""
    groups = [made_unique(group, unique, most) for group in LOOKALIKES]
    return [*groups, *map(list, bare_groups(unique))]


TEXTS: Final[tuple[str, ...]] = (
    "",
    " ",
    "\x00",
    "a\x00b",
    "\\u0000",
    "\\",
    '"',
    "'",
    "\x1f\x7f\x80\x9f",
    "\u2028\u2029",
    "a\r\nb\rc\nd\t ",
    "\ufeff",
    "\ufffe\uffff",
    "e\u0301 é",
    "\U0001f9f5\U0010ffff",
    "\ud7ff\ue000",
    "null",
    "NaN",
    "2024-01-01T00:00:00Z",
    "x" * 5000,
)
"""Strings that may stand in a payload."""

NUMBERS: Final[tuple[int | float, ...]] = (
    0,
    1,
    -1,
    2**31,
    2**32,
    -(2**31) - 1,
    2**52 + 1,
    MAX_INTEGER,
    -MAX_INTEGER,
    0.1,
    -0.0,
    1.0,
    1.5,
    1e16,
    1e21,
    1e100,
    1.7976931348623157e308,
    5e-324,
    2.2250738585072014e-308,
    0.30000000000000004,
    123456789.12345679,
    4.35,
)
"""Numbers that a codec may round, widen or print another way."""

PAYLOADS: Final[tuple[JsonValue, ...]] = (
    None,
    True,
    False,
    [],
    {},
    [None],
    [[]],
    [True, 1, 1.0, False, 0],
    {"a": None, "b": [], "c": {}},
    {"b": 1, "a": 2},
    {"": 1, " ": 2},
    {"\x00": 1, "\\u0000": 2},
    {"é": 1, "e\u0301": 2},
    {"__proto__": 1, "constructor": 2, "$ref": "#", "$date": 1},
    {"1": "a", "01": "b"},
    {"a.b": 1, "a": {"b": 2}},
    {"fence": 99},
    *TEXTS,
    *NUMBERS,
)

WIDE: Final[tuple[JsonValue, ...]] = (
    {f"field-{number}": number for number in range(5_000)},
    [0] * 70_000,
    [{"a": {"b": number}} for number in range(2_000)],
)
"""Values with more members than somebody's index, counter or document takes."""

METADATA: Final[tuple[dict[str, JsonValue], ...]] = (
    {},
    {"computeTarget": None},
    {"": ""},
    {"Fence": 1, "FENCE": 2, "fence ": 3},
    {"nested": {"fence": 7}},
    {"text": "a\x00b\\u0000", "number": MAX_INTEGER, "flag": True},
)

TIMESTAMPS: Final[tuple[datetime, ...]] = (
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC),
    datetime(1999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
    datetime(2016, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
    datetime(2024, 2, 29, 12, 0, 0, 123000, tzinfo=UTC),
    datetime(2024, 3, 31, 1, 30, tzinfo=UTC),
    datetime(2024, 10, 27, 0, 30, tzinfo=UTC),
    datetime(2024, 10, 27, 1, 30, tzinfo=UTC, fold=1),
    datetime(2025, 6, 1, 12, 0, tzinfo=timezone(timedelta(0), "GMT")),
    datetime(2025, 6, 1, 12, 0, tzinfo=Zulu()),
    datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC),
    datetime(2262, 4, 11, 23, 47, 17, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
)

KINDS: Final[tuple[str, ...]] = (
    "k",
    " ",
    "EXECUTION_STARTED",
    "step.completed/1",
    "é\U0001f9f5'\"\\%",
    "k" * 255,
    "\U0010ffff" * 255,
)

ENDS: Final[tuple[str, ...]] = (
    "EXECUTION_COMPLETED",
    "EXECUTION_FAILED",
    "EXECUTION_CANCELLED",
    "SNAPSHOT",
    "TOMBSTONE",
    "$deleted",
    "$metadata",
)
"""Kinds that end an execution for its runtime, or mean something to another kind of store."""

ENVELOPE_IDS: Final[tuple[str, ...]] = ("i", "é" * 300, "\U0010ffff" * 300, "'; --", "a\x01b")

DIGITS: Final = tuple(10**count - less for count in (2, 3, 6, 9, 10, 12, 15) for less in (1, 0))
"""Sequences on both sides of one more digit, which text orders wrongly, padded text too."""

SEQUENCES: Final[tuple[int, ...]] = (2**31 - 1, 2**31, 2**32, 2**53 - 2, MAX_SEQUENCE)
"""Sequences that a narrow column or a float cannot hold; for stores that accept gaps."""


class NamedText(str):
    """Text that prints as something else."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"<{self!r}>"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


class _Kind(str, Enum):  # noqa: UP042 - a StrEnum prints as its value
    """A kind as many a runtime has it: its `str()` is the member's name."""

    DONE = "step-completed"


class _Count(IntEnum):
    """A number with a name."""

    TWO = 2


class _Foreign:
    """An object that is no JSON value."""

    def __repr__(self) -> str:
        return "<an object that is no JSON>"


def nested(depth: int) -> JsonValue:
    """Arrays and objects in turn, `depth` levels deep."""
    value: JsonValue = "core"
    for level in range(depth):
        value = [value] if level % 2 else {"d": value}
    return value


def longest(unique: str, length: int) -> str:
    """A text of `length` characters of four bytes each in UTF-8, unique as the other is."""
    return "".join(chr(0x10000 + ord(character)) for character in unique).rjust(
        length, "\U0001f9f5"
    )


def sized(size: int) -> str:
    """A string whose JSON text is `size` bytes long."""
    return "x" * (size - 2)


OUTSIDE: Final[Mapping[str, Mapping[str, Any]]] = {
    "an execution id with U+0000": {"execution_id": "a\x00b"},
    "an execution id with a lone surrogate": {"execution_id": "a\ud800b"},
    "an empty execution id": {"execution_id": ""},
    "an execution id of 256 characters": {"execution_id": "x" * 256},
    "an execution id of 5,000 characters": {"execution_id": "x" * 5000},
    "an execution id that is a number": {"execution_id": 7},
    "an execution id that is bytes": {"execution_id": b"a"},
    "an execution id that is None": {"execution_id": None},
    "an envelope id with U+0000": {"id": "a\x00b"},
    "an envelope id with a lone surrogate": {"id": "\udfff"},
    "an empty envelope id": {"id": ""},
    "an envelope id of 301 characters": {"id": "x" * 301},
    "an envelope id that is a number": {"id": 7},
    "an envelope id that is None": {"id": None},
    "a kind with U+0000": {"kind": "a\x00b"},
    "an empty kind": {"kind": ""},
    "a kind of 256 characters": {"kind": "k" * 256},
    "a kind that is None": {"kind": None},
    "a negative sequence": {"sequence": -1},
    "a sequence of 2**53": {"sequence": 2**53},
    "a sequence of 2**63": {"sequence": 2**63},
    "a sequence of 2**200": {"sequence": 2**200},
    "a sequence that is text": {"sequence": "1"},
    "a sequence that is None": {"sequence": None},
    "a sequence that is True": {"sequence": True},
    "a sequence that is a fraction": {"sequence": 0.5},
    "a timestamp without a zone": {"timestamp": datetime(2024, 1, 1)},
    "a timestamp in microseconds": {"timestamp": datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)},
    "a timestamp of another zone": {
        "timestamp": datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=2)))
    },
    "a timestamp before 1970": {"timestamp": datetime(1, 1, 1, tzinfo=UTC)},
    "a timestamp that is text": {"timestamp": "2024-01-01"},
    "a timestamp that is None": {"timestamp": None},
    "NaN in the payload": {"payload": [math.nan]},
    "an infinity in the payload": {"payload": {"x": math.inf}},
    "an integer of 2**53 in the payload": {"payload": 2**53},
    "an integer of 2**53 + 1 in the payload": {"payload": [2**53 + 1]},
    "an integer of 2**64 in the payload": {"payload": {"x": 2**64}},
    "an integer of 300 digits in the payload": {"payload": 10**300},
    "a lone surrogate in the payload": {"payload": "a\ud800"},
    "a lone surrogate in a key": {"payload": {"\udc00": 1}},
    "a key that is a number": {"payload": {1: "a"}},
    "a key that is None": {"payload": {None: 1}},
    "a key that is True": {"payload": {True: 1}},
    "bytes in the payload": {"payload": b"\xff"},
    "a datetime in the payload": {"payload": [datetime(2024, 1, 1, tzinfo=UTC)]},
    "a set in the payload": {"payload": {1, 2}},
    "an object in the payload": {"payload": _Foreign()},
    "metadata that are None": {"metadata": None},
    "metadata that are a list": {"metadata": [1]},
    "NaN in the metadata": {"metadata": {"x": math.nan}},
    "a fence of 0": {"metadata": {"fence": 0}},
    "a negative fence": {"metadata": {"fence": -1}},
    "a fence of True": {"metadata": {"fence": True}},
    "a fence that is text": {"metadata": {"fence": "1"}},
    "a fence that is a fraction": {"metadata": {"fence": 1.5}},
    "a fence that is a list": {"metadata": {"fence": [1]}},
}
"""Fields outside the domain, each by what is wrong with it."""

SUBCLASSED: Final[Mapping[str, Mapping[str, Any]]] = {
    "an execution id of a subclass of str": {"execution_id": NamedText("a"), "sequence": 0},
    "an envelope id of a subclass of str": {"id": NamedText("a")},
    "a kind of a subclass of str": {"kind": NamedText("k")},
    "a kind that is a member of an enumeration of str": {"kind": _Kind.DONE},
    "members of enumerations in the payload": {"payload": [_Kind.DONE, {"count": _Count.TWO}]},
    "a key of the payload that is a member of an enumeration": {"payload": {_Kind.DONE: 1}},
    "members of enumerations in the metadata": {"metadata": {"kind": _Kind.DONE, "n": _Count.TWO}},
}
"""Values of subclasses of the domain's classes: they are what they equal, not what they print."""

NOT_TOKENS: Final[tuple[object, ...]] = (0, -1, True, "1", 1.5, "", [], {}, 0.0, False)
"""What somebody's store took for a token; the suite adds the current token as text and as float."""


# --- strategies -------------------------------------------------------------------------------

SCALARS = st.characters(exclude_categories=["Cs"])
KEY_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")


def texts(longest: int) -> st.SearchStrategy[str]:
    """Ids and kinds of the domain, hard ones among them."""
    plain = st.text(KEY_CHARACTERS, min_size=1, max_size=min(longest, 20))
    hard = st.sampled_from([one for group in LOOKALIKES for one in group if len(one) <= longest])
    return plain | hard


def timestamps() -> st.SearchStrategy[datetime]:
    """Instants of the domain, in whole milliseconds."""
    latest = int((TIMESTAMPS[-1] - TIMESTAMPS[0]) / timedelta(milliseconds=1))
    anywhere = st.integers(0, latest).map(lambda ms: TIMESTAMPS[0] + timedelta(milliseconds=ms))
    return st.sampled_from(TIMESTAMPS) | anywhere


def json_values() -> st.SearchStrategy[Any]:
    """JSON values of the domain, hard ones among them."""
    leaves = (
        st.sampled_from(PAYLOADS)
        | st.text(SCALARS, max_size=20)
        | st.integers(-MAX_INTEGER, MAX_INTEGER)
        | st.floats(allow_nan=False, allow_infinity=False)
    )
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.text(SCALARS, max_size=8), inner, max_size=4)
        ),
        max_leaves=8,
    )


def metadata() -> st.SearchStrategy[dict[str, Any]]:
    """Metadata of the domain, without a fence."""
    free = st.dictionaries(
        st.text(SCALARS, max_size=8).filter(lambda key: key != "fence"), json_values(), max_size=3
    )
    return st.sampled_from(METADATA) | free
