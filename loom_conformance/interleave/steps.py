"""Races inside a store's own methods: simultaneous calls, led one resumption at a time.

A step is one resumption of a call's coroutine, together with the real I/O that it began: when
that has finished, the call stands still again. A check that comes before its write, with an
`await` between them, is torn apart here; at the store's boundary it is one step and looks whole.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from .leader import GRACE, Blocked, Call, Check, Leader, LedRun, Make, Settled
from .scenario import first_line
from .search.bounded import Bounded
from .search.replay import Replay
from .search.step import NOT_TAKEN, Diverged, Step
from .token import Recorder, Spelled, Token, scenario_hash, told
from .trace import Trace
from .verdict import Counterexample, Finding, Verdict

__all__ = ["Call", "Settled", "explore_steps", "replay_steps"]


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
        schedules: after so many runs the exploration stops.
        seconds: after so long it stops too.
        patience: the seconds that a step may take while no other call can go on.
        most_steps: how many steps a run may have.
        replays: how often a failure is replayed before it is told.

    The verdict fails with a counterexample whose `error` is what `check` raised; it holds in
    those schedules that were run; it is inconclusive where a run could not be led to its end.
    It works on any event loop, and leads whatever store is called: only its coroutines matter.
    """
    leader = Leader(make, check, blocked, grace, patience, most_steps)
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
            many = f"{runs} schedule" + ("" if runs == 1 else "s")
            bound = f"stopped after {many} and {time.monotonic() - began:.0f} s; "
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
    most_steps: int = 400,
    times: int = 1,
) -> Verdict:
    """Run the one schedule of a token of `explore_steps`; see there.

    Raises:
        BadToken: it is no token, or one of another version or scenario.
    """
    wanted = Token.parse(token)
    leader = Leader(make, check, blocked, grace, patience, most_steps)
    began = time.monotonic()
    await leader.warm_up()
    failing: LedRun | None = None
    failed = done = 0

    def verdict(finding: Finding, **more: Any) -> Verdict:
        return Verdict(name, backend, finding, done, seconds=time.monotonic() - began, **more)

    for _ in range(times):
        run = await leader.run(Spelled(wanted))
        done += 1
        wanted.require(scenario_hash(name, len(leader.labels), ""), name)
        if run.stopped is not None or run.diverged is not None:
            reason = run.stopped or f"{NOT_TAKEN}: {run.diverged}"
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
    name: str, leader: Leader, found: LedRun, number: int, level: int, replays: int
) -> Counterexample:
    """Replay a failure, and tell it."""
    recorder = Recorder(Replay(found.trail, replays))
    replayed = 0
    token: Token | None = None
    hashed = scenario_hash(name, len(leader.labels), "")
    while recorder.begin():
        again = await leader.run(recorder)
        if again.failure is not None:
            replayed += 1
            token = told(hashed, again.trail, recorder.choices)
    return Counterexample(
        reason=first_line(found.failure),
        token=None if token is None else str(token),
        trace=_trace(leader, found),
        preemptions=level,
        schedule=number,
        smallest=True,
        replayed=replayed,
        replays=replays,
        error=found.failure,
    )


def _trace(leader: Leader, run: LedRun) -> Trace:
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
