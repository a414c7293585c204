"""The leases of one process: the rules LEASE-1 to LEASE-6 and LEASE-10, by a clock at hand."""

from __future__ import annotations

import math

import pytest

from loom_conformance.runtime.leases import LeaseTable, LocalLeaseStore
from loom_conformance.spi import StoreClosedError

pytestmark = pytest.mark.asyncio


class Hand:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


async def test_one_holder_at_a_time_until_the_lease_ends() -> None:
    now = Hand()
    table = LeaseTable(now)
    one, two = LocalLeaseStore(table), LocalLeaseStore(table)
    assert await one.claim("fire", "A", 10)
    assert not await two.claim("fire", "B", 10)
    assert not await one.claim("fire", "A", 10)
    assert await two.claim("other", "B", 10)
    now.seconds = 9.9
    assert await two.renew("fire", "A", 10)
    now.seconds = 19.8
    assert not await two.renew("fire", "B", 10)
    now.seconds = 19.9
    assert not await one.renew("fire", "A", 10)
    assert not await one.release("fire", "A")
    assert await two.claim("fire", "B", 10)
    assert not await one.release("fire", "A")
    assert await two.release("fire", "B")
    assert not await two.release("fire", "B")
    assert await one.claim("fire", "A", 10)


async def test_a_claim_survives_its_handle() -> None:
    table = LeaseTable(Hand())
    leaving = LocalLeaseStore(table)
    assert await leaving.claim("fire", "A", 10)
    await leaving.close()
    await leaving.close()
    with pytest.raises(StoreClosedError):
        await leaving.renew("fire", "A", 10)
    assert await LocalLeaseStore(table).release("fire", "A")


@pytest.mark.parametrize("ttl", [0, -1, math.nan, math.inf, True, "60", None])
async def test_a_time_to_live_that_is_none_is_refused(ttl: float) -> None:
    leases = LocalLeaseStore(LeaseTable(Hand()))
    with pytest.raises(ValueError, match="ttl must be"):
        await leases.claim("fire", "A", ttl)
    assert await leases.claim("fire", "A", 1)
    with pytest.raises(ValueError, match="ttl must be"):
        await leases.renew("fire", "A", ttl)


@pytest.mark.parametrize("name", ["", "x" * 256, "a\x00b", "\ud800"])
async def test_a_name_that_is_none_is_refused(name: str) -> None:
    leases = LocalLeaseStore(LeaseTable(Hand()))
    with pytest.raises(ValueError, match="name"):
        await leases.claim(name, "A", 1)
    with pytest.raises(ValueError, match="holder"):
        await leases.claim("fire", name, 1)
