"""What each operation touches, in names that are the same in every run and on every backend.

Two operations are independent when they are of different nodes and share no resource that one of
them writes. An operation that is not known here is taken to write everything.

| operation | reads | writes |
|---|---|---|
| `append`, `append_batch` | `fence:<execution>` | `log:<execution>`, `id:<envelope id>` |
| `read_from`, `read_range` | `log:<execution>` | |
| `acquire_fence` | | `fence:<execution>` |
| `claim`, `renew`, `release` | | `lease:<name>`, `time` |
| a timer that fires | `time` | |
| an effect | | `effect:<name>` |
| the start of a node | | |

Firing timers move the storage's time to a maximum, so they commute with each other and not with
the lease calls that look at it: hence the timer is the reader here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from .search.step import EVERYTHING

Touched: TypeAlias = tuple[int, int]
"""The resources that an operation reads, and those that it writes, as bits."""

NOTHING: Touched = (0, 0)
ANYTHING: Touched = (0, EVERYTHING)


class Resources:
    """Gives each resource a bit, and remembers what each operation touches."""

    def __init__(self, envelope_ids: Literal["store", "execution"]) -> None:
        self._ids_are_global = envelope_ids == "store"
        self._bits: dict[str, int] = {}
        self._known: dict[tuple[str, str, str], Touched] = {}

    def bit(self, name: str) -> int:
        """The bit of one resource."""
        bit = self._bits.get(name)
        if bit is None:
            bit = self._bits[name] = 1 << len(self._bits)
        return bit

    def write(self, execution_id: str, envelope_id: str) -> Touched:
        """What storing one envelope touches."""
        key = ("write", execution_id, envelope_id)
        known = self._known.get(key)
        if known is None:
            writes = self.bit(f"log:{execution_id}")
            if self._ids_are_global:
                writes |= self.bit(f"id:{envelope_id}")
            known = self._known[key] = (self.bit(f"fence:{execution_id}"), writes)
        return known

    def writes(self, envelopes: Iterable[tuple[str, str]]) -> Touched:
        """What storing several envelopes at once touches; each is its execution and its id."""
        reads = writes = 0
        for execution_id, envelope_id in envelopes:
            one = self.write(execution_id, envelope_id)
            reads |= one[0]
            writes |= one[1]
        return reads, writes

    def read(self, execution_id: str) -> Touched:
        """What reading an execution touches."""
        key = ("read", execution_id, "")
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = (self.bit(f"log:{execution_id}"), 0)
        return known

    def fence(self, execution_id: str) -> Touched:
        """What acquiring a fence touches."""
        return 0, self.bit(f"fence:{execution_id}")

    def lease(self, name: str) -> Touched:
        """What a lease call touches."""
        return 0, self.bit(f"lease:{name}") | self.bit("time")

    def timer(self) -> Touched:
        """What a timer that fires touches."""
        return self.bit("time"), 0

    def effect(self, name: str) -> Touched:
        """What an effect touches."""
        return 0, self.bit(f"effect:{name}")
