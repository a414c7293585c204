"""Schedules, timers and leases: D4 and L12 of ADR 0103."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from runtime_support import RecordedStore, World, kinds, settle

from loom_conformance.runtime import Leases, Schedule, StorageWriteError, Timer, TimerService
from loom_conformance.spi import EventStoreError, StaleFenceError

pytestmark = pytest.mark.asyncio

DAILY = Schedule("daily", "audit")
PAUSE = Timer("nap@1", "pause")


@dataclass
class RecordedLeases:
    """Leases in memory that end only by release or by hand."""

    timeline: list[str]
    holders: dict[str, str] = field(default_factory=dict)
    broken: Exception | None = None

    async def claim(self, name: str, holder: str, ttl: float, /) -> bool:
        self.timeline.append(f"claim {name} {holder} {ttl:g}")
        return self.holders.setdefault(name, holder) == holder

    async def renew(self, name: str, holder: str, ttl: float, /) -> bool:
        self.timeline.append(f"renew {name} {holder} {ttl:g}")
        if self.broken is not None:
            raise self.broken
        return self.holders.get(name) == holder

    async def release(self, name: str, holder: str, /) -> bool:
        self.timeline.append(f"release {name} {holder}")
        return self.holders.pop(name, None) == holder

    async def close(self) -> None:
        self.timeline.append("close leases")


def service(world: World, **options: object) -> TimerService:
    return TimerService(world.runtime(), world.clock, on_error=world.errors.append, **options)  # type: ignore[arg-type]


async def asleep(world: World) -> None:
    await (await world.runtime().start("nap", execution_id="nap@1")).finished()
    world.store.timeline.clear()


# --- Starts -------------------------------------------------------------------------------------


async def test_an_occurrence_is_started_under_its_own_id() -> None:
    world = World()
    handle = await service(world).start_occurrence(DAILY, "2026-01-01")
    assert handle is not None
    assert handle.execution_id == "daily@2026-01-01"
    await handle.finished()
    assert world.effects == ["audit", "report"]


async def test_a_started_occurrence_costs_one_look() -> None:
    world = World()
    handle = await service(world).start_occurrence(DAILY, "1")
    assert handle is not None
    await handle.finished()
    world.store.timeline.clear()
    assert await service(world).start_occurrence(DAILY, "1") is None
    assert world.store.timeline == ["read_from daily@1 0"]


async def test_a_node_that_lost_the_race_returns_and_tells_no_error() -> None:
    world = World()

    class LooksTooEarly(TimerService):
        async def looks_started(self, execution_id: str) -> bool:
            return False

    winner = await service(world).start_occurrence(DAILY, "1")
    assert winner is not None
    loser = LooksTooEarly(world.runtime(), world.clock, on_error=world.errors.append)
    assert await loser.start_occurrence(DAILY, "1") is None
    await winner.finished()
    assert world.errors == []
    assert world.effects == ["audit", "report"]


@pytest.mark.parametrize("fenced", [False, True])
async def test_a_start_acquires_no_fence_in_either_mode(fenced: bool) -> None:
    world = World()
    handle = await service(world, fenced=fenced).start_occurrence(DAILY, "1")
    assert handle is not None
    await handle.finished()
    assert world.store.fences == {}
    assert all("fence" not in each.metadata for each in world.store.logs["daily@1"])


async def test_a_start_that_failed_is_told_to_on_error() -> None:
    world = World(RecordedStore(refusals=[EventStoreError("no route")]))
    assert await service(world).start_occurrence(DAILY, "1") is None
    told, reported = world.errors
    assert told is reported
    assert isinstance(told, StorageWriteError)


# --- Fires --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fenced", "metadata"), [(False, {}), (True, {"fence": 1})])
async def test_a_fire_wakes_the_execution_and_fences_if_told_to(
    fenced: bool, metadata: dict[str, int]
) -> None:
    world = World()
    await asleep(world)
    state = await service(world, fenced=fenced).fire(PAUSE)
    assert state is not None
    assert state.status == "completed"
    assert kinds(world.store.logs["nap@1"])[2:] == [
        "TIMER_SET",
        "TIMER_FIRED",
        "STEP_COMPLETED",
        "EXECUTION_COMPLETED",
    ]
    assert [each.metadata for each in world.store.logs["nap@1"][3:]] == [metadata] * 3
    assert await service(world, fenced=fenced).fire(PAUSE) is None
    assert world.errors == []


async def test_a_duplicate_fire_in_mid_body_fences_the_first_out() -> None:
    world = World()
    await asleep(world)
    world.gate = asyncio.Event()
    first = asyncio.create_task(service(world, fenced=True).fire(PAUSE))
    await settle()
    assert await service(world, fenced=True).fire(PAUSE) is None
    world.gate.set()
    assert await first is None
    assert isinstance(world.errors[-1].__cause__, StaleFenceError)
    state = await world.runtime().load_state("nap@1")
    assert state is not None
    assert state.status == "running"


async def test_a_node_without_the_lease_skips_the_fire() -> None:
    world = World()
    await asleep(world)
    leases = RecordedLeases(world.store.timeline)
    one = Leases(leases, "node-1", renew_every=None)
    two = Leases(leases, "node-2", renew_every=None)
    world.gate = asyncio.Event()
    first = asyncio.create_task(service(world, fenced=True, leases=one).fire(PAUSE))
    await settle()
    assert await service(world, fenced=True, leases=two).fire(PAUSE) is None
    world.gate.set()
    state = await first
    assert state is not None
    assert state.status == "completed"
    assert world.store.fences == {"nap@1": 1}
    assert world.store.timeline[-1] == "release fire:nap@1 node-1"
    assert world.errors == []


async def test_a_lease_is_renewed_while_the_fire_runs_and_no_longer() -> None:
    world = World()
    await asleep(world)
    leases = RecordedLeases(world.store.timeline)
    world.gate = asyncio.Event()
    lease = Leases(leases, "node-1", ttl=60, renew_every=20)
    fire = asyncio.create_task(service(world, leases=lease).fire(PAUSE))
    for _ in range(3):
        await world.clock.advance(20)
    assert world.store.timeline.count("renew fire:nap@1 node-1 60") == 3
    world.gate.set()
    assert await fire is not None
    await world.clock.advance(60)
    assert world.store.timeline[-1] == "release fire:nap@1 node-1"


async def test_a_renewal_that_is_refused_or_fails_stops_renewing() -> None:
    world = World()
    await asleep(world)
    leases = RecordedLeases(world.store.timeline, broken=EventStoreError("no route"))
    world.gate = asyncio.Event()
    lease = Leases(leases, "node-1", ttl=60, renew_every=20)
    fire = asyncio.create_task(service(world, leases=lease).fire(PAUSE))
    await world.clock.advance(20)
    await world.clock.advance(20)
    assert world.store.timeline.count("renew fire:nap@1 node-1 60") == 1
    assert world.errors == [leases.broken]
    world.gate.set()
    assert await fire is not None


async def test_a_lease_is_released_when_the_fire_fails() -> None:
    world = World()
    await asleep(world)
    leases = RecordedLeases(world.store.timeline)
    world.store.refusals = [EventStoreError("no route")]
    lease = Leases(leases, "node-1", renew_every=None)
    assert await service(world, leases=lease).fire(PAUSE) is None
    assert isinstance(world.errors[-1], StorageWriteError)
    assert leases.holders == {}
