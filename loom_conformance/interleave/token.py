"""A schedule as a short word that replays it: `lk1-7f3ak-AB4A3`.

The word holds the version of this notation, five characters of hash (two of the scenario, three
of the operations that the schedule met, in names that are the same on every backend), and the
choices: a letter for whose turn it was, with the length of its run.

A node's main task is its capital letter. Tasks that a node spawned are `a` to `r` and timers `s`
to `z`, each counted among those that can go on at that choice, by node and then by age. The start
of a node goes with its first step; where something comes between the two it stands apart, as `A0`.
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
_FORM: Final = re.compile(r"lk(\d+)-([0-9a-z]{2})([0-9a-z]{3})-((?:[A-Za-z]\d{0,4})*)")


class BadToken(ValueError):
    """A word is no token, or one of another version, scenario or program."""


@dataclass(frozen=True, slots=True)
class Token:
    """A schedule in letters.

    Attributes:
        scenario: two characters of hash of the scenario.
        shape: three of the operations met.
        turns: one entry a choice: a letter, or a letter and `"0"` for a start that stands apart.
    """

    scenario: str
    shape: str
    turns: tuple[str, ...]

    def __str__(self) -> str:
        word = ""
        for turn, run in groupby(self.turns):
            count = len(list(run))
            word += turn * count if turn.endswith("0") or count == 1 else f"{turn}{count}"
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
        turns: list[str] = []
        for letter, count in re.findall(r"([A-Za-z])(\d*)", runs):
            turns += [f"{letter}0"] if count == "0" else [letter] * int(count or 1)
        return cls(scenario, shape, tuple(turns))


def scenario_hash(name: str, nodes: int, variant: str) -> str:
    """Two characters that tell scenarios apart."""
    return _hash([name, nodes, variant], 2)


def shape_hash(turns: Sequence[str], trail: Iterable[Step]) -> str:
    """Three characters of whose turn it was and what each step did."""
    return _hash([list(turns), [step.key for step in trail]], 3)


def is_start(step: Step) -> bool:
    """Whether a step is the start of a node."""
    return isinstance(step.key, tuple) and step.key[0] == "start"


def turns_of(trail: Sequence[Step], choices: Sequence[Collection[Strand]]) -> list[str] | None:
    """A schedule in a token's letters, or `None` where there are too many strands for them.

    `choices` are the strands that could go on at each step.
    """
    turns: list[str] = []
    for index, (step, pending) in enumerate(zip(trail, choices, strict=False)):
        letter = letter_of(step.strand, pending)
        if letter is None:
            return None
        if not is_start(step):
            turns.append(letter)
        elif index + 1 == len(trail) or trail[index + 1].strand != step.strand:
            turns.append(f"{letter}0")
    return turns


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

    def __init__(self, turns: Sequence[str]) -> None:
        self.turns = turns
        self._left = 1
        self._place = 0

    @property
    def complete(self) -> bool:
        """One schedule is never all of them."""
        return False

    def begin(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def pick(self, pending: Mapping[Strand, Step], trail: Sequence[Step]) -> Strand:
        there = ", ".join(str(step) for _, step in sorted(pending.items()))
        if self._place == len(self.turns):
            raise Diverged(f"step {self._place + 1}", "the end of the run", there)
        turn = self.turns[self._place]
        strand = strand_of(turn[0], pending)
        if strand is None:
            raise Diverged(f"step {self._place + 1}", _whose(turn), f"only {there}")
        if len(turn) > 1 or not is_start(pending[strand]):
            self._place += 1
        return strand

    def finish(self, trail: Sequence[Step]) -> None:
        """Make sure that the run went on for as long as the token does.

        Raises:
            Diverged: it ended before.
        """
        if self._place < len(self.turns):
            expected = _whose(self.turns[self._place])
            raise Diverged(f"step {self._place + 1}", expected, "the end of the run")


def _whose(turn: str) -> str:
    return f"a step of node {turn[0]}" if turn[0].isupper() else f"a step of strand {turn[0]}"
