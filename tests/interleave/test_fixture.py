"""The fixture for scenarios of one's own, in runs of pytest that know nothing but the plugin."""

from __future__ import annotations

import re

import pytest

pytest_plugins = ["pytester"]
PLAIN = ("-p", "no:asyncio", "-p", "no:trio")

COUNTER = """
from datetime import UTC, datetime

import pytest

from loom_conformance.interleave import Scenario
from loom_conformance.spi import DuplicateSequenceError, EventEnvelope

NOON = datetime(2026, 9, 27, 12, tzinfo=UTC)


def counted(place, total):
    return EventEnvelope("counter", place, f"counter-{place}", "COUNTED", NOON, total)


async def careless(node):
    log = await node.store.read_from("counter", 0)
    total = log[-1].payload + 1 if log else 1
    place = len(log)
    while True:
        try:
            return await node.store.append(counted(place, total))
        except DuplicateSequenceError:
            place += 1


async def careful(node):
    while True:
        log = await node.store.read_from("counter", 0)
        total = log[-1].payload + 1 if log else 1
        try:
            return await node.store.append(counted(len(log), total))
        except DuplicateSequenceError:
            continue


async def both_count(outcome):
    log = await outcome.store.read_from("counter", 0)
    assert log[-1].payload == 2, f"two were counted, and the counter says {log[-1].payload}"


@pytest.mark.parametrize("node", [careless, careful])
def test_counter(loom_explore, node):
    verdict = loom_explore(Scenario("counter", [node, node], both_count))
    print(verdict)
"""


@pytest.fixture
def counter(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project with one test file."""
    pytester.makepyfile(test_counter=COUNTER)
    return pytester


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
def test_a_lost_update_is_found_told_and_replayed(counter: pytest.Pytester, backend: str) -> None:
    result = counter.runpytest(*PLAIN, "--loom-backend", backend, "-rP")
    result.assert_outcomes(passed=1, failed=1)
    output = result.stdout.str()
    assert f"counter [{backend}]: holds in all 4 schedules (up to equivalence)" in output
    assert f"FAIL counter [{backend}]: two were counted, and the counter says 1" in output
    replay = re.search(r"Replay: pytest (\S+ --loom-backend \S+ --loom-schedule lk1-\S+)", output)
    assert replay is not None
    test, *options = replay[1].split()
    assert (test, options[1]) == ("test_counter.py::test_counter[careless]", backend)
    again = counter.runpytest(*PLAIN, test, *options)
    again.assert_outcomes(failed=1)
    assert "replayed 1 of 1" in again.stdout.str()


def test_a_token_of_something_else_is_an_error(counter: pytest.Pytester) -> None:
    result = counter.runpytest(*PLAIN, "--loom-schedule", "lk1-00000-AB", "-k", "careful")
    result.assert_outcomes(failed=1)
    assert "is a schedule of another scenario than 'counter'" in result.stdout.str()


def test_memory_is_the_default_and_an_instance_is_taken_as_it_is(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        COUNTER
        + """

def test_instance(loom_explore):
    from loom_backends.memory import MemoryBackend

    class Named(MemoryBackend):
        name = "mine"

        async def start(self):
            raise RuntimeError("its owner starts it")

    scenario = Scenario("counter", [careful, careful], both_count)
    assert loom_explore(scenario, Named()).backend == "mine"
    with pytest.raises(RuntimeError, match="its owner starts it"):
        loom_explore(scenario, Named)
"""
    )
    result = pytester.runpytest(*PLAIN, "-k", "test_instance or careful", "-rP")
    result.assert_outcomes(passed=2)
    assert "counter [memory]" in result.stdout.str()


def test_inside_an_event_loop_it_says_what_to_do(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        COUNTER
        + """

def test_in_a_loop(loom_explore):
    import asyncio

    async def main():
        loom_explore(Scenario("counter", [careful, careful], both_count))

    with pytest.raises(RuntimeError, match="makes an event loop of its own: call it from a plain"):
        asyncio.run(main())
"""
    )
    pytester.runpytest(*PLAIN, "-k", "in_a_loop").assert_outcomes(passed=1)
