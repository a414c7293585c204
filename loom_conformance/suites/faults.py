"""FAULT-1 to FAULT-3, and what ERR-1, ERR-3 and ERR-4 say of real faults.

Connections are cut, answers are lost after the server gave them, files are locked, filled, made
read-only and overwritten: whatever the storage's address allows. All of it is done once a session;
each test judges one side of what was seen. It is left out at the depth `quick`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from ..lab.backend_ref import UnreachableBackendError
from ..lab.calls import told_error
from ..lab.faults.observation import Harmed, Observation, Observations
from ..lab.faults.scenarios import observe
from ..lab.faults.sqlite import FaultFailed
from ..lab.processes import ChildFailed
from ..lab.session import Session
from ..lab.settings import Settings
from ..lab.stage import Stage
from ..lab.verdict import Inconclusive, NotOffered
from ..spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventStoreError,
    OutcomeUnknownError,
    StaleFenceError,
)
from .case import rule

CONFLICTS = (DuplicateSequenceError, DuplicateEnvelopeIdError, StaleFenceError)
SOONER_OR_LATER = 30
"""How many deadlines all the faults may take together."""

_SEEN: WeakKeyDictionary[Session, Observations | str] = WeakKeyDictionary()


class FaultSuite:
    """A store under faults never pretends, and works again when they have passed."""

    @rule("FAULT-1")
    async def test_a_write_whose_answer_is_lost_is_acknowledged_only_if_it_is_stored(
        self, stage: Stage
    ) -> None:
        for one in await _seen(stage, "connection"):
            stage.check(
                not one.acknowledged or one.landed == "whole",
                "a write that is acknowledged although its connection failed to be stored",
                one.line(),
            )
            stage.check(
                one.landed != "part",
                "a write whose connection failed to be there whole or not at all",
                one.line(),
            )
            stage.check(
                one.again is None,
                "a second try of a write whose answer was lost to be acknowledged only if it is "
                "stored",
                f"{one.line()}; when it was written again, {one.again}",
            )

    @rule("ERR-3")
    async def test_a_write_whose_answer_was_lost_is_not_reported_as_its_own_conflict(
        self, stage: Stage
    ) -> None:
        open_ones = []
        for one in await _seen(stage, "connection"):
            stage.check(
                one.landed == "absent" or not one.raised(*CONFLICTS, ValueError),
                "a write that landed to end with an error that leaves its outcome open",
                one.line(),
            )
            if one.landed == "whole" and not one.acknowledged:
                open_ones.append(one)
        for one in open_ones:
            stage.check(
                one.raised(OutcomeUnknownError),
                "OutcomeUnknownError for a write that landed and whose answer was lost",
                one.line(),
                advice=True,
            )

    @rule("ERR-1")
    async def test_a_failing_connection_or_storage_does_not_look_like_a_conflict(
        self, stage: Stage
    ) -> None:
        for one in await _seen(stage, "connection", "storage"):
            stage.check(
                not one.raised(*CONFLICTS) or one.landed != "absent",
                "a fault that does not look like a conflict: nothing was in the way of this write",
                one.line(),
            )

    @rule("ERR-4")
    async def test_a_failing_connection_or_storage_raises_an_event_store_error_with_its_cause(
        self, stage: Stage
    ) -> None:
        for one in await _seen(stage, "connection", "storage"):
            if one.acknowledged or one.gave_up:
                continue
            stage.check(
                one.raised(EventStoreError),
                "an EventStoreError for a fault of the storage",
                one.line(),
            )
            stage.check(one.caused is not False, "the driver's error as the cause", one.line())

    @rule("FAULT-2")
    async def test_a_handle_that_lived_through_a_fault_works_again_and_so_does_a_fresh_one(
        self, stage: Stage
    ) -> None:
        for one in await _seen(stage, "connection", "storage"):
            stage.check(
                not one.gave_up, "every call to settle although there was a fault", one.line()
            )
            stage.check(
                one.same is None,
                "the handle to work again once the fault had passed, or to say that it is closed",
                f"{one.fault}; afterwards {one.same}",
            )
            stage.check(
                one.fresh is None,
                "a fresh handle to work once the fault had passed",
                f"{one.fault}; afterwards, on a fresh handle, {one.fresh}",
            )

    @rule("FAULT-3")
    async def test_a_storage_that_cannot_be_written_acknowledges_nothing_that_it_does_not_store(
        self, stage: Stage
    ) -> None:
        for one in await _seen(stage, "storage"):
            stage.check(
                not one.acknowledged or one.landed == "whole",
                "nothing to be acknowledged that is not stored",
                one.line(),
            )
            stage.check(one.landed != "part", "a write to be whole or absent", one.line())

    @rule("FAULT-3")
    async def test_a_storage_that_cannot_be_read_is_not_taken_for_an_empty_one(
        self, stage: Stage
    ) -> None:
        await _seen(stage, "storage")
        found = _SEEN[stage.session]
        assert isinstance(found, Observations)
        for line in found.taken_for_empty:
            stage.broken("an error where the storage cannot be read", line)


async def _seen(stage: Stage, *about: Harmed) -> Sequence[Observation]:
    """What was seen under faults of these kinds.

    Raises:
        NotOffered: no fault can be brought about here.
        Inconclusive: the faults could not be done.
    """
    leave_out_when_quick(stage.settings)
    session = stage.session
    if session not in _SEEN:
        _SEEN[session] = await _observe(stage)
    found = _SEEN[session]
    if isinstance(found, str):
        raise Inconclusive(found)
    chosen = [one for one in found.seen if one.about in about]
    if not chosen:
        raise NotOffered("; ".join(found.absent) or "no fault can be brought about here")
    stage.steps += [one.line() for one in chosen]
    for kind in about:
        stage.showed(f"faults of the {kind}", faults=sum(one.about == kind for one in chosen))
    return chosen


async def _observe(stage: Stage) -> Observations | str:
    deadline = stage.settings.deadline
    try:
        async with asyncio.timeout(SOONER_OR_LATER * deadline):
            return await observe(stage.backend, deadline)
    except (FaultFailed, UnreachableBackendError, ChildFailed, TimeoutError) as error:
        return f"the faults could not be done: {told_error(error)}"
    except Exception as error:  # noqa: BLE001 - the backend's own, on a storage that is well
        return f"the storage could not be used between the faults: {told_error(error)}"


def leave_out_when_quick(settings: Settings) -> None:
    """Raise `NotOffered` at the depth `quick`: faults and loads take seconds."""
    if settings.depth == "quick":
        raise NotOffered("left out at the depth 'quick'")
