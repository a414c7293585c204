"""Runs a scenario again and again, each time as a strategy chooses.

At rest (no callback is ready and no call is in flight) every strand stands at a gate, has ended,
or waits for another one. Then, and only then, the strategy is asked, and one step goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from ..backend import Backend
from ..spi import EventEnvelope
from . import audit_hook
from .handles import Handles
from .loop import InterleavingLoop, Uncontrolled
from .names import Names, RenamedStore
from .node import Node, Operation
from .resources import Resources
from .scenario import Outcome, Scenario, first_line
from .search.step import EVERYTHING, Diverged, Strand, Strategy
from .stepper import where
from .watchdog import Watchdog

MOST_TURNS: Final = 20_000
"""How often the loop may turn without coming to rest while no call is in flight."""


@dataclass(frozen=True, slots=True)
class Remark:
    """Something a node told, and after which step."""

    after: int
    node: int
    kind: str
    words: str


@dataclass(slots=True)
class Run:
    """What one run was.

    Attributes:
        trail: the steps, in order.
        remarks: what was told between them.
        results, errors: how each node ended, by its letter.
        failure: what was wrong with it, or `None`.
        error: what the check raised, where that was it.
        stopped: why it could not be judged, or `None`.
        repetition: the strategy gave it up as one that is equivalent to another.
        diverged: the known prefix was not met again.
    """

    trail: list[Operation] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    results: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, BaseException] = field(default_factory=dict)
    effects: list[tuple[str, str, Any]] = field(default_factory=list)
    failure: str | None = None
    error: AssertionError | None = None
    stopped: str | None = None
    repetition: bool = False
    diverged: Diverged | None = None


class Engine:
    """One storage, one handle a node, and the machinery that leads runs over them.

    Use it as an asynchronous context manager on an `InterleavingLoop`.

    Attributes:
        shared: the nodes wake each other, so that no step is independent of another's.
        harmed: something of an earlier run still goes on, so that no later one can be trusted.
    """

    def __init__(
        self,
        scenario: Scenario,
        backend: Backend,
        *,
        fresh_storage: bool = False,
        most_steps: int = 1000,
        patience: float = 10.0,
    ) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, InterleavingLoop):
            raise TypeError("the scheduler needs its own event loop: run it by `explore`")
        audit_hook.install()
        self.scenario = scenario
        self.backend = backend
        self.resources = Resources(backend.envelope_ids)
        self.shared = False
        self.sharing: tuple[str, str] | None = None
        self.busy: Operation | None = None
        self.harmed = False
        self.stopping = False
        self.now = -1
        self._loop = loop
        self._names = Names(fresh=not fresh_storage)
        self._handles = Handles(backend, self._names, patience)
        self._watchdog = Watchdog(patience * 1.5)
        self._fresh_storage = fresh_storage
        self._most_steps = most_steps
        self._patience = patience
        self._nodes: list[Node] = []
        self._parked: dict[Strand, Operation] = {}
        self._due: dict[Strand, Operation] = {}
        self._run = Run()
        self._ended: asyncio.Future[None] | None = None
        self._strategy: Strategy
        self._node_now = -1
        self._refused: Uncontrolled | None = None
        self._hanging: Operation | None = None
        self._turns = 0
        self._rested = -1
        self._since: float | None = None

    async def __aenter__(self) -> Engine:
        self._nodes = [Node(self, index) for index in range(len(self.scenario.nodes))]
        self._watchdog.__enter__()
        try:
            await self._handles.open(self._nodes)
        except BaseException:
            self._watchdog.__exit__(None, None, None)
            raise
        rest = self._loop.rest
        rest.at_rest, rest.led, rest.waits = self._at_rest, self._led, self._waits
        self._loop.set_exception_handler(self._stray)
        return self

    async def __aexit__(self, *_: object) -> None:
        rest = self._loop.rest
        rest.at_rest = rest.led = rest.waits = None
        self._watchdog.__exit__(None, None, None)
        await self._handles.close()

    @property
    def interrupted(self) -> str | None:
        """Why the watchdog had to interrupt the run, if it had to."""
        if not self._watchdog.fired:
            return None
        who = "the store, the set-up or the check"
        if self._node_now >= 0 and self.busy is None:
            who = f"node {self._nodes[self._node_now].name}"
        return f"{who} kept the event loop's thread to itself for {self._patience:g} s"

    # --- one run ---

    async def run(self, strategy: Strategy) -> Run:
        """Lead one run to its end, as the strategy chooses, and judge it."""
        scenario = self.scenario
        if self._fresh_storage and self._run.trail:
            await self._handles.close()
            await self._handles.open(self._nodes)
        run = self._begin(strategy)
        observer = self._handles.observer
        if scenario.given is not None:
            await self._bounded(scenario.given(observer), "the set-up")
        if run.stopped is None:
            for node in self._nodes:
                node.start()
            self._ended = self._loop.create_future()
            await self._ended
            self._ended = None
            if self._hanging is not None:
                await self._explain_hanging(run, self._hanging)
            self._judge(run)
            for node in self._nodes:
                if len(node.tasks) > 1 or not node.tasks or not node.tasks[0].done():
                    await self._sweep(run)
                    break
        if not (run.failure or run.stopped or run.repetition or run.diverged):
            await self._check(run, observer)
        return run

    def _begin(self, strategy: Strategy) -> Run:
        """Forget the run before."""
        self._names.begin()
        self._run = Run()
        self._strategy = strategy
        self._refused = None
        self._hanging = None
        self.now = -1
        self._node_now = -1
        self._parked = {}
        self._due = {}
        return self._run

    async def _bounded(self, work: Awaitable[None], what: str) -> None:
        """Do what the scheduler does not lead, but not for ever."""
        task = asyncio.ensure_future(work)
        _, late = await asyncio.wait([task], timeout=self._patience)
        if late:
            task.cancel()
            self._run.stopped = f"{what} did not end in {self._patience:g} s"
        else:
            task.result()

    async def logs(self, run: Run) -> dict[str, list[EventEnvelope]]:
        """What the storage holds of every execution that the last run wrote to."""
        written: dict[str, None] = {}
        for step in run.trail:
            if isinstance(step.key, tuple) and step.key[0] == "append":
                written[step.key[1]] = None
            elif isinstance(step.key, tuple) and step.key[0] == "append_batch":
                written |= {one[0]: None for one in step.key[1]}
        return {
            execution_id: list(await self._handles.observer.read_from(execution_id, 0))
            for execution_id in written
        }

    async def drive(self, node: Node, main: Callable[[Node], Coroutine[Any, Any, Any]]) -> None:
        """A node's main task."""
        try:
            self._run.results[node.name] = await main(node)
        except Exception as error:  # noqa: BLE001
            self._run.errors[node.name] = error
        except asyncio.CancelledError as error:
            if not self.stopping:
                self._run.errors[node.name] = error
        finally:
            node.ended = True
            if node.index != self._node_now:
                self._note_sharing(node)
        self.goes_on(None)

    def _judge(self, run: Run) -> None:
        """What can be said of a run before its outcome is checked."""
        if self._refused is not None:
            run.stopped = str(self._refused)
        if run.failure or run.stopped or run.diverged or run.repetition:
            return
        for name, error in run.errors.items():
            if isinstance(error, asyncio.CancelledError):
                run.failure = f"node {name} was cancelled, and not by the scheduler"
            elif not isinstance(error, self.scenario.may_raise):
                run.failure = f"node {name} raised {_told(error)}"
            if run.failure is not None:
                return
        alive = [node for node in self._nodes if not node.ended]
        if alive:
            names = ", ".join(node.name for node in alive)
            places = "; ".join(map(self._where, alive))
            run.failure = f"deadlock: nothing can wake {names} any more ({places})"

    def _where(self, node: Node) -> str:
        places = [where(task.get_coro()) for task in node.tasks if not task.done()]
        return f"{node.name} waits in {' and '.join(places)}"

    async def _explain_hanging(self, run: Run, call: Operation) -> None:
        """Tell a call that the database makes wait from one that merely hangs."""
        self.harmed = True
        node = self._nodes[call.strand[0]]
        if await self._handles.waits_for_lock(node):
            run.stopped = None
            run.failure = (
                f"an earlier call left a transaction open: {call} waits for its lock, and no other "
                "call is under way"
            )

    def _tell_failed_tasks(self, run: Run) -> None:
        """Put into the trace what a spawned task raised: nobody may have looked."""
        for node in self._nodes:
            for task in node.tasks[1:]:
                if task.done() and not task.cancelled() and (error := task.exception()):
                    run.remarks.append(Remark(self.now, node.index, "a task raised", _told(error)))

    async def _check(self, run: Run, observer: RenamedStore) -> None:
        told = [(self._nodes[one.node].name, one.kind, one.words) for one in run.remarks or ()]
        outcome = Outcome(run.results, run.errors, run.effects, told, observer)
        try:
            judging = self.scenario.check(outcome)
            if judging is not None:
                await self._bounded(judging, "the check")
        except AssertionError as error:
            run.failure = first_line(error)
            run.error = error

    async def _sweep(self, run: Run) -> None:
        """End what the nodes left running, so that the next run begins with nothing."""
        self._tell_failed_tasks(run)
        left = [task for node in self._nodes for task in node.tasks if not task.done()]
        if not left:
            return
        self.stopping = True
        try:
            for task in left:
                task.cancel()
            _, late = await asyncio.wait(left, timeout=self._patience)
        finally:
            self.stopping = False
        if late:
            self.harmed = True
            if run.failure is None and run.stopped is None:
                run.stopped = "a node's task ignored its cancellation and goes on"

    # --- the moment of choice ---

    def _at_rest(self) -> bool:
        ended = self._ended
        if self.busy is not None or ended is None or ended.done():
            return False
        self._since = None
        self._turns = 0
        self._watchdog.beat()
        step = self._choose()
        if step is not None:
            self._let_go(step)
        return True

    def goes_on(self, step: Operation | None) -> bool:
        """Choose at once, where nothing but the running strand has anything to do.

        Called by a strand that has come to a gate, or to its end; `True` if it goes on itself. It
        spares a turn of the loop, and most steps of a run follow one of the same strand.
        """
        ended = self._ended
        if self._loop.scheduled != self._rested or self.busy is not None:
            return False
        if ended is None or ended.done() or self.stopping:
            return False
        chosen = self._choose()
        if chosen is not None and chosen is not step:
            self._let_go(chosen)
        return chosen is not None and chosen is step

    def _choose(self) -> Operation | None:
        """Ask the strategy, and put what it chose into the trail; `None` ends the run."""
        run = self._run
        pending = self._parked
        if self._due:
            pending = {**self._parked, **self._due}
        if not pending or self._refused is not None:
            self._end()
            return None
        trail = run.trail
        if len(trail) >= self._most_steps:
            names = ", ".join(sorted({self._nodes[strand[0]].name for strand in pending}))
            self._stop(f"after {len(trail)} steps the run had not ended: {names} went on")
            return None
        try:
            strand = self._strategy.pick(pending, trail)
        except Diverged as divergence:
            run.diverged = divergence
            self._end()
            return None
        if strand is None:
            run.repetition = True
            self._end()
            return None
        step = pending[strand]
        trail.append(step)
        self.now += 1
        self._node_now = strand[0]
        if strand[1] > -1:
            del self._parked[strand]
        return step

    def _let_go(self, step: Operation) -> None:
        """Wake the strand that was chosen."""
        if step.turn is not None:
            step.turn.set_result(None)
        elif step.strand[1] == 0:
            node = self._nodes[step.strand[0]]
            node.begin(self.drive(node, self.scenario.nodes[node.index]))
        else:
            self._nodes[step.strand[0]].fire(-step.strand[1])
        self._rested = self._loop.scheduled

    def _end(self) -> None:
        assert self._ended is not None
        if not self._ended.done():
            self._ended.set_result(None)

    def _stop(self, why: str) -> None:
        self._run.stopped = why
        self._end()

    def _led(self) -> bool:
        """Whether a run is led and no call is in flight, so that no I/O can be due.

        A loop that turns and turns meanwhile is a node's that only yields.
        """
        if self.busy is not None or self._ended is None:
            return False
        if self._ended.done():
            return True
        self._turns += 1
        if self._turns > MOST_TURNS:
            node = self._nodes[self._run.trail[-1].strand[0]].name
            self._stop(f"node {node} keeps the event loop turning and never comes to a step")
        return True

    def _waits(self, timeout: float | None) -> float | None:
        """How long the real selector may wait for the call in flight."""
        watchdog = self._watchdog
        watchdog.beat()
        busy = self.busy
        if busy is None or self._ended is None or self._ended.done():
            return timeout
        now = time.monotonic()
        if self._since is None:
            self._since = now
        left = self._since + self._patience - now
        if left <= 0:
            self._hanging = busy
            self._stop(
                f"{busy} did not settle in {self._patience:g} s, and no other call was under way: "
                "it hangs, or an earlier call left a transaction open"
            )
            return 0
        return left if timeout is None else min(timeout, left)

    # --- what nodes report ---

    def park(self, node: Node, step: Operation) -> None:
        """A strand has come to a gate."""
        if self.stopping:
            raise asyncio.CancelledError
        if self.shared:
            step.writes = EVERYTHING
        self._parked[step.strand] = step
        if node.index != self._node_now:
            self._note_sharing(node)

    def _note_sharing(self, node: Node) -> None:
        """A node that came on during another's step was woken by it, and not through the store."""
        if self.now >= 0 and not self.stopping and self.sharing is None:
            self.sharing = (self._nodes[self._node_now].name, node.name)

    def unpark(self, step: Operation) -> None:
        """A strand was taken from its gate by a cancellation."""
        if self._parked.get(step.strand) is step:
            del self._parked[step.strand]

    def timers_changed(self, node: Node) -> None:
        """A node's next timer may be another one now."""
        due = self._due
        known = next((strand for strand in due if strand[0] == node.index), None)
        timer = node.next_timer()
        strand = None if timer is None else (node.index, -timer.number)
        if known == strand:
            return
        if known is not None:
            del due[known]
        if timer is not None and strand is not None:
            key = ("timer", round(timer.due * 1000))
            step = Operation(strand, key, self.resources.timer(), self.now, ())
            if self.shared:
                step.writes = EVERYTHING
            due[strand] = step

    def tell(self, node: Node, kind: str, what: object) -> None:
        """A remark of a node, between two steps."""
        self._run.remarks.append(Remark(self.now, node.index, kind, str(what)))

    def effect(self, node: Node, name: str, value: Any) -> None:
        """An effect has happened."""
        self._run.effects.append((node.name, name, value))

    def _stray(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback raised: a timer of a node, or something of the store's own."""
        error = context.get("exception")
        if "handle" in context and error is not None and self._run.failure is None:
            self._run.failure = f"a callback raised {_told(error)}"

    def refused(self, error: Uncontrolled) -> None:
        """A node did I/O of its own."""
        if self._refused is None:
            self._refused = error


def _told(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
