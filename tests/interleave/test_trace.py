"""The timeline: in 100 columns whatever it has to show, and as plain data."""

from __future__ import annotations

import asyncio
import json

import pytest
from interleaving_support import Wrapping, envelope

from loom_backends.memory import MemoryBackend
from loom_conformance.interleave import Node, Outcome, Scenario, Trace, explore
from loom_conformance.interleave.trace import WIDTH, Row, cut
from loom_conformance.spi import DuplicateSequenceError, EventEnvelope, StaleFenceError


def shown(*nodes: object, **more: object) -> Trace:
    """The trace of a scenario that always fails, in its simplest order."""

    def never(outcome: Outcome) -> None:
        raise AssertionError("as always")

    scenario = Scenario("shown", nodes, never, **more)  # type: ignore[arg-type]
    found = explore(scenario, MemoryBackend()).counterexample
    assert found is not None
    return found.trace


def test_everything_that_happens_has_its_line() -> None:
    async def first(node: Node) -> int:
        token: int = await node.store.acquire_fence("job")
        await node.store.append(envelope("job", 0, "EXECUTION_STARTED", token=token))
        node.tell("on_event", "0 EXECUTION_STARTED")
        await node.effect("mail", {"to": "ann"})
        await node.clock.sleep(1.5)
        return token

    async def second(node: Node) -> None:
        batch = [envelope("job", 1), envelope("log", 0, id="named")]
        try:
            await node.store.append_batch(batch)
        except StaleFenceError as error:
            node.tell("on_error", type(error).__name__)
        await node.store.read_from("job", 0)
        assert await node.leases.claim("timer", node.name, 60.0)
        raise DuplicateSequenceError("job", 1)

    trace = shown(first, second, may_raise=(DuplicateSequenceError,))
    column = " " * 49
    assert str(trace).splitlines() == [
        "       node A                                    node B",
        "  1    acquire_fence('job') → 1",
        "  2    append(job, 0, EXECUTION_STARTED, fence 1) → ok",
        "       on_event 0 EXECUTION_STARTED",
        "  3    effect \"mail\" = {'to': 'ann'}",
        f"  4  {column[5:]}append_batch([(job, 1, ST…amed)]) → StaleFenceError",
        f"{column}on_error StaleFenceError",
        f"  5  {column[5:]}read_from('job', 0) → [0:EXECUTION_STARTED]",
        f"  6  {column[5:]}claim('timer', 'B', 60.0) → True",
        "  7    timer fires at 1.5 s",
        "       returned 1",
        f"{column}raised DuplicateSequenceE…eady has an envelope at 1",
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8, 26])
def test_it_fits_its_width_whatever_there_is_to_show(count: int) -> None:
    rows = tuple(
        Row(1000 + node, node, "append(" + "x" * 300 + ")", "a remark " * 20, wrong=True)
        for node in range(count)
    )
    trace = Trace(tuple(chr(ord("A") + node) for node in range(count)), rows)
    lines = trace.lines()
    assert max(len(line) for line in lines) <= WIDTH
    assert all("✗" in line for line in lines[1:])
    assert all(line.strip() for line in lines)


@pytest.mark.parametrize("width", range(12))
def test_a_text_that_is_too_long_loses_its_middle(width: int) -> None:
    text = "0123456789"
    short = cut(text, width)
    assert len(short) <= width
    if width >= 10:
        assert short == text
    elif width >= 3:
        head, tail = short.split("…")
        assert text.startswith(head)
        assert text.endswith(tail)
        assert 0 <= len(tail) - len(head) <= 1


def test_it_is_plain_data_too() -> None:
    async def reads(node: Node) -> None:
        await node.store.read_from("x", 0)

    trace = shown(reads, reads)
    assert json.loads(json.dumps(trace.to_json())) == {
        "nodes": ["A", "B"],
        "rows": [
            {
                "step": 1,
                "node": 0,
                "text": "read_from('x', 0) → []",
                "remark": "",
                "wrong": False,
            },
            {
                "step": 2,
                "node": 1,
                "text": "read_from('x', 0) → []",
                "remark": "",
                "wrong": False,
            },
        ],
    }


def test_a_verdict_is_plain_data_too() -> None:
    async def fails(node: Node) -> None:
        async def lost() -> None:
            raise KeyError("nobody looks")

        task = asyncio.create_task(lost())
        await node.store.read_from("x", 0)
        del task

    def never(outcome: Outcome) -> None:
        raise AssertionError("as always")

    verdict = explore(Scenario("data", [fails], never), MemoryBackend())
    data = json.loads(json.dumps(verdict.to_json()))
    found = data.pop("counterexample")
    assert data.pop("seconds") >= 0
    assert data == {
        "scenario": "data",
        "backend": "memory",
        "finding": "fails",
        "schedules": 1,
        "bound": "",
        "reason": "as always",
    }
    assert found["replayed"] == found["replays"] == 10
    assert [row["text"] for row in found["trace"]["rows"]] == [
        "read_from('x', 0) → []",
        "a task raised KeyError: 'nobody looks'",
    ]
    held = explore(Scenario("data", [fails], lambda outcome: None), MemoryBackend()).to_json()
    assert (held["finding"], held["counterexample"]) == ("holds in all schedules", None)


def test_a_taken_slot_is_marked_in_batches_too() -> None:
    class Overwrites:
        def __init__(self, store: object) -> None:
            self.store = store

        async def append(self, envelope: EventEnvelope) -> None:
            return None

        async def append_batch(self, envelopes: list[EventEnvelope]) -> None:
            return None

        async def read_from(self, execution_id: str, first: int = 0) -> list[EventEnvelope]:
            return []

        async def close(self) -> None:
            return None

    async def writes(node: Node) -> None:
        await node.store.append(envelope("x", 0))
        await node.store.append_batch([envelope("y", 0), envelope("x", 0)])

    def never(outcome: Outcome) -> None:
        raise AssertionError("as always")

    scenario = Scenario("overwritten", [writes], never)
    found = explore(scenario, Wrapping(MemoryBackend(), Overwrites)).counterexample
    assert found is not None
    assert [(row.wrong, row.remark) for row in found.trace.rows] == [
        (False, ""),
        (True, "a slot was taken at step 1"),
    ]
