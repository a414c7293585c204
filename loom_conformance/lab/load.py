"""A seeded load on a store: many tasks, several handles, conflicts on purpose.

Every task plays writers of several executions. It knows only what its own calls told it, so in a
contended load the tasks collide on slots, ids and fences all the time; now and then one does
what it should not (an old token, a taken id, the same envelope again after an unknown outcome),
since refusals have to be right too. When an execution has grown to its length the task goes on to a
new one, so that reads stay short and a history falls into parts.

The same `Load` and seed make the same choices as long as the store gives the same answers.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from ..contract.operations import (
    AcquireFence,
    Append,
    AppendBatch,
    Done,
    Operation,
    Outcome,
    ReadFrom,
    ReadRange,
    Refused,
    Unknown,
    Write,
)
from ..spi import (
    FENCE_KEY,
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    EventStore,
    JsonValue,
    StaleFenceError,
    StoreClosedError,
    abilities,
)
from .faults.moments import Moment
from .history import RecordedHandle, Recorder

Connect = Callable[[], Awaitable[EventStore]]

_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)

KINDS: Final[Mapping[str, int]] = {
    "append": 50,
    "batch": 15,
    "read": 20,
    "range": 5,
    "fence": 4,
}
"""The kinds of calls with their default weights."""


HUNG_TOO_OFTEN: Final = 3
"""After so many hung calls a load begins no more: the verdict is clear, and each costs patience."""


PASSED_BY: Final = 10
"""How many calls may pass without reaching the await at which the process is to be hit."""


@dataclass(frozen=True, slots=True)
class Load:
    """What one process does to a store.

    Attributes:
        seed: chooses everything that is chosen.
        prefix: begins every execution id; processes that share it contend.
        tasks: concurrent callers.
        handles: connected handles that the tasks share.
        executions: how many executions are being written at any time.
        contended: whether tasks (and processes with the same prefix) share executions.
        calls: how many calls are made in all, or `None` for no limit.
        seconds: how long calls are begun, or `None` for no limit.
        length: the number of envelopes after which an execution is left for a new one.
        fenced: the share of executions that are fenced, 0 to 1.
        mischief: the share of writes that do what they should not, 0 to 1.
        batch: the largest batch.
        weights: how often each kind of call is made; see `KINDS`.
        patience: seconds after which a call counts as hung.
        cancel: the share of calls that are cancelled at one of their awaits, 0 to 1.
        span: whether a batch may span executions.
    """

    seed: int = 0
    prefix: str = ""
    tasks: int = 4
    handles: int = 2
    executions: int = 3
    contended: bool = True
    calls: int | None = 400
    seconds: float | None = None
    length: int = 30
    fenced: float = 0.5
    mischief: float = 0.1
    batch: int = 4
    weights: Mapping[str, int] = field(default_factory=lambda: dict(KINDS))
    patience: float = 10.0
    cancel: float = 0.0
    span: bool = True

    def to_json(self) -> dict[str, Any]:
        """The load as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """The load that `to_json` described."""
        return cls(**told)

    def seeded(self, seed: int) -> Load:
        """The same load with other choices."""
        return replace(self, seed=seed)


@dataclass(slots=True)
class _Known:
    """What one task knows of one execution."""

    execution_id: str
    next: int = 0
    token: int | None = None
    old_token: int | None = None
    fenced: bool = False
    written: list[EventEnvelope] = field(default_factory=list)
    doubtful: EventEnvelope | None = None


class LoadRun:
    """One process's load, going on.

    Args:
        load: what to do.
        recorder: where every call is written.
        connect: opens one more handle.
        moment: something to be done at a chosen moment of a chosen call.
    """

    def __init__(
        self, load: Load, recorder: Recorder, connect: Connect, moment: Moment | None = None
    ) -> None:
        self.load = load
        self.recorder = recorder
        self.reconnects = 0
        self.cancelled = 0
        self.hung = 0
        self._connect = connect
        self._moment = moment
        self._left = load.calls
        self._until = None if load.seconds is None else time.monotonic() + load.seconds
        self._stopping = False
        self._handles: list[RecordedHandle] = []
        self._troubled: set[int] = set()
        self._names = 0
        self._begun = 0

    async def run(self) -> dict[str, int]:
        """Make all the calls; the counts of what they came to."""
        self._handles = [await self._open() for _ in range(self.load.handles)]
        able = abilities(self._handles[0].store)
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self.load.tasks):
                    group.create_task(_Caller(self, number, able).play())
        finally:
            for handle in self._handles:
                await _close(handle.store, self.load.patience)
        return self.counts()

    def stop(self) -> None:
        """Begin no more calls."""
        self._stopping = True

    def counts(self) -> dict[str, int]:
        """The counts so far."""
        return {
            "calls": self.recorder.calls,
            **self.recorder.outcomes,
            "reconnects": self.reconnects,
            "cancelled": self.cancelled,
            "hung": self.hung,
        }

    def take(self) -> bool:
        """Whether one more call may begin."""
        if self._stopping or (self._until is not None and time.monotonic() >= self._until):
            return False
        if self._left is not None:
            if self._left <= 0:
                return False
            self._left -= 1
        return True

    async def do(self, place: int, operation: Operation, cancel_at: int | None) -> Outcome:
        """Make one call on one of the handles, and mend the handle where it is done for."""
        handle = self._handles[place]
        self._begun += 1
        moment = None
        if self._moment is not None and self._begun >= self._moment.call:
            # A call with fewer awaits passes by; before long any await will do.
            late = self._begun > self._moment.call + PASSED_BY
            moment = replace(self._moment, suspension=1) if late else self._moment
        outcome = await handle.do(
            operation, timeout=self.load.patience, moment=moment, cancel_at=cancel_at
        )
        if isinstance(outcome, Unknown):
            self.cancelled += outcome.error == "cancelled"
            self.hung += outcome.error == "hung"
            if self.hung >= HUNG_TOO_OFTEN:
                self._stopping = True
        if isinstance(outcome, Unknown) and outcome.error != "cancelled":
            # Nothing is gained by hammering on a server that is down.
            await asyncio.sleep(0.02)
            if place in self._troubled:
                await self._replace(place, handle)
            else:
                self._troubled.add(place)
        elif isinstance(outcome, Refused) and outcome.is_a(StoreClosedError):
            await self._replace(place, handle)
        elif isinstance(outcome, Done):
            self._troubled.discard(place)
        return outcome

    async def _replace(self, place: int, old: RecordedHandle) -> None:
        if self._handles[place] is not old:
            return
        new = await self._open()
        if self._handles[place] is not old:
            await _close(new.store, self.load.patience)
            return
        self._handles[place] = new
        self._troubled.discard(place)
        self.reconnects += 1
        await _close(old.store, self.load.patience)

    async def _open(self) -> RecordedHandle:
        give_up = time.monotonic() + 3 * self.load.patience
        while True:
            try:
                async with asyncio.timeout(self.load.patience):
                    store = await self._connect()
                break
            except Exception:
                if time.monotonic() >= give_up or self._stopping:
                    raise
                await asyncio.sleep(0.05)
        self._names += 1
        return self.recorder.handle(store, f"h{self._names}")


async def _close(store: EventStore, patience: float) -> None:
    """Close a handle that is given up, but do not wait for ever."""
    task = asyncio.ensure_future(store.close())
    await asyncio.wait({task}, timeout=patience)
    if not task.done():
        task.cancel()
    elif not task.cancelled():
        task.exception()


class _Caller:
    """One task of a load."""

    def __init__(self, run: LoadRun, number: int, able: frozenset[str]) -> None:
        load = run.load
        self.run = run
        self.load = load
        self.name = f"{run.recorder.process}.{number}"
        self.random = random.Random(f"{load.seed}/{self.name}")
        self.written = 0
        self.known = [self._fresh(slot, 0) for slot in range(load.executions)]
        self.generation = [0] * load.executions
        needs = {"batch": "batch", "range": "range", "fence": "fencing"}
        kinds = {
            kind: weight
            for kind, weight in load.weights.items()
            if weight > 0 and (kind not in needs or needs[kind] in able)
        }
        self.kinds, self.weights = list(kinds), list(kinds.values())
        self.fences = "fencing" in able

    async def play(self) -> None:
        """Make calls until the run's limit is reached."""
        while self.run.take():
            known = self.random.choice(self.known)
            operation = self._choose(known)
            cancel_at = None
            if self.load.cancel and self.random.random() < self.load.cancel:
                cancel_at = self.random.randint(1, 8)
            place = self.random.randrange(self.load.handles)
            outcome = await self.run.do(place, operation, cancel_at)
            self._learn(operation, outcome)
            # A store that never suspends must not keep the other tasks from running.
            await asyncio.sleep(0)

    def _fresh(self, slot: int, generation: int) -> _Known:
        load = self.load
        own = "" if load.contended else f"{self.name}."
        name = f"{load.prefix}{own}e{slot}.{generation}"
        chance = random.Random(f"{load.seed if not load.contended else 0}/{name}").random()
        return _Known(name, fenced=chance < load.fenced)

    def _choose(self, known: _Known) -> Operation:
        if known.fenced and self.fences and known.token is None and self.random.random() < 0.7:
            return AcquireFence(known.execution_id)
        kind = self.random.choices(self.kinds, self.weights)[0]
        if kind == "append":
            return Append(self._envelope(known))
        if kind == "batch":
            return self._batch(known)
        if kind == "fence":
            return (
                AcquireFence(known.execution_id) if known.fenced else ReadFrom(known.execution_id)
            )
        if kind == "range":
            first = self.random.randint(0, known.next)
            return ReadRange(known.execution_id, first, first + self.random.randint(0, 10))
        whole = self.random.random() < 0.8
        return ReadFrom(known.execution_id, 0 if whole else self.random.randint(0, known.next))

    def _envelope(self, known: _Known, ahead: int = 0) -> EventEnvelope:
        chance = self.random.random()
        if known.doubtful is not None and not ahead and chance < 0.5:
            return known.doubtful
        sequence = known.next + ahead
        name = f"{known.execution_id}-{sequence}"
        token = known.token
        if chance < self.load.mischief:
            trick = self.random.choice(["slot", "id", "no token", "old token", "again"])
            if trick == "slot" and sequence:
                sequence = self.random.randrange(sequence)
                name = f"{known.execution_id}-{sequence}-{self.name}"
            elif trick == "id" and known.written:
                name = self.random.choice(known.written).id
            elif trick == "no token":
                token = None
            elif trick == "old token" and known.old_token is not None:
                token = known.old_token
            elif trick == "again" and known.written:
                return self.random.choice(known.written)
        elif self.random.random() < 0.5:
            # Not the runtime's id, so that two writers of one slot differ in their ids.
            name = f"{known.execution_id}-{sequence}-{self.name}"
        self.written += 1
        metadata: dict[str, JsonValue] = {} if token is None else {FENCE_KEY: token}
        return EventEnvelope(
            execution_id=known.execution_id,
            sequence=sequence,
            id=name,
            kind="STEP_COMPLETED",
            timestamp=_EPOCH + timedelta(seconds=self.written),
            payload={"by": self.name, "n": self.written},
            metadata=metadata,
        )

    def _batch(self, known: _Known) -> AppendBatch:
        size = self.random.randint(1, self.load.batch)
        # Only the first two executions are ever written together, so that a history's others
        # can be judged apart.
        pair = self.known[:2]
        together = known in pair and self.random.random() < 0.5 and self.load.span
        company = self.random.choice(pair) if together else known
        envelopes = []
        counts: dict[str, int] = {}
        for _ in range(size):
            target = self.random.choice((known, company))
            ahead = counts.get(target.execution_id, 0)
            counts[target.execution_id] = ahead + 1
            envelopes.append(self._envelope(target, ahead))
        return AppendBatch(envelopes)

    def _learn(self, operation: Operation, outcome: Outcome) -> None:
        if isinstance(operation, Append | AppendBatch):
            for envelope in operation.envelopes:
                self._learn_write(operation, envelope, outcome)
        elif isinstance(outcome, Done):
            for known in self._of(operation.execution_id):
                if isinstance(operation, AcquireFence):
                    known.old_token, known.token = known.token, outcome.value
                elif outcome.value:
                    last = outcome.value[-1].sequence
                    known.next = max(known.next, last + 1)
        for slot, known in enumerate(self.known):
            if known.next >= self.load.length:
                self.generation[slot] += 1
                self.known[slot] = self._fresh(slot, self.generation[slot])

    def _learn_write(self, operation: Write, envelope: EventEnvelope, outcome: Outcome) -> None:
        for known in self._of(envelope.execution_id):
            if isinstance(outcome, Done):
                known.next = max(known.next, envelope.sequence + 1)
                known.written = [*known.written[-8:], envelope]
            if isinstance(operation, Append):
                unknown = isinstance(outcome, Unknown)
                if unknown or known.doubtful is envelope:
                    known.doubtful = envelope if unknown else None
            if not isinstance(outcome, Refused):
                continue
            if outcome.is_a(DuplicateSequenceError, DuplicateEnvelopeIdError):
                if envelope.sequence == known.next:
                    known.next += self.random.randint(0, 1)
            elif outcome.is_a(StaleFenceError) and self.random.random() < 0.5:
                # Someone else holds the fence: take it from them, sooner or later.
                known.old_token, known.token = known.token or known.old_token, None
                known.fenced = True

    def _of(self, execution_id: str) -> list[_Known]:
        return [known for known in self.known if known.execution_id == execution_id]
