"""The lease stores, on every backend; time passes by `age_leases`, never by waiting."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from backends_support import Place

from loom_conformance.backend import Aging, Leasing
from loom_conformance.spi import LeaseStore, StoreClosedError

pytestmark = pytest.mark.asyncio

HOUR = 3600.0


async def connect(place: Place) -> LeaseStore:
    assert isinstance(place.backend, Leasing)
    return await place.backend.connect_leases(place.address)


async def age(place: Place, seconds: float) -> None:
    assert isinstance(place.backend, Aging)
    await place.backend.age_leases(place.address, seconds)


@pytest_asyncio.fixture
async def leases(place: Place) -> AsyncIterator[LeaseStore]:
    store = await connect(place)
    yield store
    await store.close()


async def test_a_live_lease_is_claimed_once(place: Place, leases: LeaseStore) -> None:
    other = await connect(place)
    assert await leases.claim("wake@7", "node a", HOUR)
    assert not await other.claim("wake@7", "node b", HOUR)
    assert not await leases.claim("wake@7", "node a", HOUR)
    assert await other.claim("Wake@7", "node b", HOUR)
    assert await other.claim("wake@7 ", "node b", HOUR)
    await other.close()


async def test_simultaneous_claims_have_one_winner(place: Place) -> None:
    stores = await asyncio.gather(*(connect(place) for _ in range(4)))
    for number in range(10):
        claims = [
            store.claim(f"wake@{number}", f"node {n}.{task}", HOUR)
            for n, store in enumerate(stores)
            for task in range(3)
        ]
        assert sorted(await asyncio.gather(*claims)) == [False] * 11 + [True]
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_lease_ends_with_its_time_to_live(place: Place, leases: LeaseStore) -> None:
    assert await leases.claim("wake@7", "node a", HOUR)
    await age(place, HOUR / 2)
    assert not await leases.claim("wake@7", "node b", HOUR)
    await age(place, HOUR / 2)
    assert not await leases.renew("wake@7", "node a", HOUR)
    assert not await leases.release("wake@7", "node a")
    assert await leases.claim("wake@7", "node b", HOUR)
    assert not await leases.renew("wake@7", "node a", HOUR)
    assert not await leases.release("wake@7", "node a")
    assert not await leases.claim("wake@7", "node c", HOUR)
    assert await leases.renew("wake@7", "node b", HOUR)


async def test_a_renewal_counts_from_now(place: Place, leases: LeaseStore) -> None:
    assert await leases.claim("wake@7", "node a", HOUR)
    await age(place, HOUR * 0.75)
    assert not await leases.renew("wake@7", "node b", 9 * HOUR)
    assert await leases.renew("wake@7", "node a", HOUR)
    await age(place, HOUR * 0.75)
    assert not await leases.claim("wake@7", "node b", HOUR)
    assert await leases.renew("wake@7", "node a", HOUR / 10)
    await age(place, HOUR / 10)
    assert await leases.claim("wake@7", "node b", HOUR)


async def test_a_released_lease_is_free_at_once(leases: LeaseStore) -> None:
    assert await leases.claim("wake@7", "node a", HOUR)
    assert not await leases.release("wake@7", "node b")
    assert not await leases.release("wake@7", "Node a")
    assert not await leases.claim("wake@7", "node b", HOUR)
    assert await leases.release("wake@7", "node a")
    assert not await leases.release("wake@7", "node a")
    assert not await leases.renew("wake@7", "node a", HOUR)
    assert await leases.claim("wake@7", "node b", HOUR)


async def test_a_claim_survives_its_handle(place: Place, leases: LeaseStore) -> None:
    first = await connect(place)
    assert await first.claim("wake@7", "node a", HOUR)
    await first.close()
    await first.close()
    assert not await leases.claim("wake@7", "node b", HOUR)
    assert await leases.renew("wake@7", "node a", HOUR)
    with pytest.raises(StoreClosedError):
        await first.renew("wake@7", "node a", HOUR)


@pytest.mark.parametrize("ttl", [0, -1, math.nan, math.inf, True, "1", None, 10**400])
async def test_a_time_to_live_that_is_none_is_refused(leases: LeaseStore, ttl: object) -> None:
    assert await leases.claim("held", "node a", HOUR)
    with pytest.raises(ValueError, match="ttl"):
        await leases.claim("wake@7", "node a", ttl)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ttl"):
        await leases.renew("held", "node a", ttl)  # type: ignore[arg-type]
    assert await leases.claim("wake@7", "node b", HOUR)
    assert await leases.renew("held", "node a", 1e300)


@pytest.mark.parametrize("text", ["", "a\x00b", "\ud800", "x" * 256, None])
async def test_names_and_holders_have_a_domain(leases: LeaseStore, text: object) -> None:
    for call in (
        leases.claim(text, "node a", HOUR),  # type: ignore[arg-type]
        leases.claim("wake@7", text, HOUR),  # type: ignore[arg-type]
        leases.renew("wake@7", text, HOUR),  # type: ignore[arg-type]
        leases.release(text, "node a"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=r"name|holder"):
            await call
