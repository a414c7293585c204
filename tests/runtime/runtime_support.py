"""A store that records what reaches it and refuses what it is told to, and a clock by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from loom_conformance.runtime import RuntimeDeps, StepContext, Workflow, WorkflowRuntime
from loom_conformance.spi import (
    FENCE_KEY,
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    JsonValue,
    StaleFenceError,
)

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Armed:
    """A timer that a task waits for."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task

    def cancel(self) -> None:
        self.task.cancel()


class ManualClock:
    """Time that moves only when it is told to."""

    def __init__(self) -> None:
        self.time = EPOCH
        self.sleepers: list[tuple[datetime, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return self.time

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sleepers.append((self.time + timedelta(seconds=seconds), woken))
        await woken

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Armed:
        async def later() -> None:
            await self.sleep(seconds)
            callback()

        return Armed(asyncio.create_task(later()))

    async def advance(self, seconds: float) -> None:
        """Let time pass and everybody run who waited for it."""
        await settle()
        self.time += timedelta(seconds=seconds)
        for due, woken in list(self.sleepers):
            if due <= self.time:
                self.sleepers.remove((due, woken))
                if not woken.done():
                    woken.set_result(None)
        await settle()


async def settle() -> None:
    """Let every task run until nothing but outside events can wake one."""
    for _ in range(50):
        await asyncio.sleep(0)


@dataclass
class RecordedStore:
    """Keeps the contract in memory; `timeline` says what happened, in order.

    `refusals` holds what the next writes raise: an error, or `None` for one that is let through.
    """

    timeline: list[str] = field(default_factory=list)
    refusals: list[Exception | None] = field(default_factory=list)
    unreadable: Exception | None = None
    hidden: bool = False
    logs: dict[str, list[EventEnvelope]] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)
    held: asyncio.Event | None = None

    async def append(self, envelope: EventEnvelope, /) -> None:
        await self._write("append", [envelope])

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        await self._write("append_batch", list(envelopes))

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        self.timeline.append(f"read_from {execution_id} {first}")
        return self._read(execution_id, first, None)

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        self.timeline.append(f"read_range {execution_id} {first} {last}")
        return self._read(execution_id, first, last)

    async def acquire_fence(self, execution_id: str, /) -> int:
        self.fences[execution_id] = self.fences.get(execution_id, 0) + 1
        self.timeline.append(f"acquire_fence {execution_id} -> {self.fences[execution_id]}")
        return self.fences[execution_id]

    async def close(self) -> None:
        self.timeline.append("close")

    def _read(self, execution_id: str, first: int, last: int | None) -> list[EventEnvelope]:
        if self.unreadable is not None:
            raise self.unreadable
        if self.hidden:
            return []
        return [
            envelope
            for envelope in self.logs.get(execution_id, [])
            if envelope.sequence >= first and (last is None or envelope.sequence <= last)
        ]

    async def _write(self, call: str, envelopes: list[EventEnvelope]) -> None:
        names = " ".join(f"{each.execution_id}[{each.sequence}]" for each in envelopes)
        self.timeline.append(f"{call} {names}")
        if self.held is not None:
            await self.held.wait()
        await asyncio.sleep(0)
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            self.timeline.append(f"refused {names}: {type(refusal).__name__}")
            raise refusal
        for envelope in envelopes:
            self._check(envelope)
        for envelope in envelopes:
            self.logs.setdefault(envelope.execution_id, []).append(envelope)
        self.timeline.append(f"durable {names}")

    def _check(self, envelope: EventEnvelope) -> None:
        current = self.fences.get(envelope.execution_id)
        given = envelope.metadata.get(FENCE_KEY)
        if current is not None and given != current:
            raise StaleFenceError(envelope.execution_id, given, current)
        for other in self.logs.get(envelope.execution_id, []):
            if other.sequence == envelope.sequence:
                raise DuplicateSequenceError(envelope.execution_id, envelope.sequence)
            if other.id == envelope.id:
                raise DuplicateEnvelopeIdError(envelope.execution_id, envelope.id)


@dataclass
class World:
    """One node's runtime on a recorded store, with everything it tells on one timeline."""

    store: RecordedStore = field(default_factory=RecordedStore)
    clock: ManualClock = field(default_factory=ManualClock)
    told: list[EventEnvelope] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    gate: asyncio.Event | None = None

    def runtime(self, runtime_class: type[WorkflowRuntime] = WorkflowRuntime) -> WorkflowRuntime:
        return runtime_class(
            RuntimeDeps(
                store=self.store,
                clock=self.clock,
                workflows=[
                    Workflow("audit", self.audit),
                    Workflow("nap", self.nap),
                    Workflow("broken", self.broken),
                ],
                random_bytes=bytes,
                on_event=self._tell,
                on_storage_error=self.errors.append,
            )
        )

    @property
    def effects(self) -> list[str]:
        """The effects that ran, in order."""
        return [line.split()[1] for line in self.store.timeline if line.startswith("effect")]

    async def effect(self, name: str) -> JsonValue:
        self.store.timeline.append(f"effect {name}")
        if self.gate is not None:
            await self.gate.wait()
        return f"{name} done"

    async def audit(self, context: StepContext, input: JsonValue) -> JsonValue:
        first = await context.step("audit", lambda: self.effect("audit"))
        second = await context.step("report", lambda: self.effect("report"))
        return [first, second, input]

    async def nap(self, context: StepContext, input: JsonValue) -> JsonValue:
        await context.step("before", lambda: self.effect("before"))
        await context.sleep("pause", 60)
        return await context.step("after", lambda: self.effect("after"))

    async def broken(self, context: StepContext, input: JsonValue) -> JsonValue:
        raise LookupError("no such account")

    def _tell(self, envelope: EventEnvelope) -> None:
        self.told.append(envelope)
        self.store.timeline.append(f"told {envelope.execution_id}[{envelope.sequence}]")


def kinds(envelopes: Iterable[EventEnvelope]) -> list[str]:
    """The kinds of some envelopes, in order."""
    return [envelope.kind for envelope in envelopes]
