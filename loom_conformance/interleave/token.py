"""A schedule as a short word that replays it: `lk1-7f3ak-AB4A3`.

The word holds the version of this notation, five characters of hash (two of the scenario, three
of the operations that the schedule met, in names that are the same on every backend), and the
choices: a letter for whose turn it was, with the length of its run.

A node's main task is its capital letter. Tasks that a node spawned are `a` to `r` and timers `s`
to `z`, each counted among those that can go on at that choice, by node and then by age.

A node's start is not written where it follows from the next letter: a node that has not started
does so before its first step, and where a small letter names nothing yet, the first node that has
not started does. Where it does not follow it stands apart, as `A0`.

A word that would be long ends in `~` where the rest is what goes on without being asked: the same
strand as long as it can, then the first that can. If it is long still, it has no hyphens.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeAlias

from .search.bounded import calls_first
from .search.step import Diverged, Step, Strand, Strategy, preempts

Pending: TypeAlias = Mapping[Strand, Step]

VERSION: Final = 1
"""Grows when the same letters would mean another schedule."""

LONGEST: Final = 20
"""How many characters a token has, if its end can be left out."""

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_SPAWNED: Final = "abcdefghijklmnopqr"
_TIMERS: Final = "stuvwxyz"
_PARTS: Final = (
    r"(?P<scenario>[0-9a-z]{2})(?P<shape>[0-9a-z]{3})%s"
    r"(?P<turns>(?:[A-Za-z]\d{0,4})*)(?P<open>~?)"
)
_FORMS: Final = (
    re.compile(r"lk(?P<version>\d+)-" + _PARTS % "-"),
    re.compile(r"lk(?P<version>\d)" + _PARTS % ""),
)


class BadToken(ValueError):
    """A word is no token, or one of another version, scenario or program."""


@dataclass(frozen=True, slots=True)
class Token:
    """A schedule in letters.

    Attributes:
        scenario: two characters of hash of the scenario.
        shape: three of the operations met.
        turns: one entry a choice: a letter, or a letter and `"0"` for a start that stands apart.
        open: the run goes on after the last of them.
    """

    scenario: str
    shape: str
    turns: tuple[str, ...]
    open: bool = False

    def __str__(self) -> str:
        word = ""
        for turn, run in groupby(self.turns):
            count = len(list(run))
            word += turn * count if turn.endswith("0") or count == 1 else f"{turn}{count}"
        end = "~" if self.open else ""
        token = f"lk{VERSION}-{self.scenario}{self.shape}-{word}{end}"
        return token if len(token) <= LONGEST else token.replace("-", "")

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
        word = word.strip()
        match = _FORMS[0].fullmatch(word) or _FORMS[1].fullmatch(word)
        if match is None:
            raise BadToken(
                f"{word!r} is no schedule token; one looks like lk{VERSION}-7f3ak-A2B5A3"
            )
        version = match["version"]
        if int(version) != VERSION:
            raise BadToken(
                f"{word} was written by a kit with tokens of version {version}, and this one has "
                f"version {VERSION}: replay it with that kit, or explore anew"
            )
        turns: list[str] = []
        for letter, count in re.findall(r"([A-Za-z])(\d*)", match["turns"]):
            turns += [f"{letter}0"] if count == "0" else [letter] * int(count or 1)
        return cls(match["scenario"], match["shape"], tuple(turns), bool(match["open"]))


def scenario_hash(name: str, nodes: int, variant: str) -> str:
    """Two characters that tell scenarios apart."""
    return _hash([name, nodes, variant], 2)


def shape_hash(turns: Sequence[str], trail: Iterable[Step]) -> str:
    """Three characters of whose turn it was and what each step did."""
    return _hash([list(turns), [step.key for step in trail]], 3)


def _hash(value: object, length: int) -> str:
    text = json.dumps(value, default=str, ensure_ascii=True, separators=(",", ":"))
    number = int.from_bytes(hashlib.sha256(text.encode("ascii")).digest()[:8], "big")
    return "".join(_ALPHABET[number >> 5 * place & 31] for place in range(length))


def is_start(step: Step) -> bool:
    """Whether a step is the start of a node."""
    return isinstance(step.key, tuple) and step.key[0] == "start"


def turns_of(trail: Sequence[Step], choices: Sequence[Pending]) -> list[str] | None:
    """A schedule in a token's letters, or `None` where there are too many strands for them.

    `choices` are what could go on at each step.
    """
    turns: list[str] = []
    for step, pending in zip(reversed(trail), reversed(choices[: len(trail)]), strict=True):
        letter = letter_of(step.strand, pending)
        if letter is None:
            return None
        if not is_start(step):
            turns.append(letter)
        elif not turns or meant(turns[-1], pending) != (step.strand, False):
            turns.append(f"{letter}0")
    return turns[::-1]


def meant(turn: str, pending: Pending) -> tuple[Strand | None, bool]:
    """The strand that goes on for a turn, and whether that uses the turn up."""
    strand = strand_of(turn[0], pending)
    if strand is None and turn[0].islower():
        waiting = [one for one, step in pending.items() if is_start(step)]
        return (min(waiting) if waiting else None), False
    if strand is not None and is_start(pending[strand]):
        return strand, len(turn) > 1
    return strand, True


def told(scenario: str, trail: Sequence[Step], choices: Sequence[Pending]) -> Token | None:
    """The token of a schedule, with its usual end left out where it would be too long."""
    turns = turns_of(trail, choices)
    if turns is None:
        return None
    shape = shape_hash(turns, trail)
    token = Token(scenario, shape, tuple(turns))
    if "-" in str(token):
        return token
    usual = len(trail)
    while usual and going_on(trail[: usual - 1], choices[usual - 1]) == trail[usual - 1].strand:
        usual -= 1
    short = turns_of(trail[:usual], choices)
    return token if short is None else Token(scenario, shape, tuple(short), open=True)


def going_on(trail: Sequence[Step], pending: Pending) -> Strand:
    """The strand that goes on where nobody says otherwise."""
    if trail and trail[-1].strand in pending:
        return trail[-1].strand
    return min(pending, key=calls_first)


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
    """A strategy that follows the letters of a token, and keeps what could be chosen."""

    def __init__(self, token: Token) -> None:
        self.choices: list[Pending] = []
        self._token = token
        self._left = 1
        self._place = 0

    @property
    def complete(self) -> bool:
        """One schedule is never all of them."""
        return False

    def begin(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def pick(self, pending: Pending, trail: Sequence[Step]) -> Strand:
        self.choices.append(dict(pending))
        turns = self._token.turns
        there = ", ".join(str(step) for _, step in sorted(pending.items()))
        if self._place == len(turns):
            if self._token.open:
                return going_on(trail, pending)
            raise Diverged(f"step {self._place + 1}", "the end of the run", there)
        strand, used = meant(turns[self._place], pending)
        if strand is None:
            expected = _whose(turns[self._place])
            raise Diverged(f"step {self._place + 1}", expected, f"only {there}")
        self._place += used
        return strand

    def finish(self, trail: Sequence[Step]) -> None:
        """Make sure that the run was the one that the token stands for.

        Raises:
            Diverged: it ended before, or met other operations.
        """
        turns = self._token.turns
        if self._place < len(turns):
            expected = _whose(turns[self._place])
            raise Diverged(f"step {self._place + 1}", expected, "the end of the run")
        if shape_hash(turns_of(trail, self.choices) or (), trail) != self._token.shape:
            met = ", ".join(str(step) for step in trail if not is_start(step))
            raise Diverged("the end", "the operations that the token was made of", met)


def _whose(turn: str) -> str:
    return f"a step of node {turn[0]}" if turn[0].isupper() else f"a step of strand {turn[0]}"


class Recorder:
    """Follows a strategy and keeps what could be chosen at each step."""

    def __init__(self, inner: Strategy) -> None:
        self.inner = inner
        self.choices: list[Pending] = []

    def begin(self) -> bool:
        self.choices = []
        return self.inner.begin()

    def pick(self, pending: Pending, trail: Sequence[Step]) -> Strand | None:
        self.choices.append(dict(pending))
        return self.inner.pick(pending, trail)

    def finish(self, trail: Sequence[Step]) -> None:
        self.inner.finish(trail)

    def preemptions(self, trail: Sequence[Step]) -> int:
        """How often the turn was taken from a strand that could have gone on."""
        return sum(
            preempts(before.strand, step.strand, there)
            for before, step, there in zip(trail, trail[1:], self.choices[1:], strict=False)
        )
