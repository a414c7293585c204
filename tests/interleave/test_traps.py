"""The traps of a scheduler at a store's boundary, one by one."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import asyncpg
import pytest
from interleaving_support import Around, SaysYes, Wrapping, duplicate_start, envelope

from loom_backends.memory import MemoryBackend
from loom_backends.postgres import PostgresBackend
from loom_backends.sqlite import SQLiteBackend
from loom_conformance.backend import Backend
from loom_conformance.interleave import Finding, Limits, Node, Outcome, Scenario, explore
from loom_conformance.spi import DuplicateSequenceError, EventEnvelope, EventStore


class Counted(Wrapping):
    """Counts storages and handles, and what names reach the store."""

    def __init__(self) -> None:
        super().__init__(MemoryBackend(), lambda store: store)
        self.created = self.destroyed = self.opened = self.closed = 0
        self.names: list[str] = []

    async def create(self) -> str:
        self.created += 1
        return await super().create()

    async def destroy(self, address: str) -> None:
        self.destroyed += 1
        await super().destroy(address)

    async def connect(self, address: str) -> EventStore:
        self.opened += 1
        backend = self

        class Handle(Around):
            async def append(self, envelope: EventEnvelope) -> None:
                backend.names.append(envelope.execution_id)
                await self.store.append(envelope)

            async def close(self) -> None:
                backend.closed += 1
                await self.store.close()

        return cast(EventStore, Handle(await super().connect(address)))


# --- 1: names that are fresh in every run, and steps that are the same in every run ---


def test_every_run_has_names_of_its_own_and_the_nodes_never_see_them() -> None:
    backend = Counted()
    verdict = explore(duplicate_start(2), Wrapping(backend, SaysYes))
    assert len(set(backend.names)) > verdict.schedules
    assert "sched@7" not in backend.names
    assert all(name.endswith("~sched@7") for name in backend.names)
    found = verdict.counterexample
    assert found is not None
    assert "~" not in str(found.trace)


def test_errors_and_envelopes_come_back_under_the_nodes_names(backend: Backend) -> None:
    async def writes(node: Node) -> Any:
        try:
            await node.store.append(envelope("x", 0, id="taken"))
        except DuplicateSequenceError as error:
            return error.execution_id, error.sequence, str(error)
        return [(one.execution_id, one.id) for one in await node.store.read_from("x", 0)]

    def named(outcome: Outcome) -> None:
        words = "execution 'x' already has an envelope at 0"
        assert sorted(outcome.results.values(), key=str) == [("x", 0, words), [("x", "taken")]]

    verdict = explore(Scenario("names", [writes, writes], named), backend)
    assert verdict.finding is Finding.HOLDS, str(verdict)


def test_a_node_that_does_something_else_each_time_is_no_pass() -> None:
    async def fresh(node: Node) -> None:
        await node.store.append(envelope(uuid.uuid4().hex, 0))
        await node.store.read_from("shared", 0)

    async def writes(node: Node) -> None:
        await node.store.append(envelope("shared", 0))

    scenario = Scenario("fresh names", [fresh, writes], lambda outcome: None)
    verdict = explore(scenario, MemoryBackend())
    assert verdict.finding is Finding.INCONCLUSIVE
    assert "did not do the same under the same schedule: diverged at choice" in verdict.reason


def test_a_node_has_randomness_that_is_the_same_in_every_run() -> None:
    async def draws(node: Node) -> None:
        await node.store.append(envelope(f"x{node.random.random()}", 0))
        await node.store.read_from("shared", 0)

    async def writes(node: Node) -> None:
        await node.store.append(envelope("shared", 0))

    scenario = Scenario("drawn names", [draws, writes], lambda outcome: None)
    assert explore(scenario, MemoryBackend()).finding is Finding.HOLDS


# --- 2: timers are choices ---


def impatient(wait: Callable[[Node, float], Any]) -> Scenario:
    """A node that writes, and one that looks after a time and takes it for long enough."""

    async def writes(node: Node) -> None:
        await node.store.append(envelope("x", 0))

    async def looks(node: Node) -> bool:
        await wait(node, 3600.0)
        return bool(await node.store.read_from("x", 0))

    def seen(outcome: Outcome) -> None:
        assert outcome.results["B"], "the timer fired first"

    return Scenario("impatience", [writes, looks], seen)


WAITS: dict[str, Callable[[Node, float], Any]] = {
    "node.clock.sleep": lambda node, seconds: node.clock.sleep(seconds),
    "asyncio.sleep": lambda node, seconds: asyncio.sleep(seconds),
    "asyncio.wait": lambda node, seconds: asyncio.wait(
        [asyncio.ensure_future(asyncio.Event().wait())], timeout=seconds
    ),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS.keys())
def test_a_timer_may_fire_before_anything_else_goes_on(wait: Callable[[Node, float], Any]) -> None:
    verdict = explore(impatient(wait), MemoryBackend())
    assert verdict.finding is Finding.FAILS
    assert verdict.reason == "the timer fired first"
    found = verdict.counterexample
    assert found is not None
    assert "timer fires at 3600 s" in str(found.trace)
    assert found.token is not None
    assert found.token.split("-")[2] == "B0sBA"


def test_time_stands_still_but_for_the_nodes_own_timers() -> None:
    async def sleeps(node: Node) -> list[int]:
        before = node.clock.now()
        await node.store.read_from("x", 0)
        same = node.clock.now()
        await node.clock.sleep(90)
        return [(same - before).seconds, (node.clock.now() - before).seconds]

    def waited(outcome: Outcome) -> None:
        assert outcome.results == {"A": [0, 90], "B": [0, 90]}

    assert explore(Scenario("time", [sleeps, sleeps], waited), MemoryBackend()).holds


# --- 3: objects that nodes share ---


def test_a_shared_lock_hides_no_order() -> None:
    shared: list[asyncio.Lock] = []

    async def given(store: object) -> None:
        shared[:] = [asyncio.Lock()]

    async def writes(node: Node) -> None:
        async with shared[0]:
            await node.store.read_from("own", 0)
            await node.effect(f"of {node.name}")

    def a_first(outcome: Outcome) -> None:
        assert outcome.effects[0][0] == "A", "B was first"

    scenario = Scenario("shared lock", [writes, writes], a_first, given=given)
    assert explore(scenario, MemoryBackend()).finding is Finding.FAILS

    scenario = Scenario("shared lock", [writes, writes], lambda outcome: None, given=given)
    verdict = explore(scenario, MemoryBackend())
    assert verdict.finding is Finding.HOLDS
    assert verdict.bound == "every order, for nodes A and B wake each other"
    assert verdict.schedules > 2


def test_every_node_has_a_handle_of_its_own() -> None:
    handles = []

    async def notes(node: Node) -> None:
        handles.append(node.store)

    explore(Scenario("handles", [notes, notes], lambda outcome: None), MemoryBackend())
    assert len({id(handle) for handle in handles}) == 2


# --- 4: uncontrolled I/O is named; see test_misbehaving_nodes ---


# --- 5 and 6: one storage for all runs, and every handle closed on every path ---


async def hangs(node: Node) -> None:
    await asyncio.Event().wait()


async def raises(node: Node) -> None:
    raise LookupError


async def goes_astray(node: Node) -> None:
    await asyncio.to_thread(len, "x")


async def hogs(node: Node) -> None:
    while True:
        node.clock.now()


def broken_check(outcome: Outcome) -> None:
    raise LookupError("the check has a mistake")


ENDS: dict[str, Scenario] = {
    "holds": duplicate_start(2),
    "deadlock": Scenario("deadlock", [hangs], lambda outcome: None),
    "raises": Scenario("raises", [raises], lambda outcome: None),
    "uncontrolled": Scenario("uncontrolled", [goes_astray], lambda outcome: None),
    "hogs": Scenario("hogs", [hogs], lambda outcome: None),
    "broken check": Scenario("broken check", [raises], broken_check, may_raise=(LookupError,)),
}


@pytest.mark.parametrize("scenario", ENDS.values(), ids=ENDS.keys())
def test_one_storage_serves_all_runs_and_everything_is_closed(scenario: Scenario) -> None:
    backend = Counted()
    with suppress(LookupError):
        explore(scenario, backend, limits=Limits(patience=0.2))
    assert (backend.created, backend.destroyed) == (1, 1)
    assert backend.opened == len(scenario.nodes) + 1 == backend.closed


def test_a_storage_is_removed_when_a_handle_cannot_be_opened() -> None:
    class Refusing(Counted):
        async def connect(self, address: str) -> EventStore:
            if self.opened == 2:
                raise ConnectionError("no more")
            return await super().connect(address)

    backend = Refusing()
    with pytest.raises(ConnectionError, match="no more"):
        explore(duplicate_start(3), backend)
    assert (backend.created, backend.destroyed) == (1, 1)
    assert (backend.opened, backend.closed) == (2, 2)


def test_each_run_can_have_a_storage_of_its_own() -> None:
    backend = Counted()
    verdict = explore(duplicate_start(2), backend, fresh_storage=True)
    assert (verdict.finding, verdict.schedules) == (Finding.HOLDS, 8)
    assert backend.created == backend.destroyed == verdict.schedules + 2
    assert set(backend.names) == {"sched@7"}


# --- 7: the drivers' own timeouts go on in real time ---


def test_a_stores_own_timeout_runs_in_real_time() -> None:
    class Slow(Around):
        async def append(self, envelope: EventEnvelope) -> None:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()

    async def writes(node: Node) -> str:
        try:
            await node.store.append(envelope("x", 0))
        except TimeoutError:
            return f"late at {(node.clock.now()).second}"
        return "stored"

    def late(outcome: Outcome) -> None:
        assert outcome.results == {"A": "late at 0"}

    verdict = explore(Scenario("slow", [writes], late), Wrapping(MemoryBackend(), Slow))
    assert verdict.finding is Finding.HOLDS, str(verdict)


# --- 8: a step that waits for a lock; see test_steps ---


# --- 9: a call that leaves a transaction open ---


class Unfinished(Around):
    """Takes a lock in the database and forgets to give it back."""

    def __init__(self, store: EventStore, address: str) -> None:
        super().__init__(store)
        self.address = address
        self.left: asyncpg.Connection[Any] | None = None

    async def append(self, envelope: EventEnvelope) -> None:
        if self.left is None and envelope.execution_id.endswith("first"):
            self.left = await asyncpg.connect(self.address)
            await self.left.execute("BEGIN; LOCK TABLE envelopes")
        else:
            await self.store.append(envelope)

    async def close(self) -> None:
        if self.left is not None:
            await self.left.close()
        await self.store.close()


def test_a_transaction_left_open_is_a_failure_of_its_own(postgres: PostgresBackend) -> None:
    handles: list[Unfinished] = []

    class Leaves(Wrapping):
        async def connect(self, address: str) -> EventStore:
            handle = Unfinished(await postgres.connect(address), address)
            handles.append(handle)
            return cast(EventStore, handle)

        async def blocked(self, address: str) -> set[object]:
            waiting = await postgres.blocked(address)
            return {handle for handle in handles if handle.store in waiting}

    async def first(node: Node) -> None:
        await node.store.append(envelope("first", 0))

    async def second(node: Node) -> None:
        await node.store.append(envelope("second", 0))

    verdict = explore(
        Scenario("left open", [first, second], lambda outcome: None),
        Leaves(postgres, lambda store: store),
        limits=Limits(patience=0.5),
    )
    assert verdict.finding is Finding.FAILS, str(verdict)
    assert verdict.reason.startswith("an earlier call left a transaction open: append(second, 0")


# --- 10: "all" is never said after a cut ---


@pytest.mark.parametrize(
    "limits", [Limits(schedules=5), Limits(seconds=0.0)], ids=["schedules", "seconds"]
)
@pytest.mark.parametrize("search", ["all", "plain", "bounded"])
def test_all_is_never_said_after_a_cut(limits: Limits, search: Any) -> None:
    verdict = explore(duplicate_start(3), MemoryBackend(), search=search, limits=limits)
    assert verdict.finding is Finding.HOLDS_IN_THOSE_RUN
    assert "all schedules" not in str(verdict)
    assert "so not all" in str(verdict)


@pytest.mark.parametrize("search", ["pct", "random"])
def test_all_is_never_said_of_chance(search: Any) -> None:
    verdict = explore(
        duplicate_start(2), MemoryBackend(), search=search, limits=Limits(schedules=50)
    )
    assert verdict.finding is Finding.HOLDS_IN_THOSE_RUN
    assert verdict.schedules == 50
    assert "in the 50 schedules that were run" in str(verdict)


def test_a_bound_that_leaves_nothing_out_is_all() -> None:
    verdict = explore(duplicate_start(2), MemoryBackend(), search="bounded", preemptions=1)
    assert verdict.finding is Finding.HOLDS_IN_THOSE_RUN
    assert "at most 1 preemption" in str(verdict)
    verdict = explore(duplicate_start(2), MemoryBackend(), search="bounded", preemptions=20)
    assert verdict.finding is Finding.HOLDS
    assert verdict.bound == "every order"


@pytest.mark.usefixtures("postgres")
def test_sqlite_holds_what_memory_holds() -> None:
    for nodes in (2, 3):
        one = explore(duplicate_start(nodes), MemoryBackend())
        other = explore(duplicate_start(nodes), SQLiteBackend())
        assert (one.finding, one.schedules) == (other.finding, other.schedules)


def test_a_limit_that_is_just_enough_is_no_cut() -> None:
    verdict = explore(duplicate_start(2), MemoryBackend(), limits=Limits(schedules=8))
    assert (verdict.finding, verdict.schedules) == (Finding.HOLDS, 8)
