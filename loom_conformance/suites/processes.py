"""Rules between two processes at work: what one was told holds in the other at once.

A store that keeps something of the storage in its process (the log, the last sequence, the ids, the
fence) is right on any number of handles there, and wrong beside another process.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ..contract.operations import AcquireFence, Append, Done, ReadFrom, Refused
from ..contract.operations import Outcome as Answer
from ..lab.calls import Handle, short
from ..lab.faults.moments import Moment
from ..lab.processes import Child
from ..lab.stage import Log, Stage, difference_between
from ..lab.verdict import Inconclusive, NotOffered
from ..spi import DuplicateEnvelopeIdError, DuplicateSequenceError, EventEnvelope, is_error
from .case import rule

ACQUIRES = 60
"""How many tokens each of two processes asks for at the same time."""

PAUSES = 20
"""How often a process that acquires is stopped, wherever it is, while another acquires."""

TURNS = 3
"""How often two processes write in turn."""

STOPS = 8
"""At how many awaits of a write its process is stopped, where it has so many."""

PAUSE = 0.3
"""Seconds for an acquire beside a stopped process, if nothing is in its way."""


class ProcessSuite:
    """A handle here and a handle in another process are handles on one storage."""

    @rule("READ-5")
    async def test_a_reader_never_misses_what_another_process_acknowledged(
        self, stage: Stage
    ) -> None:
        async with _two_processes(stage) as two:
            log = Log(stage.session.fresh_id())
            await two.both_read(stage, log)
            for _ in range(TURNS):
                ours = log.envelope()
                stage.given(await two.here.append(ours))
                log.wrote(ours)
                await two.both_read(stage, log)
                theirs = log.envelope()
                await two.elsewhere_appends(stage, theirs)
                log.wrote(theirs)
                await two.both_read(stage, log)

    @rule("SEQ-1")
    async def test_a_slot_that_another_process_took_is_refused(self, stage: Stage) -> None:
        async with _two_processes(stage) as two:
            log = Log(stage.session.fresh_id())
            for _ in range(TURNS):
                ours = log.envelope()
                stage.given(await two.here.append(ours))
                log.wrote(ours)
                told = await two.child.do(Append(log.envelope(ours.sequence, id=f"{ours.id} too")))
                stage.check(
                    isinstance(told, Refused) and "DuplicateSequenceError" in told.bases,
                    "DuplicateSequenceError in another process for a slot that this one took",
                    f"{short(log.execution_id)} at {ours.sequence} again → {told}",
                )
                theirs = log.envelope()
                await two.elsewhere_appends(stage, theirs)
                log.wrote(theirs)
                rival = log.envelope(theirs.sequence, id=f"{theirs.id} too")
                outcome = await two.here.append(rival)
                if not is_error(outcome.error, DuplicateSequenceError):
                    stage.broken(
                        "DuplicateSequenceError for a slot that another process took",
                        outcome.line(),
                    )
            await stage.holds(log, handle=two.here)

    @rule("ID-1")
    async def test_an_envelope_id_that_another_process_took_is_refused(self, stage: Stage) -> None:
        async with _two_processes(stage) as two:
            log, other = Log(stage.session.fresh_id()), Log(stage.session.fresh_id())
            theirs, ours = log.envelope(0), log.envelope(1)
            await two.elsewhere_appends(stage, theirs)
            stage.given(await two.here.append(ours))
            log.envelopes += [theirs, ours]
            writers = log, other
            for where in writers if stage.backend.envelope_ids == "store" else writers[:1]:
                rival = where.envelope(id=theirs.id)
                outcome = await two.here.append(rival)
                if not is_error(outcome.error, DuplicateEnvelopeIdError):
                    stage.broken(
                        "DuplicateEnvelopeIdError for an id that another process took",
                        outcome.line(),
                    )
                told = await two.child.do(Append(where.envelope(id=ours.id)))
                stage.check(
                    isinstance(told, Refused) and "DuplicateEnvelopeIdError" in told.bases,
                    "DuplicateEnvelopeIdError in another process for an id that this one took",
                    f"{short(ours.id)} again → {told}",
                )
            await stage.holds(log, other, handle=two.here)

    @rule("FENCE-2")
    async def test_simultaneous_acquires_of_two_processes_get_different_tokens(
        self, stage: Stage
    ) -> None:
        await stage.needs("fencing")
        _needs_two_processes(stage)
        address = await stage.own_storage()
        name = stage.session.fresh_id()
        async with stage.nursery() as nursery:
            one, other = [await nursery.spawn(f"node-{number}", address) for number in range(2)]
            for child in (one, other):
                await child.connect()
            calls = [
                child.do(AcquireFence(name)) for _ in range(ACQUIRES) for child in (one, other)
            ]
            answers = await asyncio.gather(*calls)
            answers += await _acquired_around(one, other, name)
        tokens = [told.value for told in answers if isinstance(told, Done)]
        stage.check(
            len(tokens) == len(answers),
            "every acquire to succeed",
            f"{len(answers) - len(tokens)} of {len(answers)} did not: "
            f"{next((told for told in answers if not isinstance(told, Done)), None)}",
        )
        twice = sorted(token for token, count in Counter(tokens).items() if count > 1)
        stage.check(
            not twice,
            "simultaneous acquires in two processes to get different tokens",
            f"{len(tokens)} acquires got {len(set(tokens))} tokens; more than one got {twice[:5]}",
        )

    @rule("FENCE-8")
    async def test_a_stopped_process_does_not_write_past_an_acquire_elsewhere(
        self, stage: Stage
    ) -> None:
        await stage.needs("fencing")
        async with _two_processes(stage) as two:
            for place in range(1, STOPS + 1):
                if not await _stopped_at(stage, two.here, two.child, place):
                    break


def _needs_two_processes(stage: Stage) -> None:
    stage.needs_to_outlive_processes()
    if stage.backend.one_process_at_a_time:
        raise NotOffered("no second process can open the storage")


@dataclass(frozen=True, slots=True)
class _Two:
    """A handle in this process and one in another, on one storage."""

    here: Handle
    child: Child

    async def elsewhere_appends(self, stage: Stage, envelope: EventEnvelope) -> None:
        """Have the other process store an envelope, for the test's sake."""
        told = await self.child.do(Append(envelope))
        if not isinstance(told, Done):
            raise Inconclusive(f"set-up failed: another process appends → {told}")
        stage.steps.append(f"another process appends {short(envelope.id)} → ok")

    async def both_read(self, stage: Stage, log: Log) -> None:
        """Check that both processes read what was acknowledged to either."""
        await stage.holds(log, handle=self.here, expected=WHOLE)
        told = await self.child.do(ReadFrom(log.execution_id))
        stage.steps.append(f"another process reads {short(log.execution_id)} → {told}")
        found: Sequence[object] = told.value if isinstance(told, Done) else ()
        difference = difference_between(log.envelopes, found)
        if difference:
            stage.broken(WHOLE, f"another process reads {short(log.execution_id)}: {difference}")


WHOLE = "what was acknowledged in one process to be read in every other from then on"


@asynccontextmanager
async def _two_processes(stage: Stage) -> AsyncIterator[_Two]:
    _needs_two_processes(stage)
    address = await stage.own_storage()
    async with stage.nursery() as nursery:
        child = await nursery.spawn("elsewhere", address)
        await child.connect()
        yield _Two(await stage.connect(address, name="here"), child)


async def _acquired_around(one: Child, other: Child, name: str) -> list[Answer]:
    """What a process is told that acquires all the while and is stopped again and again.

    Whenever it stands still, `other` acquires too; it may have to wait for a lock that `one` holds.
    """
    busy = [asyncio.ensure_future(one.do(AcquireFence(name))) for _ in range(PAUSES * 10)]
    beside: list[asyncio.Future[Answer]] = []
    for _ in range(PAUSES):
        if busy[-1].done() or not await one.pause():
            break
        beside.append(asyncio.ensure_future(other.do(AcquireFence(name))))
        await asyncio.wait(beside[-1:], timeout=PAUSE / 6)
        one.resume()
    return list(await asyncio.gather(*busy, *beside))


async def _stopped_at(stage: Stage, handle: Handle, child: Child, place: int) -> bool:
    """Acquire while a writer elsewhere is stopped at an await; whether its write has that await."""
    log = Log(stage.session.fresh_id())
    told = await child.do(AcquireFence(log.execution_id))
    if not isinstance(told, Done):
        raise Inconclusive(f"set-up failed: another process acquires a token → {told}")
    log.token = told.value
    write = child.do(Append(log.envelope()), moment=Moment(1, place, "STOP"))
    writing, stopping = asyncio.ensure_future(write), asyncio.ensure_future(child.paused())
    bound = stage.settings.deadline
    await asyncio.wait({writing, stopping}, timeout=bound, return_when=asyncio.FIRST_COMPLETED)
    if not stopping.done():
        await child.kill()
        await asyncio.wait({writing, stopping})
        if writing.exception() is not None:
            raise Inconclusive("the writer neither stopped nor ended its write")
        return False
    stage.steps.append(f"another process, under {log.token}, is stopped at await {place} of append")
    acquiring = asyncio.ensure_future(handle.acquire_fence(log.execution_id))
    # It may have to wait for a lock that the stopped process holds, and then shows nothing.
    await asyncio.wait({acquiring}, timeout=PAUSE)
    before = await stage.read(handle, log.execution_id) if acquiring.done() else None
    child.resume()
    told = await writing
    stage.steps.append(f"it goes on, and its append → {told}")
    newer = stage.given(await acquiring)
    after = await stage.read(handle, log.execution_id)
    stage.check(
        before is None or after == before,
        f"no write under {log.token} to land once an acquire had returned {newer}",
        f"{len(before or [])} envelopes were read then, and {len(after)} later",
    )
    return True
