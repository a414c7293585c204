"""What a node is given: a store handle of its own, a clock, effects, and a way to tell.

A node is an `async` function of one `Node`. It stands for one process of a distributed program:
what it shares with others, it shares through the store.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Hashable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .clock import NodeClock, NodeTimer
from .gate import Gated
from .loop import Uncontrolled
from .owner import OWNER
from .resources import NOTHING, Resources, Touched
from .search.step import Step, Strand

if TYPE_CHECKING:
    from .engine import Engine

T = TypeVar("T")


class Operation(Step):
    """A step of a node, and what came of it.

    Attributes:
        args: what the call was given.
        result, error: how it ended, once it has.
        settled: whether it has.
        turn: what the strand stands at; `None` for a start and for a timer.
    """

    __slots__ = ("args", "error", "result", "settled", "turn")

    turn: asyncio.Future[None] | None

    def __init__(
        self, strand: Strand, key: Hashable, touched: Touched, parked_at: int, args: tuple[Any, ...]
    ) -> None:
        self.strand = strand
        self.key = key
        self.reads, self.writes = touched
        self.parked_at = parked_at
        self.args = args
        self.result: Any = None
        self.error: BaseException | None = None
        self.settled = False
        self.turn = None


class Node:
    """One node of a scenario, in one run.

    Attributes:
        name: its letter, `"A"` for the first.
        store: its own handle; each call is a step.
        leases: its own handle on leases, where the backend keeps some; each call is a step.
        clock: its own `loom_conformance.clock.Clock`; each timer that fires is a step.
        ended: whether its main task has come to its end.
    """

    def __init__(self, engine: Engine, index: int) -> None:
        self.name = chr(ord("A") + index)
        self.index = index
        self.clock = NodeClock(self)
        self.resources: Resources = engine.resources
        self.store: Any = None
        self.leases: Any = None
        self.tasks: list[asyncio.Task[Any]] = []
        self.timers: dict[int, NodeTimer] = {}
        self._engine = engine
        self._strands: dict[asyncio.Task[Any] | None, Strand] = {}
        self._loop = asyncio.get_running_loop()
        self.ended = False
        self._random: random.Random | None = None
        self._context = copy_context()
        self._context.run(OWNER.set, self)

    @property
    def random(self) -> random.Random:
        """Its own randomness, the same in every run."""
        if self._random is None:
            self._random = random.Random(self.index)
        return self._random

    # --- what a node does ---

    async def effect(self, name: str, value: T | None = None) -> T | None:
        """Do something to the outside world, as a step of its own; `value` is given back."""

        async def happen(value: T | None) -> T | None:
            self._engine.effect(self, name, value)
            return value

        return await self.call(("effect", name), self.resources.effect(name), (value,), happen)

    def tell(self, kind: str, what: object = "") -> None:
        """Put a remark into the trace: an event that was told, an error that was reported."""
        self._engine.tell(self, kind, what)

    def gate(self, inner: T) -> T:
        """Wrap an object that does I/O: each of its `async` methods becomes a step.

        Nothing is known of what they touch, so they are taken to depend on everything.
        """
        return cast(T, Gated(self, inner))

    # --- what gates and the loop ask of it ---

    def start(self) -> None:
        """Forget the run before, and make the node's start the first that can be chosen of it."""
        if self.clock.used:
            self.clock.reset()
        self._random = None
        self._strands = {}
        self.tasks = []
        self.timers = {}
        self.ended = False
        self.store.closed = False
        if self.leases is not None:
            self.leases.closed = False
        self._engine.park(self, Operation((self.index, 0), ("start", self.name), NOTHING, -1, ()))

    def begin(self, main: Coroutine[Any, Any, None]) -> None:
        """Run the node's main task."""
        # A name that is given spares the task the making of one.
        context = self._context.copy()
        task = asyncio.Task(main, loop=self._loop, name=self.name, context=context)
        self.tasks.append(task)
        self._strands[task] = (self.index, 0)

    async def call(
        self,
        key: Hashable,
        touched: Touched,
        args: tuple[Any, ...],
        perform: Callable[..., Coroutine[Any, Any, T]],
    ) -> T:
        """Stand still until the scheduler lets this step go, then do it.

        `perform` does the real work over real I/O.
        """
        engine = self._engine
        task = asyncio.current_task(self._loop)
        strand = self._strands.get(task)
        if strand is None:
            strand = self._strands[task] = (self.index, len(self._strands))
        operation = Operation(strand, key, touched, engine.now, args)
        engine.park(self, operation)
        if task is None or task.cancelling() or not engine.goes_on(operation):
            operation.turn = self._loop.create_future()
            try:
                await operation.turn
            except asyncio.CancelledError:
                engine.unpark(operation)
                raise
        engine.busy = operation
        token = OWNER.set(None)
        try:
            result = operation.result = await perform(*args)
        except BaseException as error:
            operation.error = error
            raise
        finally:
            OWNER.reset(token)
            operation.settled = True
            engine.busy = None
        return result

    def armed(self, timer: NodeTimer) -> None:
        """A timer is there from now on; see `NodeClock`."""
        if self._engine.stopping:
            timer.fire()
        else:
            self.timers[timer.number] = timer
            self._engine.timers_changed(self)

    def withdrawn(self, timer: NodeTimer) -> None:
        """A timer is there no more."""
        if self.timers.pop(timer.number, None) is not None:
            self._engine.timers_changed(self)

    def next_timer(self) -> NodeTimer | None:
        """The timer that fires next: of equal times, the one that was armed first."""
        if not self.timers:
            return None
        return min(self.timers.values(), key=lambda timer: (timer.due, timer.number))

    def fire(self, number: int) -> None:
        """Let the time of a timer come."""
        timer = self.timers.pop(number)
        self.clock.reach(timer.due)
        self._engine.timers_changed(self)
        timer.fire()

    def refuse(self, what: str) -> Uncontrolled:
        """Note that the node did I/O that nobody controls; the error to raise there."""
        error = Uncontrolled(self.name, what)
        self._engine.refused(error)
        return error
