"""What a store does when the file it keeps everything in fails."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any, Final

from ...contract.operations import Append, Done
from ..processes import Child, ChildFailed, Nursery
from .address import is_postgres
from .bench import Bench
from .observation import Observations
from .process import NOBODY
from .sqlite import (
    FaultFailed,
    make_read_only,
    make_writable,
    spoil,
    sqlite_file,
    write_locked,
)

HELD: Final = 0.2
"""How long a lock is held by someone else, in seconds."""

SPARE_PAGES: Final = 20
FAT: Final = 64 * 1024
"""Payloads of this size (bytes) fill the spare pages in a few writes."""

MOST_WRITES: Final = 5


async def observe_files(bench: Bench, into: Observations) -> None:
    """Lock the file, fill its disk, forbid writing, put something else in its place."""
    path = await asyncio.to_thread(sqlite_file, bench.address)
    if path is None:
        if not is_postgres(bench.address):
            into.absent.append("the address names no SQLite file that could be harmed")
        return
    await _observe_lock(bench, path, into)
    with tempfile.TemporaryDirectory(prefix="loom-") as folder:
        async with Nursery(type(bench.backend), Path(folder)) as nursery:
            await _observe_full(bench, nursery, into)
            await _observe_read_only(bench, nursery, path, into)
    await _observe_spoilt(bench, into)


async def _observe_lock(bench: Bench, path: Path, into: Observations) -> None:
    """Another process holds the write lock for a moment."""
    store = await bench.connect()
    fault = "another process held the file's write lock"
    try:
        for write in bench.writes(store):
            async with write_locked(path):
                task = asyncio.ensure_future(bench.make(store, write))
                await asyncio.wait({task}, timeout=HELD)
                seen = None
                if task.done():
                    outcome, caused = task.result()
                    # What was acknowledged under the lock has to be there under the lock.
                    seen = await bench.observe("storage", fault, write, outcome, caused)
            if seen is None:
                outcome, caused = await task
                seen = await bench.observe("storage", fault, write, outcome, caused)
            seen.same = await bench.trouble(store)
            into.seen.append(seen)
    finally:
        await bench.close(store)


async def _observe_full(bench: Bench, nursery: Nursery, into: Observations) -> None:
    """A process whose database may not grow writes until it no longer can."""
    child = await nursery.spawn("full", bench.address, limits={"pages": SPARE_PAGES})
    await child.connect()
    writes = [Append(bench.envelopes(1, "x" * FAT)[0]) for _ in range(MOST_WRITES)]
    failed = await _observe_child(bench, child, "the disk was full", writes, into)
    if not failed:
        into.absent.append("a full disk: every write of the limited process was stored")
        return
    into.seen[-1].fresh = await bench.trouble_of_fresh()


async def _observe_read_only(
    bench: Bench, nursery: Nursery, path: Path, into: Observations
) -> None:
    """A process that may only read the file and its folder tries to write."""
    limits = {"user": NOBODY} if os.geteuid() == 0 else {}
    await asyncio.to_thread(make_read_only, path)
    try:
        child = await nursery.spawn("read-only", bench.address, limits=limits)
        try:
            await child.connect()
        except ChildFailed:
            return  # refused from the start: nothing is pretended
        writes = [Append(bench.envelopes(1)[0])]
        outcomes = [(write, await child.do(write, timeout=bench.patience)) for write in writes]
    finally:
        await asyncio.to_thread(make_writable, path)
    for write, outcome in outcomes:
        into.seen.append(await bench.observe("storage", "the file was read-only", write, outcome))
    into.seen[-1].fresh = await bench.trouble_of_fresh()


async def _observe_child(
    bench: Bench, child: Child, fault: str, writes: list[Append], into: Observations
) -> bool:
    """Have a child write; whether a write failed, or was acknowledged and is absent."""
    failed = False
    for write in writes:
        outcome = await child.do(write, timeout=bench.patience)
        seen = await bench.observe("storage", fault, write, outcome)
        if not isinstance(outcome, Done) or seen.landed != "whole":
            failed = True
            into.seen.append(seen)
    return failed


async def _observe_spoilt(bench: Bench, into: Observations) -> None:
    """The file is overwritten with something that is no database."""
    address = await bench.backend.create()
    spoilt = Bench(bench.backend, address, bench.patience)
    fault = "the file was overwritten with something else"
    try:
        store = await spoilt.connect()
        (envelope, following) = spoilt.envelopes(2)
        await store.append(envelope)
        await spoilt.close(store)
        path = await asyncio.to_thread(sqlite_file, address)
        if path is None:
            into.absent.append("a spoilt file: the storage has none")
            return
        await asyncio.to_thread(spoil, path)
        outcome, _ = await spoilt.bounded(spoilt.connect)
        if not isinstance(outcome, Done):
            return  # refused from the start: nothing is pretended
        handle: Any = outcome.value
        read, _ = await spoilt.bounded(lambda: handle.read_from(envelope.execution_id, 0))
        if isinstance(read, Done):
            into.taken_for_empty.append(f"{fault}: a read of what had been written -> {read}")
        write = Append(following)
        ended, _ = await spoilt.make(handle, write)
        if isinstance(ended, Done):
            into.taken_for_empty.append(f"{fault}: {write} -> ok")
        await spoilt.close(handle)
    except FaultFailed as error:
        into.absent.append(str(error))
    finally:
        await bench.backend.destroy(address)
