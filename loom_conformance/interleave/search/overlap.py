"""Two runs in which the nodes overlap as much as they can: each takes one step in turn.

A reduced search relies on nodes that share nothing but the store, and leaves out the very orders
in which something else that they share would show. So it begins with these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .step import Step, Strand


class Overlap:
    """Round robin over the strands, once upwards and once downwards."""

    def __init__(self) -> None:
        self._downwards = [True, False]
        self._now = False

    @property
    def complete(self) -> bool:
        """Two schedules are not all of them."""
        return False

    def begin(self) -> bool:
        if not self._downwards:
            return False
        self._now = self._downwards.pop()
        return True

    def pick(self, pending: Mapping[Strand, Step], trail: Sequence[Step]) -> Strand:
        order = sorted(pending, reverse=self._now)
        last = trail[-1].strand if trail else None
        if last is None:
            return order[0]
        beyond = [strand for strand in order if (strand < last if self._now else strand > last)]
        return (beyond or order)[0]

    def finish(self, trail: Sequence[Step]) -> None:
        """There is nothing to learn."""
