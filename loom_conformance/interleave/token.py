"""A schedule as a short word that replays it: `lk1-7f3ak-A2B5A3`.

The word holds the version of this notation, five characters of hash (two of the scenario, three
of the operations that the schedule met, in names that are the same on every backend), and the
choices: a letter for whose turn it was, with the length of its run.

A node's main task is its capital letter. Tasks that a node spawned are `a` to `r` and timers `s`
to `z`, each counted among those that can go on at that choice, by node and then by age.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from .search.step import Diverged, Step, Strand

VERSION: Final = 1
"""Grows when the same letters would mean another schedule."""

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_SPAWNED: Final = "abcdefghijklmnopqr"
_TIMERS: Final = "stuvwxyz"
_FORM: Final = re.compile(r"lk(\d+)-([0-9a-z]{2})([0-9a-z]{3})-((?:[A-Za-z]\d*)*)")


class BadToken(ValueError):
    """A word is no token, or one of another version, scenario or program."""


@dataclass(frozen=True, slots=True)
class Token:
    """A schedule in letters.

    Attributes:
        scenario: two characters of hash of the scenario.
        shape: three of the operations met.
        letters: one letter a choice.
    """

    scenario: str
    shape: str
    letters: str

    def __str__(self) -> str:
        runs = [(letter, len(list(group))) for letter, group in groupby(self.letters)]
        word = "".join(letter if count == 1 else f"{letter}{count}" for letter, count in runs)
        return f"lk{VERSION}-{self.scenario}{self.shape}-{word}"

    def require(self, scenario: str, name: str) -> None:
        """Make sure that the token is of the scenario with this hash.

        Raises:
            BadToken: it is of another one.
        """
        if self.scenario != scenario:
            raise BadToken(f"{self} is a schedule of another scenario than {name!r}")

    @classmethod
    def parse(cls, word: str) -> Token:
        """Read a token.

        Raises:
            BadToken: it is none, or was written by another version of the kit.
        """
        match = _FORM.fullmatch(word.strip())
        if match is None:
            raise BadToken(
                f"{word!r} is no schedule token; one looks like lk{VERSION}-7f3ak-A2B5A3"
            )
        version, scenario, shape, runs = match.groups()
        if int(version) != VERSION:
            raise BadToken(
                f"{word} was written by a kit with tokens of version {version}, and this one has "
                f"version {VERSION}: replay it with that kit, or explore anew"
            )
        letters = "".join(
            letter * int(count or 1) for letter, count in re.findall(r"([A-Za-z])(\d*)", runs)
        )
        return cls(scenario, shape, letters)


def scenario_hash(name: str, nodes: int, variant: str) -> str:
    """Two characters that tell scenarios apart."""
    return _hash([name, nodes, variant], 2)


def shape_hash(letters: str, trail: Iterable[Step]) -> str:
    """Three characters of whose turn it was and what each step did."""
    return _hash([letters, [step.key for step in trail]], 3)


def _hash(value: object, length: int) -> str:
    text = json.dumps(value, default=str, ensure_ascii=True, separators=(",", ":"))
    number = int.from_bytes(hashlib.sha256(text.encode("ascii")).digest()[:8], "big")
    return "".join(_ALPHABET[number >> 5 * place & 31] for place in range(length))


def letter_of(strand: Strand, pending: Collection[Strand]) -> str | None:
    """The letter of a strand among those that can go on; `None` where there are too many."""
    node, number = strand
    if number == 0:
        return chr(ord("A") + node)
    letters, peers = _peers(pending, number)
    rank = peers.index(strand)
    return letters[rank] if rank < len(letters) else None


def strand_of(letter: str, pending: Collection[Strand]) -> Strand | None:
    """The strand that a letter names among those that can go on, or `None`."""
    if letter.isupper():
        main = (ord(letter) - ord("A"), 0)
        return main if main in pending else None
    letters, peers = _peers(pending, 1 if letter in _SPAWNED else -1)
    rank = letters.index(letter)
    return peers[rank] if rank < len(peers) else None


def _peers(pending: Collection[Strand], number: int) -> tuple[str, list[Strand]]:
    if number > 0:
        return _SPAWNED, sorted(strand for strand in pending if strand[1] > 0)
    return _TIMERS, sorted(
        (strand for strand in pending if strand[1] < 0), key=lambda one: (one[0], -one[1])
    )


class Spelled:
    """A strategy that follows the letters of a token."""

    def __init__(self, letters: str) -> None:
        self.letters = letters
        self._left = 1

    @property
    def complete(self) -> bool:
        """One schedule is never all of them."""
        return False

    def begin(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def pick(self, pending: Mapping[Strand, Step], trail: Sequence[Step]) -> Strand:
        place = len(trail)
        there = ", ".join(str(step) for _, step in sorted(pending.items()))
        if place >= len(self.letters):
            raise Diverged(place + 1, "the end of the run", there)
        letter = self.letters[place]
        strand = strand_of(letter, pending)
        if strand is None:
            who = f"a step of node {letter}" if letter.isupper() else f"strand {letter}"
            raise Diverged(place + 1, who, f"only {there}")
        return strand

    def finish(self, trail: Sequence[Step]) -> None:
        if len(trail) < len(self.letters):
            letter = self.letters[len(trail)]
            raise Diverged(len(trail) + 1, f"a step of {letter}", "the end of the run")
