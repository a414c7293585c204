"""The loop that outlives what a store does to it."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator

import pytest

from loom_conformance.lab.loop import BoundedLoop, LoopBlocked, LoopLost

PATIENCE = 0.2


@pytest.fixture
def loop() -> Iterator[BoundedLoop]:
    bounded = BoundedLoop(PATIENCE)
    yield bounded
    bounded.close()


async def _answer() -> str:
    await asyncio.sleep(0)
    return "answer"


def test_one_loop_serves_many_runs(loop: BoundedLoop) -> None:
    async def running() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    assert loop.run(running) is loop.run(running)


def test_a_call_that_blocks_the_thread_is_interrupted(loop: BoundedLoop) -> None:
    async def block() -> None:
        while True:
            time.monotonic()

    with pytest.raises(LoopBlocked, match="did not turn"):
        loop.run(block)
    assert loop.run(_answer) == "answer"


def test_a_call_that_sleeps_in_the_thread_is_interrupted(loop: BoundedLoop) -> None:
    async def block() -> None:
        time.sleep(60)  # noqa: ASYNC251 - the fault under test

    with pytest.raises(LoopBlocked):
        loop.run(block)


def test_a_stopped_loop_is_replaced(loop: BoundedLoop) -> None:
    async def stop() -> None:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(60)

    with pytest.raises(LoopLost, match="stopped"):
        loop.run(stop)
    assert loop.run(_answer) == "answer"


def test_a_task_that_ignores_cancellation_does_not_hold_up_the_end() -> None:
    stubborn = BoundedLoop(PATIENCE)

    async def leave_one_behind() -> asyncio.Task[None]:
        async def ignore() -> None:
            while True:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    continue

        task = asyncio.create_task(ignore())
        await asyncio.sleep(0)
        return task

    task = stubborn.run(leave_one_behind)
    stubborn.close()
    assert not task.done()
    assert stubborn.run(_answer) == "answer"
    stubborn.close()


def test_someone_elses_alarm_is_left_alone() -> None:
    fired = []
    before = signal.signal(signal.SIGALRM, lambda *_: fired.append(True))
    signal.setitimer(signal.ITIMER_REAL, 3600)
    try:
        loop = BoundedLoop(PATIENCE)
        assert loop.run(_answer) == "answer"
        loop.close()
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 3000
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_the_alarm_and_its_handler_are_given_back() -> None:
    before = signal.getsignal(signal.SIGALRM)
    loop = BoundedLoop(PATIENCE)
    loop.run(_answer)
    loop.close()
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
