"""Races inside a store's own methods: simultaneous calls, led one resumption at a time.

A step is one resumption of a call's coroutine, together with the real I/O that it began: when
that has finished, the call stands still again. A check that comes before its write, with an
`await` between them, is torn apart here; at the store's boundary it is one step and looks whole.

A step may wait for a lock that another, standing call holds. A backend that says so (`Blocking`)
is asked; elsewhere a step counts as waiting when it has not ended within a time of grace. A
waiting call is not chosen until its step has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias

from .scenario import first_line
from .search.bounded import Bounded
from .search.replay import Replay
from .search.step import Diverged, Step, Strand, Strategy
from .stepper import Stepped, innermost
from .token import Spelled, Token, scenario_hash, shape_hash
from .trace import Row, Trace, cut
from .verdict import Counterexample, Finding, Verdict

GRACE: Final = 0.05
"""Seconds after which a step counts as waiting for a lock, where nobody can be asked."""


@dataclass(slots=True)
class Call:
    """One of the simultaneous calls.

    Attributes:
        label: what it is, in words; the same in every run.
        start: begins it.
        handle: the handle it is made on, as `Blocking.blocked` would name it.
    """

    label: str
    start: Callable[[], Coroutine[Any, Any, Any]]
    handle: object = None


@dataclass(slots=True)
class Settled:
    """How a call ended: `value` if it returned, `error` if it raised."""

    label: str
    value: Any = None
    error: BaseException | None = None


Make: TypeAlias = Callable[[], Awaitable[Sequence[Call]]]
Check: TypeAlias = Callable[[Sequence[Settled]], Awaitable[None]]
Blocked: TypeAlias = Callable[[], Awaitable[Set[object]]]

_State: TypeAlias = Literal["stands", "goes", "waits", "ended"]


class _Line:
    """One call on its way."""

    def __init__(self, index: int, call: Call, news: asyncio.Event) -> None:
        self.index = index
        self.call = call
        self.state: _State = "goes"
        self.steps = 0
        self.since = time.monotonic()
        self.waited = False
        self.coroutine = call.start()
        self._news = news
        self._turn: asyncio.Future[None] | None = None
        self.task = asyncio.ensure_future(self._drive())
        self.task.add_done_callback(self._end)

    async def _drive(self) -> Any:
        return await Stepped(self.coroutine, self._stand)

    def _stand(self) -> asyncio.Future[None]:
        self._turn = asyncio.get_running_loop().create_future()
        self.state = "stands"
        self._news.set()
        return self._turn

    def _end(self, task: asyncio.Task[Any]) -> None:
        self.state = "ended"
        self._news.set()

    def go(self) -> None:
        """Take one step."""
        assert self._turn is not None
        self.waited = False
        self.steps += 1
        self.state = "goes"
        self.since = time.monotonic()
        self._turn.set_result(None)

    def ask_again(self) -> None:
        """Its lock may be free after somebody's next step."""
        self.state = "goes"
        self.since = time.monotonic()

    def told(self) -> str:
        """What became of its last step, in words."""
        label = self.call.label if self.steps == 1 or self.state == "ended" else "…"
        if self.state == "waits":
            return f"{label}, waits for a lock in {self.place}"
        if self.state == "stands":
            return f"{label}, as far as {self.place}"
        end = self.settled()
        if end.error is not None:
            return f"{label} → {type(end.error).__name__}"
        return f"{label} → {'ok' if end.value is None else cut(repr(end.value), 40)}"

    @property
    def place(self) -> str:
        """Where it stands or waits."""
        return innermost(self.coroutine)

    def settled(self) -> Settled:
        """How it ended."""
        if self.task.cancelled():
            return Settled(self.call.label, error=asyncio.CancelledError())
        error = self.task.exception()
        if error is not None:
            return Settled(self.call.label, error=error)
        return Settled(self.call.label, self.task.result())


@dataclass(slots=True)
class _Run:
    trail: list[Step] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    failure: AssertionError | None = None
    stopped: str | None = None
    diverged: Diverged | None = None


class _Leader:
    """Leads runs of simultaneous calls.

    Attributes:
        waited: some step waited for a lock.
        guessed: some step counted as waiting although nobody said so.
    """

    def __init__(
        self,
        make: Make,
        check: Check,
        blocked: Blocked | None,
        grace: float,
        patience: float,
        most_steps: int,
    ) -> None:
        self._make = make
        self._check = check
        self._blocked = blocked
        self._grace = grace
        self._patience = patience
        self._most_steps = most_steps
        self._news = asyncio.Event()
        self.waited = False
        self.guessed = False
        self.labels: list[str] = []

    async def run(self, strategy: Strategy) -> _Run:
        """One run: fresh calls, led to their ends, and checked."""
        run = _Run()
        lines = [_Line(index, call, self._news) for index, call in enumerate(await self._make())]
        self.labels = [line.call.label for line in lines]
        try:
            await self._lead(lines, run, strategy)
        finally:
            await self._give_up(lines, run)
        if run.stopped is None and run.diverged is None:
            try:
                strategy.finish(run.trail)
            except Diverged as divergence:
                run.diverged = divergence
                return run
            try:
                await self._check([line.settled() for line in lines])
            except AssertionError as error:
                run.failure = error
        return run

    async def warm_up(self) -> None:
        """Run the calls one after another, each once the first, without leading them.

        Drivers prepare a statement once and keep it: the first run has steps that no later one
        has.
        """
        count = 1
        first = 0
        while first < count:
            calls = list(await self._make())
            count = len(calls)
            for call in calls[first:] + calls[:first]:
                task = asyncio.ensure_future(call.start())
                await asyncio.wait([task], timeout=self._patience)
                if not task.done():
                    task.cancel()
                elif not task.cancelled():
                    task.exception()
            first += 1

    async def _lead(self, lines: list[_Line], run: _Run, strategy: Strategy) -> None:
        while await self._rest(lines, run):
            pending: dict[Strand, Step] = {
                (line.index, 0): Step((line.index, 0), (line.call.label, line.steps + 1))
                for line in lines
                if line.state == "stands"
            }
            if len(run.trail) >= self._most_steps:
                names = ", ".join(lines[node].call.label for node, _ in pending)
                run.stopped = f"after {len(run.trail)} steps not every call had ended: {names}"
                return
            try:
                strand = strategy.pick(pending, run.trail)
            except Diverged as divergence:
                if await self._comes_free(lines):
                    continue
                run.diverged = divergence
                return
            assert strand is not None
            run.trail.append(pending[strand])
            for line in lines:
                if line.state == "waits":
                    line.ask_again()
            lines[strand[0]].go()
            run.rows.append(Row(len(run.trail), strand[0], ""))

    async def _comes_free(self, lines: list[_Line]) -> bool:
        """Whether a call that waits was only slow to notice that its lock is free."""
        waiting = [line for line in lines if line.state == "waits"]
        if waiting:
            self._news.clear()
            await self._hear(self._grace * 10)
        return any(line.state != "waits" for line in waiting)

    async def _rest(self, lines: list[_Line], run: _Run) -> bool:
        """Wait until every call stands, waits for a lock, or has ended; whether one stands."""
        began = time.monotonic()
        pause = 0.002
        out = [line for line in lines if line.state in ("goes", "waits")]
        while True:
            self._news.clear()
            going = [line for line in lines if line.state in ("goes", "waits")]
            if going:
                await self._find_waiting(going, asking=pause > 0.002)
            stands = any(line.state == "stands" for line in lines)
            if all(line.state != "goes" for line in going) and (stands or not going):
                break
            if time.monotonic() - began > self._patience:
                names = ", ".join(f"{line.call.label} in {line.place}" for line in going)
                run.stopped = f"no step ended in {self._patience:g} s: {names}"
                return False
            await self._hear(pause)
            pause = min(pause * 2, 0.05)
        self._write(run, out)
        return stands

    async def _find_waiting(self, going: list[_Line], asking: bool) -> None:
        """Mark those of the calls under way that wait for a lock."""
        now = time.monotonic()
        if self._blocked is not None and (asking or all(line.waited for line in going)):
            handles = await self._blocked()
            for line in going:
                if line.state in ("goes", "waits"):
                    held = any(line.call.handle is handle for handle in handles)
                    line.state = "waits" if held else "goes"
                    self.waited |= held
        grace = self._grace if self._blocked is None else self._grace * 10
        for line in going:
            if line.state == "goes" and now - line.since > grace:
                line.state = "waits"
                self.waited = self.guessed = True

    async def _hear(self, seconds: float) -> None:
        """Wait until a call stands or ends, but not for longer than this."""
        timer = asyncio.get_running_loop().call_later(seconds, self._news.set)
        await self._news.wait()
        timer.cancel()

    def _write(self, run: _Run, out: list[_Line]) -> None:
        """Put into the trace what became of the steps that were under way."""
        for line in out:
            if line.state == "waits" and line.waited:
                continue
            text = line.told()
            last = run.rows[-1] if run.rows else None
            if last is not None and last.node == line.index and not last.text:
                run.rows[-1] = Row(last.step, line.index, text)
            elif line.steps:
                run.rows.append(Row(None, line.index, text))
            line.waited = line.state == "waits"

    async def _give_up(self, lines: list[_Line], run: _Run) -> None:
        """End what has not ended, so that the next run begins with nothing."""
        left = [line.task for line in lines if not line.task.done()]
        for task in left:
            task.cancel()
        if left:
            _, late = await asyncio.wait(left, timeout=self._patience)
            if late and run.stopped is None:
                run.stopped = "a call ignored its cancellation and goes on"


async def explore_steps(
    name: str,
    make: Make,
    check: Check,
    *,
    backend: str = "",
    preemptions: int = 1,
    blocked: Blocked | None = None,
    grace: float = GRACE,
    schedules: int = 1000,
    seconds: float = 30.0,
    patience: float = 10.0,
    most_steps: int = 400,
    replays: int = 3,
) -> Verdict:
    """Run simultaneous calls under every order of their resumptions with few preemptions.

    Args:
        name: what is explored; part of what a token stands for.
        make: called before each run; fresh calls on fresh names, 26 at most.
        check: called after each run with how the calls ended, in the same order; raises
            `AssertionError` if that is wrong.
        backend: the backend's name, for the verdict.
        preemptions: how often the turn may be taken from a call that could have gone on. First
            all orders with none, then with one, and so on.
        blocked: the handles that wait for a lock now (see `backend.Blocking`).
        grace: the seconds after which a step counts as waiting where `blocked` is `None`.
        schedules, seconds: after so many runs, or so long, the exploration stops.
        patience: the seconds that a step may take while no other call can go on.
        most_steps: how many steps a run may have.
        replays: how often a failure is replayed before it is told.

    The verdict fails with a counterexample whose `error` is what `check` raised; it holds in
    those schedules that were run; it is inconclusive where a run could not be led to its end.
    It works on any event loop, and leads whatever store is called: only its coroutines matter.
    """
    leader = _Leader(make, check, blocked, grace, patience, most_steps)
    began = time.monotonic()
    strategy = Bounded(preemptions)
    runs = 0
    strayed = 0

    def verdict(finding: Finding, **more: Any) -> Verdict:
        return Verdict(name, backend, finding, runs, seconds=time.monotonic() - began, **more)

    bound = ""
    await leader.warm_up()
    while strategy.begin():
        run = await leader.run(strategy)
        for _ in range(2):
            if run.diverged is not None:
                strategy.again()
                run = await leader.run(strategy)
        if run.stopped is not None:
            return verdict(Finding.INCONCLUSIVE, reason=run.stopped)
        if run.diverged is not None:
            strayed += 1
            if strayed > 3:
                return verdict(Finding.INCONCLUSIVE, reason=_strayed(run.diverged))
            continue
        runs += 1
        if run.failure is not None:
            example = await _example(name, leader, run, runs, strategy.level, replays)
            reason = example.reason
            return verdict(Finding.FAILS, reason=reason, counterexample=example)
        if runs >= schedules or time.monotonic() - began > seconds:
            bound = f"stopped after {runs} schedules and {time.monotonic() - began:.0f} s; "
            break
    most = "1 preemption" if preemptions == 1 else f"{preemptions} preemptions"
    bound += f"at most {most} between resumptions"
    if strayed:
        bound += f"; {strayed} could not be led to their end"
    if leader.guessed:
        bound += f"; waiting for a lock was guessed after {grace:g} s"
    elif leader.waited:
        bound += "; the backend said who waits for a lock"
    return verdict(Finding.HOLDS_IN_THOSE_RUN, bound=bound)


async def replay_steps(
    name: str,
    make: Make,
    check: Check,
    token: str,
    *,
    backend: str = "",
    blocked: Blocked | None = None,
    grace: float = GRACE,
    patience: float = 10.0,
    times: int = 1,
) -> Verdict:
    """Run the one schedule of a token of `explore_steps`; see there.

    Raises:
        BadToken: it is no token, or one of another version or scenario.
    """
    wanted = Token.parse(token)
    leader = _Leader(make, check, blocked, grace, patience, len(wanted.turns) + 1)
    began = time.monotonic()
    await leader.warm_up()
    failing: _Run | None = None
    failed = done = 0

    def verdict(finding: Finding, **more: Any) -> Verdict:
        return Verdict(name, backend, finding, done, seconds=time.monotonic() - began, **more)

    for _ in range(times):
        run = await leader.run(Spelled(wanted.turns))
        done += 1
        wanted.require(scenario_hash(name, len(leader.labels), ""), name)
        if run.stopped is not None or run.diverged is not None:
            reason = run.stopped or str(run.diverged)
            return verdict(Finding.INCONCLUSIVE, reason=reason)
        if shape_hash(wanted.turns, run.trail) != wanted.shape:
            met = ", ".join(map(str, run.trail))
            reason = f"the calls are not those that the token was made of; met {met}"
            return verdict(Finding.INCONCLUSIVE, reason=reason)
        if run.failure is not None:
            failed += 1
            failing = run
    if failing is None:
        return verdict(Finding.HOLDS_IN_THOSE_RUN, bound=f"the schedule of {token}")
    example = Counterexample(
        reason=first_line(failing.failure),
        token=token,
        trace=_trace(leader, failing),
        preemptions=_switches(failing.trail),
        schedule=1,
        smallest=False,
        replayed=failed,
        replays=times,
        error=failing.failure,
    )
    return verdict(Finding.FAILS, reason=example.reason, counterexample=example)


async def _example(
    name: str, leader: _Leader, found: _Run, number: int, level: int, replays: int
) -> Counterexample:
    """Replay a failure, and tell it."""
    turns = tuple(chr(ord("A") + step.strand[0]) for step in found.trail)
    replayed = 0
    for _ in range(replays):
        again = await leader.run(Replay(found.trail))
        replayed += again.failure is not None
    hashed = scenario_hash(name, len(leader.labels), "")
    token = Token(hashed, shape_hash(turns, found.trail), turns)
    return Counterexample(
        reason=first_line(found.failure),
        token=str(token),
        trace=_trace(leader, found),
        preemptions=level,
        schedule=number,
        smallest=True,
        replayed=replayed,
        replays=replays,
        error=found.failure,
    )


def _trace(leader: _Leader, run: _Run) -> Trace:
    return Trace(
        tuple(chr(ord("A") + index) for index in range(len(leader.labels))), tuple(run.rows)
    )


def _switches(trail: Sequence[Step]) -> int:
    """How often the turn was taken from a call that had not ended."""
    last = {step.strand: index for index, step in enumerate(trail)}
    return sum(
        step.strand != after.strand and last[step.strand] > index
        for index, (step, after) in enumerate(pairwise(trail))
    )


def _strayed(divergence: Diverged) -> str:
    return f"the calls did not do the same under the same schedule: {divergence}"
