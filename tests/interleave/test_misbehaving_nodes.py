"""Nodes that never end, deadlock, raise, are cancelled, or do I/O of their own: each has a verdict.

None of these tests waits for a real timeout of more than a fraction of a second, and none can
hang: that is what they are about.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from interleaving_support import Around, Wrapping, envelope

from loom_backends.memory import MemoryBackend
from loom_conformance.interleave import Finding, Limits, Node, Outcome, Scenario, Verdict, explore
from loom_conformance.spi import DuplicateSequenceError, EventEnvelope


def nothing(outcome: Outcome) -> None:
    """Whatever comes is right."""


async def idle(node: Node) -> None:
    await node.store.read_from("x", 0)


def run(*nodes: Callable[[Node], Coroutine[Any, Any, Any]], **limits: Any) -> Verdict:
    bounds = Limits(steps=50, **{"patience": 0.3, **limits})
    return explore(Scenario("misbehaviour", nodes, nothing), MemoryBackend(), limits=bounds)


def test_a_node_that_calls_for_ever() -> None:
    async def polls(node: Node) -> None:
        while True:
            await node.store.read_from("x", 0)

    verdict = run(polls, idle)
    assert verdict.finding is Finding.INCONCLUSIVE
    assert "after 50 steps the run had not ended" in verdict.reason
    assert "A" in verdict.reason


def test_a_node_that_yields_for_ever() -> None:
    async def spins(node: Node) -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    verdict = run(idle, spins)
    assert verdict.finding is Finding.INCONCLUSIVE
    assert "node B keeps the event loop turning and never comes to a step" in verdict.reason


def test_a_node_that_never_yields() -> None:
    async def hogs(node: Node) -> None:
        while True:
            time.monotonic()

    verdict = run(idle, hogs, patience=2.0)
    assert verdict.finding is Finding.INCONCLUSIVE
    assert verdict.reason == "node B kept the event loop's thread to itself for 2 s"


def test_a_node_that_waits_for_ever() -> None:
    async def waits(node: Node) -> None:
        await asyncio.Event().wait()

    verdict = run(waits, idle)
    assert verdict.finding is Finding.FAILS
    assert "deadlock: nothing can wake A any more (A waits in Event.wait, called by" in (
        verdict.reason
    )


def test_nodes_that_deadlock_with_each_other() -> None:
    locks: list[asyncio.Lock] = []

    async def given(store: object) -> None:
        locks[:] = [asyncio.Lock(), asyncio.Lock()]

    def both(first: int, second: int) -> Callable[[Node], Coroutine[Any, Any, None]]:
        async def main(node: Node) -> None:
            async with locks[first]:
                await node.store.read_from("x", 0)
                async with locks[second]:
                    await node.store.read_from("y", 0)

        return main

    scenario = Scenario("deadlock", [both(0, 1), both(1, 0)], nothing, given=given)
    verdict = explore(scenario, MemoryBackend())
    assert verdict.finding is Finding.FAILS
    assert verdict.reason.startswith("deadlock: nothing can wake A, B any more (A waits in Lock.")
    found = verdict.counterexample
    assert found is not None
    assert (found.preemptions, found.smallest) == (1, True)
    assert (found.replayed, found.replays) == (10, 10)


def test_a_node_that_raises() -> None:
    async def raises(node: Node) -> None:
        await node.store.read_from("x", 0)
        raise KeyError("lost")

    verdict = run(idle, raises)
    assert verdict.finding is Finding.FAILS
    assert verdict.reason == "node B raised KeyError: 'lost'"


def test_a_node_that_raises_what_it_may() -> None:
    async def writes(node: Node) -> None:
        await node.store.append(envelope("x", 0))

    def one_wins(outcome: Outcome) -> None:
        assert len(outcome.results) == 1
        assert [type(error) for error in outcome.errors.values()] == [DuplicateSequenceError]

    scenario = Scenario("slot", [writes] * 2, one_wins, may_raise=(DuplicateSequenceError,))
    assert explore(scenario, MemoryBackend()).finding is Finding.HOLDS


def test_a_node_that_is_cancelled() -> None:
    async def cancels_itself(node: Node) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await node.store.read_from("x", 0)

    verdict = run(cancels_itself, idle)
    assert verdict.finding is Finding.FAILS
    assert verdict.reason == "node A was cancelled, and not by the scheduler"


def test_a_node_that_ignores_the_end_of_a_run() -> None:
    async def clings(node: Node) -> None:
        waiting = asyncio.Event()
        while True:
            try:
                await waiting.wait()
            except asyncio.CancelledError:
                continue

    verdict = run(clings, idle)
    assert verdict.finding is Finding.FAILS
    assert verdict.reason.startswith("deadlock: nothing can wake A any more")


def test_a_timer_of_a_node_that_raises() -> None:
    async def arms(node: Node) -> None:
        def broken() -> None:
            raise ZeroDivisionError("no")

        node.clock.call_later(1.0, broken)

    verdict = run(arms, idle)
    assert verdict.finding is Finding.FAILS
    assert verdict.reason == "a callback raised ZeroDivisionError: no"


def test_a_call_that_never_settles() -> None:
    class Hangs(Around):
        async def append(self, envelope: EventEnvelope) -> None:
            await asyncio.Event().wait()

    async def writes(node: Node) -> None:
        await node.store.append(envelope("x", 0))

    verdict = explore(
        Scenario("hang", [writes, idle], nothing),
        Wrapping(MemoryBackend(), Hangs),
        limits=Limits(patience=0.2),
    )
    assert verdict.finding is Finding.INCONCLUSIVE
    assert "append(x, 0, x-0, STEP_COMPLETED) of node A did not settle in 0.2 s" in verdict.reason


@pytest.mark.parametrize("hook", ["given", "check"])
def test_a_hook_of_the_scenario_that_hangs(hook: str) -> None:
    async def hangs(_: object) -> None:
        await asyncio.Event().wait()

    hooks: dict[str, Any] = {"check": nothing, hook: hangs}
    scenario = Scenario("hang", [idle], **hooks)
    verdict = explore(scenario, MemoryBackend(), limits=Limits(patience=0.2))
    assert verdict.finding is Finding.INCONCLUSIVE
    assert "did not end in 0.2 s" in verdict.reason


def test_a_check_that_is_broken_itself_is_no_finding() -> None:
    def broken(outcome: Outcome) -> None:
        raise LookupError("the check has a mistake")

    with pytest.raises(LookupError, match="the check has a mistake"):
        explore(Scenario("broken", [idle], broken), MemoryBackend())


# --- I/O of a node's own ---


async def a_thread(node: Node) -> None:
    await asyncio.to_thread(sum, [1, 2])


async def an_executor(node: Node) -> None:
    await asyncio.get_running_loop().run_in_executor(None, len, "x")


async def a_stream(node: Node) -> None:
    await asyncio.open_connection("127.0.0.1", 1)


async def a_loop_socket(node: Node) -> None:
    with socket.socket() as one:
        one.setblocking(False)
        await asyncio.get_running_loop().sock_connect(one, ("127.0.0.1", 1))


async def a_raw_socket(node: Node) -> None:
    with socket.socket() as one:
        one.connect(("127.0.0.1", 1))


async def a_process(node: Node) -> None:
    await asyncio.create_subprocess_exec(sys.executable, "-c", "")


async def a_blocking_process(node: Node) -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)  # noqa: ASYNC221


async def a_blocking_thread(node: Node) -> None:
    threading.Thread(target=len, args=("x",)).start()


async def a_blocking_sleep(node: Node) -> None:
    time.sleep(0.01)  # noqa: ASYNC251


UNCONTROLLED: dict[Callable[[Node], Coroutine[Any, Any, None]], str] = {
    a_thread: "a thread (sum)",
    an_executor: "a thread (len)",
    a_stream: "loop.create_connection",
    a_loop_socket: "loop.sock_connect",
    a_raw_socket: "socket.connect",
    a_process: "loop.subprocess_exec",
    a_blocking_process: "subprocess.Popen",
}
if sys.version_info >= (3, 12):
    UNCONTROLLED[a_blocking_thread] = "a thread"
if sys.version_info >= (3, 13):
    UNCONTROLLED[a_blocking_sleep] = "time.sleep"


@pytest.mark.parametrize("node", UNCONTROLLED, ids=lambda node: node.__name__)
def test_uncontrolled_io_is_named_and_refused(
    node: Callable[[Node], Coroutine[Any, Any, None]],
) -> None:
    verdict = run(idle, node)
    assert verdict.finding is Finding.INCONCLUSIVE
    assert verdict.reason.startswith(f"node B called {UNCONTROLLED[node]} outside its store")


def test_uncontrolled_io_is_named_even_where_the_node_swallows_the_refusal() -> None:
    async def swallows(node: Node) -> str:
        try:
            await asyncio.to_thread(sum, [1, 2])
        except Exception:  # noqa: BLE001
            return "well"
        return "done"

    verdict = run(idle, swallows)
    assert verdict.finding is Finding.INCONCLUSIVE
    assert "node B called a thread (sum)" in verdict.reason


def test_uncontrolled_io_of_a_spawned_task_is_named() -> None:
    async def spawns(node: Node) -> None:
        await asyncio.gather(asyncio.create_task(asyncio.to_thread(sum, [1, 2])))

    assert "node A called a thread (sum)" in run(spawns, idle).reason


def test_a_store_may_do_all_that_inside_a_call() -> None:
    class Busy(Around):
        async def append(self, envelope: EventEnvelope) -> None:
            await asyncio.to_thread(time.sleep, 0)
            async with asyncio.timeout(5):
                await asyncio.sleep(0.001)
            await self.store.append(envelope)

    async def writes(node: Node) -> None:
        await node.store.append(envelope(f"own {node.name}", 0))

    verdict = explore(Scenario("busy", [writes, writes], nothing), Wrapping(MemoryBackend(), Busy))
    assert verdict.finding is Finding.HOLDS
    assert verdict.schedules == 1


def test_a_gated_object_may_do_it_too() -> None:
    class Clerk:
        async def stamp(self, what: str) -> str:
            return await asyncio.to_thread(str.upper, what)

    async def asks(node: Node) -> str:
        clerk = node.gate(Clerk())
        return await clerk.stamp("paid")

    def stamped(outcome: Outcome) -> None:
        assert outcome.results == {"A": "PAID", "B": "PAID"}

    verdict = explore(Scenario("clerk", [asks, asks], stamped), MemoryBackend())
    assert (verdict.finding, verdict.schedules) == (Finding.HOLDS, 2)
