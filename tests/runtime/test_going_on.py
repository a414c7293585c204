"""Folding a log, running on from it, waking it, ending it, and taking over what was left."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from runtime_support import EPOCH, RecordedStore, World, kinds, settle

from loom_conformance.runtime import (
    CorruptLogError,
    ExecutionNotFoundError,
    ReadModel,
    StorageWriteError,
    UnknownWorkflowError,
    fold,
    fold_all,
)
from loom_conformance.spi import EventEnvelope, EventStoreError, StaleFenceError

pytestmark = pytest.mark.asyncio


async def interrupted(world: World, execution_id: str = "daily@1") -> None:
    """A log that ends after its first step: its node died during the second."""
    world.gate = asyncio.Event()
    runtime = world.runtime()
    await runtime.start("audit", 7, execution_id=execution_id)
    world.gate.set()
    await settle()
    world.gate = None
    world.store.logs[execution_id] = world.store.logs[execution_id][:2]
    world.store.timeline.clear()
    world.told.clear()


async def test_resume_does_not_run_recorded_steps_again() -> None:
    world = World()
    await interrupted(world)
    state = await (await world.runtime().resume("daily@1")).finished()
    assert world.effects == ["report"]
    assert state.status == "completed"
    assert state.result == ["audit done", "report done", 7]
    assert [each.sequence for each in world.told] == [2, 3]


async def test_resume_of_what_has_ended_runs_nothing_and_writes_nothing() -> None:
    world = World()
    await (await world.runtime().start("audit", execution_id="daily@1")).finished()
    world.store.timeline.clear()
    state = await (await world.runtime().resume("daily@1")).finished()
    assert state.status == "completed"
    assert world.store.timeline == ["read_from daily@1 0"]


async def test_resume_and_cancel_of_nothing_say_so() -> None:
    runtime = World().runtime()
    with pytest.raises(ExecutionNotFoundError, match="start it first"):
        await runtime.resume("nobody")
    with pytest.raises(ExecutionNotFoundError):
        await runtime.cancel("nobody", "why not")
    assert await runtime.load_state("nobody") is None


async def test_resume_of_a_workflow_that_is_not_registered_says_which() -> None:
    world = World()
    await interrupted(world)
    first = world.store.logs["daily@1"][0]
    world.store.logs["daily@1"][0] = replace(first, payload={"workflow": "gone", "input": None})
    with pytest.raises(UnknownWorkflowError, match="'gone'"):
        await world.runtime().resume("daily@1")


async def test_a_body_that_raises_ends_its_execution() -> None:
    world = World()
    state = await (await world.runtime().start("broken", execution_id="daily@1")).finished()
    assert (state.status, state.error) == ("failed", "LookupError: no such account")
    assert kinds(world.store.logs["daily@1"]) == ["EXECUTION_STARTED", "EXECUTION_FAILED"]


async def test_a_sleeping_execution_is_left_until_its_timer_fires() -> None:
    world = World()
    runtime = world.runtime()
    state = await (await runtime.start("nap", execution_id="nap@1")).finished()
    assert (state.status, world.effects) == ("sleeping", ["before"])
    assert state.timers == {"pause": EPOCH + timedelta(seconds=60)}
    assert (await (await runtime.resume("nap@1")).finished()).status == "sleeping"
    woken = await runtime.wake("nap@1", "pause")
    assert woken is not None
    assert (await woken.finished()).status == "completed"
    assert world.effects == ["before", "after"]
    assert await runtime.wake("nap@1", "pause") is None


async def test_a_wake_is_durable_before_the_body_goes_on() -> None:
    world = World()
    runtime = world.runtime()
    await (await runtime.start("nap", execution_id="nap@1")).finished()
    world.store.refusals = [EventStoreError("no route")]
    with pytest.raises(StorageWriteError):
        await runtime.wake("nap@1", "pause")
    assert world.effects == ["before"]


async def test_cancel_fences_the_driver_out_and_ends_the_execution() -> None:
    world = World()
    world.gate = asyncio.Event()
    handle = await world.runtime().start("audit", execution_id="daily@1")
    await settle()
    state = await world.runtime().cancel("daily@1", "not needed")
    assert (state.status, state.error) == ("cancelled", "not needed")
    world.gate.set()
    with pytest.raises(StorageWriteError) as caught:
        await handle.finished()
    assert isinstance(caught.value.__cause__, StaleFenceError)
    assert kinds(world.store.logs["daily@1"]) == ["EXECUTION_STARTED", "EXECUTION_CANCELLED"]
    assert await world.runtime().cancel("daily@1", "again") == state


async def test_recovery_takes_over_what_runs_undriven_under_a_fresh_fence() -> None:
    world = World()
    await interrupted(world)
    (handle,) = await world.runtime().recover_abandoned(["daily@1", "nobody"])
    assert world.store.timeline[:3] == [
        "read_from daily@1 0",
        "acquire_fence daily@1 -> 1",
        "read_from daily@1 0",
    ]
    assert (await handle.finished()).status == "completed"
    assert [each.metadata for each in world.store.logs["daily@1"]] == [
        {},
        {},
        {"fence": 1},
        {"fence": 1},
    ]


async def test_recovery_leaves_what_is_driven_here_what_sleeps_and_what_has_ended() -> None:
    world = World()
    runtime = world.runtime()
    await (await runtime.start("nap", execution_id="asleep")).finished()
    await (await runtime.start("broken", execution_id="ended")).finished()
    world.gate = asyncio.Event()
    driven = await runtime.start("audit", execution_id="driven")
    await settle()
    assert await runtime.recover_abandoned(["asleep", "ended", "driven"]) == []
    world.gate.set()
    await driven.finished()


async def test_recovery_on_a_store_that_does_not_fence_goes_on_without() -> None:
    class WithoutFences(RecordedStore):
        acquire_fence = None  # type: ignore[assignment]

    world = World(WithoutFences())
    await interrupted(world)
    (handle,) = await world.runtime().recover_abandoned(["daily@1"])
    assert (await handle.finished()).status == "completed"


async def test_close_stops_the_drives_and_leaves_the_log_to_recovery() -> None:
    world = World()
    world.gate = asyncio.Event()
    runtime = world.runtime()
    handle = await runtime.start("audit", execution_id="daily@1")
    await settle()
    await runtime.close()
    with pytest.raises(asyncio.CancelledError):
        await handle.finished()
    world.gate = None
    (recovered,) = await world.runtime().recover_abandoned(["daily@1"])
    assert (await recovered.finished()).status == "completed"
    assert world.effects == ["audit", "audit", "report"]


async def test_a_failed_write_drops_what_follows_it_and_refuses_more() -> None:
    world = World(RecordedStore(refusals=[None, OSError("disk full")]))
    runtime = world.runtime()
    handle = await runtime.start("audit", execution_id="daily@1")
    with pytest.raises(StorageWriteError):
        await handle.finished()
    await settle()
    assert kinds(world.store.logs["daily@1"]) == ["EXECUTION_STARTED"]
    assert world.store.timeline.count("append daily@1[2]") == 0


async def test_a_read_model_applies_durable_facts_only_each_once_in_order() -> None:
    world = World(RecordedStore(refusals=[None, None, OSError("disk full")]))
    applied: list[EventEnvelope] = []
    model = ReadModel(world.store, applied.append)
    handle = await world.runtime().start("audit", execution_id="daily@1")
    assert await model.catch_up("daily@1") == 1
    with pytest.raises(StorageWriteError):
        await handle.finished()
    assert await model.catch_up("daily@1") == 1
    assert await model.catch_up("daily@1") == 0
    assert applied == world.store.logs["daily@1"]
    assert kinds(world.told) == ["EXECUTION_STARTED", "STEP_COMPLETED", "STEP_COMPLETED"]
    assert kinds(applied) == ["EXECUTION_STARTED", "STEP_COMPLETED"]


# --- Folding ------------------------------------------------------------------------------------


def envelope(sequence: int, kind: str, **payload: object) -> EventEnvelope:
    return EventEnvelope("x", sequence, f"x-{sequence}", kind, EPOCH, dict(payload))  # type: ignore[arg-type]


START = envelope(0, "EXECUTION_STARTED", workflow="audit", input=None)


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ([envelope(1, "EXECUTION_STARTED", workflow="a", input=None)], "sequence 0 was expected"),
        ([envelope(0, "STEP_COMPLETED", step="a", result=1)], "before EXECUTION_STARTED"),
        ([envelope(0, "EXECUTION_STARTED", input=None)], "without 'workflow'"),
        ([START, START], "sequence 1 was expected"),
        ([START, replace(START, sequence=1)], "unknown kind 'EXECUTION_STARTED'"),
        (
            [START, *(envelope(n, "STEP_COMPLETED", step="a", result=n) for n in (1, 2))],
            "step 'a' is completed twice",
        ),
        ([START, envelope(1, "TIMER_FIRED", timer="t")], "timer 't' fires, but is not set"),
        (
            [START, *(envelope(n, "TIMER_SET", timer="t", due=EPOCH.isoformat()) for n in (1, 2))],
            "timer 't' is set twice",
        ),
        (
            [
                START,
                envelope(1, "EXECUTION_COMPLETED", result=1),
                envelope(2, "STEP_COMPLETED", step="a", result=1),
            ],
            "STEP_COMPLETED after the execution completed",
        ),
        ([START, replace(START, sequence=1, kind="STEP_COMPLETED", payload=[1])], "payload"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_log_that_no_run_writes_is_corrupt(log: list[EventEnvelope], reason: str) -> None:
    with pytest.raises(CorruptLogError, match=reason):
        fold_all(log)


async def test_folding_never_changes_the_state_it_folds_on() -> None:
    before = fold(None, START)
    fold(before, envelope(1, "STEP_COMPLETED", step="a", result=1))
    assert before.steps == {}
    assert before.last == 0
