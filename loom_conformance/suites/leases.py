"""LEASE-1 to LEASE-10: one holder at a time, by one clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ..backend import Aging
from ..lab.burst import burst, must_have_met
from ..lab.calls import Outcome, short
from ..lab.leases import (
    LONG,
    LeaseHandle,
    Passing,
    SkewedNode,
    lease_handles,
)
from ..lab.stage import Stage
from ..lab.values import LOOKALIKES, made_unique
from ..lab.verdict import NotOffered
from .case import rule

DAY = 24 * 3600.0


class LeasesSuite:
    """Claims, renewals and releases of named leases."""

    @rule("LEASE-1")
    async def test_a_live_lease_is_granted_to_nobody_else(self, stage: Stage) -> None:
        async with lease_handles(stage, 2) as handles:
            name = stage.session.fresh_id()
            await _granted(stage, handles[0].claim(name, "node-1"))
            await asyncio.sleep(0.1)  # a time to live taken in milliseconds would be over
            for handle in handles:
                for holder in ("node-2", "node-1"):
                    await _refused(stage, handle.claim(name, holder), "the lease is live")

    @rule("LEASE-1")
    async def test_a_refused_claim_does_not_move_the_end(self, stage: Stage) -> None:
        passing = Passing(stage)
        async with lease_handles(stage, 2) as (one, two):
            name = stage.session.fresh_id()
            await _granted(stage, one.claim(name, "node-1", passing.short))
            await _refused(stage, two.claim(name, "node-2", LONG * 10), "the lease is live")
            await passing.past()
            await _granted(stage, two.claim(name, "node-2"), "the lease has ended")

    @rule("LEASE-1")
    async def test_a_lease_of_a_week_is_live_on_its_sixth_day(self, stage: Stage) -> None:
        if not isinstance(stage.backend, Aging):
            raise NotOffered("the backend has no age_leases, and no test waits for days")
        passing = Passing(stage)
        async with lease_handles(stage, 2) as (one, two):
            name = stage.session.fresh_id()
            await _granted(stage, one.claim(name, "node-1", 7 * DAY))
            await passing.passes(6 * DAY)
            await _refused(stage, two.claim(name, "node-2"), "the lease is live")

    @rule("LEASE-2")
    async def test_of_simultaneous_claims_one_is_granted(self, stage: Stage) -> None:
        async with lease_handles(stage, 4) as handles:
            rounds: list[list[Outcome[bool]]] = []
            for turn in range(stage.settings.rounds(8)):
                name = stage.session.fresh_id()
                if turn % 2:
                    await _granted(stage, handles[0].claim(name, "earlier"))
                    await _granted(stage, handles[0].release(name, "earlier"))
                holders = [f"node-{place if turn % 3 else 1}" for place in range(8)]
                calls = [
                    _claiming(handles[place % 4], name, holder)
                    for place, holder in enumerate(holders)
                ]
                outcomes = await burst(calls)
                rounds.append(outcomes)
                answers = [
                    stage.returned(one, "every simultaneous claim to be answered")
                    for one in outcomes
                ]
                stage.check(
                    answers.count(True) == 1 and answers.count(False) == 7,
                    "one of 8 simultaneous claims to be granted and the others refused",
                    f"the answers {answers} for {short(name)}",
                )
            must_have_met(rounds)

    @rule("LEASE-2")
    async def test_of_simultaneous_claims_of_an_expired_lease_one_is_granted(
        self, stage: Stage
    ) -> None:
        passing = Passing(stage)
        async with lease_handles(stage, 4) as handles:
            names = [stage.session.fresh_id() for _ in range(stage.settings.rounds(4))]
            for name in names:
                await _granted(stage, handles[0].claim(name, "dead", passing.short))
            await passing.past()
            rounds: list[list[Outcome[bool]]] = []
            for name in names:
                outcomes = await burst(
                    [_claiming(handles[place % 4], name, f"node-{place}") for place in range(8)]
                )
                rounds.append(outcomes)
                granted = [one for one in outcomes if one.value is True]
                stage.check(
                    len(granted) == 1,
                    "one of 8 simultaneous claims of an expired lease to be granted",
                    f"{len(granted)} were: {[one.line() for one in outcomes]}",
                )
            must_have_met(rounds)

    @rule("LEASE-3")
    async def test_an_expired_lease_can_be_claimed_by_anyone(self, stage: Stage) -> None:
        passing = Passing(stage)
        async with lease_handles(stage, 2) as (one, two):
            names = [stage.session.fresh_id() for _ in range(2)]
            for name in names:
                await _granted(stage, one.claim(name, "node-1", passing.short))
            await passing.past()
            for name, holder in zip(names, ("node-2", "node-1"), strict=True):
                await _granted(stage, two.claim(name, holder), "the lease has ended")
                await _refused(stage, one.claim(name, "node-3"), "the new lease is live")

    @rule("LEASE-3")
    async def test_a_lease_of_part_of_a_second_ends_with_it(self, stage: Stage) -> None:
        passing = Passing(stage)
        async with lease_handles(stage, 2) as (one, two):
            name = stage.session.fresh_id()
            await _granted(stage, one.claim(name, "node-1", 0.25))
            await passing.passes(0.3)
            await _granted(stage, two.claim(name, "node-2"), "the lease has ended")

    @rule("LEASE-4")
    async def test_the_holder_of_an_expired_lease_has_lost_it(self, stage: Stage) -> None:
        passing = Passing(stage)
        async with lease_handles(stage, 2) as (one, two):
            name = stage.session.fresh_id()
            await _granted(stage, one.claim(name, "node-1", passing.short))
            await passing.past()
            await _refused(stage, one.renew(name, "node-1"), "the lease has ended")
            await _refused(stage, one.release(name, "node-1"), "the lease has ended")
            await _granted(stage, two.claim(name, "node-2"), "the lease has ended")

    @rule("LEASE-4")
    async def test_the_old_holder_cannot_touch_the_new_lease(self, stage: Stage) -> None:
        passing = Passing(stage)
        async with lease_handles(stage, 2) as (one, two):
            name = stage.session.fresh_id()
            await _granted(stage, one.claim(name, "node-1", passing.short))
            await passing.past()
            await _granted(stage, two.claim(name, "node-2"), "the lease has ended")
            await _refused(stage, one.renew(name, "node-1"), "node-2 has the lease")
            await _refused(stage, one.release(name, "node-1"), "node-2 has the lease")
            await _refused(stage, one.claim(name, "node-1"), "node-2 has the lease")
            await _granted(stage, two.renew(name, "node-2"), "node-2 has the lease")

    @rule("LEASE-4")
    async def test_a_released_lease_is_lost_to_its_holder(self, stage: Stage) -> None:
        async with lease_handles(stage, 1) as (handle,):
            name = stage.session.fresh_id()
            await _granted(stage, handle.claim(name, "node-1"))
            await _granted(stage, handle.release(name, "node-1"))
            await _refused(stage, handle.renew(name, "node-1"), "the lease was released")
            await _refused(stage, handle.release(name, "node-1"), "the lease was released")

    @rule("LEASE-5")
    async def test_renewal_moves_the_end(self, stage: Stage) -> None:
        passing = Passing(stage)
        async with lease_handles(stage, 2) as (one, two):
            name = stage.session.fresh_id()
            await _granted(stage, one.claim(name, "node-1", passing.short))
            await _granted(stage, two.renew(name, "node-1", passing.short * 100))
            await passing.past()
            await _refused(stage, two.claim(name, "node-2"), "the lease was renewed")
            await _granted(stage, one.renew(name, "node-1", passing.short), "it is live")
            await passing.past()
            await _granted(
                stage, two.claim(name, "node-2"), "the last renewal was a short one, and is over"
            )

    @rule("LEASE-5")
    async def test_a_lease_is_renewed_for_part_of_a_second_and_for_a_week(
        self, stage: Stage
    ) -> None:
        passing = Passing(stage)
        async with lease_handles(stage, 2) as (one, two):
            name = stage.session.fresh_id()
            await _granted(stage, one.claim(name, "node-1"))
            await _granted(stage, one.renew(name, "node-1", 0.25), "it is live")
            await passing.passes(0.3)
            await _granted(stage, two.claim(name, "node-2"), "the lease has ended")
            if isinstance(stage.backend, Aging):
                await _granted(stage, two.renew(name, "node-2", 7 * DAY), "it is live")
                await passing.passes(6 * DAY)
                await _refused(stage, one.claim(name, "node-1"), "the lease is live")

    @rule("LEASE-5")
    async def test_renewal_is_refused_to_anyone_else(self, stage: Stage) -> None:
        passing = Passing(stage)
        async with lease_handles(stage, 2) as (one, two):
            name = stage.session.fresh_id()
            await _refused(stage, two.renew(name, "node-2"), "nobody has the lease")
            await _granted(stage, one.claim(name, "node-1", passing.short))
            await _refused(stage, two.renew(name, "node-2"), "node-1 has the lease")
            await passing.past()
            await _granted(stage, two.claim(name, "node-2"), "nobody renewed the lease")

    @rule("LEASE-6")
    async def test_release_ends_the_lease_at_once(self, stage: Stage) -> None:
        async with lease_handles(stage, 2) as (one, two):
            name = stage.session.fresh_id()
            for holder in ("node-1", "node-2", "node-1"):
                await _granted(stage, one.claim(name, holder), "the lease is free")
                await _granted(stage, two.release(name, holder))

    @rule("LEASE-6")
    async def test_release_is_refused_to_anyone_else(self, stage: Stage) -> None:
        async with lease_handles(stage, 2) as (one, two):
            name = stage.session.fresh_id()
            await _refused(stage, two.release(name, "node-2"), "nobody has the lease")
            await _granted(stage, one.claim(name, "node-1"))
            await _refused(stage, two.release(name, "node-2"), "node-1 has the lease")
            await _refused(stage, two.claim(name, "node-2"), "node-1 has the lease")
            await _granted(stage, one.renew(name, "node-1"), "node-1 has the lease")

    @rule("LEASE-7")
    async def test_a_claim_survives_its_handle(self, stage: Stage) -> None:
        name = stage.session.fresh_id()
        async with lease_handles(stage, 2) as (leaving, staying):
            await _granted(stage, leaving.claim(name, "node-1"))
            stage.given(await leaving.close())
            await _refused(stage, staying.claim(name, "node-2"), "the lease is live")
            await _granted(stage, staying.renew(name, "node-1"), "node-1 has the lease")
        async with lease_handles(stage, 1) as (later,):
            await _refused(stage, later.claim(name, "node-2"), "the lease is live")
            await _granted(stage, later.release(name, "node-1"), "node-1 has the lease")

    @rule("LEASE-8")
    async def test_names_are_told_apart_by_code_points(self, stage: Stage) -> None:
        async with lease_handles(stage, 1) as (handle,):
            for group in LOOKALIKES:
                names = made_unique(group, stage.session.fresh_id())
                for name in names:
                    await _granted(stage, handle.claim(name, "node-1"), f"of {short(names)}")
                await _granted(stage, handle.release(names[0], "node-1"))
                for name in names[1:]:
                    await _refused(stage, handle.claim(name, "node-2"), "the lease is live")

    @rule("LEASE-8")
    async def test_holders_are_told_apart_by_code_points(self, stage: Stage) -> None:
        async with lease_handles(stage, 1) as (handle,):
            for holder, *others in LOOKALIKES:
                name = stage.session.fresh_id()
                await _granted(stage, handle.claim(name, holder))
                for other in others:
                    await _refused(stage, handle.renew(name, other), f"{short(holder)} has it")
                    await _refused(stage, handle.release(name, other), f"{short(holder)} has it")
                await _granted(stage, handle.release(name, holder))

    @rule("LEASE-9")
    async def test_a_node_whose_clock_is_wrong_changes_nothing(self, stage: Stage) -> None:
        if not stage.backend.outlives_process or stage.backend.one_process_at_a_time:
            raise NotOffered("no second process can open the storage")
        passing = Passing(stage)
        async with (
            lease_handles(stage, 1) as (handle,),
            SkewedNode(stage, 3600) as ahead,
            SkewedNode(stage, -3600) as behind,
        ):
            live = stage.session.fresh_id()
            await _granted(stage, handle.claim(live, "node-1"))
            for node in (ahead, behind):
                stage.check(
                    not await node.claim(live, "node-2", LONG),
                    "a live lease to be refused to a node whose clock is wrong",
                    stage.steps[-1],
                )
            early, late = stage.session.fresh_id(), stage.session.fresh_id()
            stage.check(await behind.claim(early, "node-2", LONG), "a free lease", stage.steps[-1])
            await _refused(stage, handle.claim(early, "node-1"), "the lease is live")
            stage.check(
                await ahead.claim(late, "node-2", passing.short), "a free lease", stage.steps[-1]
            )
            await passing.past()
            await _granted(stage, handle.claim(late, "node-1"), "the lease has ended")

    @rule("LEASE-10")
    async def test_what_is_no_lease_is_refused(self, stage: Stage) -> None:
        bad_keys: list[Any] = ["", "x" * 256, "a\x00b", "\ud800", None, 7, b"bytes"]
        bad_times: list[Any] = [0, -1, -0.5, float("nan"), float("inf"), -float("inf"), None, "60"]
        async with lease_handles(stage, 1) as (handle,):
            name = stage.session.fresh_id()
            for bad in bad_keys:
                await _invalid(stage, await handle.claim(bad, "node-1"))
                await _invalid(stage, await handle.claim(name, bad))
            for ttl in bad_times:
                await _invalid(stage, await handle.claim(name, "node-1", ttl))
            await _granted(stage, handle.claim(name, "node-1"), "refusals leave no trace")
            for ttl in bad_times:
                await _invalid(stage, await handle.renew(name, "node-1", ttl))
            await _granted(stage, handle.release(name, "node-1"), "refusals leave no trace")


def _claiming(
    handle: LeaseHandle, name: str, holder: str
) -> Callable[[], Awaitable[Outcome[bool]]]:
    return lambda: handle.claim(name, holder)


async def _granted(
    stage: Stage, call: Awaitable[Outcome[bool]], because: str = "it is free"
) -> None:
    outcome = await call
    answer = stage.returned(outcome, f"True: {because}")
    stage.check(answer is True, f"True: {because}", outcome.line())


async def _refused(stage: Stage, call: Awaitable[Outcome[bool]], because: str) -> None:
    outcome = await call
    answer = stage.returned(outcome, f"False: {because}")
    stage.check(answer is False, f"False: {because}", outcome.line())


async def _invalid(stage: Stage, outcome: Outcome[bool]) -> None:
    stage.check(isinstance(outcome.error, ValueError), "a ValueError", outcome.line())
