"""Simultaneous calls on their way: each goes one step when it is chosen, and then stands again.

A step may wait for a lock that another, standing call holds. A backend that says so (`Blocking`)
is asked; elsewhere a step counts as waiting when it has not ended within a time of grace. A
waiting call is not chosen until its step has ended.

A call may also wait by asking again and again, with a sleep in between. One that comes to the same
sleep twice while nobody else took a step is not chosen before another that can be.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from .search.step import Diverged, Step, Strand, Strategy
from .stepper import Stepped, innermost, lines_of, waits_in_process
from .trace import Row, told_result

GRACE: Final = 0.25
"""Seconds after which a step counts as waiting for a lock, where nobody can be asked."""

GRACE_IN_PROCESS: Final = 0.02
"""The same for a step that stands at one of asyncio's own locks or queues."""


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


class Line:
    """One call on its way."""

    def __init__(self, index: int, call: Call, news: asyncio.Event) -> None:
        self.index = index
        self.call = call
        self.state: _State = "goes"
        self.steps = 0
        self.since = time.monotonic()
        self.waited = False
        self.polls = False
        self._slept: set[tuple[tuple[str, int], ...]] = set()
        self.coroutine = call.start()
        self._news = news
        self._turn: asyncio.Future[None] | None = None
        self._free = False
        self.task = asyncio.ensure_future(self._drive())
        self.task.add_done_callback(self._end)

    async def _drive(self) -> Any:
        return await Stepped(self.coroutine, self._stand)

    def _stand(self) -> asyncio.Future[None]:
        self._turn = asyncio.get_running_loop().create_future()
        if self._free:
            self._turn.set_result(None)
        else:
            self.state = "stands"
            self._note_sleep()
            self._news.set()
        return self._turn

    def _note_sleep(self) -> None:
        self.polls = False
        if innermost(self.coroutine) == asyncio.sleep.__qualname__:
            place = lines_of(self.coroutine)
            self.polls = place in self._slept
            self._slept.add(place)

    def another_stepped(self) -> None:
        """What it asks for may be there after somebody else's step."""
        self.polls = False
        self._slept.clear()

    def give_up(self) -> None:
        """Cancel it, and let it go to its end unled."""
        self._free = True
        self.task.cancel()

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

    @property
    def midway(self) -> bool:
        """Whether it has begun and not ended, so that it may hold a lock."""
        return self.steps > 0 and self.state != "ended"

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
        return f"{label} → {told_result(end.value)}"

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
class LedRun:
    trail: list[Step] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    failure: AssertionError | None = None
    stopped: str | None = None
    diverged: Diverged | None = None


class Leader:
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

    async def run(self, strategy: Strategy) -> LedRun:
        """One run: fresh calls, led to their ends, and checked."""
        run = LedRun()
        lines = [Line(index, call, self._news) for index, call in enumerate(await self._make())]
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

    async def _lead(self, lines: list[Line], run: LedRun, strategy: Strategy) -> None:
        while await self._rest(lines, run):
            standing = [line for line in lines if line.state == "stands"]
            pending: dict[Strand, Step] = {
                (line.index, 0): Step((line.index, 0), (line.call.label, line.steps + 1))
                for line in [line for line in standing if not line.polls] or standing
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
                if line.index != strand[0]:
                    line.another_stepped()
                if line.state == "waits":
                    line.ask_again()
            lines[strand[0]].go()
            run.rows.append(Row(len(run.trail), strand[0], ""))

    async def _comes_free(self, lines: list[Line]) -> bool:
        """Whether a call that waits was only slow to notice that its lock is free."""
        waiting = [line for line in lines if line.state == "waits"]
        if waiting:
            self._news.clear()
            await self._hear(max(1.0, self._grace))
        return any(line.state != "waits" for line in waiting)

    async def _rest(self, lines: list[Line], run: LedRun) -> bool:
        """Wait until every call stands, waits for a lock, or has ended; whether one stands."""
        began = time.monotonic()
        pause = 0.002
        out = [line for line in lines if line.state in ("goes", "waits")]
        while True:
            self._news.clear()
            going = [line for line in lines if line.state in ("goes", "waits")]
            if going:
                await self._find_waiting(lines, going, asking=pause > 0.002)
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

    async def _find_waiting(self, lines: list[Line], going: list[Line], asking: bool) -> None:
        """Mark those of the calls under way that wait for a lock.

        A call can only wait for one that is midway: a slow step is no guess where there is none.
        """
        now = time.monotonic()
        if self._blocked is not None and (asking or all(line.waited for line in going)):
            handles = await self._blocked()
            for line in going:
                if line.state in ("goes", "waits"):
                    held = any(line.call.handle is handle for handle in handles)
                    line.state = "waits" if held else "goes"
                    self.waited |= held
        for line in going:
            others = any(other.midway for other in lines if other is not line)
            if line.state == "goes" and others and now - line.since > self._grace_of(line):
                line.state = "waits"
                self.waited = self.guessed = True

    def _grace_of(self, line: Line) -> float:
        if waits_in_process(line.coroutine):
            return min(self._grace, GRACE_IN_PROCESS)
        if self._blocked is not None:
            return self._grace * 10
        return self._grace / 5 if line.waited else self._grace

    async def _hear(self, seconds: float) -> None:
        """Wait until a call stands or ends, but not for longer than this."""
        timer = asyncio.get_running_loop().call_later(seconds, self._news.set)
        await self._news.wait()
        timer.cancel()

    def _write(self, run: LedRun, out: list[Line]) -> None:
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

    async def _give_up(self, lines: list[Line], run: LedRun) -> None:
        """End what has not ended, so that the next run begins with nothing."""
        left = [line for line in lines if not line.task.done()]
        for line in left:
            line.give_up()
        if left:
            _, late = await asyncio.wait([line.task for line in left], timeout=self._patience)
            if late and run.stopped is None:
                run.stopped = "a call ignored its cancellation and goes on"
