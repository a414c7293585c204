"""What the parts of a runtime ask of each other, and what the races ask of all of them.

Put a part of your own behind its protocol, and every race runs on it (see `Assembly`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ..clock import Clock
from ..spi import EventStore, JsonValue, LeaseStore
from .journal import ErrorListener, Listener, ignore
from .state import ExecutionState
from .workflow import Workflow


@dataclass(frozen=True, slots=True)
class RuntimeDeps:
    """What a runtime is made of.

    Attributes:
        store: the event store, decorators included.
        clock: where time comes from.
        workflows: what it can run.
        random_bytes: where minted ids get their randomness; takes a length.
        on_event: is told every event as it is folded: the live tail, no sign of durability (D6).
        on_commit: is told after `on_event`.
        on_storage_error: is told every `StorageWriteError`, once.
    """

    store: EventStore
    clock: Clock
    workflows: Iterable[Workflow]
    random_bytes: Callable[[int], bytes] = os.urandom
    on_event: Listener = ignore
    on_commit: Listener = ignore
    on_storage_error: ErrorListener = ignore


@dataclass(frozen=True, slots=True)
class Schedule:
    """What is started at each of its occurrences."""

    id: str
    workflow: str
    input: JsonValue = None

    def execution_id(self, occurrence: str) -> str:
        """The id of the occurrence's one execution (ADR 0051)."""
        return f"{self.id}@{occurrence}"


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer that a sleeping execution has set."""

    execution_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Leases:
    """Who claims leases, and how.

    Attributes:
        store: where they are kept.
        holder: this node's own name.
        ttl: how long a claim lasts, in seconds.
        renew_every: the pause between renewals while a fire runs, in seconds, shorter than `ttl`;
            `None` never renews, which serves fires that are shorter than `ttl`.
    """

    store: LeaseStore
    holder: str
    ttl: float = 60.0
    renew_every: float | None = 20.0


@dataclass(frozen=True, slots=True)
class Dispatch:
    """An execution that a worker is to drive, from its start or from where it stands."""

    execution_id: str
    workflow: str
    input: JsonValue = None
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)


class Handle(Protocol):
    """An execution that a runtime drives, or that it found at rest."""

    @property
    def execution_id(self) -> str:
        """The execution."""

    async def finished(self) -> ExecutionState:
        """Wait until the drive ends; raise what stopped it."""


class Runtime(Protocol):
    """`WorkflowRuntime`, or one in its place; its methods tell the rest."""

    async def start(
        self,
        workflow: str,
        input: JsonValue = None,
        *,
        execution_id: str | None = None,
        fence: int | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
    ) -> Handle:
        """Start an execution, once for a chosen id."""

    async def load_state(self, execution_id: str) -> ExecutionState | None:
        """The fold of what is durable."""

    async def resume(
        self,
        execution_id: str,
        *,
        fence: int | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
    ) -> Handle:
        """Drive an execution on from its log."""

    async def wake(
        self,
        execution_id: str,
        timer: str,
        *,
        fence: int | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
    ) -> Handle | None:
        """Record that a timer fired and drive on; `None` if there is nothing to wake."""

    async def cancel(self, execution_id: str, reason: str) -> ExecutionState:
        """End an execution under a fresh fence."""

    async def recover_abandoned(self, execution_ids: Iterable[str]) -> list[Handle]:
        """Drive on what runs with nobody driving it, under fresh fences."""

    async def acquire_fence(self, execution_id: str) -> int | None:
        """The execution's new current token."""

    async def close(self) -> None:
        """Stop driving."""


class Timers(Protocol):
    """`TimerService`, or one in its place."""

    async def start_occurrence(self, schedule: Schedule, occurrence: str) -> Handle | None:
        """Start an occurrence once over all nodes."""

    async def fire(self, timer: Timer) -> ExecutionState | None:
        """Wake the execution whose timer is due."""


class Worker(Protocol):
    """`LocalWorkerRuntime`, or one in its place."""

    async def allocate(self, dispatch: Dispatch) -> Handle:
        """Take an execution over, or start it."""


class Dispatcher(Protocol):
    """`LocalDispatcher`, `SupervisingDispatcher`, or one in their place."""

    async def dispatch(self, dispatch: Dispatch) -> ExecutionState | None:
        """Drive an execution, trying again what failed; `None` if it was superseded."""
