"""RACE-7 to RACE-12: tokens, taken before a start, after it, and by the dead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ..runtime import Dispatch
from . import checks
from .checks import Check
from .race import Act, Parameters, Race, Reach, varying
from .scene import Node, Scene
from .starts import OCCURRENCE, SameOccurrence

FENCING = frozenset({"fencing"})


class FenceBeforeBootstrap(SameOccurrence):
    """The loser's token, had it taken one, would be the older."""

    id = "RACE-7"
    title = "Fenced mode: the loser fences before the winner's bootstrap"
    needs = FENCING
    rests_on: ClassVar[tuple[str, ...]] = ("FENCE-4", "FENCE-7", "FENCE-10", "SEQ-1")
    wrong = "fencing-start"
    shows = "the loser's stale fence reaches on_error"
    stepped = False
    variants: ClassVar[tuple[Parameters, ...]] = (
        Parameters(fenced=True),
        Parameters(fenced=True, rival="cancel"),
    )
    varies = varying(
        nodes=(2, 3),
        fenced=(True,),
        rival=("", "cancel"),
        linger=(None, 0.0),
        tenant=(None, "acme"),
    )

    def nodes(self, scene: Scene) -> Mapping[str, Act]:
        nodes = dict(super().nodes(scene))
        if scene.parameters.rival:

            async def cancel(node: Node) -> None:
                execution_id = scene.execution(f"daily@{OCCURRENCE}")
                await node.act("cancel", node.runtime.cancel(execution_id, "not needed"))

            nodes["X"] = cancel
        return nodes

    def holds(self, scene: Scene) -> Sequence[Check]:
        execution_id = scene.execution(f"daily@{OCCURRENCE}")
        if not scene.parameters.rival:
            return (checks.silent(), *super().holds(scene))
        return (
            checks.silent(),
            checks.fence_holds(execution_id),
            checks.started_once(execution_id),
            checks.ends(execution_id, "completed", "cancelled"),
        )


class FenceAfterBootstrap(SameOccurrence):
    """The loser's token, had it taken one, would stop the winner."""

    id = "RACE-8"
    title = "Fenced mode: the loser fences after the winner's bootstrap; then a recovery pass"
    needs = FENCING
    rests_on: ClassVar[tuple[str, ...]] = ("FENCE-3", "FENCE-4", "SEQ-1")
    wrong = "fencing-start"
    shows = "the effect runs twice: once in the winner, once in the recovery"
    variants: ClassVar[tuple[Parameters, ...]] = (Parameters(fenced=True),)
    varies = varying(nodes=(2, 3), fenced=(True,), linger=(None, 0.0), tenant=(None, "acme"))

    async def after(self, scene: Scene, node: Node) -> None:
        await scene.recovered(node, scene.execution(f"daily@{OCCURRENCE}"))

    def holds(self, scene: Scene) -> Sequence[Check]:
        execution_id = scene.execution(f"daily@{OCCURRENCE}")
        return (
            checks.effect_runs(execution_id, "audit"),
            checks.started_once(execution_id),
            checks.fence_holds(execution_id),
            checks.ends(execution_id, "completed"),
        )


class StarterGoesOn(Race):
    """Somebody else takes the execution over, under a fence."""

    id = "RACE-9"
    title = "An unfenced starter goes on while another node cancels or recovers under a fence"
    needs = FENCING
    rests_on: ClassVar[tuple[str, ...]] = ("FENCE-4", "FENCE-8", "FENCE-5")
    wrong = "takes-missing-tokens"
    shows = "the starter's write lands after the other node's token was handed out"
    variants: ClassVar[tuple[Parameters, ...]] = (
        Parameters(rival="cancel"),
        Parameters(rival="recover"),
    )
    varies = varying(
        rival=("cancel", "recover"),
        nodes=(2, 3),
        linger=(None, 0.0),
        tenant=(None, "acme"),
    )

    def nodes(self, scene: Scene) -> Mapping[str, Act]:
        execution_id = scene.execution("message-17")

        async def start(node: Node) -> None:
            await node.start_and_run("start", "audit", execution_id)

        async def cancel(node: Node) -> None:
            act = f"cancel in {node.name}"
            await node.act(act, node.runtime.cancel(execution_id, "not needed"))

        async def recover(node: Node) -> None:
            await node.recover(f"recover in {node.name}", execution_id)

        rival = cancel if scene.parameters.rival == "cancel" else recover
        names = scene.names()
        return {names[0]: start, **dict.fromkeys(names[1:], rival)}

    def holds(self, scene: Scene) -> Sequence[Check]:
        execution_id = scene.execution("message-17")
        rivals = scene.names()[1:]
        found = [
            checks.fence_holds(execution_id),
            checks.acknowledged_is_kept(execution_id),
        ]
        if scene.parameters.rival == "cancel":
            if len(rivals) == 1:
                found.append(checks.cancelled(f"cancel in {rivals[0]}"))
            found.append(checks.ends_if_started(execution_id, "completed", "cancelled"))
        else:
            found.append(checks.ends_if_started(execution_id, "completed"))
            found.append(checks.effect_runs_at_most(execution_id, "audit", 1 + len(rivals)))
        return found


class FirstDispatches(Race):
    """Each dispatcher believes that the execution is its own to start."""

    id = "RACE-10"
    title = "Two dispatchers allocate the same first dispatch"
    needs = FENCING
    rests_on: ClassVar[tuple[str, ...]] = ("FENCE-2", "FENCE-3", "FENCE-7", "FENCE-10", "SEQ-1")
    wrong = "fence-after-look"
    shows = "the live runner is fenced out by a dispatch that then gives up, and nobody drives"
    varies = varying(nodes=(2, 3), linger=(None, 0.0), tenant=(None, "acme"))

    def nodes(self, scene: Scene) -> Mapping[str, Act]:
        dispatch = Dispatch(scene.execution("job"), "audit", None, {"computeTarget": "local"})
        parameters = scene.parameters

        async def run(node: Node) -> None:
            dispatcher = node.dispatcher(
                max_attempts=parameters.max_attempts, supervised=parameters.supervised
            )
            await node.act(f"dispatch in {node.name}", dispatcher.dispatch(dispatch))

        return dict.fromkeys(scene.names(), run)

    def holds(self, scene: Scene) -> Sequence[Check]:
        execution_id = scene.execution("job")
        return (
            checks.ends(execution_id, "completed"),
            checks.started_once(execution_id),
            checks.fence_holds(execution_id),
            checks.bootstrap_told_once(execution_id),
            checks.effect_runs_at_most(execution_id, "audit", len(scene.names())),
        )


class RetryingDispatches(FirstDispatches):
    """A lost race is no failed attempt."""

    id = "RACE-11"
    title = "Two dispatchers that retry allocate the same first dispatch"
    rests_on: ClassVar[tuple[str, ...]] = ("FENCE-1", "FENCE-2", "FENCE-3", "FENCE-7", "SEQ-1")
    wrong = "retry-on-any-failure"
    shows = "tokens go 1 to 6, and the effect runs five or six times"
    variants: ClassVar[tuple[Parameters, ...]] = (
        Parameters(max_attempts=3),
        Parameters(max_attempts=2, supervised=True),
    )
    varies = varying(
        nodes=(2, 3),
        max_attempts=(2, 3, 4),
        supervised=(False, True),
        tenant=(None, "acme"),
    )

    def reach(self, parameters: Parameters) -> Reach:
        return Reach("bounded", preemptions=1)

    def headline(self, scene: Scene) -> Check:
        return checks.no_ping_pong(scene.execution("job"), "audit", 4)

    def holds(self, scene: Scene) -> Sequence[Check]:
        return (
            checks.superseded_is_let_go(scene.execution("job")),
            *super().holds(scene),
        )


class FencedOutByTheDead(Race):
    """The newer token's holder never writes."""

    id = "RACE-12"
    title = "A start is fenced out by a holder that is dead"
    needs = FENCING
    rests_on: ClassVar[tuple[str, ...]] = ("FENCE-1", "FENCE-3", "FENCE-10", "APPEND-3")
    wrong = "fenced-out-is-stale"
    shows = "the dispatch counts as superseded, and the execution is never started"
    variants: ClassVar[tuple[Parameters, ...]] = (
        Parameters(max_attempts=2),
        Parameters(max_attempts=2, supervised=True),
    )
    varies = varying(
        max_attempts=(2, 3),
        nodes=(2,),
        supervised=(False, True),
        linger=(None, 0.0),
        tenant=(None, "acme"),
    )

    def nodes(self, scene: Scene) -> Mapping[str, Act]:
        execution_id = scene.execution("job")
        parameters = scene.parameters

        async def run(node: Node) -> None:
            dispatcher = node.dispatcher(
                max_attempts=parameters.max_attempts, supervised=parameters.supervised
            )
            await node.act("dispatch", dispatcher.dispatch(Dispatch(execution_id, "audit")))

        async def die(node: Node) -> None:
            await node.act(f"fence in {node.name}", node.runtime.acquire_fence(execution_id))

        names = scene.names()
        return {names[0]: run, **dict.fromkeys(names[1:], die)}

    async def after(self, scene: Scene, node: Node) -> None:
        await scene.recovered(node, scene.execution("job"))

    def holds(self, scene: Scene) -> Sequence[Check]:
        execution_id = scene.execution("job")
        return (
            checks.ends(execution_id, "completed"),
            checks.fenced_out_is_retryable(execution_id),
            checks.act_succeeds("dispatch"),
            checks.fence_holds(execution_id),
        )
