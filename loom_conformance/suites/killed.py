"""RACE-5, RACE-18 and RACE-19 with real processes, killed with SIGKILL at a chosen point."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from ..lab.faults.address import is_postgres, postgres_read_only
from ..lab.faults.sqlite import sqlite_file
from ..lab.stage import Log, Stage
from ..lab.verdict import Inconclusive, NotOffered
from ..races.killing import Fate, Point, Processes, awaits_of
from .case import rule

STARTED: Final = "EXECUTION_STARTED"
WHOLE: Final = (STARTED, "STEP_COMPLETED", "EXECUTION_COMPLETED")
AWAITS: Final = 4
"""At how many awaits of a write a process is killed at the default depth."""


class KilledSuite:
    """A process dies, and others must be able to go on from what it left."""

    @rule("RACE-18")
    async def test_killed_between_bootstrap_and_body_an_execution_is_recovered(
        self, stage: Stage
    ) -> None:
        async with _processes(stage) as processes:
            deaths = 0
            for point in awaits_of(1, stage.settings.rounds(AWAITS)):
                log = stage.log()
                fate = await _run(stage, processes, log, "start", point=point)
                deaths += fate.killed
                left = await _kinds(stage, log)
                ran = processes.effects(log.execution_id)
                if fate.killed:
                    durable = [[STARTED]] if not point.suspension else [[STARTED], []]
                    stage.check(
                        left in durable and ran == 0,
                        "EXECUTION_STARTED alone, or nothing where it was killed in the append",
                        f"killed {point}, the log is {left} and the effect ran {ran} times",
                    )
                await _goes_on(stage, processes, log, left)
            if not deaths:
                raise Inconclusive("the process was not killed in its first append or after it")

    @rule("RACE-18")
    async def test_killed_after_its_effect_a_run_is_recovered_at_least_once(
        self, stage: Stage
    ) -> None:
        async with _processes(stage) as processes:
            # A write that never waits has no await to be killed at, but it has an end.
            for point in (Point(2, 1), Point(2)):
                log = stage.log()
                if (await _run(stage, processes, log, "start", point=point)).killed:
                    break
            else:
                raise Inconclusive("the process was killed neither in its second append nor after")
            left = await _kinds(stage, log)
            stage.check(
                left in ([STARTED], list(WHOLE[:2])),
                "the bootstrap, and the step's record or not",
                f"the log is {left}",
            )
            await _run(stage, processes, log, "recover")
            await _is_whole(stage, log)
            most = 2 if len(left) == 1 else 1
            ran = processes.effects(log.execution_id)
            stage.check(
                1 <= ran <= most,
                "the effect once more where its record was lost, and not where it was kept",
                f"it ran {ran} times, and the log was {left}",
            )

    @rule("RACE-5")
    async def test_killed_in_a_shared_flush_two_starts_leave_one_execution_to_start(
        self, stage: Stage
    ) -> None:
        await stage.needs("batch")
        if stage.backend.batch_scope != "store" or "coalescing" in stage.backend.declined:
            raise NotOffered("the store's writes cannot share a flush")
        async with _processes(stage) as processes:
            alive = stage.log()
            fate = await _run(stage, processes, alive, "start", "start", linger=0.005)
            stage.check(
                sorted(fate.ends) == ["ExecutionAlreadyExistsError", "completed"],
                "one start to complete and the other to be told that the execution exists",
                f"they ended {fate.ends}",
            )
            if fate.writes < 3:
                raise Inconclusive("the two starts did not share a flush that was refused")
            deaths = 0
            for write in (1, 2, 3):
                for point in awaits_of(write, stage.settings.rounds(2)):
                    log = stage.log()
                    fate = await _run(
                        stage, processes, log, "start", "start", point=point, linger=0.005
                    )
                    deaths += fate.killed
                    left = await _kinds(stage, log)
                    if write == 1:
                        stage.check(
                            left == [] or not fate.killed,
                            "nothing of a flush that must be refused",
                            f"killed {point}, the log is {left}",
                        )
                    await _goes_on(stage, processes, log, left)
            if deaths < 3:
                raise Inconclusive("the process was not killed after each of its writes")

    @rule("RACE-19")
    async def test_in_a_process_whose_storage_fails_nothing_runs(self, stage: Stage) -> None:
        address = await stage.address()
        async with _processes(stage) as processes:
            broken, limits = _broken(address)
            log = stage.log()
            fate = await _run(
                stage,
                processes,
                log,
                "start",
                address=broken,
                limits=limits,
                input="x" * 200_000,
            )
            if fate.ends == ("completed",):
                raise Inconclusive("the storage did not fail")
            left = await _kinds(stage, log)
            ran = processes.effects(log.execution_id)
            stage.check(
                fate.ends == ("StorageWriteError",)
                and fate.storage_errors == ("StorageWriteError",)
                and fate.told == ()
                and ran == 0
                and left == [],
                "StorageWriteError, told to on_storage_error once, and nothing run or stored",
                f"the start ended {fate.ends}, on_storage_error was told {fate.storage_errors}, "
                f"on_event {fate.told}, the effect ran {ran} times, the log is {left}",
            )
            await _goes_on(stage, processes, log, left)


@asynccontextmanager
async def _processes(stage: Stage) -> AsyncIterator[Processes]:
    backend = type(stage.backend)
    if not backend.outlives_process:
        raise NotOffered("the storage ends with its process")
    if backend.one_process_at_a_time:
        raise NotOffered("one process locks the storage")
    await stage.writer()  # the storage is set up before a process meets it
    with tempfile.TemporaryDirectory(prefix="loom-") as folder:
        async with Processes(backend, Path(folder), 6 * stage.settings.deadline) as processes:
            yield processes


async def _run(
    stage: Stage,
    processes: Processes,
    log: Log,
    *acts: str,
    address: str | None = None,
    **more: Any,
) -> Fate:
    place = await stage.address() if address is None else address
    fate = await processes.run(place, log.execution_id, *acts, **more)
    point = more.get("point")
    what = "killed" if fate.killed else f"ended {', '.join(fate.ends)}"
    stage.showed(faults=int(fate.killed))
    stage.steps.append(
        f"a process does {' and '.join(acts)}{f', to die {point}' if point else ''} → {what}"
    )
    return fate


async def _goes_on(stage: Stage, processes: Processes, log: Log, left: list[str]) -> None:
    """Deliver the trigger again, then recover: the execution is run to its end.

    Its effect runs once, or once more where it had run and its record did not land. What was in
    flight when a process died may land a moment later, so an empty log need not stay empty.
    """
    before = processes.effects(log.execution_id)
    again = await _run(stage, processes, log, "start")
    expected = ["ExecutionAlreadyExistsError", *([] if left else ["completed"])]
    stage.check(
        len(again.ends) == 1 and again.ends[0] in expected,
        f"a second start to end {' or '.join(expected)}, as the log was {left}",
        f"it ended {again.ends}",
    )
    await _run(stage, processes, log, "recover")
    await _is_whole(stage, log)
    lost = before if "STEP_COMPLETED" not in left else 0
    ran = processes.effects(log.execution_id)
    stage.check(
        1 <= ran <= 1 + lost,
        f"the effect to run once over all processes, and {lost} times more unrecorded at most",
        f"it ran {ran} times; before the second start the log was {left}",
    )


async def _is_whole(stage: Stage, log: Log) -> None:
    kinds = await _kinds(stage, log)
    stage.check(kinds == list(WHOLE), f"the log to be {list(WHOLE)}", f"it is {kinds}")


async def _kinds(stage: Stage, log: Log) -> list[str]:
    async with stage.fresh() as reader:
        return [envelope.kind for envelope in await stage.read(reader, log.execution_id)]


def _broken(address: str) -> tuple[str, dict[str, Any]]:
    """The same storage where it fails, and what a process needs for it to fail.

    Raises:
        NotOffered: it is not known how to make such a storage fail.
    """
    if is_postgres(address):
        return postgres_read_only(address), {}
    if sqlite_file(address) is not None:
        return address, {"pages": 0}
    raise NotOffered("it is known of PostgreSQL and SQLite only how to make a storage fail")
