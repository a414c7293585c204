"""RACE-4 to RACE-6 and RACE-15: writes that share a flush share its fate."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import ClassVar

from . import checks
from .checks import Check
from .race import Act, Parameters, Race, varying
from .scene import Node, Scene

LINGER = 0.01


class FlushSharedWithDuplicate(Race):
    """A fresh start is refused for a duplicate's sake."""

    id = "RACE-4"
    title = "A fresh id shares a flush with a real duplicate"
    needs = frozenset({"coalescing"})
    rests_on: ClassVar[tuple[str, ...]] = ("BATCH-2", "COAL-2", "COAL-3", "COAL-4")
    wrong = "trusting-conflict"
    shows = "the fresh start is taken for a duplicate and lost for ever"
    variants: ClassVar[tuple[Parameters, ...]] = (Parameters(linger=LINGER),)
    varies = varying(nodes=(2, 3, 4), linger=(0.0, LINGER, 1.0), max_batch=(1, 2, 500))

    async def given(self, scene: Scene) -> None:
        await scene.started("setup", "audit", scene.execution("taken"))

    def fresh(self, scene: Scene) -> list[str]:
        """The labels of the executions that nobody started before."""
        return [f"fresh-{number}" for number in range(1, scene.parameters.nodes)]

    def nodes(self, scene: Scene) -> Mapping[str, Act]:
        async def start(node: Node, label: str) -> None:
            await node.start_and_run(f"start {label}", "audit", scene.execution(label))

        async def starts(node: Node) -> None:
            await asyncio.gather(*(start(node, label) for label in ("taken", *self.fresh(scene))))

        return {"A": starts}

    def holds(self, scene: Scene) -> Sequence[Check]:
        found: list[Check] = []
        for label in self.fresh(scene):
            execution_id = scene.execution(label)
            found += (
                checks.act_succeeds(f"start {label}"),
                checks.effect_runs(execution_id, "audit"),
                checks.told_is_durable(execution_id),
                checks.ends(execution_id, "completed"),
            )
        taken = scene.execution("taken")
        return (*found, checks.exists_told("start taken", winners=0), checks.nothing_ran(taken))


class FlushOfOneFreshId(Race):
    """Two starts refuse each other."""

    id = "RACE-5"
    title = "Two starts of one fresh id share a flush that is refused"
    needs = frozenset({"coalescing"})
    rests_on: ClassVar[tuple[str, ...]] = ("BATCH-3", "COAL-2", "COAL-3", "SEQ-1")
    wrong = "retry-through-append"
    shows = "the two share a flush and fail together again, and nothing is started"
    variants: ClassVar[tuple[Parameters, ...]] = (Parameters(linger=LINGER),)
    varies = varying(
        nodes=(2, 3, 4),
        linger=(0.0, LINGER, 1.0),
        max_batch=(1, 2, 3, 500),
        tenant=(None, "acme"),
    )

    def nodes(self, scene: Scene) -> Mapping[str, Act]:
        async def start(node: Node, act: str) -> None:
            await node.start_and_run(act, "audit", scene.execution("message-17"))

        async def starts(node: Node) -> None:
            await asyncio.gather(*(start(node, act) for act in scene.acts("start")))

        return {"A": starts}

    def holds(self, scene: Scene) -> Sequence[Check]:
        execution_id = scene.execution("message-17")
        return (
            checks.started_once(execution_id),
            checks.exists_told(*scene.acts("start")),
            checks.effect_runs(execution_id, "audit"),
            checks.told_is_durable(execution_id),
            checks.ends(execution_id, "completed"),
        )


class FlushBehindTenant(FlushSharedWithDuplicate):
    """The error's id is not the caller's."""

    id = "RACE-6"
    title = "A fresh id shares a flush with a real duplicate, behind a tenant scope"
    needs = frozenset({"coalescing", "scoping"})
    rests_on: ClassVar[tuple[str, ...]] = ("BATCH-2", "COAL-2", "COAL-3", "COAL-4", "SCOPE-1")
    wrong = "conflict-by-error-id"
    shows = "the duplicate is taken for someone else's conflict, and becomes a storage failure"
    variants: ClassVar[tuple[Parameters, ...]] = (Parameters(linger=LINGER, tenant="acme"),)
    varies = varying(
        nodes=(2, 3, 4),
        linger=(0.0, LINGER, 1.0),
        max_batch=(1, 2, 500),
        tenant=("acme", "a:b", "", "9:"),
    )

    def headline(self, scene: Scene) -> Check:
        return checks.exists_told("start taken", winners=0)


class FlushSharedWithLiveRun(Race):
    """A live run is refused for a duplicate's sake."""

    id = "RACE-15"
    title = "A duplicate bootstrap shares a flush with a live execution's write"
    needs = frozenset({"coalescing"})
    rests_on: ClassVar[tuple[str, ...]] = ("BATCH-2", "COAL-1", "COAL-2")
    wrong = "acknowledges-innocents"
    shows = "a write is acknowledged and is not in the log"
    variants: ClassVar[tuple[Parameters, ...]] = (Parameters(linger=LINGER),)
    varies = varying(
        nodes=(2, 3),
        linger=(0.0, LINGER, 1.0),
        max_batch=(1, 2, 500),
        tenant=(None, "acme"),
    )

    async def given(self, scene: Scene) -> None:
        await scene.started("setup", "audit", scene.execution("taken"))

    def nodes(self, scene: Scene) -> Mapping[str, Act]:
        async def live(node: Node) -> None:
            await node.start_and_run("start live", "audit", scene.execution("live"))

        async def duplicate(node: Node, act: str) -> None:
            await node.triggered(act)
            await node.start_and_run(act, "audit", scene.execution("taken"))

        async def both(node: Node) -> None:
            await asyncio.gather(
                live(node), *(duplicate(node, act) for act in scene.acts("duplicate")[1:])
            )

        return {"A": both}

    async def after(self, scene: Scene, node: Node) -> None:
        await scene.recovered(node, scene.execution("live"))

    def holds(self, scene: Scene) -> Sequence[Check]:
        live, taken = scene.execution("live"), scene.execution("taken")
        return (
            checks.acknowledged_is_kept(live, taken),
            checks.exists_told(*scene.acts("duplicate")[1:], winners=0),
            checks.act_succeeds("start live"),
            checks.nothing_ran(taken),
            checks.effect_runs_at_most(live, "audit", 2),
            checks.ends(live, "completed"),
        )
