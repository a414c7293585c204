"""DUR-1 to DUR-5: what was acknowledged is there after the end of a handle, a process, a server.

Child processes write under load and are killed with SIGKILL at moments spread over their calls:
at a chosen await of a chosen call. Each keeps a history of its own on disk, so what it was told
before it died is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from ..backend import Crashing
from ..contract.operations import (
    AcquireFence,
    Append,
    AppendBatch,
    Done,
    Operation,
    Unknown,
)
from ..contract.operations import Outcome as CallOutcome
from ..lab.calls import Handle, Outcome, settle, short
from ..lab.checker.call import Call
from ..lab.faults.moments import Moment
from ..lab.history import read_history
from ..lab.load import Load
from ..lab.processes import ChildDied, Nursery
from ..lab.stage import Log, Stage
from ..lab.verdict import Inconclusive, NotOffered
from ..spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    StaleFenceError,
    StoreClosedError,
    is_error,
)
from .case import rule

KILLS = 6
Made = Call[Operation, CallOutcome]

CALLS_BEFORE = 25
AWAITS = 4
TAKEN = (DuplicateSequenceError, DuplicateEnvelopeIdError)

GOOD: Mapping[str, Any] = {"contended": False, "mischief": 0.0}
"""Writes that nothing speaks against: one that is refused, or replaced, says nothing of death."""

ANYTHING: Mapping[str, Any] = {
    **GOOD,
    "tasks": 2,
    "weights": {"append": 50, "batch": 20, "read": 5, "fence": 15},
}
BATCHES: Mapping[str, Any] = {
    **GOOD,
    "tasks": 1,
    "weights": {"batch": 1},
    "batch": 8,
    "fenced": 0.0,
}


class DurabilitySuite:
    """Acknowledged is for good."""

    @rule("DUR-1")
    async def test_acknowledged_writes_survive_close_and_reopen(self, stage: Stage) -> None:
        stage.needs_to_outlive_processes()
        address = await stage.own_storage()
        log = Log(stage.session.fresh_id())
        handle = await stage.connect(address)
        for _ in range(3):
            stage.given(await handle.append(log.envelope()))
            log.wrote(log.envelope())
        if await stage.offers("batch"):
            batch = [log.envelope(log.next + place) for place in range(3)]
            stage.given(await handle.append_batch(batch))
            log.envelopes += batch
        if await stage.offers("fencing"):
            log.token = stage.given(await handle.acquire_fence(log.execution_id))
        stage.given(await handle.close())
        for _ in range(2):
            again = await stage.connect(address, name="reopened")
            await stage.holds(log, handle=again)
            envelope = log.envelope()
            stage.returned(await again.append(envelope), "the reopened storage to take writes")
            log.wrote(envelope)
            await _id_stays_taken(stage, again, log, log.envelopes[0], "close and reopen")
            stage.given(await again.close())

    @rule("DUR-2")
    async def test_acknowledged_writes_survive_the_death_of_the_writer(self, stage: Stage) -> None:
        async for death in _deaths(stage):
            for envelope in death.acknowledged:
                found = await death.read(stage, envelope.execution_id)
                stage.check(
                    envelope in found,
                    "every acknowledged envelope to survive the writer's death by SIGKILL",
                    f"{short(envelope.execution_id)} at {envelope.sequence} was acknowledged and "
                    f"is gone; a fresh handle reads {len(found)} envelopes",
                )

    @rule("DUR-3")
    async def test_a_batch_cut_by_death_is_whole_or_absent(self, stage: Stage) -> None:
        await stage.needs("batch")
        async for death in _deaths(stage, batches=True):
            for call in death.cut:
                if not isinstance(call.operation, AppendBatch):
                    continue
                there = 0
                for envelope in call.operation.envelopes:
                    there += envelope in await death.read(stage, envelope.execution_id)
                stage.check(
                    there in (0, len(call.operation.envelopes)),
                    "a batch cut by the writer's death to be there whole or not at all",
                    f"{there} of its {len(call.operation.envelopes)} envelopes are there",
                )

    @rule("DUR-4")
    async def test_uniqueness_and_fences_hold_after_the_death_of_the_writer(
        self, stage: Stage
    ) -> None:
        async for death in _deaths(stage):
            await _still_unique(stage, death)
            await _still_fenced(stage, death)
            log = Log(stage.session.fresh_id())
            outcome = await death.handle.append(log.envelope())
            stage.returned(outcome, "the storage to take writes without repair by hand")

    @rule("DUR-5")
    async def test_acknowledged_writes_survive_the_death_of_the_server(self, stage: Stage) -> None:
        stage.needs_to_outlive_processes()
        crash = _crash_of(stage)
        await stage.session.about_to_crash()
        address = await stage.own_storage()
        handle = await stage.connect(address, name="live")
        log, told = Log(stage.session.fresh_id()), list[tuple[EventEnvelope, Outcome[None]]]()
        if await stage.offers("fencing"):
            log.token = stage.given(await handle.acquire_fence(log.execution_id))
        for _ in range(5):
            stage.given(await handle.append(log.envelope()))
            log.wrote(log.envelope())
        flying = [Log(stage.session.fresh_id()).envelope() for _ in range(6)]
        calls = [asyncio.ensure_future(handle.append(envelope)) for envelope in flying]
        await asyncio.sleep(0)
        stage.given(
            await settle("crash()", "crash", lambda: crash(address), stage.settings.deadline * 6)
        )
        stage.showed(faults=1)
        told = list(zip(flying, await asyncio.gather(*calls), strict=True))
        await _recovers_or_says_closed(stage, handle, log)
        async with stage.fresh(address) as reader:
            found = await stage.read(reader, log.execution_id)
            stage.check(
                found[: len(log.envelopes)] == log.envelopes,
                "what was acknowledged before the server died to be there after it",
                f"{len(found)} of {len(log.envelopes)} envelopes are there",
            )
            for envelope, outcome in told:
                there = await stage.read(reader, envelope.execution_id)
                stage.check(
                    there == [envelope] or not outcome.ok,
                    "a write acknowledged as the server died to be stored",
                    f"{outcome.line()}, and it is absent",
                )
        await _rules_after_a_crash(stage, address, log)


class _Death:
    """A writer that died, what it had been told, and a handle opened after it."""

    def __init__(self, calls: Sequence[Made], handle: Handle) -> None:
        self.handle = handle
        self.acknowledged: list[EventEnvelope] = []
        self.tokens: dict[str, int] = {}
        self.uncertain: set[str] = set()
        self.cut = [call for call in calls if isinstance(call.outcome, Unknown)]
        self._read: dict[str, list[EventEnvelope]] = {}
        for call in calls:
            operation, outcome = call.operation, call.outcome
            if isinstance(operation, Append | AppendBatch) and isinstance(outcome, Done):
                self.acknowledged += operation.envelopes
            elif isinstance(operation, AcquireFence) and isinstance(outcome, Done):
                name = operation.execution_id
                self.tokens[name] = max(outcome.value, self.tokens.get(name, 0))
            elif isinstance(operation, AcquireFence):
                self.uncertain.add(operation.execution_id)

    async def read(self, stage: Stage, execution_id: str) -> list[EventEnvelope]:
        if execution_id not in self._read:
            self._read[execution_id] = await stage.read(self.handle, execution_id)
        return self._read[execution_id]


async def _deaths(stage: Stage, *, batches: bool = False) -> AsyncIterator[_Death]:
    """Writers killed one after another, each on a storage that the last one left behind."""
    stage.needs_to_outlive_processes()
    address = await stage.own_storage()
    kills = max(3, stage.settings.rounds(KILLS))
    async with stage.nursery() as nursery:
        for number in range(kills):
            # Every store waits at least once in a write; who waits more often is cut there too.
            moment = Moment(
                call=stage.random.randint(1, CALLS_BEFORE),
                suspension=1 + number % AWAITS,
                signal="KILL",
            )
            load = Load(
                seed=stage.random.randrange(2**32),
                prefix=f"d{number}-",
                handles=1,
                calls=CALLS_BEFORE * 4,
                length=12,
                patience=stage.settings.deadline,
                **(BATCHES if batches else ANYTHING),
            )
            calls = await _killed(stage, nursery, address, number, load, moment)
            handle = await stage.connect(address, name="after")
            yield _Death(calls, handle)
            await stage.session.discard(handle)


async def _killed(
    stage: Stage, nursery: Nursery, address: str, number: int, load: Load, moment: Moment
) -> list[Made]:
    """Run a load in a child until it is killed, and give back what it recorded."""
    child = await nursery.spawn(f"writer-{number}", address)
    await child.connect()
    working = asyncio.ensure_future(child.load(load, moment))
    bound = stage.settings.deadline * 6
    await asyncio.wait({working}, timeout=bound)
    died = await child.kill()
    try:
        await working
    except ChildDied:
        stage.steps.append(f"writer {number} killed at await {moment.suspension} of a call")
    if not died:
        raise Inconclusive(f"writer {number} did not die of SIGKILL, so nothing was shown")
    stage.showed(faults=1)
    return list(read_history([child.history]).calls)


async def _still_unique(stage: Stage, death: _Death) -> None:
    for envelope in death.acknowledged[-3:]:
        name = envelope.execution_id
        log = Log(name, token=death.tokens.get(name))
        if name in death.uncertain or (log.token is None and "fence" in envelope.metadata):
            continue
        rival = log.envelope(envelope.sequence, id=f"rival-{envelope.id}"[:300])
        outcome = await death.handle.append(rival)
        if not is_error(outcome.error, DuplicateSequenceError):
            stage.broken("a taken slot to stay taken after the writer's death", outcome.line())
        log.envelopes = await death.read(stage, name)
        await _id_stays_taken(stage, death.handle, log, envelope, "the writer's death")


async def _id_stays_taken(
    stage: Stage, handle: Handle, log: Log, envelope: EventEnvelope, event: str
) -> None:
    """Check that the envelope's id is refused at a free slot."""
    outcome = await handle.append(log.envelope(id=envelope.id))
    if not is_error(outcome.error, DuplicateEnvelopeIdError):
        stage.broken(f"a taken envelope id to stay taken after {event}", outcome.line())


async def _still_fenced(stage: Stage, death: _Death) -> None:
    for name, token in list(death.tokens.items())[-3:]:
        last = max((one.sequence for one in await death.read(stage, name)), default=-1)
        unfenced = Log(name).envelope(last + 1)
        outcome = await death.handle.append(unfenced)
        if not is_error(outcome.error, StaleFenceError):
            stage.broken("a fence to hold after the writer's death", outcome.line())
        newer = stage.given(await death.handle.acquire_fence(name))
        stage.check(
            newer > token,
            f"tokens to grow past {token} after the writer's death",
            f"{name!r} got {newer}",
        )


def _crash_of(stage: Stage) -> Callable[[str], Awaitable[None]]:
    if not isinstance(stage.backend, Crashing):
        raise NotOffered("the backend cannot crash its server")
    return stage.backend.crash


async def _recovers_or_says_closed(stage: Stage, handle: Handle, log: Log) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + stage.settings.deadline * 2
    while True:
        outcome: Outcome[Any] = await handle.read_from(log.execution_id)
        if outcome.ok or is_error(outcome.error, StoreClosedError):
            return
        if loop.time() > until:
            stage.broken(
                "a live handle to recover after the server is back, or to say that it is closed",
                outcome.line(),
            )
        await asyncio.sleep(0.05)


async def _rules_after_a_crash(stage: Stage, address: str, log: Log) -> None:
    handle = await stage.connect(address, name="after")
    rival = log.envelope(0, id=f"rival-{log.execution_id}")
    outcome = await handle.append(rival)
    if not is_error(outcome.error, *TAKEN):
        stage.broken("a taken slot to stay taken after the server's death", outcome.line())
    if log.token is not None:
        outcome = await handle.append(log.envelope(token=None))
        if not is_error(outcome.error, StaleFenceError):
            stage.broken("a fence to hold after the server's death", outcome.line())
        newer = stage.given(await handle.acquire_fence(log.execution_id))
        stage.check(newer > log.token, f"a token above {log.token}", f"it is {newer}")
        log.token = newer
    stage.returned(await handle.append(log.envelope()), "the storage to take writes")
