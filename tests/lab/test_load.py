"""Loads: bounded, repeatable, and rough on a store only where they are told to be."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from loom_backends.memory import MemoryBackend
from loom_conformance.contract.operations import (
    AcquireFence,
    Append,
    AppendBatch,
    ReadFrom,
    ReadRange,
    Unknown,
    executions_of,
)
from loom_conformance.lab.history import History, Recorder, read_history
from loom_conformance.lab.load import HUNG_TOO_OFTEN, Load, LoadRun
from loom_conformance.spi import EventEnvelope, EventStore, StoreClosedError

pytestmark = pytest.mark.asyncio

Wrap = Callable[[EventStore], Any]

NUMBERS = itertools.count()


async def played(
    load: Load, folder: Path, wrap: Wrap = lambda store: store
) -> tuple[LoadRun, History]:
    """Put a load on a storage in memory; the run, and what was recorded."""
    backend = MemoryBackend()
    address = await backend.create()
    file = folder / f"{next(NUMBERS)}.jsonl"

    async def connect() -> Any:
        return wrap(await backend.connect(address))

    with Recorder(file, "p", {}) as recorder:
        run = LoadRun(load, recorder, connect)
        await run.run()
    await backend.destroy(address)
    return run, read_history([file])


def told(history: History) -> list[str]:
    return [f"{call.handle}: {call.operation} -> {call.outcome}" for call in history.calls]


def envelopes_of(history: History) -> Iterable[EventEnvelope]:
    for call in history.calls:
        if isinstance(call.operation, Append | AppendBatch):
            yield from call.operation.envelopes


class Plain:
    """The four core methods of a store, and no ability."""

    def __init__(self, store: EventStore) -> None:
        self.store = store

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Store one envelope."""
        await self.store.append(envelope)

    async def read_from(self, execution_id: str, first: int = 0, /) -> Any:
        """The envelopes from `first` on."""
        return await self.store.read_from(execution_id, first)

    async def close(self) -> None:
        """Close."""
        await self.store.close()


async def test_one_seed_makes_the_same_calls_and_another_one_others(tmp_path: Path) -> None:
    load = Load(seed=3, calls=120, tasks=3, cancel=0.1, mischief=0.3)
    _, first = await played(load, tmp_path)
    _, again = await played(load, tmp_path)
    _, other = await played(load.seeded(4), tmp_path)
    assert told(first) == told(again)
    assert told(first) != told(other)


async def test_a_load_survives_being_sent_to_another_process() -> None:
    load = Load(seed=3, prefix="x-", weights={"append": 2}, span=False, cancel=0.5)
    assert Load.from_json(json.loads(json.dumps(load.to_json()))) == load


async def test_a_load_ends_with_its_last_call(tmp_path: Path) -> None:
    run, history = await played(Load(calls=77, tasks=5), tmp_path)
    assert len(history.calls) == 77
    assert run.counts()["calls"] == 77
    counts = history.counts()
    assert {name: run.counts()[name] for name in counts} == counts


async def test_a_load_without_time_makes_no_call(tmp_path: Path) -> None:
    _, history = await played(Load(calls=None, seconds=0.0), tmp_path)
    assert history.calls == []


async def test_a_load_that_is_stopped_begins_no_more_calls(tmp_path: Path) -> None:
    runs: list[LoadRun] = []

    class Stopping(Plain):
        calls = 0

        async def append(self, envelope: EventEnvelope, /) -> None:
            Stopping.calls += 1
            if Stopping.calls == 5:
                runs[0].stop()
            await super().append(envelope)

    backend = MemoryBackend()
    address = await backend.create()

    async def connect() -> Any:
        return Stopping(await backend.connect(address))

    with Recorder(tmp_path / "p.jsonl", "p", {}) as recorder:
        load = Load(calls=None, tasks=1, weights={"append": 1}, cancel=0.0)
        runs.append(LoadRun(load, recorder, connect))
        await runs[0].run()
    await backend.destroy(address)
    assert Stopping.calls == 5


async def test_tasks_collide_only_in_a_contended_load(tmp_path: Path) -> None:
    async def shared(*, contended: bool) -> int:
        load = Load(calls=200, tasks=3, handles=3, contended=contended, mischief=0.0)
        _, history = await played(load, tmp_path)
        writers: dict[str, set[str]] = {}
        for one in envelopes_of(history):
            assert isinstance(one.payload, dict)
            writers.setdefault(one.execution_id, set()).add(str(one.payload["by"]))
        return sum(len(several) > 1 for several in writers.values())

    assert await shared(contended=False) == 0
    assert await shared(contended=True) > 0


async def test_mischief_is_refused_and_its_absence_is_not(tmp_path: Path) -> None:
    good = Load(calls=200, tasks=2, contended=False, mischief=0.0)
    _, history = await played(good, tmp_path)
    assert history.counts()["refused"] == 0
    _, history = await played(Load(calls=200, tasks=1, mischief=0.9), tmp_path)
    assert history.counts()["refused"] > 20


async def test_executions_are_left_when_they_are_long_enough(tmp_path: Path) -> None:
    load = Load(calls=300, tasks=1, executions=1, length=5, batch=1, mischief=0.0, fenced=0.0)
    _, history = await played(load, tmp_path)
    written: dict[str, int] = {}
    for one in envelopes_of(history):
        written[one.execution_id] = max(written.get(one.execution_id, -1), one.sequence)
    assert len(written) > 10
    assert max(written.values()) == 4


async def test_only_what_the_store_can_do_is_asked_of_it(tmp_path: Path) -> None:
    _, history = await played(Load(calls=150, fenced=1.0), tmp_path, Plain)
    kinds = {type(call.operation) for call in history.calls}
    assert kinds == {Append, ReadFrom}
    _, history = await played(Load(calls=150, fenced=1.0), tmp_path)
    kinds = {type(call.operation) for call in history.calls}
    assert kinds == {Append, AppendBatch, ReadFrom, ReadRange, AcquireFence}


async def test_kinds_of_calls_without_a_weight_are_not_made(tmp_path: Path) -> None:
    _, history = await played(Load(calls=50, weights={"read": 1}, fenced=0.0), tmp_path)
    assert {type(call.operation) for call in history.calls} == {ReadFrom}


async def test_batches_span_executions_only_where_they_may(tmp_path: Path) -> None:
    async def widest(*, span: bool) -> int:
        load = Load(calls=100, weights={"batch": 1}, span=span, fenced=0.0)
        _, history = await played(load, tmp_path)
        return max(len(set(executions_of(call.operation))) for call in history.calls)

    assert await widest(span=False) == 1
    assert await widest(span=True) == 2


async def test_calls_are_cancelled_at_their_awaits(tmp_path: Path) -> None:
    class Waiting(Plain):
        async def append(self, envelope: EventEnvelope, /) -> None:
            for _ in range(10):
                await asyncio.sleep(0)
            await super().append(envelope)

    load = Load(calls=40, tasks=2, cancel=1.0, weights={"append": 1})
    run, history = await played(load, tmp_path, Waiting)
    cancelled = [call for call in history.calls if call.outcome == Unknown("cancelled")]
    assert len(cancelled) == run.cancelled == 40


async def test_a_store_that_hangs_is_not_asked_for_ever(tmp_path: Path) -> None:
    class Hanging(Plain):
        async def append(self, envelope: EventEnvelope, /) -> None:
            await asyncio.Event().wait()

    load = Load(calls=1000, tasks=1, patience=0.01, weights={"append": 1})
    run, history = await played(load, tmp_path, Hanging)
    assert run.hung == HUNG_TOO_OFTEN
    assert len(history.calls) == HUNG_TOO_OFTEN


async def test_a_handle_that_is_done_for_is_replaced(tmp_path: Path) -> None:
    opened: list[object] = []

    class ClosesItself(Plain):
        def __init__(self, store: EventStore) -> None:
            super().__init__(store)
            opened.append(self)
            self.left = 3

        async def append(self, envelope: EventEnvelope, /) -> None:
            self.left -= 1
            if self.left < 0:
                raise StoreClosedError
            await super().append(envelope)

    load = Load(calls=20, tasks=1, handles=1, weights={"append": 1}, mischief=0.0)
    run, history = await played(load, tmp_path, ClosesItself)
    assert run.reconnects == len(opened) - 1 == 5
    assert history.counts() == {"calls": 20, "ok": 15, "refused": 5, "unknown": 0}
    assert [call.handle for call in history.calls][::4] == ["h1", "h2", "h3", "h4", "h5"]
