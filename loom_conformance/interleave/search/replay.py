"""One known schedule, led again and again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .step import Diverged, Step, Strand, follow, follow_to_end


class Replay:
    """Runs one schedule `times` times; any other step than the known one is a divergence."""

    def __init__(self, known: Sequence[Step], times: int = 1) -> None:
        self.known = known
        self._left = times

    @property
    def complete(self) -> bool:
        """One schedule is never all of them."""
        return False

    def begin(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def pick(self, pending: Mapping[Strand, Step], trail: Sequence[Step]) -> Strand:
        index = len(trail)
        if index == len(self.known):
            there = ", ".join(str(step) for _, step in sorted(pending.items()))
            raise Diverged(f"choice {index + 1}", "the end of the run", there)
        return follow(self.known[index], pending, index)

    def finish(self, trail: Sequence[Step]) -> None:
        follow_to_end(len(self.known), trail)
