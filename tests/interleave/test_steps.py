"""Races inside a store's methods: torn apart at every await, on every backend."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import asyncpg
import pytest
from interleaving_support import Around, Wrapping, envelope

from loom_backends.memory import MemoryBackend
from loom_backends.postgres import PostgresBackend
from loom_conformance.backend import Backend, Blocking
from loom_conformance.interleave import (
    BadToken,
    Call,
    Finding,
    Scenario,
    Settled,
    Verdict,
    explore,
    explore_steps,
    replay_steps,
)
from loom_conformance.interleave.node import Node
from loom_conformance.spi import DuplicateSequenceError, EventEnvelope, EventStore


class LooksThenWrites(Around):
    """Looks whether the slot is free, and then writes whatever there is by now."""

    async def append(self, envelope: EventEnvelope) -> None:
        execution, sequence = envelope.execution_id, envelope.sequence
        if await self.store.read_from(execution, sequence):
            raise DuplicateSequenceError(execution, sequence)
        await asyncio.sleep(0)
        try:
            await self.store.append(envelope)
        except DuplicateSequenceError:
            return


def one_acknowledged(settled: Sequence[Settled]) -> None:
    """SEQ-4 for two calls."""
    won = [one.label for one in settled if one.error is None]
    assert len(won) == 1, f"{len(won)} acknowledged"
    assert all(isinstance(one.error, DuplicateSequenceError) for one in settled if one.error)


async def contended(
    backend: Backend,
    wrap: Callable[[EventStore], Any],
    act: Callable[..., Awaitable[Verdict]],
    **options: Any,
) -> Verdict:
    """Two writes to one slot from two handles, under `explore_steps` or `replay_steps`."""
    address = await backend.create()
    stores = [await backend.connect(address) for _ in range(2)]
    handles = [wrap(store) for store in stores]
    rounds = itertools.count()

    async def make() -> list[Call]:
        execution = f"x{next(rounds)}"
        return [
            Call(
                f"append(x, 0) by {number}",
                lambda handle=handle, number=number: handle.append(  # type: ignore[misc]
                    envelope(execution, 0, id=f"{execution} {number}")
                ),
                store,
            )
            for number, (handle, store) in enumerate(zip(handles, stores, strict=True))
        ]

    async def check(settled: Sequence[Settled]) -> None:
        one_acknowledged(settled)

    if isinstance(backend, Blocking):
        options["blocked"] = lambda: backend.blocked(address)
    try:
        return await act("SEQ-4", make, check, backend=backend.name, **options)
    finally:
        for store in stores:
            await store.close()
        await backend.destroy(address)


def test_the_reference_stores_hold(backend: Backend) -> None:
    verdict = asyncio.run(contended(backend, lambda store: store, explore_steps, preemptions=2))
    assert verdict.finding is Finding.HOLDS_IN_THOSE_RUN, str(verdict)
    assert verdict.schedules >= 2
    assert verdict.bound.startswith("at most 2 preemptions between resumptions")


@pytest.mark.parametrize("attempt", range(5))
def test_a_store_that_looks_before_it_writes_is_found_every_time(
    backend: Backend, attempt: int
) -> None:
    verdict = asyncio.run(contended(backend, LooksThenWrites, explore_steps))
    assert verdict.finding is Finding.FAILS, str(verdict)
    found = verdict.counterexample
    assert found is not None
    assert found.reason == "2 acknowledged"
    assert (found.preemptions, found.schedule) == (1, 3)
    assert (found.replayed, found.replays) == (3, 3)
    assert isinstance(found.error, AssertionError)


def test_what_steps_find_gates_pass_in_all_schedules() -> None:
    async def writes(node: Node) -> bool:
        try:
            await node.store.append(envelope("x", 0, id=node.name))
        except DuplicateSequenceError:
            return False
        return True

    def one_wins(outcome: Any) -> None:
        assert sorted(outcome.results.values()) == [False, True]

    scenario = Scenario("SEQ-4", [writes, writes], one_wins)
    verdict = explore(scenario, Wrapping(MemoryBackend(), LooksThenWrites))
    assert verdict.finding is Finding.HOLDS


def test_a_token_replays_every_time(backend: Backend) -> None:
    verdict = asyncio.run(contended(backend, LooksThenWrites, explore_steps))
    assert verdict.counterexample is not None
    token = verdict.counterexample.token
    assert token is not None
    assert len(token) <= 20
    replays = partial(replay_steps, token=token, times=50)
    again = asyncio.run(contended(backend, LooksThenWrites, replays)).counterexample
    assert again is not None
    assert (again.replayed, again.replays) == (50, 50)


def test_a_token_that_a_right_store_withstands() -> None:
    verdict = asyncio.run(contended(MemoryBackend(), LooksThenWrites, explore_steps))
    assert verdict.counterexample is not None
    token = verdict.counterexample.token
    assert token is not None
    replays = partial(replay_steps, token=token)
    verdict = asyncio.run(contended(MemoryBackend(), lambda store: store, replays))
    assert verdict.finding is Finding.INCONCLUSIVE
    assert verdict.reason == (
        "what runs here does not take this schedule, or no longer: "
        "diverged at step 3: expected a step of node B; met the end of the run"
    )


def test_a_token_of_something_else_is_refused() -> None:
    replays = partial(replay_steps, token="lk1-00000-AB")
    with pytest.raises(BadToken, match="is a schedule of another scenario than 'SEQ-4'"):
        asyncio.run(contended(MemoryBackend(), lambda store: store, replays))


def test_the_trace_says_how_far_each_call_came() -> None:
    verdict = asyncio.run(contended(MemoryBackend(), LooksThenWrites, explore_steps))
    assert verdict.counterexample is not None
    column = " " * 49
    assert str(verdict.counterexample.trace).splitlines() == [
        "       node A                                    node B",
        "  1    append(x, 0) by 0, as far as sleep",
        f"  2{column[3:]}append(x, 0) by 1, as far as sleep",
        f"  3{column[3:]}append(x, 0) by 1 → ok",
        "  4    append(x, 0) by 0 → ok",
    ]


# --- steps that wait for a lock ---


async def exclusively(connection: Any, how: str) -> str:
    """Three round trips under a lock: what comes between them waits."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(7)")
        await connection.execute("SELECT 1")
    return how


@pytest.mark.parametrize("exact", [True, False], ids=["asked", "by grace"])
def test_a_step_that_waits_for_a_lock_is_not_chosen(postgres: PostgresBackend, exact: bool) -> None:
    async def main() -> tuple[Verdict, list[list[str]]]:
        address = await postgres.create()
        orders: list[list[str]] = []
        async with AsyncExitStack() as stack:
            connections = [await asyncpg.connect(address) for _ in range(3)]
            for connection in connections:
                stack.push_async_callback(connection.close)
            *callers, observer = connections
            pids = {connection.get_server_pid(): connection for connection in callers}

            async def blocked() -> set[object]:
                rows = await observer.fetch(
                    "SELECT pid FROM unnest($1::int[]) AS pid "
                    "WHERE cardinality(pg_blocking_pids(pid)) > 0",
                    list(pids),
                )
                return {pids[row["pid"]] for row in rows}

            async def make() -> list[Call]:
                done: list[str] = []
                orders.append(done)

                async def one(connection: Any, name: str) -> None:
                    done.append(await exclusively(connection, name))

                return [
                    Call(name, lambda c=connection, n=name: one(c, n), connection)  # type: ignore[misc]
                    for name, connection in zip("ab", callers, strict=True)
                ]

            async def check(settled: Sequence[Settled]) -> None:
                for one in settled:
                    assert one.error is None, repr(one.error)

            verdict = await explore_steps(
                "locks", make, check, preemptions=1, blocked=blocked if exact else None, grace=0.05
            )
        await postgres.destroy(address)
        return verdict, orders

    verdict, orders = asyncio.run(main())
    assert verdict.finding is Finding.HOLDS_IN_THOSE_RUN, str(verdict)
    assert verdict.schedules > 4
    assert {tuple(order) for order in orders} == {("a", "b"), ("b", "a")}
    if exact:
        assert verdict.bound.endswith("; the backend said who waits for a lock")
    else:
        assert verdict.bound.endswith("; waiting for a lock was guessed after 0.05 s")


def test_a_call_that_waits_for_a_lock_in_the_process_is_not_chosen() -> None:
    lock = asyncio.Lock()

    async def make() -> list[Call]:
        async def locked() -> None:
            async with lock:
                await asyncio.sleep(0)

        return [Call(name, locked) for name in "ab"]

    async def check(settled: Sequence[Settled]) -> None:
        assert [one.error for one in settled] == [None, None]

    verdict = asyncio.run(explore_steps("lock", make, check, preemptions=2, grace=0.01))
    assert verdict.finding is Finding.HOLDS_IN_THOSE_RUN
    assert "guessed after 0.01 s" in verdict.bound


def test_a_call_that_asks_again_and_again_lets_the_other_go_on() -> None:
    orders: set[tuple[str, ...]] = set()

    async def make() -> list[Call]:
        held: list[str] = []
        order: list[str] = []

        async def locked(name: str) -> None:
            while held:  # noqa: ASYNC110 - as one does whose lock is a database's
                await asyncio.sleep(0.001)
            held.append(name)
            await asyncio.sleep(0)
            held.remove(name)
            order.append(name)
            if len(order) == 2:
                orders.add(tuple(order))

        return [Call(name, partial(locked, name)) for name in "ab"]

    async def check(settled: Sequence[Settled]) -> None:
        assert [one.error for one in settled] == [None, None]

    verdict = asyncio.run(explore_steps("polled", make, check, preemptions=2, most_steps=20))
    assert verdict.finding is Finding.HOLDS_IN_THOSE_RUN, str(verdict)
    assert orders == {("a", "b"), ("b", "a")}


# --- ends that are no pass ---


def steps_of(*calls: Callable[[], Any], **options: Any) -> Verdict:
    async def make() -> list[Call]:
        return [Call(f"call {number}", call) for number, call in enumerate(calls)]

    async def check(settled: Sequence[Settled]) -> None:
        assert all(one.error is None for one in settled), "a call failed"

    return asyncio.run(explore_steps("steps", make, check, patience=0.2, **options))


async def three_steps() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_a_call_that_never_ends() -> None:
    async def hangs() -> None:
        await asyncio.Event().wait()

    verdict = steps_of(hangs, three_steps, grace=0.01)
    assert verdict.finding is Finding.INCONCLUSIVE
    assert "no step ended in 0.2 s: call 0 in Event.wait" in verdict.reason


def test_a_call_with_too_many_steps() -> None:
    async def spins() -> None:
        for _ in range(10_000):
            await asyncio.sleep(0)

    verdict = steps_of(three_steps, spins, most_steps=50)
    assert verdict.finding is Finding.INCONCLUSIVE
    assert verdict.reason == "after 50 steps not every call had ended: call 1"


def test_calls_that_change_from_run_to_run() -> None:
    runs = itertools.count()

    async def changes() -> None:
        if next(runs) < 3:
            await three_steps()
            await asyncio.sleep(0)
            await three_steps()

    verdict = steps_of(changes, three_steps)
    assert verdict.finding is Finding.INCONCLUSIVE
    assert "the calls did not do the same under the same schedule: diverged at" in verdict.reason


def test_a_limit_is_told() -> None:
    verdict = steps_of(three_steps, three_steps, schedules=3)
    assert verdict.finding is Finding.HOLDS_IN_THOSE_RUN
    assert verdict.schedules == 3
    assert verdict.bound.startswith("stopped after 3 schedules")


def test_every_order_with_few_preemptions_is_run_once() -> None:
    seen: list[tuple[int, ...]] = []

    async def make() -> list[Call]:
        order: list[int] = []

        def call(number: int) -> Call:
            async def steps() -> None:
                order.append(number)
                await asyncio.sleep(0)
                order.append(number)

            return Call(str(number), steps)

        orders.append(order)
        return [call(0), call(1)]

    async def check(settled: Sequence[Settled]) -> None:
        seen.append(tuple(orders[-1]))

    orders: list[list[int]] = []
    asyncio.run(explore_steps("orders", make, check, preemptions=4))
    assert sorted(seen) == sorted(set(itertools.permutations((0, 0, 1, 1))))


def test_cancellation_timeouts_and_context_work_as_ever() -> None:
    async def times_out() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.005):
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(5), 0.005)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)
        task.uncancel()

    assert steps_of(times_out, three_steps).finding is Finding.HOLDS_IN_THOSE_RUN
