"""A backend under test for the length of a run: its loop, its storages, its shared handles.

Storages and writer handles are shared by the tests of a session, since fresh execution ids are free
and fresh storages are not. After a test that did not pass, all of it is renewed, so that one
broken rule does not spoil the verdict on the next.
"""

from __future__ import annotations

import asyncio
import itertools
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from ..backend import Backend, Coalescing, Scoping
from ..decorators import CoalescingEventStore, TenantScopedEventStore
from ..spi import EventStore
from .admission import AdmissionError, check_address, check_declarations, check_handle
from .calls import BULKY, Handle, Hung, Outcome, settle, short, told_error
from .loop import BoundedLoop, LoopLost
from .paths import APPEND, WritePath
from .processes import Forker
from .settings import Settings
from .stage import Stage
from .verdict import (
    CouldNotRun,
    Failure,
    Inconclusive,
    NotOffered,
    RuleBroken,
    UncleanWarning,
)

T = TypeVar("T")

_OBSERVER = -1
"""The number of the handle that only reads, where nodes that write are counted from 0."""

SET_UP_FACTOR = 6
"""How many deadlines the making of a storage may take, or the start of a server."""

TRIES_BEFORE_GIVING_UP = 3


Body = Callable[[Stage], Coroutine[Any, Any, None]]


class Session:
    """Runs test bodies against one backend.

    Attributes:
        shown: what the test that runs, or ran last, put the store through (see `Stage.showed`).

    Raises:
        AdmissionError: the backend is declared wrongly.
    """

    def __init__(self, backend: type[Backend], settings: Settings) -> None:
        check_declarations(backend)
        self.backend = backend()
        self.settings = settings
        self._loop = BoundedLoop(settings.deadline * 2)
        self._started = False
        self._refusal: str | None = None
        self._storage: str | None = None
        self._forker: Forker | None = None
        self._writers: dict[tuple[bool, int], EventStore] = {}
        self._hung: Counter[str] = Counter()
        self._hung_in: set[tuple[str, str]] = set()
        self._unclean = 0
        self._names = itertools.count(1)
        self.shown: list[dict[str, Any]] = []

    # --- running ---

    def run(self, rule: str, key: str, body: Body, path: WritePath | None = None) -> None:
        """Run one test body on a stage of its own.

        Raises:
            RuleBroken, Inconclusive, NotOffered, CouldNotRun: what came of it.
        """
        self.shown = []
        self._admit()
        stage = Stage(self, rule, path, key)
        try:
            self._guarded(stage, lambda: self._play(stage, body))
        except NotOffered:
            raise
        except BaseException:
            self._renew()
            raise

    def run_sync(self, work: Callable[[], None]) -> None:
        """Run work that drives the loop piece by piece (see `drive`).

        Raises:
            RuleBroken, Inconclusive, NotOffered, CouldNotRun: what came of it.
        """
        self.shown = []
        self._admit()
        try:
            work()
        except NotOffered:
            raise
        except BaseException:
            self._renew()
            raise

    def stage(self, rule: str, key: str) -> Stage:
        """A stage for work that `run_sync` runs; it ends with `Stage.finish`."""
        return Stage(self, rule, None, key)

    def drive(self, stage: Stage, work: Awaitable[T]) -> T:
        """Run one piece of `run_sync`'s work on the loop.

        Raises:
            Inconclusive: a call hung, or the loop was lost.
        """

        async def bounded() -> T:
            try:
                return await work
            except Hung as hung:
                raise self._judged(stage, hung) from None

        return self._guarded(stage, bounded)

    def _guarded(self, stage: Stage, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        try:
            return self._loop.run(work)
        except LoopLost as error:
            self._forget()
            if self._forker is not None:
                self._forker.kill()
                self._forker = None
            raise Inconclusive(f"{error}; see LIVE-1", self._live_1(stage, str(error))) from None

    async def _play(self, stage: Stage, body: Body) -> None:
        try:
            if stage.path is not None:
                await self._offered(stage, stage.path)
            await body(stage)
            await stage.verify()
        except Hung as hung:
            raise self._judged(stage, hung) from None
        except RuleBroken as broken:
            broken.failure.log = await self._told_logs(stage, broken.failure)
            raise
        finally:
            await stage.finish()

    async def _offered(self, stage: Stage, path: WritePath) -> None:
        if path.batch or path.coalesced:
            await stage.needs("batch")
        if path.coalesced:
            if "coalescing" in self.backend.declined:
                raise NotOffered(f"declined: {self.backend.declined['coalescing']}")
            if self.backend.batch_scope != "store":
                raise NotOffered("coalescing needs batches that span executions")

    def note_hung(self, method: str, rule: str) -> None:
        """Count a call that did not settle, once a rule: one fault may show on every path."""
        if (method, rule) not in self._hung_in:
            self._hung_in.add((method, rule))
            self._hung[method] += 1

    def _judged(self, stage: Stage, hung: Hung) -> RuleBroken | Inconclusive:
        self.note_hung(hung.method, stage.rule)
        failure = self._live_1(stage, str(hung))
        if stage.rule == failure.rule:
            return RuleBroken(failure)
        return Inconclusive(f"{hung}; see LIVE-1", failure)

    def _live_1(self, stage: Stage, got: str) -> Failure:
        path = stage.path.name if stage.path else None
        return Failure(
            "LIVE-1", "every call to settle within its deadline", got, list(stage.steps), path=path
        )

    async def _told_logs(self, stage: Stage, failure: Failure) -> list[str]:
        """What a fresh handle reads of the executions that the failure is about."""
        lines: list[str] = []
        stage.steps = []
        told = f"{failure.expected} {failure.got}"
        named = [log for log in stage.logs if short(log.execution_id) in told]
        try:
            async with stage.fresh() as reader:
                for log in (named or stage.logs)[-BULKY:]:
                    outcome = await reader.read_from(log.execution_id)
                    lines.append(outcome.line().removeprefix("fresh."))
        except (Hung, Inconclusive) as error:
            lines.append(f"a fresh handle could not read it: {error}")
        return lines

    # --- what tests ask for ---

    def fresh_id(self) -> str:
        """An execution id that this session has not used; none is the beginning of another."""
        return f"run-{next(self._names):06}"

    def allowance(self, method: str) -> float:
        """Seconds that one call of a method may take.

        Raises:
            Inconclusive: the method has hung so often in a row that it is not called again.
        """
        hung = self._hung[method]
        if hung >= TRIES_BEFORE_GIVING_UP:
            raise Inconclusive(
                f"{method} has hung {hung} times and is not called again; see LIVE-1"
            )
        return self.settings.deadline / (1 + 3 * hung)

    def settled(self, method: str) -> None:
        """Note that a method settled, so that its full deadline holds again."""
        if self._hung.pop(method, None):
            self._hung_in = {pair for pair in self._hung_in if pair[0] != method}

    async def storage(self) -> str:
        """The address of the shared storage."""
        if self._storage is None:
            self._storage = await self.create()
        return self._storage

    async def create(self) -> str:
        """A fresh storage.

        Raises:
            Inconclusive: the backend could not make one.
        """
        made = await self._factory("create", self.backend.create)
        return check_address(type(self.backend), made)

    async def connect(self, address: str, name: str, steps: list[str]) -> Handle:
        """A fresh handle on a storage.

        Raises:
            Inconclusive: the backend could not connect.
        """
        store = await self._factory("connect", lambda: self.backend.connect(address))
        check_handle(type(self.backend), store)
        return Handle(store, name, steps, self)

    async def writer(self, path: WritePath, node: int = 0) -> EventStore:
        """A shared store object for a write path, behind the decorator where it wants one."""
        key = (path.coalesced, node)
        if key not in self._writers:
            handle = await self.connect(await self.storage(), "writer", [])
            store = handle.store
            if path.coalesced:
                store = self.coalesce(store, 0.0, 100)
            self._writers[key] = store
        return self._writers[key]

    async def observer(self) -> EventStore:
        """A shared store object that writes nothing."""
        return await self.writer(APPEND, _OBSERVER)

    async def forker(self) -> Forker:
        """The process that forks this session's children; started when the first is wanted.

        Raises:
            UnreachableBackendError, ChildFailed: no other process can use the backend.
        """
        if self._forker is None:
            forker = Forker(type(self.backend))
            await forker.start()
            self._forker = forker
        return self._forker

    async def end_forker(self) -> None:
        """Give up the process that forks children: it may be in the middle of something."""
        forker, self._forker = self._forker, None
        if forker is not None:
            await forker.end()

    def coalesce(self, store: EventStore, max_linger: float, max_batch: int) -> EventStore:
        """The store behind the backend's own coalescing decorator, or the kit's."""
        if isinstance(self.backend, Coalescing):
            return self.backend.coalescing(store, max_linger=max_linger, max_batch=max_batch)
        return CoalescingEventStore(store, max_linger=max_linger, max_batch=max_batch)

    def scope(self, store: EventStore, tenant: str) -> EventStore:
        """The store behind the backend's own tenant decorator, or the kit's."""
        if isinstance(self.backend, Scoping):
            return self.backend.scoping(store, tenant)
        return TenantScopedEventStore(store, tenant)

    async def about_to_crash(self) -> None:
        """Give up the shared storage, since the server beneath it is going to die."""
        await self._clear()
        self._forget()

    async def discard(self, handle: Handle) -> None:
        """Close a handle that is no longer needed, whatever it does."""
        try:
            await handle.close()
        except Hung as hung:
            self._hung[hung.method] += 1
        except Inconclusive:
            return

    async def destroy(self, address: str) -> None:
        """Remove a storage; warn where it stays."""
        await self._cleaned("destroy", lambda: self.backend.destroy(address))

    async def _factory(self, name: str, make: Callable[[], Awaitable[T]]) -> T:
        outcome = await self._bounded(name, make)
        if outcome.error is not None:
            kind = type(self.backend).__name__
            raise Inconclusive(
                f"{kind}.{name} raised {told_error(outcome.error)}"
            ) from outcome.error
        return outcome.value  # type: ignore[return-value]

    async def _bounded(self, name: str, make: Callable[[], Awaitable[T]]) -> Outcome[T]:
        seconds = self.settings.deadline * SET_UP_FACTOR
        return await settle(f"{type(self.backend).__name__}.{name}()", name, make, seconds)

    async def _cleaned(self, name: str, clean: Callable[[], Awaitable[object]]) -> None:
        """Clean up; warn if it fails, and wait less for it the next time."""
        method = f"{type(self.backend).__name__}.{name}()"
        seconds = self.settings.deadline * SET_UP_FACTOR / (1 + 10 * self._unclean)
        try:
            outcome = await settle(method, name, clean, seconds)
        except Hung as hung:
            problem = str(hung)
        else:
            if outcome.error is None:
                return
            problem = f"{method} raised {told_error(outcome.error)}"
        self._unclean += 1
        left = "the storage is left behind" if name == "destroy" else "its server may still run"
        warnings.warn(f"{problem}; {left}", UncleanWarning, stacklevel=1)

    # --- beginning and end ---

    def _admit(self) -> None:
        """Try once whether the backend opens at all."""
        if self._refusal is not None:
            raise CouldNotRun(self._refusal, first=False)
        if self._started:
            return
        try:
            self._loop.run(self._open)
        except (AdmissionError, Inconclusive, Hung, LoopLost) as error:
            self._refusal = str(error)
            raise CouldNotRun(self._refusal, first=True) from error
        self._started = True

    async def _open(self) -> None:
        await self._factory("start", self.backend.start)
        await self.writer(APPEND)

    def _forget(self) -> None:
        self._storage = None
        self._writers = {}

    def _renew(self) -> None:
        """Give up the shared storage and its handles; the next test makes new ones."""
        try:
            self._loop.run(self._clear)
        except LoopLost:
            pass
        finally:
            self._forget()

    async def _clear(self) -> None:
        for store in list(self._writers.values())[::-1]:
            await self.discard(Handle(store, "writer", [], self))
        if self._storage is not None:
            await self.destroy(self._storage)

    def close(self) -> None:
        """Close and destroy everything, and stop the backend's server."""
        if self._started:
            self._renew()
        try:
            self._loop.run(self._stop)
        except LoopLost:
            self._loop.replace()
        self._loop.close()

    async def _stop(self) -> None:
        await self.end_forker()
        await self._cleaned("stop", self.backend.stop)
        await asyncio.sleep(0)
