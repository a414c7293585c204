"""Child processes: they call, die, pause and wake, and what they recorded is read back."""

from __future__ import annotations

import asyncio
import os
import signal
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from lab_support import envelope

from loom_backends.sqlite import SQLiteBackend
from loom_conformance.contract.operations import AcquireFence, Append, Done, ReadFrom, Unknown
from loom_conformance.lab.backend_ref import BackendRef, UnreachableBackendError
from loom_conformance.lab.faults.moments import Moment
from loom_conformance.lab.history import read_history
from loom_conformance.lab.load import Load
from loom_conformance.lab.processes import ChildDied, ChildFailed, Nursery

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def address() -> AsyncIterator[str]:
    backend = SQLiteBackend()
    made = await backend.create()
    yield made
    await backend.destroy(made)


async def test_children_share_a_storage_and_record_what_they_do(
    address: str, tmp_path: Path
) -> None:
    async with Nursery(SQLiteBackend, tmp_path) as nursery:
        one = await nursery.spawn("one", address)
        two = await nursery.spawn("two", address)
        assert one.pid != two.pid != os.getpid()
        await one.connect()
        await two.connect()
        assert await one.do(AcquireFence("e")) == Done(1)
        written = envelope(0, fence=1)
        assert await one.do(Append(written)) == Done()
        assert await two.do(ReadFrom("e")) == Done((written,))
        await one.quit()
        await two.quit()
    history = read_history([one.history, two.history])
    assert [str(call.operation) for call in history.calls] == [
        "acquire_fence('e')",
        "append('e'[0] id='e-0' fence=1)",
        "read_from('e', 0)",
    ]
    assert [call.process for call in history.calls] == ["one", "one", "two"]
    assert history.calls[2].outcome == Done((written,))
    assert history.declared["envelope_ids"] == "store"
    assert history.torn == 0


async def test_a_killed_child_leaves_what_it_began(address: str, tmp_path: Path) -> None:
    async with Nursery(SQLiteBackend, tmp_path) as nursery:
        child = await nursery.spawn("writer", address)
        await child.connect()
        assert await child.do(Append(envelope(0))) == Done()
        with pytest.raises(ChildDied):
            await child.do(Append(envelope(1)), moment=Moment(1, 1, "KILL"))
        assert await child.ended() == signal.SIGKILL
        with pytest.raises(ChildDied):
            await child.do(Append(envelope(2)))
    history = read_history([child.history])
    assert [call.outcome for call in history.calls] == [Done(), Unknown("no answer")]
    assert history.calls[1].completed is None
    assert not history.calls[1].certain


async def test_kill_proves_that_the_child_died_of_it(address: str, tmp_path: Path) -> None:
    async with Nursery(SQLiteBackend, tmp_path) as nursery:
        killed = await nursery.spawn("killed", address)
        assert await killed.kill() is True
        left = await nursery.spawn("left", address)
        await left.quit()
        assert await left.kill() is False


async def test_a_paused_child_answers_when_it_is_woken(address: str, tmp_path: Path) -> None:
    async with Nursery(SQLiteBackend, tmp_path) as nursery:
        child = await nursery.spawn("sleeper", address)
        await child.connect()
        stopping = asyncio.ensure_future(child.do(Append(envelope(0)), moment=Moment(1, 1, "STOP")))
        assert await child.paused()
        assert not stopping.done()
        child.resume()
        assert await stopping == Done()
        assert await child.pause()
        child.resume()
        assert await child.do(ReadFrom("e")) == Done((envelope(0),))


async def test_a_load_in_a_child_can_be_stopped_and_counted(address: str, tmp_path: Path) -> None:
    async with Nursery(SQLiteBackend, tmp_path) as nursery:
        child = await nursery.spawn("busy", address)
        load = asyncio.ensure_future(child.load(Load(calls=None)))
        while not (await child.counts()).get("calls"):
            await child.connect()
        await child.stop()
        counts = await load
    history = read_history([child.history])
    assert len(history.calls) == counts["calls"]
    assert history.counts()["ok"] == counts["ok"] > 0


async def test_what_a_child_cannot_do_is_told(address: str, tmp_path: Path) -> None:
    async with Nursery(SQLiteBackend, tmp_path) as nursery:
        child = await nursery.spawn("lost", str(tmp_path / "absent" / "store.db"))
        with pytest.raises(ChildFailed, match="Error"):
            await child.connect()
        with pytest.raises(ChildFailed, match="h9"):
            await child.do(ReadFrom("e"), handle="h9")
        with pytest.raises(FileExistsError, match="once"):
            await nursery.spawn("lost", address)


async def test_a_backend_in_a_file_that_has_no_module_name_is_loaded_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "conftest_like.py"
    file.write_text(
        textwrap.dedent(
            """
            from loom_backends.sqlite import SQLiteBackend

            class Outer:
                class Mine(SQLiteBackend):
                    name = "mine"
            """
        )
    )
    reference = BackendRef("no.such.module", "Outer.Mine", str(file))
    assert reference.load().name == "mine"
    with pytest.raises(UnreachableBackendError, match="Nope"):
        BackendRef("no.such.module", "Outer.Nope", str(file)).load()
    async with Nursery(reference.load(), tmp_path) as nursery:
        child = await nursery.spawn("by-file", "unused")
        await child.quit()


async def test_a_backend_inside_a_function_cannot_be_reached(tmp_path: Path) -> None:
    class Local(SQLiteBackend):
        pass

    with pytest.raises(UnreachableBackendError, match="top of a module"):
        Nursery(Local, tmp_path)
