"""Writes on a storage that is harmed: what is acknowledged is looked for, and waits are bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from loom_backends.memory import MemoryBackend
from loom_conformance.contract.operations import Append
from loom_conformance.lab.faults import bench as bench_module
from loom_conformance.lab.faults.bench import Bench
from loom_conformance.spi import EventEnvelope, EventStore, EventStoreError

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def benched(patience: float = 5.0) -> AsyncIterator[tuple[Bench, EventStore]]:
    backend = MemoryBackend()
    await backend.start()
    address = await backend.create()
    bench = Bench(backend, address, patience)
    store = await bench.connect()
    yield bench, store
    await bench.close(store)
    await backend.destroy(address)
    await backend.stop()


class Pretending:
    """Acknowledges every write, and stores none."""

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Do nothing."""


class Failing:
    """Fails every write."""

    def __init__(self) -> None:
        self.tries = 0

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Fail."""
        self.tries += 1
        raise EventStoreError("broken")


async def test_a_second_try_that_is_acknowledged_and_stored_is_no_pretence() -> None:
    async with benched() as (bench, store):
        (write,) = [Append(one) for one in bench.envelopes(1)]
        assert await bench.pretence(store, write) is None


async def test_a_second_try_that_is_refused_is_no_pretence() -> None:
    async with benched() as (bench, store):
        (write,) = [Append(one) for one in bench.envelopes(1)]
        await store.append(write.envelope)
        assert await bench.pretence(store, write) is None


async def test_a_second_try_that_is_acknowledged_and_absent_is_told() -> None:
    async with benched() as (bench, _):
        (write,) = [Append(one) for one in bench.envelopes(1)]
        told = await bench.pretence(Pretending(), write)  # type: ignore[arg-type]
        assert told is not None
        assert told.endswith("-> ok, and it is absent")


async def test_a_write_that_is_acknowledged_and_absent_is_trouble() -> None:
    async with benched() as (bench, store):
        assert await bench.trouble(store) is None
        told = await bench.trouble(Pretending())  # type: ignore[arg-type]
        assert told is not None
        assert told.endswith("-> ok, and it is absent")


async def test_handles_after_one_that_stayed_broken_are_not_waited_for_as_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_module, "BRIEFLY", 0.0)
    async with benched(patience=0.1) as (bench, store):
        first, second = Failing(), Failing()
        assert "broken" not in str(await bench.trouble(store))
        assert "EventStoreError" in str(await bench.trouble(first))  # type: ignore[arg-type]
        assert "EventStoreError" in str(await bench.trouble(second))  # type: ignore[arg-type]
        assert (first.tries > 1, second.tries) == (True, 1)
        assert await bench.trouble(store) is None
