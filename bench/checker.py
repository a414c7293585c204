"""The checker on histories of a correct run: how fast, and how much memory the search takes.

Each history is recorded on a store in memory whose calls give way to each other, so that they
overlap, and some are cancelled, so that their outcome is unknown. It is judged as `judge` does it:
read from its file, put through the linear checks, and searched part by part.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from loom_backends.memory import MemoryBackend, MemoryEventStore
from loom_conformance.contract.model import StoreModel
from loom_conformance.lab.checker.linear import violations
from loom_conformance.lab.checker.narrowing import narrowed
from loom_conformance.lab.checker.search import Answer, Budget, search
from loom_conformance.lab.checker.store import StoreHistoryModel
from loom_conformance.lab.history import History, Recorder, declarations, read_history
from loom_conformance.lab.load import Load, LoadRun
from loom_conformance.spi import EventEnvelope

from .pairs import Plan, Result

SIZES: Final = (1_000, 10_000, 100_000)
"""Calls of a history."""

AGAIN: Final = 3
"""How often each is measured; the median counts."""

GROUP: Final = "the checker"


class Yielding(MemoryEventStore):
    """A handle whose calls let others go on before and after what they do."""

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Store one envelope."""
        await asyncio.sleep(0)
        await super().append(envelope)
        await asyncio.sleep(0)

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        """Store all envelopes or none."""
        await asyncio.sleep(0)
        await super().append_batch(envelopes)
        await asyncio.sleep(0)

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        """The envelopes from `first` on."""
        await asyncio.sleep(0)
        found = await super().read_from(execution_id, first)
        await asyncio.sleep(0)
        return found

    async def acquire_fence(self, execution_id: str, /) -> int:
        """A new current token."""
        await asyncio.sleep(0)
        token = await super().acquire_fence(execution_id)
        await asyncio.sleep(0)
        return token


async def measure(plan: Plan) -> AsyncIterator[Result]:
    """Each size in turn; a short plan measures the smallest alone."""
    for size in SIZES[: None if plan.scale >= 1 else 1]:
        with tempfile.TemporaryDirectory(prefix="loom-bench-") as folder:
            file = Path(folder) / "load.jsonl"
            await _record(file, size)
            seconds = _median(lambda file=file: read_history([file]))  # type: ignore[misc]
            history = read_history([file])
        yield Result(GROUP, f"{size:,} calls, read from the file", size / seconds)
        model = StoreModel(sparse_sequences=True)
        seconds = _median(lambda history=history, model=model: _linear(history, model))  # type: ignore[misc]
        yield Result(GROUP, f"{size:,} calls, linear checks", size / seconds)
        checker = StoreHistoryModel(model)
        parts = len(checker.parts(history.calls))
        what = f"{size:,} calls in {parts:,} parts, search"
        seconds = _median(lambda history=history, checker=checker: _search(history, checker))  # type: ignore[misc]
        yield Result(GROUP, what, size / seconds)
        peak = _peak(lambda history=history, checker=checker: _search(history, checker))  # type: ignore[misc]
        yield Result(GROUP, f"{what}, memory at its peak", peak / 2**20, unit="MiB")


async def _record(file: Path, calls: int) -> None:
    """A contended load of so many calls."""
    backend = MemoryBackend()
    address = await backend.create()
    storage = (await backend.connect(address)).storage

    async def connect() -> MemoryEventStore:
        return Yielding(storage)

    load = Load(seed=1, tasks=6, handles=3, calls=calls, cancel=0.02)
    with Recorder(file, "load", declarations(backend)) as recorder:
        await LoadRun(load, recorder, connect).run()
    await backend.destroy(address)


def _linear(history: History, model: StoreModel) -> None:
    if found := violations(history, model):
        raise RuntimeError(f"a correct run is said to break {found[0].rule}: {found[0].got}")


def _search(history: History, checker: StoreHistoryModel) -> None:
    budget = Budget(seconds=600.0)
    for part in checker.parts(history.calls):
        answer = search(checker, narrowed(part), budget).answer
        if answer is not Answer.LEGAL:
            raise RuntimeError(f"the search says of a correct run that it is {answer.value}")


def _median(work: Callable[[], object]) -> float:
    """Seconds of the processor."""
    took = []
    for _ in range(AGAIN):
        gc.collect()
        start = time.process_time()
        work()
        took.append(time.process_time() - start)
    return statistics.median(took)


def _peak(work: Callable[[], object]) -> int:
    """Bytes that Python objects took on top of what was there."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
