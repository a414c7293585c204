"""One trial of a backend: load from several processes, faults meanwhile, and a verdict on it all.

Every call of every process is recorded, a fresh handle reads everything at the end, and the checker
judges the history. A fault counts only where it proved to have happened.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from ..backend import Backend, Crashing
from ..contract.operations import Done, ReadFrom, executions_of
from .checker.search import Budget
from .checker.verdict import Verdict, check, model_of
from .faults.address import endpoint_of, is_postgres, through
from .faults.moments import Moment
from .faults.postgres import tagged, terminate
from .faults.proxy import Proxy, Trap
from .faults.sqlite import sqlite_file, write_locked
from .history import History, Recorder, declarations, read_history
from .load import Load, LoadRun
from .processes import Child, ChildDied, ChildFailed, Nursery

FaultKind = Literal["kill", "pause", "crash", "cut", "lose", "delay", "terminate", "lock"]

KINDS: Final[tuple[FaultKind, ...]] = (
    "kill",
    "pause",
    "crash",
    "cut",
    "lose",
    "delay",
    "terminate",
    "lock",
)
"""All kinds of faults; a trial uses those of them that the backend allows."""


MOST_EXTENSIONS: Final = 20
"""How often a process goes on although it has made its calls, for the sake of the first faults."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a trial does.

    Attributes:
        load: what each process does; `calls` and `seconds` are per process.
        processes: how many processes call at the same time.
        faults: how often each kind of fault is chosen, by weight.
        first: faults that are done first of all, in this order, where the backend allows them.
        calls_between: about how many calls are made between two faults; `None` to go by time.
        seconds_between: about how long to wait between two faults.
        most: the number of faults after which no more are done.
        at_chosen_moments: the share of kills and pauses that strike at a chosen await of a
            chosen call rather than from outside, 0 to 1.
    """

    load: Load = field(default_factory=Load)
    processes: int = 2
    faults: Mapping[FaultKind, int] = field(default_factory=lambda: {"kill": 1, "pause": 1})
    first: tuple[FaultKind, ...] = ()
    calls_between: int | None = 100
    seconds_between: float = 0.5
    most: int | None = None
    at_chosen_moments: float = 0.5


@dataclass(slots=True)
class Figures:
    """What happened in a trial, in numbers.

    Attributes:
        calls, ok, refused, unknown: the calls and what they came to.
        faults: the faults that proved to have happened, by kind.
        overlaps: calls that overlapped one of another process or handle on the same execution.
        checked: the calls that were judged.
        parts: the parts that they fell into.
        processes: how many processes there were in all.
        seconds: how long the load took.
    """

    calls: int = 0
    ok: int = 0
    refused: int = 0
    unknown: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    overlaps: int = 0
    checked: int = 0
    parts: int = 0
    processes: int = 0
    seconds: float = 0.0

    def add(self, other: Figures) -> None:
        """Add the figures of another trial."""
        for name in ("calls", "ok", "refused", "unknown", "overlaps", "checked", "parts"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.processes += other.processes
        self.seconds += other.seconds
        self.faults.update(other.faults)

    def to_json(self) -> dict[str, Any]:
        """The figures as plain data."""
        names = ("calls", "ok", "refused", "unknown", "overlaps", "checked", "parts", "processes")
        told: dict[str, Any] = {name: getattr(self, name) for name in names}
        return {**told, "seconds": round(self.seconds, 3), "faults": dict(self.faults)}


@dataclass(frozen=True, slots=True)
class Result:
    """What a trial came to; the history's files are in `folder`."""

    history: History
    verdict: Verdict
    figures: Figures
    folder: Path


Progress = Callable[[Figures], None]


async def run_trial(
    backend: Backend,
    plan: Plan,
    folder: Path,
    *,
    seed: int = 0,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> Result:
    """Make a storage, put the load and the faults on it, judge what happened, remove it.

    Args:
        backend: a started backend.
        plan: what to do.
        folder: an empty folder for the history's files.
        seed: chooses the faults and their moments; the load has a seed of its own.
        budget: what the search for a legal order may cost.
        progress: is called now and then with the figures so far.

    Raises:
        ChildFailed: the children could not connect.
        TrialFailed: at the end no fresh handle could read the storage.
    """
    address = await backend.create()
    try:
        trial = _Trial(backend, address, plan, folder, random.Random(seed), progress)
        began = time.monotonic()
        await trial.run()
        trial.figures.seconds = time.monotonic() - began
    finally:
        await backend.destroy(address)
    history = read_history(_files(folder))
    verdict = await asyncio.to_thread(check, history, model_of(history.declared), budget)
    figures = trial.figures
    for name, count in history.counts().items():
        setattr(figures, name, count)
    figures.overlaps = overlaps(history)
    figures.checked, figures.parts = verdict.calls, verdict.parts
    return Result(history, verdict, figures, folder)


class TrialFailed(Exception):
    """After the faults had passed, the storage could not be read."""


class _Trial:
    def __init__(
        self,
        backend: Backend,
        address: str,
        plan: Plan,
        folder: Path,
        chance: random.Random,
        progress: Progress | None,
    ) -> None:
        self.backend = backend
        self.address = address
        self.plan = plan
        self.folder = folder
        self.random = chance
        self.figures = Figures()
        self._progress = progress
        self._declared = declarations(backend)
        self._children: list[Child] = []
        self._dead: set[str] = set()
        self._made = 0  # by processes that have ended
        self._shown = asyncio.Event()
        """Set once the plan's first faults have been done."""
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tag = f"loom-{chance.getrandbits(48):012x}"
        self._proxy: Proxy | None = None

    async def run(self) -> None:
        """The load with its faults, then the reading of everything."""
        with Recorder(self.folder / "faults.jsonl", "faults", self._declared) as recorder:
            self.recorder = recorder
            if self.backend.outlives_process:
                await self._by_processes()
            else:
                await self._in_this_process()
            await self._audit()

    # --- Load --------------------------------------------------------------------------------

    async def _in_this_process(self) -> None:
        """For a storage that lives in this process: many handles, and no fault but cancelling."""
        load = self.plan.load
        spread = replace(
            load,
            tasks=load.tasks * self.plan.processes,
            handles=load.handles * self.plan.processes,
            calls=None if load.calls is None else load.calls * self.plan.processes,
        )
        with Recorder(self.folder / "load.jsonl", "load", self._declared) as recorder:
            run = LoadRun(spread, recorder, lambda: self.backend.connect(self.address))
            await run.run()
            self.figures.faults["cancel"] += run.cancelled
            self.figures.processes = 1

    async def _by_processes(self) -> None:
        address = self.address
        async with AsyncExitStack() as stack:
            if is_postgres(address):
                address = tagged(address, self._tag)
            endpoint = endpoint_of(self.backend, address)
            if endpoint is not None and self._wants("cut", "lose", "delay"):
                self._proxy = await stack.enter_async_context(Proxy(endpoint))
                address = through(self.backend, address, *self._proxy.listening)
            nursery = await stack.enter_async_context(
                Nursery(type(self.backend), self.folder, patience=120.0)
            )
            count = 1 if self.backend.one_process_at_a_time else self.plan.processes
            until = None
            if self.plan.load.seconds is not None:
                until = time.monotonic() + self.plan.load.seconds
            workers = [
                asyncio.ensure_future(self._work(nursery, address, number, until))
                for number in range(count)
            ]
            mischief = asyncio.ensure_future(self._mischief())
            watch = asyncio.ensure_future(self._watch())
            try:
                await asyncio.gather(*workers)
            finally:
                self._end.set_result(None)
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
                watch.cancel()
                await asyncio.wait({mischief, watch})
            mischief.result()

    def _wants(self, *kinds: FaultKind) -> bool:
        return any(self.plan.faults.get(kind, 0) > 0 for kind in kinds)

    async def _work(self, nursery: Nursery, address: str, number: int, until: float | None) -> None:
        """Keep one process at work: whenever it dies, the next one goes on."""
        left = self.plan.load.calls
        generation = 0
        extended = 0
        while until is None or time.monotonic() < until:
            if left is not None and left <= 0:
                # Faults that have to be shown are waited for, within reason.
                if self._shown.is_set() or extended == MOST_EXTENSIONS:
                    return
                extended += 1
                left = self.plan.calls_between or 50
            name = f"p{number}.{generation}"
            generation += 1
            load = replace(
                self.plan.load,
                seed=self.random.getrandbits(32),
                calls=left,
                seconds=None if until is None else max(0.05, until - time.monotonic()),
            )
            child = await nursery.spawn(name, address)
            self.figures.processes += 1
            moment = self._moment() if self._may() else None
            self._children.append(child)
            try:
                await child.load(load, moment)
                await child.quit()
            except ChildDied:
                if await child.ended() == signal.SIGKILL:
                    self._killed(child)
            finally:
                self._children.remove(child)
            made = read_history(_begun([child.history])).counts()["calls"]
            self._made += made
            if left is not None:
                left -= made

    def _moment(self) -> Moment | None:
        """Sometimes a process is given its own end from the start."""
        if not self._wants("kill") or self.random.random() >= self.plan.at_chosen_moments:
            return None
        typical = self.plan.calls_between or 200
        return Moment(self.random.randint(1, 2 * typical), self.random.randint(1, 6), "KILL")

    # --- Faults ------------------------------------------------------------------------------

    def _may(self) -> bool:
        most = self.plan.most
        return most is None or self.figures.faults.total() < most

    def _fired(self, kind: str, target: str, detail: str = "", at: int | None = None) -> None:
        self.recorder.fault(kind, target, detail, at)
        self.figures.faults[kind] += 1

    def _killed(self, child: Child) -> None:
        if child.name not in self._dead:
            self._dead.add(child.name)
            self._fired("kill", child.name)

    async def _mischief(self) -> None:
        """Do faults one after another until the load is over."""
        if not await self._wait_a_while():
            return
        able: dict[FaultKind, Callable[[], Awaitable[bool]]] = {
            "kill": self._kill,
            "pause": self._pause,
        }
        if isinstance(self.backend, Crashing):
            able["crash"] = self._crash
        if self._proxy is not None:
            able |= {"cut": self._cut, "lose": self._lose, "delay": self._delay}
        if is_postgres(self.address):
            able["terminate"] = self._terminate
        if sqlite_file(self.address) is not None:
            able["lock"] = self._lock
        for kind in self.plan.first:
            if kind in able and not await self._until_fired(able[kind]):
                return
        self._shown.set()
        chances = {kind: self.plan.faults.get(kind, 0) for kind in able}
        kinds = [kind for kind, weight in chances.items() if weight > 0]
        if not kinds:
            return
        weights = [chances[kind] for kind in kinds]
        while await self._wait_a_while() and self._may():
            await able[self.random.choices(kinds, weights)[0]]()

    async def _until_fired(self, do: Callable[[], Awaitable[bool]]) -> bool:
        """Do a fault until it has fired; `False` if the load is over before."""
        while await self._wait_a_while():
            if await do():
                return True
        return False

    async def _wait_a_while(self) -> bool:
        """Wait for the next fault; `False` once the load is over."""
        share = self.random.uniform(0.5, 1.5)
        if self.plan.calls_between is None:
            await asyncio.wait({self._end}, timeout=share * self.plan.seconds_between)
            return not self._end.done()
        wanted = await self._calls() + share * self.plan.calls_between
        while not self._end.done() and await self._calls() < wanted:
            await asyncio.wait({self._end}, timeout=0.005)
        return not self._end.done()

    async def _calls(self) -> int:
        """How many calls have been made."""
        total = self._made
        for child in list(self._children):
            try:
                total += (await child.counts()).get("calls", 0)
            except ChildFailed:
                continue
        return total

    async def _kill(self) -> bool:
        if self._children:
            child = self.random.choice(self._children)
            if await child.kill():
                self._killed(child)
                return True
        return False

    async def _pause(self) -> bool:
        """Stop a process while the others go on, then wake it."""
        if not self._children:
            return False
        child = self.random.choice(self._children)
        try:
            if not await child.pause():
                return False
        except ChildDied:
            return False
        self._fired("pause", child.name)
        await asyncio.sleep(self.random.uniform(0.05, 0.3))
        child.resume()
        self.recorder.fault("resume", child.name)
        return True

    async def _crash(self) -> bool:
        assert isinstance(self.backend, Crashing)
        at = time.monotonic_ns()
        await self.backend.crash(self.address)
        self._fired("crash", "server", at=at)
        self.recorder.fault("crash", "server", "it is back")
        return True

    async def _cut(self) -> bool:
        assert self._proxy is not None
        at = time.monotonic_ns()
        if not await self._proxy.cut():
            return False
        self._fired("cut", "connections", "all at once", at)
        return True

    async def _lose(self) -> bool:
        """Lose an answer after the server gave it, or a request before it came there."""
        loss: Literal["request", "answer"] = self.random.choice(("answer", "answer", "request"))
        return await self._trap(Trap(loss, self.random.randint(1, 5), warm=6))

    async def _delay(self) -> bool:
        return await self._trap(Trap("delay", self.random.randint(1, 5), seconds=0.05, warm=6))

    async def _trap(self, trap: Trap) -> bool:
        proxy = self._proxy
        assert proxy is not None
        before, at = len(proxy.sprung), time.monotonic_ns()
        proxy.set(trap)
        until = time.monotonic() + 5.0
        while len(proxy.sprung) == before and time.monotonic() < until and not self._end.done():
            await asyncio.wait({self._end}, timeout=0.002)
        proxy.set(None)
        if len(proxy.sprung) == before:
            return False
        self._fired("delay" if trap.loss == "delay" else f"lost {trap.loss}", "connection", at=at)
        return True

    async def _terminate(self) -> bool:
        at = time.monotonic_ns()
        ended = await terminate(self.address, self._tag)
        if not ended:
            return False
        self._fired("terminate", f"{ended} sessions", at=at)
        return True

    async def _lock(self) -> bool:
        """Hold a SQLite file's write lock from another process for a moment."""
        path = sqlite_file(self.address)
        if path is None:
            return False
        async with write_locked(path):
            self._fired("lock", str(path.name), "its write lock is held by another process")
            await asyncio.sleep(self.random.uniform(0.05, 0.3))
        return True

    # --- The end -----------------------------------------------------------------------------

    async def _watch(self) -> None:
        while self._progress is not None:
            await asyncio.sleep(0.5)
            self.figures.calls = await self._calls()
            self._progress(self.figures)

    async def _audit(self) -> None:
        """Read every execution on a fresh handle."""
        patience = self.plan.load.patience
        until = time.monotonic() + 3 * patience
        names = read_history(_files(self.folder)).executions()
        with Recorder(self.folder / "audit.jsonl", "audit", self._declared) as recorder:
            while True:
                try:
                    async with asyncio.timeout(patience):
                        store = await self.backend.connect(self.address)
                    break
                except Exception as error:
                    if time.monotonic() > until:
                        raise TrialFailed(f"no fresh handle could be opened: {error}") from error
                    await asyncio.sleep(0.05)
            reader = recorder.handle(store, "fresh")
            try:
                for name in names:
                    outcome = await reader.do(ReadFrom(name), timeout=patience)
                    while not isinstance(outcome, Done):
                        if time.monotonic() > until:
                            raise TrialFailed(f"a fresh handle could not read {name!r}: {outcome}")
                        await asyncio.sleep(0.05)
                        outcome = await reader.do(ReadFrom(name), timeout=patience)
            finally:
                await store.close()


def _files(folder: Path) -> list[Path]:
    return _begun(sorted(folder.glob("*.jsonl")))


def _begun(files: list[Path]) -> list[Path]:
    """Without those whose process was killed before it had written anything."""
    return [file for file in files if file.exists() and file.stat().st_size]


def overlaps(history: History) -> int:
    """How many calls overlapped one of another handle on the same execution."""
    open_until: dict[str, tuple[int, str]] = {}
    count = 0
    for call in history.calls:
        who = f"{call.process}.{call.handle}"
        end = call.completed if call.completed is not None else call.invoked
        met = False
        for name in executions_of(call.operation):
            last, other = open_until.get(name, (-1, ""))
            met = met or (last > call.invoked and other != who)
            if end > last:
                open_until[name] = (end, who)
        count += met
    return count
