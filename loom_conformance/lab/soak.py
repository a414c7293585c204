"""`loom-conformance soak`: trials one after another for as long as asked, for nightly runs.

Exit codes: 0 all legal; 1 a history is illegal, or the storage did not recover; 3 the checker gave
up on a history, or the soak could not run.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..backend import Backend
from .checker.search import Answer, Budget
from .checker.verdict import drawing_data
from .judge import summary, told_violations
from .load import Load
from .processes import ChildFailed
from .trial import FaultKind, Figures, Plan, Result, TrialFailed, run_trial

ROUND: Final = 10.0
"""Seconds of load in one trial; each has a storage of its own, so that histories stay short."""

NOW_AND_THEN: Final = 60.0
"""How often a log is told how far a soak has come, in seconds."""

FAULTS: Final[Mapping[FaultKind, int]] = {
    "kill": 8,
    "lose": 12,
    "pause": 2,
    "lock": 2,
    "crash": 1,
    "cut": 1,
    "terminate": 1,
    "delay": 1,
}
"""How often each kind of fault is chosen, of those that the backend allows."""


@dataclass(slots=True)
class Outcome:
    """What a soak came to.

    Attributes:
        answer: legal, illegal or unknown.
        figures: what happened, over all rounds.
        rounds: how many trials there were.
        seed: what chose everything.
        found: for each round that was not legal, its summary, violations and history's folder.
        seconds: how long all of it took.
    """

    backend: str
    seed: int
    answer: Answer = Answer.LEGAL
    figures: Figures = field(default_factory=Figures)
    rounds: int = 0
    seconds: float = 0.0
    found: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain data, for a report."""
        return {
            "backend": self.backend,
            "verdict": self.answer.value,
            "seed": self.seed,
            "rounds": self.rounds,
            "seconds": round(self.seconds, 1),
            "figures": self.figures.to_json(),
            "found": self.found,
        }


def run(
    backend: type[Backend],
    *,
    minutes: float,
    seed: int | None = None,
    processes: int = 3,
    report: Path | None = None,
    keep: Path | None = None,
    write: Callable[[str], object] = print,
    live: bool | None = None,
) -> int:
    """Put a backend under load and faults for some minutes.

    Args:
        backend: the backend's class.
        minutes: how long; the last round may end a little later.
        seed: chooses loads and faults; drawn if not given.
        processes: how many processes call at the same time.
        report: a file to write the outcome to, as JSON.
        keep: where the histories of rounds that are not legal are kept; by default a folder
            `loom-soak-<backend>-<seed>` here.
        write: takes one line, or several.
        live: whether to keep counts on the last line of the terminal while it runs; by default
            whether standard error is a terminal.

    Returns:
        the exit code.
    """
    chosen = random.SystemRandom().randrange(2**32) if seed is None else seed
    place = keep if keep is not None else Path(f"loom-soak-{backend.name}-{chosen}")
    shown = sys.stderr.isatty() if live is None else live
    soak = _Soak(backend, Outcome(backend.name, chosen), processes, place, write, shown)
    write(f"soak of {backend.name} for {minutes:g} min, {processes} processes, seed {chosen}")
    try:
        asyncio.run(soak.run(minutes * 60))
    except ChildFailed as error:
        write(f"could not run: {error}")
        return 3
    outcome = soak.outcome
    if report is not None:
        report.write_text(json.dumps(outcome.to_json(), indent=2) + "\n")
    for line in told(outcome):
        write(line)
    return {Answer.LEGAL: 0, Answer.ILLEGAL: 1, Answer.UNKNOWN: 3}[outcome.answer]


def told(outcome: Outcome) -> list[str]:
    """The outcome for people."""
    figures = outcome.figures
    faults = ", ".join(f"{kind} {count:,}" for kind, count in figures.faults.most_common())
    rate = figures.calls / figures.seconds if figures.seconds else 0
    lines = [
        f"{outcome.answer.value}: {outcome.backend}, {outcome.rounds} rounds in "
        f"{outcome.seconds:.0f} s, seed {outcome.seed}",
        f"  calls     {figures.calls:,} ({rate:,.0f}/s): {figures.ok:,} ok, "
        f"{figures.refused:,} refused, {figures.unknown:,} unknown",
        f"  overlaps  {figures.overlaps:,} calls met another one on their execution",
        f"  faults    {figures.faults.total():,}: {faults or 'none'}",
        f"  processes {figures.processes:,}",
        f"  checked   {figures.checked:,} calls in {figures.parts:,} parts",
    ]
    for one in outcome.found:
        lines.append(f"  round {one['round']}: {one['summary']}")
        if one["history"]:
            lines.append(f"    judge it again: loom-conformance judge {one['history']}")
    return lines


class _Soak:
    def __init__(
        self,
        backend: type[Backend],
        outcome: Outcome,
        processes: int,
        keep: Path,
        write: Callable[[str], object],
        live: bool,
    ) -> None:
        self.backend = backend
        self.outcome = outcome
        self.processes = processes
        self.keep = keep
        self.write = write
        self.live = live
        self.random = random.Random(outcome.seed)
        self._began = time.monotonic()
        self._next = NOW_AND_THEN

    async def run(self, seconds: float) -> None:
        """Rounds until the time is over or a history is illegal."""
        backend = self.backend()
        await backend.start()
        until = self._began + seconds
        try:
            while time.monotonic() < until and self.outcome.answer is not Answer.ILLEGAL:
                left = until - time.monotonic()
                await self._round(backend, min(ROUND, max(1.0, left)))
        finally:
            await backend.stop()
            self.outcome.seconds = time.monotonic() - self._began
            self._clear()

    async def _round(self, backend: Backend, seconds: float) -> None:
        outcome = self.outcome
        outcome.rounds += 1
        plan = self._plan(seconds)
        folder = Path(tempfile.mkdtemp(prefix="loom-soak-"))
        try:
            result = await run_trial(
                backend,
                plan,
                folder,
                seed=self.random.getrandbits(32),
                budget=Budget(seconds=120.0),
                progress=self._show,
            )
        except TrialFailed as error:
            self._found(folder, f"the storage did not recover: {error}", [], Answer.ILLEGAL)
            return
        outcome.figures.add(result.figures)
        self._show(Figures())
        verdict = result.verdict
        if verdict.answer is Answer.LEGAL:
            shutil.rmtree(folder)
            return
        self._clear()
        self.write(f"round {outcome.rounds}: {summary(verdict)}")
        for line in told_violations(verdict):
            self.write(line)
        self._found(folder, summary(verdict), _violations(result), verdict.answer)

    def _plan(self, seconds: float) -> Plan:
        """Another kind of load each round."""
        chance = self.random
        return Plan(
            load=Load(
                seed=chance.getrandbits(32),
                tasks=chance.choice((1, 3, 6)),
                handles=chance.choice((1, 2, 3)),
                executions=chance.choice((2, 3, 5)),
                contended=chance.random() < 0.8,
                calls=None,
                seconds=seconds,
                fenced=chance.choice((0.3, 0.7, 1.0)),
                mischief=chance.choice((0.05, 0.2)),
                batch=chance.choice((3, 6, 20)),
                cancel=chance.choice((0.0, 0.03)),
                patience=30.0,
                span=self.backend.batch_scope == "store",
            ),
            processes=self.processes,
            faults=FAULTS,
            calls_between=None,
            seconds_between=0.35,
            at_chosen_moments=0.3,
        )

    def _found(
        self, folder: Path, text: str, violations: list[dict[str, Any]], answer: Answer
    ) -> None:
        place = self.keep / f"round-{self.outcome.rounds}"
        self.keep.mkdir(parents=True, exist_ok=True)
        shutil.move(folder, place)
        self.outcome.found.append(
            {
                "round": self.outcome.rounds,
                "summary": text,
                "history": str(place),
                "violations": violations,
            }
        )
        if answer is Answer.ILLEGAL or self.outcome.answer is Answer.LEGAL:
            self.outcome.answer = answer

    def _show(self, now: Figures) -> None:
        """A live line on a terminal; elsewhere, such as in a CI log, one now and then."""
        total = self.outcome.figures
        elapsed = time.monotonic() - self._began
        faults = total.faults.total() + now.faults.total()
        line = (
            f"{elapsed // 60:3.0f}:{elapsed % 60:02.0f}  round {self.outcome.rounds}  "
            f"calls {total.calls + now.calls:,}  refused {total.refused:,}  "
            f"unknown {total.unknown:,}  faults {faults:,}  checked {total.checked:,}"
        )
        if self.live:
            sys.stderr.write(f"\r{line} \x1b[K")
            sys.stderr.flush()
        elif elapsed >= self._next:
            self._next += NOW_AND_THEN
            self.write(line.strip())

    def _clear(self) -> None:
        if self.live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _violations(result: Result) -> list[dict[str, Any]]:
    return [
        {
            "rule": one.rule,
            "expected": one.expected,
            "got": one.got,
            "picture": drawing_data(one),
        }
        for one in result.verdict.violations[:20]
    ]
