"""Workers and dispatchers: L12 and L20 of ADR 0103."""

from __future__ import annotations

import asyncio

import pytest
from runtime_support import RecordedStore, World, settle

from loom_conformance.runtime import (
    Assembly,
    Dispatch,
    ExecutionAlreadyExistsError,
    LocalDispatcher,
    LocalWorkerRuntime,
    RuntimeDeps,
    StartFencedOutError,
    StorageWriteError,
    SupervisingDispatcher,
    is_superseded,
)
from loom_conformance.spi import EventStoreError, StaleFenceError

pytestmark = pytest.mark.asyncio

FIRST = Dispatch("job-1", "audit", 7, {"computeTarget": "gpu"})


def worker(world: World) -> LocalWorkerRuntime:
    return LocalWorkerRuntime(world.runtime())


async def test_a_first_dispatch_is_fenced_before_the_look() -> None:
    world = World()
    handle = await worker(world).allocate(FIRST)
    assert world.store.timeline[:3] == [
        "acquire_fence job-1 -> 1",
        "read_from job-1 0",
        "append job-1[0]",
    ]
    await handle.finished()
    assert {str(each.metadata) for each in world.store.logs["job-1"]} == {
        "{'computeTarget': 'gpu', 'fence': 1}"
    }


async def test_a_later_dispatch_takes_the_execution_over() -> None:
    world = World()
    world.gate = asyncio.Event()
    first = await worker(world).allocate(FIRST)
    await settle()
    second = await worker(world).allocate(FIRST)
    world.gate.set()
    assert (await second.finished()).status == "completed"
    with pytest.raises(StorageWriteError):
        await first.finished()
    assert world.effects == ["audit", "audit", "report"]


@pytest.mark.parametrize("name", ["ExecutionAlreadyExistsError", "StaleFenceError"])
async def test_superseded_is_told_by_name_too(name: str) -> None:
    assert is_superseded(type(name, (Exception,), {})())


async def test_what_is_superseded_and_what_is_not() -> None:
    stale = StaleFenceError("job-1", 1, 2)

    def wrapped(cause: BaseException) -> StorageWriteError:
        failure = StorageWriteError("job-1", 0)
        failure.__cause__ = cause
        return failure

    assert is_superseded(ExecutionAlreadyExistsError("job-1"))
    assert is_superseded(stale)
    assert is_superseded(wrapped(stale))
    assert not is_superseded(wrapped(StartFencedOutError("job-1")))
    assert not is_superseded(wrapped(OSError("disk full")))
    assert not is_superseded(OSError("disk full"))
    assert not is_superseded(None)


async def test_a_failed_attempt_is_tried_again_under_a_new_fence() -> None:
    world = World(RecordedStore(refusals=[EventStoreError("no route"), EventStoreError("again")]))
    dispatcher = LocalDispatcher(worker(world), max_attempts=3, on_error=world.errors.append)
    state = await dispatcher.dispatch(FIRST)
    assert state is not None
    assert state.status == "completed"
    assert world.store.fences == {"job-1": 3}


async def test_the_last_attempts_failure_is_raised() -> None:
    dead = EventStoreError("no route")
    world = World(RecordedStore(refusals=[dead, dead]))
    dispatcher = LocalDispatcher(worker(world), max_attempts=2)
    with pytest.raises(StorageWriteError) as caught:
        await dispatcher.dispatch(FIRST)
    assert caught.value.__cause__ is dead
    assert world.store.fences == {"job-1": 2}


async def test_a_superseded_dispatch_is_let_go() -> None:
    world = World()
    world.gate = asyncio.Event()
    dispatcher = LocalDispatcher(worker(world), max_attempts=3, on_error=world.errors.append)
    superseded = asyncio.create_task(dispatcher.dispatch(FIRST))
    await settle()
    other = await worker(world).allocate(FIRST)
    world.gate.set()
    assert await superseded is None
    assert (await other.finished()).status == "completed"
    assert world.store.fences == {"job-1": 2}


async def test_a_start_that_was_fenced_out_by_the_dead_is_tried_again() -> None:
    stale = StaleFenceError("job-1", 1, 2)
    world = World(RecordedStore(refusals=[stale, stale]))
    state = await LocalDispatcher(worker(world), max_attempts=2).dispatch(FIRST)
    assert state is not None
    assert state.status == "completed"


async def test_attempts_are_one_or_more() -> None:
    with pytest.raises(ValueError, match="1 or more, not 0"):
        LocalDispatcher(worker(World()), max_attempts=0)


async def test_a_supervising_dispatcher_pauses_ever_longer_between_attempts() -> None:
    dead = EventStoreError("no route")
    world = World(RecordedStore(refusals=[dead, dead]))
    dispatcher = SupervisingDispatcher(worker(world), world.clock, max_attempts=3, backoff=1)
    dispatcher.supervise(FIRST)
    dispatcher.supervise(FIRST)
    settled = asyncio.create_task(dispatcher.settled())
    await settle()
    assert world.store.fences == {"job-1": 1}
    await world.clock.advance(1)
    assert world.store.fences == {"job-1": 2}
    await world.clock.advance(1)
    assert world.store.fences == {"job-1": 2}
    await world.clock.advance(1)
    (state,) = (await settled).values()
    assert not isinstance(state, BaseException)
    assert state is not None
    assert state.status == "completed"


async def test_a_supervising_dispatcher_says_how_each_dispatch_ended() -> None:
    dead = EventStoreError("no route")
    world = World(RecordedStore(refusals=[dead]))
    dispatcher = SupervisingDispatcher(worker(world), world.clock, max_attempts=1)
    dispatcher.supervise(FIRST)
    dispatcher.supervise(Dispatch("job-2", "audit"))
    ends = await dispatcher.settled()
    assert isinstance(ends["job-1"], StorageWriteError)
    assert not isinstance(ends["job-2"], BaseException | None)
    assert await dispatcher.settled() == {}


async def test_an_assembly_puts_the_parts_together() -> None:
    world = World()
    runtime = world.runtime()
    deps: RuntimeDeps = runtime.deps
    assembly = Assembly()
    built = assembly.runtime(deps)
    dispatcher = assembly.dispatcher(assembly.worker(built), max_attempts=2)
    state = await dispatcher.dispatch(FIRST)
    assert state is not None
    assert state.status == "completed"
    supervised = assembly.supervising_dispatcher(assembly.worker(built), world.clock)
    assert await supervised.dispatch(FIRST) == await built.load_state("job-1")
