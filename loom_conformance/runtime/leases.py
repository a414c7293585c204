"""Leases within one process, for stores that keep none."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ..spi import StoreClosedError, check_key


@dataclass(frozen=True, slots=True)
class Held:
    """A claim: whose it is, and when it ends by the table's clock, in seconds."""

    holder: str
    ends: float


@dataclass(slots=True)
class LeaseTable:
    """What all handles of one process share.

    Attributes:
        now: the one clock that judges every lease, in seconds.
        held: the claims by name, ended ones included.
    """

    now: Callable[[], float] = time.monotonic
    held: dict[str, Held] = field(default_factory=dict)


class LocalLeaseStore:
    """A `LeaseStore` on a table in memory."""

    def __init__(self, table: LeaseTable) -> None:
        self._table: LeaseTable | None = table

    async def claim(self, name: str, holder: str, ttl: float, /) -> bool:
        """Take the lease if nobody's is live, the holder's own included."""
        table = self._checked(name, holder)
        ends = table.now() + _checked_ttl(ttl)
        if self._live(table, name) is not None:
            return False
        table.held[name] = Held(holder, ends)
        return True

    async def renew(self, name: str, holder: str, ttl: float, /) -> bool:
        """Let a live lease of the holder's end `ttl` seconds from now."""
        table = self._checked(name, holder)
        ends = table.now() + _checked_ttl(ttl)
        if self._live(table, name) != holder:
            return False
        table.held[name] = Held(holder, ends)
        return True

    async def release(self, name: str, holder: str, /) -> bool:
        """End a live lease of the holder's."""
        table = self._checked(name, holder)
        if self._live(table, name) != holder:
            return False
        del table.held[name]
        return True

    async def close(self) -> None:
        """Release the handle, not the leases."""
        self._table = None

    def _live(self, table: LeaseTable, name: str) -> str | None:
        held = table.held.get(name)
        return held.holder if held is not None and held.ends > table.now() else None

    def _checked(self, name: str, holder: str) -> LeaseTable:
        check_key("name", name)
        check_key("holder", holder)
        if self._table is None:
            raise StoreClosedError
        return self._table


def _checked_ttl(ttl: float) -> float:
    given: object = ttl
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ValueError(f"ttl must be a number of seconds, not {given!r}")
    if not (math.isfinite(given) and given > 0):
        raise ValueError(f"ttl must be finite and greater than 0, not {given!r}")
    return float(given)
