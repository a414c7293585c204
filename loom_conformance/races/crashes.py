"""RACE-18: a process dies while it starts an execution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from . import checks
from .checks import Check
from .race import Act, Parameters, Race, varying
from .scene import Node, Scene


class DiesBeforeBody(Race):
    """Nobody drives what is durable."""

    id = "RACE-18"
    title = "The process dies between bootstrap and body"
    rests_on: ClassVar[tuple[str, ...]] = ("APPEND-1", "SEQ-1", "DUR-2")
    wrong = "bootstrap-after-effect"
    shows = "the effect ran and no log knows of it, so the second trigger runs it again"
    variants: ClassVar[tuple[Parameters, ...]] = (Parameters(crash=1),)
    varies = varying(crash=(0, 1, 2, 3, 4), linger=(None, 0.0), tenant=(None, "acme"))

    def nodes(self, scene: Scene) -> Mapping[str, Act]:
        execution_id = scene.execution("message-17")

        async def start(node: Node) -> None:
            await node.start_and_run(f"start in {node.name}", "audit", execution_id)

        async def start_and_die(node: Node) -> None:
            node.dies_after(scene.parameters.crash)
            await start(node)

        names = scene.names()
        return {names[0]: start_and_die, **dict.fromkeys(names[1:], start)}

    async def after(self, scene: Scene, node: Node) -> None:
        await scene.recovered(node, scene.execution("message-17"))

    def holds(self, scene: Scene) -> Sequence[Check]:
        execution_id = scene.execution("message-17")
        crash = scene.parameters.crash
        before_effect = crash is not None and crash <= 1
        return (
            checks.effect_runs(execution_id, "audit")
            if before_effect
            else checks.effect_runs_at_most(execution_id, "audit", 2),
            checks.durable_before_effects(execution_id),
            checks.started_once(execution_id),
            checks.ends(execution_id, "completed"),
        )
