"""FAULT-4, and what a history of load and faults says of other rules.

Once a session several processes (or, for a storage in memory, many handles) put a contended load
on a storage while writers are killed and paused, calls are cancelled, connections are cut and
files are locked. Everything is recorded and judged; each test asks for its own rule's violations.
It is left out at the depth `quick`, and goes on for much longer at `thorough`.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable
from pathlib import Path
from weakref import WeakKeyDictionary

from ..backend import Crashing
from ..lab.backend_ref import UnreachableBackendError
from ..lab.calls import told_error
from ..lab.checker.index import Violation
from ..lab.checker.search import Answer, Budget
from ..lab.checker.verdict import drawing, drawing_data
from ..lab.judge import summary
from ..lab.load import Load
from ..lab.processes import ChildFailed
from ..lab.session import Session
from ..lab.stage import Stage
from ..lab.trial import KINDS, FaultKind, Plan, Result, TrialFailed, run_trial
from ..lab.verdict import Inconclusive, NotOffered
from ..spi import abilities
from .case import rule
from .faults import leave_out_when_quick

CALLS = 240
"""Calls of each process at the default depth."""

PROCESSES = 2

SOONER_OR_LATER = 30
"""How many deadlines a trial may take."""

_RESULTS: WeakKeyDictionary[Session, Result | str] = WeakKeyDictionary()


class HistorySuite:
    """A recorded history under load and faults has a legal order."""

    @rule("FAULT-4")
    async def test_some_order_of_the_calls_explains_every_answer_under_load_and_faults(
        self, stage: Stage
    ) -> None:
        result = await _result(stage)
        _broken_by(stage, result, result.verdict.violations)
        if result.verdict.answer is Answer.UNKNOWN:
            raise Inconclusive(summary(result.verdict))
        if not result.figures.overlaps:
            raise Inconclusive("no call met another one on its execution")

    @rule("SEQ-4")
    async def test_a_slot_has_one_winner_in_a_history_under_load(self, stage: Stage) -> None:
        await _judge(stage, "SEQ-4")

    @rule("ID-3")
    async def test_an_envelope_id_has_one_winner_in_a_history_under_load(
        self, stage: Stage
    ) -> None:
        await _judge(stage, "ID-3")

    @rule("FENCE-8")
    async def test_no_stale_write_lands_in_a_history_under_load(self, stage: Stage) -> None:
        await stage.needs("fencing")
        await _judge(stage, "FENCE-8")

    @rule("BATCH-5")
    async def test_no_read_shows_part_of_a_batch_in_a_history_under_load(
        self, stage: Stage
    ) -> None:
        await stage.needs("batch")
        await _judge(stage, "BATCH-5")

    @rule("BATCH-9")
    async def test_overlapping_batches_have_one_winner_in_a_history_under_load(
        self, stage: Stage
    ) -> None:
        await stage.needs("batch")
        await _judge(stage, "BATCH-9")

    @rule("LIVE-1")
    async def test_every_call_settles_in_a_history_under_load(self, stage: Stage) -> None:
        await _judge(stage, "LIVE-1")

    @rule("LIVE-4")
    async def test_a_cancelled_write_is_whole_or_absent_in_a_history_under_load(
        self, stage: Stage
    ) -> None:
        await _judge(stage, "LIVE-4")

    @rule("DUR-2")
    async def test_nothing_acknowledged_is_lost_with_its_writer_in_a_history_under_load(
        self, stage: Stage
    ) -> None:
        await _judge(stage, "DUR-2", fault="kill")

    @rule("DUR-3")
    async def test_no_batch_is_torn_by_a_kill_in_a_history_under_load(self, stage: Stage) -> None:
        await stage.needs("batch")
        await _judge(stage, "DUR-3", fault="kill")

    @rule("DUR-4")
    async def test_the_storage_opens_and_holds_its_rules_after_kills_under_load(
        self, stage: Stage
    ) -> None:
        result = await _result(stage)
        _needs(stage, result, "kill")
        after = [one for one in result.verdict.violations if one.rule in ("FENCE-11", "DUR-4")]
        _broken_by(stage, result, after)

    @rule("DUR-5")
    async def test_nothing_acknowledged_is_lost_with_the_server_in_a_history_under_load(
        self, stage: Stage
    ) -> None:
        await _judge(stage, "DUR-5", fault="crash")


async def _judge(stage: Stage, id: str, fault: FaultKind | None = None) -> None:
    result = await _result(stage)
    if fault is not None:
        _needs(stage, result, fault)
    _broken_by(stage, result, [one for one in result.verdict.violations if one.rule == id])


def _needs(stage: Stage, result: Result, fault: FaultKind) -> None:
    """Raise unless the fault was done, and fired."""
    if not stage.backend.outlives_process:
        raise NotOffered("the storage lives in its process (outlives_process = False)")
    if fault == "crash" and not isinstance(stage.backend, Crashing):
        raise NotOffered("the backend cannot crash its server")
    if not result.figures.faults[fault]:
        raise Inconclusive(f"the load ended before a fault of the kind {fault!r} was done")


def _broken_by(stage: Stage, result: Result, found: Iterable[Violation]) -> None:
    for one in found:
        told = one.rule if one.rule == stage.rule else f"{one.rule}: {one.got}"
        stage.steps += [str(call) for call in one.calls]
        stage.broken(
            one.expected,
            one.got if one.rule == stage.rule else told,
            seed=stage.settings.seed,
            trace=drawing(one),
            picture=drawing_data(one),
        )


async def _result(stage: Stage) -> Result:
    leave_out_when_quick(stage)
    session = stage.session
    if session not in _RESULTS:
        _RESULTS[session] = await _try(stage)
    found = _RESULTS[session]
    if isinstance(found, str):
        raise Inconclusive(found)
    told = ", ".join(f"{kind} {count}" for kind, count in found.figures.faults.items() if count)
    stage.steps.append(f"{found.figures.calls} calls, faults: {told or 'none'}")
    return found


async def _try(stage: Stage) -> Result | str:
    settings = stage.settings
    if isinstance(stage.backend, Crashing):
        await stage.session.about_to_crash()
    async with stage.fresh() as handle:
        able = abilities(handle.store)
    plan = _plan(stage, able)
    try:
        with tempfile.TemporaryDirectory(prefix="loom-") as folder:
            async with asyncio.timeout(SOONER_OR_LATER * settings.deadline):
                return await run_trial(
                    stage.backend,
                    plan,
                    Path(folder),
                    seed=settings.seed,
                    budget=Budget(seconds=SOONER_OR_LATER),
                )
    except (TrialFailed, ChildFailed, UnreachableBackendError, TimeoutError) as error:
        return f"the load could not be put on the storage: {told_error(error)}"


def _plan(stage: Stage, able: frozenset[str]) -> Plan:
    """A contended load, and each kind of fault once or twice."""
    settings = stage.settings
    crashing = isinstance(stage.backend, Crashing)
    weights: dict[FaultKind, int] = dict.fromkeys(KINDS, 2)
    weights["crash"] = 1 if crashing else 0
    calls = settings.rounds(CALLS)
    return Plan(
        load=Load(
            seed=settings.seed,
            tasks=3,
            handles=2,
            executions=3,
            calls=calls,
            length=20,
            fenced=0.5 if "fencing" in able else 0.0,
            mischief=0.15,
            cancel=0.04,
            patience=settings.deadline,
            span=stage.backend.batch_scope == "store",
        ),
        processes=PROCESSES,
        faults=weights,
        first=("kill", "crash", "lose", "pause") if crashing else ("kill", "pause", "lock"),
        calls_between=calls * PROCESSES // 8,
        at_chosen_moments=0.5,
    )
