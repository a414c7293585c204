"""Explore a scenario on a backend: the smallest counterexample, or how far it holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

from ..backend import Backend
from .engine import Engine, Run
from .loop import InterleavingLoop
from .scenario import Scenario
from .search.bounded import Bounded
from .search.chance import Chance, Pct
from .search.dpor import Reduced
from .search.overlap import Overlap
from .search.replay import Replay
from .search.step import NOT_TAKEN, Diverged, Strategy
from .token import Recorder, Spelled, Token, scenario_hash
from .token import told as told_token
from .trace import told, trace_of
from .verdict import Counterexample, Finding, Verdict

T = TypeVar("T")

Search: TypeAlias = Literal["all", "plain", "bounded", "pct", "random"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How far an exploration may go.

    Attributes:
        schedules: how many schedules it may run.
        seconds: how long it may take; looked at after each run.
        steps: how many steps one run may have.
        patience: the seconds that a call, a set-up or a check may take.
        replays: how often a counterexample is replayed before it is told.
    """

    schedules: int = 10_000
    seconds: float = 60.0
    steps: int = 1000
    patience: float = 10.0
    replays: int = 10


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an exploration has come: schedules run, seconds taken, and under which bound."""

    schedules: int
    seconds: float
    bound: str


def explore(
    scenario: Scenario,
    backend: Backend,
    *,
    search: Search = "all",
    preemptions: int = 2,
    depth: int = 3,
    seed: int = 0,
    limits: Limits | None = None,
    fresh_storage: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Verdict:
    """Run a scenario under many schedules and say what that shows.

    `search` is one of:

    - `"all"`: one schedule of each equivalence class, until there is none left;
    - `"plain"`: every single schedule, in the order of preemptions;
    - `"bounded"`: every schedule with at most `preemptions` preemptions;
    - `"pct"`: as many as `limits` allow, by PCT for bugs of this `depth`;
    - `"random"`: as many as `limits` allow, by chance.

    A failure is looked for once more with the fewest preemptions, replayed, and told with its
    trace and token. With `fresh_storage` each run gets a storage of its own, where the default is
    fresh names in one storage.

    Call it outside any running event loop: it makes its own.
    """
    bounds = limits or Limits()
    exploration = _Exploration(scenario, backend, bounds, fresh_storage, progress)
    strategies: Mapping[Search, Callable[[], _Strategy]] = {
        "all": Reduced,
        "plain": lambda: Bounded(None),
        "bounded": lambda: Bounded(preemptions),
        "pct": lambda: Pct(depth, bounds.schedules, seed),
        "random": lambda: Chance(bounds.schedules, seed),
    }
    return on_loop(lambda: exploration.explore(strategies[search]), exploration.interrupted)


def replay(
    scenario: Scenario,
    backend: Backend,
    token: str,
    *,
    times: int = 1,
    limits: Limits | None = None,
    fresh_storage: bool = False,
) -> Verdict:
    """Run the one schedule that a token stands for.

    The verdict fails where the schedule does, holds where the backend withstands it to its end,
    and is inconclusive where the run meets another operation than the token stands for.

    Raises:
        BadToken: it is no token, or one of another version or scenario.
    """
    wanted = Token.parse(token)
    ours = scenario_hash(scenario.name, len(scenario.nodes), scenario.variant)
    wanted.require(ours, scenario.name)
    exploration = _Exploration(scenario, backend, limits or Limits(), fresh_storage, None)
    return on_loop(lambda: exploration.replay(wanted, times), exploration.interrupted)


def on_loop(
    main: Callable[[], Coroutine[Any, Any, T]],
    interrupted: Callable[[], T | None] = lambda: None,
) -> T:
    """Run a coroutine on a fresh `InterleavingLoop`, and close that, whatever is left on it.

    `interrupted` is asked after a `KeyboardInterrupt`: what it gives stands for the result.

    Raises:
        RuntimeError: an event loop is running in this thread already.
    """
    if _runs_in_a_loop():
        raise RuntimeError(
            "an exploration makes an event loop of its own: call it from a plain function, or from "
            "async code by asyncio.to_thread"
        )
    loop = InterleavingLoop()
    task: asyncio.Task[T] = loop.create_task(main())
    try:
        return loop.run_until_complete(task)
    except KeyboardInterrupt:
        result = interrupted()
        task.cancel()
        loop.run_until_complete(asyncio.wait([task]))
        if result is None:
            raise
        return result
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _runs_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_Strategy: TypeAlias = Reduced | Bounded | Pct | Chance


class _Exploration:
    def __init__(
        self,
        scenario: Scenario,
        backend: Backend,
        limits: Limits,
        fresh_storage: bool,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._scenario = scenario
        self._backend = backend
        self._limits = limits
        self._fresh_storage = fresh_storage
        self._progress = progress
        self._began = time.monotonic()
        self._searching = self._began
        self._opened: float | None = None
        self._told = self._began
        self._schedules = 0
        self._shared = ""
        self._latest: Engine | None = None

    def _engine(self) -> Engine:
        self._latest = Engine(
            self._scenario,
            self._backend,
            fresh_storage=self._fresh_storage,
            most_steps=self._limits.steps,
            patience=self._limits.patience,
        )
        return self._latest

    def interrupted(self) -> Verdict | None:
        """What can be said where the watchdog interrupted, and no person did."""
        why = None if self._latest is None else self._latest.interrupted
        return None if why is None else self._verdict(Finding.INCONCLUSIVE, reason=why)

    async def explore(self, make: Callable[[], _Strategy]) -> Verdict:
        async with self._engine() as engine:
            self._opened = time.monotonic()
            strategy = make()
            failing, why = None, ""
            if isinstance(strategy, Reduced):
                failing, why = await self._search(engine, Overlap())
                self._schedules = 0 if failing is None else self._schedules
            if failing is None and not why:
                failing, why = await self._search(engine, strategy)
            if failing is None and engine.sharing and isinstance(strategy, Reduced):
                engine.shared = True
                self._shared = "every order, for nodes {} and {} wake each other".format(
                    *engine.sharing
                )
                self._schedules = 0
                strategy = make()
                failing, why = await self._search(engine, strategy)
            if failing is not None:
                return await self._fails(engine, failing)
            if why.startswith(_CUT):
                return self._verdict(Finding.HOLDS_IN_THOSE_RUN, bound=why)
            if why:
                return self._verdict(Finding.INCONCLUSIVE, reason=why)
            return self._holds(strategy)

    async def replay(self, token: Token, times: int) -> Verdict:
        async with self._engine() as engine:
            failed = 0
            last: Run | None = None
            for _ in range(times):
                run = await self._led(engine, Spelled(token))
                if run.stopped is not None:
                    return self._verdict(Finding.INCONCLUSIVE, reason=run.stopped)
                if run.diverged is not None:
                    reason = f"{NOT_TAKEN}: {run.diverged}{_last_refusal(run)}"
                    return self._verdict(Finding.INCONCLUSIVE, reason=reason)
                if run.failure is not None:
                    failed += 1
                    last = run
            if last is None:
                return self._verdict(Finding.HOLDS_IN_THOSE_RUN, bound=f"the schedule of {token}")
            choices = Recorder(Replay(last.trail))
            await self._led(engine, choices)
            example = Counterexample(
                reason=last.failure or "",
                token=str(token),
                trace=trace_of(self._names(), last),
                preemptions=choices.preemptions(last.trail),
                schedule=1,
                smallest=False,
                replayed=failed,
                replays=times,
                error=last.error,
            )
            return self._verdict(Finding.FAILS, reason=example.reason, counterexample=example)

    async def _search(self, engine: Engine, strategy: Strategy) -> tuple[Run | None, str]:
        """The first failing run, or why the search ended before its strategy did."""
        limits = self._limits
        while strategy.begin():
            if self._schedules >= limits.schedules:
                return None, f"{_CUT} after {limits.schedules:,} schedules, so not all"
            if self._schedules and time.monotonic() - self._searching > limits.seconds:
                return None, f"{_CUT} after {limits.seconds:g} s, so not all"
            run = await self._led(engine, strategy)
            if run.failure is not None:
                return run, ""
            if run.diverged is not None or run.stopped is not None:
                return None, _why(run)
            if engine.sharing and not engine.shared and isinstance(strategy, Reduced):
                return None, ""
        return None, ""

    async def _led(self, engine: Engine, strategy: Strategy) -> Run:
        """One run, told to the strategy and to whoever watches."""
        run = await engine.run(strategy)
        if run.repetition:
            return run
        self._schedules += 1
        if run.diverged is None and run.stopped is None:
            try:
                strategy.finish(run.trail)
            except Diverged as divergence:
                run.diverged = divergence
        if self._progress is not None and (now := time.monotonic()) - self._told > 0.2:
            self._told = now
            self._progress(Progress(self._schedules, now - self._began, _bound(strategy)))
        return run

    async def _fails(self, engine: Engine, found: Run) -> Verdict:
        """Look for the failure with the fewest preemptions, replay it, and tell it."""
        schedules = self._schedules
        self._schedules = 0
        least: Run | None = None
        why = ""
        if not engine.harmed:
            self._searching = time.monotonic()
            least, why = await self._search(engine, Bounded(None))
        smallest = least is not None and not why
        number = self._schedules if smallest else schedules
        chosen = found if least is None else least
        replays = 0 if engine.harmed else self._limits.replays
        scenario = self._scenario
        hashed = scenario_hash(scenario.name, len(scenario.nodes), scenario.variant)
        recorder = Recorder(Replay(chosen.trail, replays))
        shown = chosen
        token: Token | None = None
        preempted = replayed = 0
        while recorder.begin():
            run = await self._led(engine, recorder)
            if run.failure == chosen.failure:
                replayed += 1
                shown = run
                token = told_token(hashed, run.trail, recorder.choices)
                preempted = recorder.preemptions(run.trail)
        self._schedules = schedules
        example = Counterexample(
            reason=chosen.failure or "",
            token=None if token is None else str(token),
            trace=trace_of(self._names(), shown),
            preemptions=preempted,
            schedule=number,
            smallest=smallest,
            replayed=replayed,
            replays=replays,
            error=shown.error,
        )
        return self._verdict(Finding.FAILS, reason=example.reason, counterexample=example)

    def _holds(self, strategy: _Strategy) -> Verdict:
        finding = Finding.HOLDS if strategy.complete else Finding.HOLDS_IN_THOSE_RUN
        bound = _bound(strategy)
        if strategy.complete:
            bound = "up to equivalence" if isinstance(strategy, Reduced) else "every order"
        if self._shared:
            bound = self._shared
        return self._verdict(finding, bound=bound)

    def _names(self) -> list[str]:
        return [chr(ord("A") + index) for index in range(len(self._scenario.nodes))]

    def _verdict(
        self,
        finding: Finding,
        *,
        bound: str = "",
        reason: str = "",
        counterexample: Counterexample | None = None,
    ) -> Verdict:
        return Verdict(
            self._scenario.name,
            self._backend.name,
            finding,
            self._schedules,
            bound,
            reason,
            counterexample,
            time.monotonic() - self._began,
            0.0 if self._opened is None else time.monotonic() - self._opened,
        )


_CUT = "stopped"


def _why(run: Run) -> str:
    if run.diverged is not None:
        return f"the nodes did not do the same under the same schedule: {run.diverged}"
    return run.stopped or ""


def _last_refusal(run: Run) -> str:
    """What usually makes a replay go another way: a call that was refused this time."""
    for step in reversed(run.trail):
        if step.error is not None:
            return f"; before it, node {chr(ord('A') + step.strand[0])} had {told(step)}"
    return ""


def _bound(strategy: Strategy) -> str:
    if isinstance(strategy, Reduced):
        return "one of each equivalence class"
    if isinstance(strategy, Bounded):
        most = strategy.level if strategy.bound is None else strategy.bound
        return f"at most {most} preemption" + ("" if most == 1 else "s")
    if isinstance(strategy, Pct):
        return f"PCT: a bug of depth {strategy.depth} was missed with p ≤ {strategy.missed:.3g}"
    if isinstance(strategy, Chance):
        return "by chance, with no bound"
    return "one schedule"
