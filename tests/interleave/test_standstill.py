"""A call held at a resumption, whichever of its tasks that is one of."""

from __future__ import annotations

import asyncio

import pytest

from loom_conformance.interleave.standstill import Standstill

pytestmark = pytest.mark.asyncio


class Ledger:
    """Writes down what was done, half of it in a task."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def work(self) -> str:
        self.done.append("begun")
        await asyncio.sleep(0)
        await asyncio.create_task(self._inner())
        self.done.append("ended")
        return "result"

    async def _inner(self) -> None:
        self.done.append("inner begun")
        await asyncio.sleep(0)
        self.done.append("inner ended")


STAGES = ["begun", "inner begun", "inner ended", "ended"]


@pytest.mark.parametrize(("place", "done"), [(1, 1), (2, 1), (3, 2), (4, 3)])
async def test_call_stands_at_every_resumption_of_its_own_and_of_its_tasks(
    place: int, done: int
) -> None:
    ledger = Ledger()
    standstill = Standstill(place)
    call = asyncio.ensure_future(standstill.lead(ledger.work))
    await standstill.stands.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert ledger.done == STAGES[:done]
    standstill.go_on()
    assert await call == "result"
    assert ledger.done == STAGES


async def test_call_with_fewer_resumptions_never_stands() -> None:
    standstill = Standstill(5)
    assert await standstill.lead(Ledger().work) == "result"
    assert not standstill.stands.is_set()


async def test_tasks_of_others_go_on_meanwhile() -> None:
    standstill = Standstill(1)
    call = asyncio.ensure_future(standstill.lead(Ledger().work))
    await standstill.stands.wait()
    assert await asyncio.create_task(Ledger().work()) == "result"
    standstill.go_on()
    await call


async def test_task_factory_of_the_loop_is_used_and_comes_back() -> None:
    loop = asyncio.get_running_loop()
    made: list[str] = []

    def factory(loop: asyncio.AbstractEventLoop, work: object, **options: object) -> object:
        made.append("task")
        return asyncio.Task(work, loop=loop, **options)  # type: ignore[arg-type]

    loop.set_task_factory(factory)  # type: ignore[arg-type]
    try:
        standstill = Standstill(3)
        standstill.go_on()
        await standstill.lead(Ledger().work)
        assert made == ["task"]
        assert loop.get_task_factory() is factory
    finally:
        loop.set_task_factory(None)


async def test_failure_of_a_task_reaches_the_caller() -> None:
    async def failing() -> None:
        await asyncio.sleep(0)
        raise ValueError("from within")

    async def work() -> None:
        await asyncio.create_task(failing())

    standstill = Standstill(2)
    call = asyncio.ensure_future(standstill.lead(work))
    await standstill.stands.wait()
    standstill.go_on()
    with pytest.raises(ValueError, match="from within"):
        await call
