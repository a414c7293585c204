"""FAULT-4, and what a history of load and faults says of other rules.

Once a session several processes (or, for a storage in memory, many handles) put a contended load
on a storage while writers are killed and paused, calls are cancelled, connections are cut and
files are locked. Everything is recorded and judged; each test asks for its own rule's violations.
It is left out at the depth `quick`, and goes on for much longer at `thorough`.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from weakref import WeakKeyDictionary

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from ..backend import Crashing
from ..contract.operations import ReadFrom
from ..lab.backend_ref import UnreachableBackendError
from ..lab.calls import told_error
from ..lab.checker.index import Violation
from ..lab.checker.search import Answer, Budget
from ..lab.checker.verdict import check, drawing, drawing_data, model_of
from ..lab.history import Recorder, declarations, read_history
from ..lab.judge import summary
from ..lab.load import Load, LoadRun
from ..lab.mixture import loads
from ..lab.processes import ChildFailed
from ..lab.quarters import away_from_home
from ..lab.session import Session
from ..lab.stage import Stage
from ..lab.trial import KINDS, FaultKind, Plan, Result, TrialFailed, run_trial
from ..lab.verdict import Inconclusive, NotOffered, RuleBroken
from ..spi import abilities
from .case import on_the_session, rule
from .faults import leave_out_when_quick

CALLS = 240
"""Calls of each process at the default depth."""

PROCESSES = 2

MIXTURES = 5
"""Mixtures of calls that Hypothesis chooses at the default depth."""

SOONER_OR_LATER = 30
"""How many deadlines a trial may take."""

ALSO: Mapping[str, frozenset[str]] = {
    "SEQ-4": frozenset({"SEQ-1", "SEQ-2", "SEQ-4"}),
    "ID-3": frozenset({"ID-1", "ID-3"}),
    "BATCH-5": frozenset({"BATCH-4", "BATCH-5"}),
    "BATCH-9": frozenset({"BATCH-2", "BATCH-3", "BATCH-9"}),
    "FENCE-8": frozenset({"FENCE-3", "FENCE-4", "FENCE-8", "FENCE-9"}),
}
"""Rules whose violations under load break a rule too, since it says the same of all moments."""

_RESULTS: WeakKeyDictionary[Session, Result | str] = WeakKeyDictionary()


class HistorySuite:
    """A recorded history under load and faults has a legal order."""

    @rule("FAULT-4")
    async def test_some_order_of_the_calls_explains_every_answer_under_load_and_faults(
        self, stage: Stage
    ) -> None:
        result = await _result(stage)
        _broken_by(stage, result.verdict.violations)
        if result.verdict.answer is Answer.UNKNOWN:
            raise Inconclusive(summary(result.verdict))
        if not result.figures.overlaps:
            raise Inconclusive("no call met another one on its execution")

    @rule("FAULT-4")
    @on_the_session
    def test_whatever_mixture_of_calls_several_handles_make_some_order_explains_it(
        self, session: Session
    ) -> None:
        leave_out_when_quick(session.settings)
        broken: list[RuleBroken] = []

        def one(load: Load) -> None:
            stage = session.stage("FAULT-4", "mixture")
            try:
                session.drive(stage, _mix(stage, load))
            except RuleBroken as error:
                broken.append(error)
                raise
            finally:
                session.drive(stage, stage.finish())

        try:
            with away_from_home():
                _generated(session, one)
        except Flaky:
            # The mixture is the same each time, what runs when is not.
            raise broken[-1] from None

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

    @rule("FENCE-2")
    async def test_no_token_is_given_twice_in_a_history_under_load(self, stage: Stage) -> None:
        await stage.needs("fencing")
        await _judge(stage, "FENCE-2")

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
        _broken_by(stage, after)

    @rule("DUR-5")
    async def test_nothing_acknowledged_is_lost_with_the_server_in_a_history_under_load(
        self, stage: Stage
    ) -> None:
        await _judge(stage, "DUR-5", fault="crash")


async def _judge(stage: Stage, id: str, fault: FaultKind | None = None) -> None:
    result = await _result(stage)
    if fault is not None:
        _needs(stage, result, fault)
    those = ALSO.get(id, {id})
    _broken_by(stage, [one for one in result.verdict.violations if one.rule in those])


def _needs(stage: Stage, result: Result, fault: FaultKind) -> None:
    """Raise unless the fault was done, and fired."""
    if not stage.backend.outlives_process:
        raise NotOffered("the storage lives in its process (outlives_process = False)")
    if fault == "crash" and not isinstance(stage.backend, Crashing):
        raise NotOffered("the backend cannot crash its server")
    if not result.figures.faults[fault]:
        raise Inconclusive(f"the load ended before a fault of the kind {fault!r} was done")


def _broken_by(stage: Stage, found: Iterable[Violation]) -> None:
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
    leave_out_when_quick(stage.settings)
    session = stage.session
    if session not in _RESULTS:
        _RESULTS[session] = await _try(stage)
    found = _RESULTS[session]
    if isinstance(found, str):
        raise Inconclusive(found)
    told = ", ".join(f"{kind} {count}" for kind, count in found.figures.faults.items() if count)
    stage.steps.append(f"{found.figures.calls} calls, faults: {told or 'none'}")
    stage.showed(
        "the load",
        histories=1,
        calls=found.figures.checked,
        faults=found.figures.faults.total(),
    )
    return found


async def _try(stage: Stage) -> Result | str:
    patience = stage.settings.deadline
    if isinstance(stage.backend, Crashing):
        await stage.session.about_to_crash()
    async with stage.fresh() as handle:
        able = abilities(handle.store)
    plan = _plan(stage, able)
    try:
        with tempfile.TemporaryDirectory(prefix="loom-") as folder:
            async with asyncio.timeout(SOONER_OR_LATER * patience):
                return await run_trial(
                    stage.backend,
                    plan,
                    Path(folder),
                    seed=stage.settings.seed,
                    budget=Budget(seconds=SOONER_OR_LATER),
                )
    except (TrialFailed, ChildFailed, UnreachableBackendError, TimeoutError) as error:
        return f"the load could not be put on the storage: {told_error(error)}"


def _generated(session: Session, one: Callable[[Load], None]) -> None:
    """Have Hypothesis choose mixtures and, where one is illegal, look for the smallest."""
    fencing = "fencing" not in session.backend.declined
    prefixes = st.builds(lambda: f"{session.fresh_id()}.")
    chosen = given(loads(prefixes, fencing=fencing))(one)
    seed(session.settings.seed)(
        settings(
            max_examples=session.settings.rounds(MIXTURES),
            deadline=None,
            database=None,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        )(chosen)
    )()


async def _mix(stage: Stage, load: Load) -> None:
    """One mixture on the session's storage, in this process, and its verdict."""
    patient = replace(
        load,
        patience=stage.settings.deadline,
        span=stage.backend.batch_scope == "store",
    )
    address = await stage.address()
    with tempfile.TemporaryDirectory(prefix="loom-") as folder:
        declared = declarations(stage.backend)
        with Recorder(Path(folder) / "mixture.jsonl", "p", declared) as recorder:
            run = LoadRun(patient, recorder, lambda: stage.backend.connect(address))
            await run.run()
            reader = recorder.handle((await stage.connect(address)).store, "fresh")
            for name in read_history([recorder.path]).executions():
                await reader.do(ReadFrom(name), timeout=stage.settings.deadline)
        history = read_history([recorder.path])
    verdict = check(history, model_of(history.declared), Budget(seconds=SOONER_OR_LATER))
    stage.steps.append(f"{load}")
    stage.showed(histories=1, calls=verdict.calls)
    _broken_by(stage, verdict.violations)


def _plan(stage: Stage, able: frozenset[str]) -> Plan:
    """A contended load, and each kind of fault once or twice."""
    crashing = isinstance(stage.backend, Crashing)
    weights: dict[FaultKind, int] = dict.fromkeys(KINDS, 2)
    weights["crash"] = 1 if crashing else 0
    calls = stage.settings.rounds(CALLS)
    return Plan(
        load=Load(
            seed=stage.settings.seed,
            tasks=3,
            handles=2,
            executions=3,
            calls=calls,
            length=20,
            fenced=0.5 if "fencing" in able else 0.0,
            mischief=0.15,
            cancel=0.04,
            patience=stage.settings.deadline,
            span=stage.backend.batch_scope == "store",
        ),
        processes=PROCESSES,
        faults=weights,
        first=("kill", "crash", "lose", "pause") if crashing else ("kill", "pause", "lock"),
        calls_between=calls * PROCESSES // 8,
        at_chosen_moments=0.5,
    )
