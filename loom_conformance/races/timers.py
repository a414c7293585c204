"""RACE-13 and RACE-14: nodes fire the same timer, without leases and with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ..runtime import Timer
from . import checks
from .checks import Check
from .race import Act, Parameters, Race, varying
from .scene import Node, Scene


class FireWithoutLeases(Race):
    """Nobody owns the fire."""

    id = "RACE-13"
    title = "Two nodes fire the same timer without leases"
    needs = frozenset({"fencing"})
    rests_on: ClassVar[tuple[str, ...]] = ("FENCE-3", "FENCE-4", "FENCE-8", "SEQ-1", "READ-5")
    wrong = "takes-stale-tokens"
    shows = "a write lands under a token that had been superseded"
    variants: ClassVar[tuple[Parameters, ...]] = (Parameters(fenced=True), Parameters(fenced=False))
    varies = varying(
        nodes=(2, 3),
        fenced=(False, True),
        linger=(None, 0.0),
        tenant=(None, "acme"),
    )
    leases = False

    async def given(self, scene: Scene) -> None:
        await scene.started("setup", "nap", scene.execution("nap"))

    def nodes(self, scene: Scene) -> Mapping[str, Act]:
        timer = Timer(scene.execution("nap"), "pause")

        async def fire(node: Node) -> None:
            timers = node.timers(fenced=scene.parameters.fenced, leases=self.leases)
            await node.act(f"fire in {node.name}", timers.fire(timer))

        return dict.fromkeys(scene.names(), fire)

    async def after(self, scene: Scene, node: Node) -> None:
        await scene.recovered(node, scene.execution("nap"))

    def holds(self, scene: Scene) -> Sequence[Check]:
        execution_id = scene.execution("nap")
        once = not scene.parameters.fenced
        return (
            checks.fence_holds(execution_id),
            checks.acknowledged_is_kept(execution_id),
            checks.effect_runs(execution_id, "before", 0),
            checks.effect_runs(execution_id, "after")
            if once
            else checks.effect_runs_at_most(execution_id, "after", 2),
            checks.ends(execution_id, "completed"),
        )


class FireUnderLease(FireWithoutLeases):
    """A node owns the fire before it begins."""

    id = "RACE-14"
    title = "Two nodes fire the same timer with leases"
    rests_on: ClassVar[tuple[str, ...]] = ("LEASE-1", "LEASE-2", "LEASE-6", "FENCE-3", "SEQ-1")
    wrong = "lease-looked-at"
    shows = "the effect runs twice: once in the node that was stopped, once in the recovery"
    variants: ClassVar[tuple[Parameters, ...]] = (Parameters(fenced=True),)
    leases = True

    def holds(self, scene: Scene) -> Sequence[Check]:
        execution_id = scene.execution("nap")
        return (
            checks.effect_runs(execution_id, "after"),
            checks.effect_runs(execution_id, "before", 0),
            checks.silent(),
            checks.fence_holds(execution_id),
            checks.ends(execution_id, "completed"),
        )
