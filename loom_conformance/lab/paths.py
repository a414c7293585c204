"""The ways in: every write rule is tried on each of them.

A path says by which method an envelope is written, at which place of a batch, and whether the
coalescing decorator stands in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

Place = Literal["alone", "first", "middle", "last"]


@dataclass(frozen=True, slots=True)
class WritePath:
    """One way to write an envelope.

    Attributes:
        name: the path's name in parameters, reports and replay commands.
        batch: whether the envelope goes through `append_batch`.
        place: where it stands among its company in a batch.
        coalesced: whether the coalescing decorator stands between the caller and the store.
    """

    name: str
    batch: bool
    place: Place
    coalesced: bool

    @property
    def shares_flushes(self) -> bool:
        """Whether simultaneous writes on one handle may share one fate (COAL-2)."""
        return self.coalesced and not self.batch

    @property
    def stands_for_others(self) -> bool:
        """Whether the others of its kind differ from it by their company in a batch only."""
        return self.place == ("middle" if self.batch else "alone")

    def __str__(self) -> str:
        return self.name


def _paths() -> Iterable[WritePath]:
    places: tuple[Place, ...] = ("alone", "first", "middle", "last")
    for coalesced in (False, True):
        prefix = "coalesced-" if coalesced else ""
        yield WritePath(f"{prefix}append", False, "alone", coalesced)
        for place in places:
            name = "of-one" if place == "alone" else place
            yield WritePath(f"{prefix}batch-{name}", True, place, coalesced)


WRITE_PATHS: Final[tuple[WritePath, ...]] = tuple(_paths())

APPEND: Final = WRITE_PATHS[0]
"""The plain `append`, by which set-up is written."""
