"""What a store does when the connection to its server fails."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Literal

from ...contract.operations import Append, Done, Write
from ...spi import EventStore
from ..history import perform
from .address import Endpoint, endpoint_of, is_postgres, postgres_read_only, through
from .bench import Bench
from .observation import Observation, Observations
from .postgres import tables_locked, tagged, terminate
from .proxy import Proxy, Trap

MOST_ROUNDS: Final = 8
"""A write of more round trips is not hit in its later ones."""

HELD: Final = 0.2
"""How long a lock is held by someone else, in seconds."""

NOWHERE: Final = Endpoint("127.0.0.1", 1)


async def observe_connections(bench: Bench, into: Observations) -> None:
    """Lose requests and answers, cut connections, make the server unreachable."""
    endpoint = endpoint_of(bench.backend, bench.address)
    if endpoint is None:
        into.absent.append("the address names no server whose connections could be harmed")
        return
    async with Proxy(endpoint) as proxy:
        address = through(bench.backend, bench.address, *proxy.listening)
        for loss in ("answer", "request"):
            await _observe_losses(bench, proxy, address, loss, into)
        await _observe_a_cut(bench, proxy, address, into)
        await _observe_no_server(bench, proxy, address, into)
    if is_postgres(bench.address):
        await _observe_termination(bench, into)
        await _observe_read_only(bench, into)
        await _observe_locked_tables(bench, into)


async def _warm(bench: Bench, store: EventStore) -> None:
    """Have the store do once what it will be hit at, so that set-up is not what is hit."""
    for write in bench.writes(store):
        await perform(store, write)
        await bench.read(write.envelopes[0].execution_id, store)


async def _observe_losses(
    bench: Bench,
    proxy: Proxy,
    address: str,
    loss: Literal["answer", "request"],
    into: Observations,
) -> None:
    """Lose each round of each kind of write, on a handle of its own."""
    kinds = 1
    kind = 0
    while kind < kinds:
        for number in range(1, MOST_ROUNDS + 1):
            store = await bench.connect(address)
            try:
                await _warm(bench, store)
                writes = bench.writes(store)
                kinds = len(writes)
                seen = await _lose(bench, proxy, store, writes[kind], Trap(loss, number))
                if seen is None:
                    break
                if not seen.acknowledged:
                    seen.again = await bench.pretence(store, writes[kind])
                seen.same = await bench.trouble(store)
                seen.fresh = await bench.trouble_of_fresh(address)
                into.seen.append(seen)
            finally:
                await bench.close(store)
        kind += 1


async def _lose(
    bench: Bench, proxy: Proxy, store: EventStore, write: Write, trap: Trap
) -> Observation | None:
    """One write with one round lost; `None` where it has fewer rounds."""
    before = len(proxy.sprung)
    proxy.set(trap)
    outcome, caused = await bench.make(store, write)
    proxy.set(None)
    if len(proxy.sprung) == before:
        return None
    fault = f"the {trap.loss} of round trip {trap.round} was lost"
    sent = trap.loss == "answer"
    return await bench.observe("connection", fault, write, outcome, caused, sent=sent)


async def _observe_a_cut(bench: Bench, proxy: Proxy, address: str, into: Observations) -> None:
    """Cut the idle connections of a handle."""
    store = await bench.connect(address)
    try:
        await _warm(bench, store)
        if not await proxy.cut():
            into.absent.append("a cut of idle connections: the handle had none")
            return
        write = bench.writes(store)[0]
        outcome, caused = await bench.make(store, write)
        fault = "its connections were cut"
        seen = await bench.observe("connection", fault, write, outcome, caused, sent=True)
        seen.same = await bench.trouble(store)
        into.seen.append(seen)
    finally:
        await bench.close(store)


async def _observe_no_server(bench: Bench, proxy: Proxy, address: str, into: Observations) -> None:
    """Make the server unreachable for a while."""
    store = await bench.connect(address)
    upstream = proxy.upstream
    try:
        await _warm(bench, store)
        proxy.upstream = NOWHERE
        await proxy.cut()
        made = [(write, *await bench.make(store, write)) for write in bench.writes(store)]
        proxy.upstream = upstream
        for write, outcome, caused in made:
            fault = "the server was unreachable"
            seen = await bench.observe("storage", fault, write, outcome, caused)
            into.seen.append(seen)
        into.seen[-1].same = await bench.trouble(store)
        into.seen[-1].fresh = await bench.trouble_of_fresh(address)
    finally:
        proxy.upstream = upstream
        await bench.close(store)


async def _observe_termination(bench: Bench, into: Observations) -> None:
    """End a handle's sessions on the server."""
    name = "loom-terminated"
    store = await bench.connect(tagged(bench.address, name))
    try:
        await _warm(bench, store)
        if not await terminate(bench.address, name):
            into.absent.append("pg_terminate_backend: the store sets its own application_name")
            return
        write = bench.writes(store)[0]
        outcome, caused = await bench.make(store, write)
        fault = "its sessions were ended by pg_terminate_backend"
        seen = await bench.observe("connection", fault, write, outcome, caused, sent=True)
        seen.same = await bench.trouble(store)
        into.seen.append(seen)
    finally:
        await bench.close(store)


async def _observe_read_only(bench: Bench, into: Observations) -> None:
    """Write in sessions that may not."""
    outcome, _ = await bench.bounded(lambda: bench.connect(postgres_read_only(bench.address)))
    if not isinstance(outcome, Done):
        return  # refused from the start: nothing is pretended
    store: Any = outcome.value
    try:
        for write in bench.writes(store):
            ended, caused = await bench.make(store, write)
            fault = "its sessions were read-only"
            into.seen.append(await bench.observe("storage", fault, write, ended, caused))
    finally:
        await bench.close(store)


async def _observe_locked_tables(bench: Bench, into: Observations) -> None:
    """Hold the tables against writers for a moment."""
    store = await bench.connect()
    write = Append(bench.envelopes(1)[0])
    fault = "its tables were locked by another session"
    try:
        await _warm(bench, store)
        async with tables_locked(bench.address) as tables:
            if not tables:
                into.absent.append("a lock on its tables: it has none in the schema")
                return
            task = asyncio.ensure_future(bench.make(store, write))
            await asyncio.wait({task}, timeout=HELD)
            seen = None
            if task.done():
                outcome, caused = task.result()
                seen = await bench.observe("storage", fault, write, outcome, caused)
        outcome, caused = await task
        if seen is None:
            seen = await bench.observe("storage", fault, write, outcome, caused)
        seen.same = await bench.trouble(store)
        into.seen.append(seen)
    finally:
        await bench.close(store)
