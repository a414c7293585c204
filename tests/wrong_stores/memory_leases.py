"""Wrong lease stores over the memory backend."""

from __future__ import annotations

import math
import time
from typing import Any

from loom_backends.leases import check_lease, check_ttl
from loom_backends.memory import Lease, MemoryLeaseStore, MemoryStorage

from .memory_base import PrivateMemory, Volume, turn
from .registry import wrong


def _over(claim: str, leases: type[MemoryLeaseStore]) -> None:
    members = {"leases": leases, "__module__": leases.__module__}
    wrong(claim)(type(f"{leases.__name__}Backend", (PrivateMemory,), members))


class ClaimReplaces(MemoryLeaseStore):
    """Lets a claim take a live lease over, by an upsert without a condition."""

    async def claim(self, name: str, holder: str, ttl: float, /) -> bool:
        self._check_open()
        check_lease(name, holder)
        self.storage.leases[name] = Lease(holder, time.monotonic() + check_ttl(ttl))
        return True


class OwnClaimIsARenewal(MemoryLeaseStore):
    """Grants a holder the lease that it has, so that two of its threads both have it."""

    async def claim(self, name: str, holder: str, ttl: float, /) -> bool:
        if await super().claim(name, holder, ttl):
            return True
        return await self.renew(name, holder, ttl)


class RefusedClaimMovesTheEnd(MemoryLeaseStore):
    """Writes the new end before it looks at the holder."""

    async def claim(self, name: str, holder: str, ttl: float, /) -> bool:
        granted = await super().claim(name, holder, ttl)
        self.storage.leases[name].ends = time.monotonic() + ttl
        return granted


class ClaimReadThenWritten(MemoryLeaseStore):
    """Looks whether the lease is free, and takes it a turn later."""

    async def claim(self, name: str, holder: str, ttl: float, /) -> bool:
        self._check_open()
        check_lease(name, holder)
        seconds = check_ttl(ttl)
        free = self._live(name) is None
        await turn()
        if free:
            self.storage.leases[name] = Lease(holder, time.monotonic() + seconds)
        return free


class LeaseNeverEnds(MemoryLeaseStore):
    """Has a row a lease and deletes it at release only: a dead holder's lease stays."""

    async def claim(self, name: str, holder: str, ttl: float, /) -> bool:
        self._check_open()
        check_lease(name, holder)
        ends = time.monotonic() + check_ttl(ttl)
        if name in self.storage.leases:
            return False
        self.storage.leases[name] = Lease(holder, ends)
        return True


class ExpiredLeaseIsRenewed(MemoryLeaseStore):
    """Renews by holder alone, though the lease has ended."""

    async def renew(self, name: str, holder: str, ttl: float, /) -> bool:
        self._check_open()
        check_lease(name, holder)
        ends = time.monotonic() + check_ttl(ttl)
        lease = self.storage.leases.get(name)
        if lease is None or lease.holder != holder:
            return False
        lease.ends = ends
        return True


class RenewalDoesNothing(MemoryLeaseStore):
    """Answers a renewal and leaves the end where it was."""

    async def renew(self, name: str, holder: str, ttl: float, /) -> bool:
        self._check_open()
        check_lease(name, holder)
        check_ttl(ttl)
        lease = self._live(name)
        return lease is not None and lease.holder == holder


class RenewalAddsUp(MemoryLeaseStore):
    """Adds the time to live to the old end instead of to now."""

    async def renew(self, name: str, holder: str, ttl: float, /) -> bool:
        lease = self._live(name)
        before = lease.ends if lease is not None else 0.0
        granted = await super().renew(name, holder, ttl)
        if granted:
            self.storage.leases[name].ends = before + ttl
        return granted


class AnyoneRenews(MemoryLeaseStore):
    """Renews whoever's lease it is."""

    async def renew(self, name: str, holder: str, ttl: float, /) -> bool:
        check_lease(name, holder)
        lease = self._live(name)
        return await super().renew(name, lease.holder if lease is not None else holder, ttl)


class AnyoneReleases(MemoryLeaseStore):
    """Releases by name alone."""

    async def release(self, name: str, holder: str, /) -> bool:
        check_lease(name, holder)
        lease = self._live(name)
        return await super().release(name, lease.holder if lease is not None else holder)


class ReleaseWaitsForTheEnd(MemoryLeaseStore):
    """Marks the lease as released and lets its time run out."""

    storage: Volume

    async def release(self, name: str, holder: str, /) -> bool:
        self._check_open()
        check_lease(name, holder)
        lease = self._live(name)
        if lease is None or lease.holder != holder or lease is self.storage.notes.get(name):
            return False
        self.storage.notes[name] = lease
        return True

    async def renew(self, name: str, holder: str, ttl: float, /) -> bool:
        check_lease(name, holder)
        check_ttl(ttl)
        if self._live(name) is not None and self._live(name) is self.storage.notes.get(name):
            return False
        return await super().renew(name, holder, ttl)


class LeaseEndsWithTheHandle(MemoryLeaseStore):
    """Ties the lease to the connection, as an advisory lock is."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._own: set[str] = set()

    async def claim(self, name: str, holder: str, ttl: float, /) -> bool:
        granted = await super().claim(name, holder, ttl)
        if granted:
            self._own.add(name)
        return granted

    async def close(self) -> None:
        await super().close()
        for name in self._own:
            self.storage.leases.pop(name, None)
        self._own.clear()


class LeaseNamesFold(MemoryLeaseStore):
    """Compares names without regard to case."""

    async def claim(self, name: str, holder: str, ttl: float, /) -> bool:
        check_lease(name, holder)
        return await super().claim(f"{name.casefold()}."[-255:], holder, ttl)

    async def renew(self, name: str, holder: str, ttl: float, /) -> bool:
        check_lease(name, holder)
        return await super().renew(f"{name.casefold()}."[-255:], holder, ttl)

    async def release(self, name: str, holder: str, /) -> bool:
        check_lease(name, holder)
        return await super().release(f"{name.casefold()}."[-255:], holder)


class LeaseHoldersFold(MemoryLeaseStore):
    """Compares holders without regard to case and spaces."""

    async def claim(self, name: str, holder: str, ttl: float, /) -> bool:
        check_lease(name, holder)
        return await super().claim(name, f"{holder.casefold().strip()}."[-255:], ttl)

    async def renew(self, name: str, holder: str, ttl: float, /) -> bool:
        check_lease(name, holder)
        return await super().renew(name, f"{holder.casefold().strip()}."[-255:], ttl)

    async def release(self, name: str, holder: str, /) -> bool:
        check_lease(name, holder)
        return await super().release(name, f"{holder.casefold().strip()}."[-255:])


class ZeroTtlIsForEver(MemoryLeaseStore):
    """Takes a time to live of 0 for "no end"."""

    async def claim(self, name: str, holder: str, ttl: Any, /) -> bool:
        return await super().claim(name, holder, 10**9 if ttl == 0 else ttl)


class TtlInMilliseconds(MemoryLeaseStore):
    """Takes the time to live for milliseconds."""

    async def claim(self, name: str, holder: str, ttl: float, /) -> bool:
        return await super().claim(name, holder, check_ttl(ttl) / 1000)

    async def renew(self, name: str, holder: str, ttl: float, /) -> bool:
        return await super().renew(name, holder, check_ttl(ttl) / 1000)


class TtlInWholeSeconds(MemoryLeaseStore):
    """Keeps the time to live in a column of whole seconds, rounded up."""

    async def claim(self, name: str, holder: str, ttl: float, /) -> bool:
        return await super().claim(name, holder, math.ceil(check_ttl(ttl)))


class TtlOfADayAtMost(MemoryLeaseStore):
    """Cuts a time to live to a day, as a service does that has a longest lease."""

    async def claim(self, name: str, holder: str, ttl: float, /) -> bool:
        return await super().claim(name, holder, min(check_ttl(ttl), 24 * 3600))


_over("lease-claim-replaces", ClaimReplaces)
_over("lease-own-claim-is-a-renewal", OwnClaimIsARenewal)
_over("lease-refused-claim-moves-the-end", RefusedClaimMovesTheEnd)
_over("lease-claim-read-then-written", ClaimReadThenWritten)
_over("lease-never-ends", LeaseNeverEnds)
_over("lease-expired-is-renewed", ExpiredLeaseIsRenewed)
_over("lease-renewal-does-nothing", RenewalDoesNothing)
_over("lease-renewal-adds-up", RenewalAddsUp)
_over("lease-anyone-renews", AnyoneRenews)
_over("lease-anyone-releases", AnyoneReleases)
_over("lease-release-waits-for-the-end", ReleaseWaitsForTheEnd)
_over("lease-ends-with-the-handle", LeaseEndsWithTheHandle)
_over("lease-names-fold", LeaseNamesFold)
_over("lease-holders-fold", LeaseHoldersFold)
_over("lease-zero-ttl-is-for-ever", ZeroTtlIsForEver)
_over("lease-ttl-in-milliseconds", TtlInMilliseconds)
_over("lease-ttl-in-whole-seconds", TtlInWholeSeconds)
_over("lease-ttl-of-a-day-at-most", TtlOfADayAtMost)
