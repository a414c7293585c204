"""RACE-1 to RACE-3, RACE-16, RACE-17, RACE-19, RACE-20: an id is started, and is or is not free."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import ClassVar

from ..runtime import Schedule, StorageWriteError
from ..spi import DuplicateEnvelopeIdError, EventStore
from . import checks
from .checks import Check
from .race import FROZEN, Act, Parameters, Race, Reach, varying
from .scene import Node, Scene
from .stores import CopiedErrors, Failing

OCCURRENCE = "7"


class StartTwice(Race):
    """One node is asked twice."""

    id = "RACE-1"
    title = "The same chosen id is started twice on one node"
    rests_on: ClassVar[tuple[str, ...]] = ("APPEND-1", "SEQ-1", "SEQ-4")
    wrong = "enqueued-bootstrap"
    shows = "the effect runs twice, and events of the second run are told that never become durable"
    varies = varying(nodes=(2, 3, 4), tenant=(None, "acme"))

    def nodes(self, scene: Scene) -> Mapping[str, Act]:
        async def start(node: Node, act: str) -> None:
            await node.triggered(act)
            await node.start_and_run(act, "audit", scene.execution("message-17"))

        async def starts(node: Node) -> None:
            await asyncio.gather(*(start(node, act) for act in scene.acts("start")))

        return {"A": starts}

    def holds(self, scene: Scene) -> Sequence[Check]:
        execution_id = scene.execution("message-17")
        return (
            checks.effect_runs(execution_id, "audit"),
            checks.exists_told(*scene.acts("start")),
            checks.told_is_durable(execution_id),
            checks.started_once(execution_id),
            checks.ends(execution_id, "completed"),
        )


class SameOccurrence(Race):
    """Several nodes see one occurrence become due."""

    id = "RACE-2"
    title = "Two nodes start the same occurrence"
    rests_on: ClassVar[tuple[str, ...]] = ("APPEND-1", "SEQ-1", "SEQ-4", "RANGE-1")
    wrong = "look-before-start"
    shows = "the effect runs twice"
    stepped = True
    varies = varying(
        nodes=(2, 3, 4),
        fenced=(False, True),
        linger=(None, 0.0, 0.01),
        max_batch=(1, 2, 500),
        tenant=(None, "acme"),
    )

    def schedule(self, scene: Scene) -> Schedule:
        """The schedule whose occurrence is due."""
        return Schedule("daily", "audit")

    def nodes(self, scene: Scene) -> Mapping[str, Act]:
        async def start(node: Node) -> None:
            timers = node.timers(fenced=scene.parameters.fenced)
            act = f"start in {node.name}"
            handle = await node.act(act, timers.start_occurrence(self.schedule(scene), OCCURRENCE))
            if handle is not None:
                await node.driven(f"run in {node.name}", handle)

        return dict.fromkeys(scene.names(), start)

    def holds(self, scene: Scene) -> Sequence[Check]:
        execution_id = scene.execution(f"daily@{OCCURRENCE}")
        return (
            checks.effect_runs(execution_id, "audit"),
            checks.silent(),
            checks.started_once(execution_id),
            checks.told_is_durable(execution_id),
            checks.ends(execution_id, "completed"),
        )


class SameOccurrenceOnMany(SameOccurrence):
    """As RACE-2, with more nodes."""

    id = "RACE-3"
    title = "Three and four nodes start the same occurrence"
    variants: ClassVar[tuple[Parameters, ...]] = (Parameters(nodes=3), Parameters(nodes=4))

    def reach(self, parameters: Parameters) -> Reach:
        return Reach("pct", schedules=100) if parameters.nodes > 3 else Reach()


class EnvelopeIdTaken(Race):
    """`<id>-0` belongs to another execution."""

    id = "RACE-16"
    title = "The bootstrap's envelope id is taken by another execution"
    needs = frozenset({"ids in the whole store"})
    rests_on: ClassVar[tuple[str, ...]] = ("ID-2", "ERR-1")
    wrong = "trusting-conflict"
    shows = "the start is taken for a duplicate, though nothing was ever started"
    stepped = True
    varies = varying(nodes=(2, 3), linger=(None, 0.0, 0.01), max_batch=(1, 2, 500))

    async def given(self, scene: Scene) -> None:
        execution_id, other = scene.execution("fresh"), scene.execution("other")
        await scene.write(scene.envelope(other, 0, id=f"{execution_id}-0"))

    def nodes(self, scene: Scene) -> Mapping[str, Act]:
        async def start(node: Node) -> None:
            await node.start_and_run(f"start in {node.name}", "audit", scene.execution("fresh"))

        return dict.fromkeys(scene.names(), start)

    def holds(self, scene: Scene) -> Sequence[Check]:
        execution_id = scene.execution("fresh")
        count = len(scene.names())
        return (
            *(
                checks.act_raises(f"start in {name}", StorageWriteError, DuplicateEnvelopeIdError)
                for name in scene.names()
            ),
            checks.nothing_ran(execution_id),
            checks.tries_of(execution_id, 0, 2 * count),
        )


class LaggingReplica(Race):
    """The conflict cannot be confirmed where reads are served."""

    id = "RACE-17"
    title = "A real duplicate behind a replica that lags"
    rests_on: ClassVar[tuple[str, ...]] = ("SEQ-1", "ERR-1")
    wrong = "runs-unconfirmed"
    shows = "the body of a second run goes on, on an id that is taken"
    variants: ClassVar[tuple[Parameters, ...]] = (Parameters(lag=FROZEN),)
    varies = varying(nodes=(2, 3), tenant=(None, "acme"), lag=(FROZEN,))

    async def given(self, scene: Scene) -> None:
        await scene.started("setup", "audit", scene.execution("message-17"))

    def nodes(self, scene: Scene) -> Mapping[str, Act]:
        async def start(node: Node) -> None:
            act = f"start in {node.name}"
            await node.start_and_run(act, "audit", scene.execution("message-17"))

        return dict.fromkeys(scene.names(), start)

    def holds(self, scene: Scene) -> Sequence[Check]:
        execution_id = scene.execution("message-17")
        return (
            checks.nothing_ran(execution_id),
            *(
                checks.act_raises(f"start in {name}", StorageWriteError, None)
                for name in scene.names()
            ),
            checks.tries_of(execution_id, 0, 2 * len(scene.names())),
        )


class StorageFailsAtBootstrap(Race):
    """The store is dead when the start needs it."""

    id = "RACE-19"
    title = "The storage fails at the bootstrap append"
    rests_on: ClassVar[tuple[str, ...]] = ("ERR-1", "ERR-4")
    wrong = "handle-then-failure"
    shows = "the start returns a handle, as if the execution ran"
    variants: ClassVar[tuple[Parameters, ...]] = (Parameters(nodes=1),)
    varies = varying(nodes=(1, 2), linger=(None, 0.0, 0.01), tenant=(None, "acme"))

    def around(self, store: EventStore) -> EventStore:
        return Failing(store, 0)

    def nodes(self, scene: Scene) -> Mapping[str, Act]:
        async def start(node: Node) -> None:
            execution_id = scene.execution(f"message-{node.name}")
            await node.start_and_run(f"start in {node.name}", "audit", execution_id)

        return dict.fromkeys(scene.names(), start)

    def holds(self, scene: Scene) -> Sequence[Check]:
        found: list[Check] = []
        for name in scene.names():
            execution_id = scene.execution(f"message-{name}")
            found += (
                checks.act_raises(f"start in {name}", StorageWriteError, None),
                checks.storage_error_told(name),
                checks.nothing_ran(execution_id),
                checks.tries_of(execution_id, 0, 1),
            )
        return found


class SecondCopy(Race):
    """The store raises errors of another copy of the contract."""

    id = "RACE-20"
    title = "The conflict's class is a second copy of the contract's"
    rests_on: ClassVar[tuple[str, ...]] = ("SEQ-1", "SEQ-4")
    wrong = "isinstance-alone"
    shows = "a plain duplicate becomes a storage failure"
    stepped = True
    varies = varying(nodes=(2, 3, 4), tenant=(None, "acme"))

    def around(self, store: EventStore) -> EventStore:
        return CopiedErrors(store)

    def nodes(self, scene: Scene) -> Mapping[str, Act]:
        async def start(node: Node) -> None:
            act = f"start in {node.name}"
            await node.start_and_run(act, "audit", scene.execution("message-17"))

        return dict.fromkeys(scene.names(), start)

    def holds(self, scene: Scene) -> Sequence[Check]:
        execution_id = scene.execution("message-17")
        return (
            checks.exists_told(*(f"start in {name}" for name in scene.names())),
            checks.effect_runs(execution_id, "audit"),
            checks.told_is_durable(execution_id),
            checks.ends(execution_id, "completed"),
        )
