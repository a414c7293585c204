"""One run of a race: fresh names, nodes with what they are made of, and the evidence they leave."""

from __future__ import annotations

import asyncio
import string
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, Protocol, TypeVar

from ..clock import Clock, Timer
from ..contract.operations import Operation
from ..decorators import Replica, ReplicaReadingEventStore
from ..runtime import (
    Assembly,
    Dispatcher,
    Handle,
    Leases,
    Runtime,
    RuntimeDeps,
    StepContext,
    Timers,
    Workflow,
)
from ..spi import EventEnvelope, EventStore, JsonValue
from .evidence import Call, Effect, Ended, Evidence
from .race import FROZEN, Parameters
from .stores import Life, Mortal, Recorded, envelopes_of

T = TypeVar("T")

NIGHT: Final = datetime(2026, 9, 27, 3, 0, tzinfo=UTC)
"""The time at which every race begins."""

NAP: Final = 60.0
"""How long the workflow that naps sleeps, in seconds of the race's own time."""

LEASE: Final = 3600.0
"""The time to live of a lease, in seconds; no race outlives it."""

Wrap = Callable[[EventStore], EventStore]


class Place(Protocol):
    """Where a node runs: what it is given of the outside world (see `interleave.Node`)."""

    @property
    def store(self) -> Any:
        """The node's own handle; no other node uses it."""

    @property
    def leases(self) -> Any:
        """The node's own handle on leases, if there are any."""

    @property
    def clock(self) -> Clock:
        """The node's clock."""

    async def effect(self, name: str) -> Any:
        """Let the world see an effect; it is done when this returns."""

    async def call(
        self,
        key: Hashable,
        touched: tuple[int, int],
        args: tuple[Any, ...],
        perform: Callable[..., Coroutine[Any, Any, Any]],
    ) -> Any:
        """A step of its own."""

    def tell(self, kind: str, what: object = "") -> None:
        """Note in the trace what happened, without being a step."""


class Outside:
    """A place outside of the schedule, where time stands still."""

    leases = None

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self.clock: Clock = StillClock()

    async def effect(self, name: str) -> None:
        """An effect that nobody counts."""

    async def call(
        self,
        key: Hashable,
        touched: tuple[int, int],
        args: tuple[Any, ...],
        perform: Callable[..., Coroutine[Any, Any, Any]],
    ) -> Any:
        """Do it at once."""
        return await perform(*args)

    def tell(self, kind: str, what: object = "") -> None:
        """A remark that nobody hears."""


class StillClock:
    """The beginning of every race, for as long as it is looked at."""

    def now(self) -> datetime:
        """The time."""
        return NIGHT

    async def sleep(self, seconds: float) -> None:
        """Refuse to wait.

        Raises:
            RuntimeError: always; nothing that sets up a race may wait.
        """
        raise RuntimeError(f"the set-up of a race waits {seconds:g} s, and time stands still there")

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Refuse to wait.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(f"the set-up of a race waits {seconds:g} s, and time stands still there")


@dataclass(frozen=True, slots=True)
class Subject:
    """What runs the race, and on what: the kit's runtime on the store as it is, or other parts.

    Attributes:
        assembly: puts the runtime together.
        store: makes the wrapper of every handle of one run, from the run's shared state.
        flushes: wraps a coalescing store.
    """

    assembly: Assembly = field(default_factory=Assembly)
    store: Callable[[], Wrap] | None = None
    flushes: Wrap | None = None


class Decorators(Protocol):
    """Makes the decorators of a backend: its own, or the kit's."""

    def coalesce(
        self, store: EventStore, max_linger: float, max_batch: int, clock: Clock
    ) -> EventStore:
        """Put a handle behind group commit."""

    def scope(self, store: EventStore, tenant: str) -> EventStore:
        """Put a handle behind a tenant scope."""


class Scene:
    """What a race's code works with in one run.

    Args:
        parameters: what the race leaves open.
        subject: what runs it.
        decorators: makes the backend's decorators.
        storage: a handle outside of the schedule; without one nothing can be set up.
    """

    def __init__(
        self,
        parameters: Parameters,
        subject: Subject,
        decorators: Decorators,
        storage: EventStore | None,
    ) -> None:
        self.parameters = parameters
        self.subject = subject
        self.decorators = decorators
        self.evidence = Evidence()
        self.executions: list[str] = []
        lag = None if parameters.lag == FROZEN else parameters.lag
        self.replica = None if parameters.lag is None else Replica(lag)
        self.later: list[tuple[Node, str, Handle]] | None = None
        self._storage = storage

    # --- names ---

    def execution(self, execution_id: str) -> str:
        """The id, and from now on its log is evidence."""
        if execution_id not in self.executions:
            self.executions.append(execution_id)
        return execution_id

    def effect_name(self, execution_id: str, step: str) -> str:
        """What the world sees of a step's effect; it says whose it is where that is in doubt."""
        return step if len(self.executions) == 1 else f"{step} of {execution_id}"

    def names(self) -> list[str]:
        """The nodes' names: A, B, …"""
        return list(string.ascii_uppercase[: self.parameters.nodes])

    def acts(self, what: str) -> list[str]:
        """Names for the acts of one node, as many as there are nodes to a race of nodes."""
        return [f"{what} {number}" for number in range(1, self.parameters.nodes + 1)]

    # --- set-up ---

    @property
    def outside(self) -> EventStore:
        """The handle outside of the schedule.

        Raises:
            RuntimeError: the scene has none.
        """
        if self._storage is None:
            raise RuntimeError("this scene has no storage: it serves to name nodes only")
        return self._storage

    async def started(self, name: str, workflow: str, execution_id: str) -> None:
        """Start an execution and wait until its drive ends; not part of the race."""
        node = self._outside(name)
        handle = await node.runtime.start(workflow, execution_id=execution_id)
        await handle.finished()

    async def write(self, envelope: EventEnvelope) -> None:
        """Append an envelope; not part of the race."""
        await self._outside("setup").store.append(envelope)

    def envelope(self, execution_id: str, sequence: int, *, id: str) -> EventEnvelope:
        """A bootstrap's envelope under an id of its own."""
        payload: JsonValue = {"workflow": "audit", "input": None}
        return EventEnvelope(execution_id, sequence, id, "EXECUTION_STARTED", NIGHT, payload)

    def _outside(self, name: str) -> Node:
        outside = Scene(
            replace(self.parameters, linger=None, crash=None),
            Subject(),
            self.decorators,
            self._storage,
        )
        outside.replica = self.replica
        outside.evidence = Evidence(calls=self.evidence.earlier)
        return Node(name, outside, Outside(self.outside))

    # --- nodes ---

    def node(self, name: str, place: Place) -> Node:
        """A node that takes part."""
        return Node(name, self, place)

    async def recovered(self, node: Node, execution_id: str) -> None:
        """A recovery pass over an execution, driven to its end."""
        await node.recover(f"recovery of {execution_id}", execution_id)


class Node:
    """One process that runs the runtime, with its own handle, clock and listeners."""

    def __init__(self, name: str, scene: Scene, place: Place) -> None:
        self.name = name
        self.scene = scene
        self.place = place
        self.life = Life()

    @cached_property
    def store(self) -> EventStore:
        """The node's store as its runtime sees it, decorators and all."""
        scene, parameters = self.scene, self.scene.parameters
        store: EventStore = Recorded(self.place.store, self._called)
        if scene.replica is not None:
            store = ReplicaReadingEventStore(store, scene.replica)
        if parameters.linger is not None:
            store = scene.decorators.coalesce(
                store, parameters.linger, parameters.max_batch, self.place.clock
            )
            if scene.subject.flushes is not None:
                store = scene.subject.flushes(store)
        if parameters.tenant is not None:
            store = scene.decorators.scope(store, parameters.tenant)
        return Mortal(Recorded(store, self._acknowledged), self.life)

    @cached_property
    def runtime(self) -> Runtime:
        """The node's runtime."""
        return self.scene.subject.assembly.runtime(
            RuntimeDeps(
                store=self.store,
                clock=self.place.clock,
                workflows=[Workflow("audit", self._audit), Workflow("nap", self._nap)],
                random_bytes=bytes,
                on_event=self._told,
                on_storage_error=self._storage_error,
            )
        )

    def timers(self, *, fenced: bool, leases: bool = False) -> Timers:
        """The node's timer service, with leases that it need not renew if it has any."""
        held = Leases(self.place.leases, self.name, ttl=LEASE, renew_every=None) if leases else None
        return self.scene.subject.assembly.timers(
            self.runtime, self.place.clock, fenced=fenced, leases=held, on_error=self._error
        )

    def dispatcher(self, *, max_attempts: int, supervised: bool) -> Dispatcher:
        """A dispatcher on the node's worker."""
        assembly = self.scene.subject.assembly
        worker = assembly.worker(self.runtime)
        if supervised:
            return assembly.supervising_dispatcher(
                worker, self.place.clock, max_attempts=max_attempts, on_error=self._error
            )
        return assembly.dispatcher(worker, max_attempts=max_attempts, on_error=self._error)

    # --- acts ---

    async def act(self, name: str, doing: Awaitable[T]) -> T | None:
        """Do something whose end is evidence; `None` where it raised, or the node died."""
        try:
            value = await doing
        except asyncio.CancelledError as died:
            if not self.life.dead:
                raise
            self.scene.evidence.ends[name] = Ended(error=died)
            return None
        except Exception as error:  # noqa: BLE001 - how an act ends is what a race is about
            self.scene.evidence.ends[name] = Ended(error=error)
            return None
        self.scene.evidence.ends[name] = Ended(value)
        return value

    async def triggered(self, act: str) -> None:
        """Wait until a trigger is delivered here; the schedule chooses when that is."""
        await self.place.call(("trigger", act), (0, 0), (), _nothing)

    async def start_and_run(self, act: str, workflow: str, execution_id: str) -> None:
        """Start an execution, and wait until its drive ends."""
        handle = await self.act(act, self.runtime.start(workflow, execution_id=execution_id))
        if handle is not None:
            await self.driven(f"run of {act}", handle)

    async def driven(self, act: str, handle: Handle) -> None:
        """Wait until a drive ends; where only starts are led, that is waited for later."""
        if self.scene.later is None:
            await self.act(act, handle.finished())
        else:
            self.scene.later.append((self, act, handle))

    async def recover(self, act: str, execution_id: str) -> None:
        """Take the execution over if it runs, and wait until the drive ends."""
        handles: list[Handle] = (
            await self.act(act, self.runtime.recover_abandoned([execution_id])) or []
        )
        for handle in handles:
            await self.driven(f"run of {act}", handle)

    def dies_after(self, calls: int | None) -> None:
        """Let the node die after so many store calls and effects."""
        self.life.left = calls

    # --- what the node does and hears ---

    async def _audit(self, context: StepContext, input: JsonValue) -> JsonValue:
        return await context.step("audit", lambda: self._effect(context, "audit"))

    async def _nap(self, context: StepContext, input: JsonValue) -> JsonValue:
        await context.step("before", lambda: self._effect(context, "before"))
        await context.sleep("pause", NAP)
        return await context.step("after", lambda: self._effect(context, "after"))

    async def _effect(self, context: StepContext, step: str) -> JsonValue:
        execution_id = context.state.execution_id
        self.life.spend()
        await self.place.effect(self.scene.effect_name(execution_id, step))
        evidence = self.scene.evidence
        evidence.effects.append(Effect(self.name, execution_id, step, len(evidence.calls)))
        return f"{step} in {self.name}"

    def _told(self, envelope: EventEnvelope) -> None:
        self.scene.evidence.told.append((self.name, envelope))
        self.place.tell("on_event", f"{envelope.sequence} {envelope.kind}")

    def _error(self, error: BaseException) -> None:
        self.scene.evidence.errors.append((self.name, error))
        self.place.tell("on_error", type(error).__name__)

    def _storage_error(self, error: BaseException) -> None:
        self.scene.evidence.storage_errors.append((self.name, error))
        self.place.tell("on_storage_error", type(error.__cause__ or error).__name__)

    def _called(self, operation: Operation, value: Any, error: BaseException | None) -> None:
        self.scene.evidence.calls.append(Call(self.name, operation, error, value))

    def _acknowledged(self, operation: Operation, value: Any, error: BaseException | None) -> None:
        if error is None:
            self.scene.evidence.acknowledged.extend(envelopes_of(operation))


async def _nothing() -> None:
    return None
