"""Exploring and replaying a race, and what is said of it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Final

from ..backend import Backend
from ..contract.rules import rules
from ..interleave.explore import Limits, Progress, explore, replay
from ..interleave.token import BadToken
from ..interleave.verdict import Finding, Verdict
from ..report.text import wrapped
from .play import KIT, Loss, Lost, Play
from .race import Parameters, Race, Reach
from .scene import Subject

WIDTH: Final = 100

DEFAULT_LIMITS: Final = Limits(schedules=100_000, seconds=60.0)


@dataclass(frozen=True, slots=True)
class RaceVerdict:
    """What an exploration or a replay of a race showed.

    Attributes:
        race: the race.
        parameters: what it was played with.
        backend: how the backend is called, in commands too.
        runtime: how what ran it is called; `""` for the kit's own runtime.
        verdict: what the scheduler found.
        loss: what was wrong with the run that failed.
        steps: whether the store's methods were led one resumption at a time.
    """

    race: Race
    parameters: Parameters
    backend: str
    runtime: str
    verdict: Verdict
    loss: Loss | None
    steps: bool = False

    @property
    def holds(self) -> bool:
        """Whether the race was won in all that was run."""
        return self.verdict.holds

    @property
    def lost(self) -> bool:
        """Whether a schedule was found that loses it."""
        return self.verdict.finding is Finding.FAILS

    @property
    def title(self) -> str:
        """What was played, by whom, and on what."""
        told = str(self.parameters)
        by = f", run by {self.runtime}" if self.runtime else ""
        by += ", by steps" if self.steps else ""
        return f"{self.race.id} [{self.backend}{by}]" + (f" ({told})" if told else "")

    @property
    def replay(self) -> str | None:
        """The command that shows the failure again, or `None` where it has no token."""
        example = self.verdict.counterexample
        if example is None or example.token is None:
            return None
        words = ["loom-conformance", "replay", self.race.id, example.token]
        words += ["--backend", self.backend]
        if self.runtime:
            words += ["--runtime", self.runtime]
        if self.steps:
            words.append("--steps")
        return shlex.join(words + parameter_words(self.race, self.parameters))

    def lines(self, *, all_of_it: bool = True) -> list[str]:
        """The verdict as a person reads it, in 100 columns."""
        verdict = self.verdict
        count = f"{verdict.schedules:,} schedule" + ("" if verdict.schedules == 1 else "s")
        if verdict.finding is Finding.HOLDS:
            return [f"{self.title}: holds in all {count} ({verdict.bound})"]
        if verdict.finding is Finding.HOLDS_IN_THOSE_RUN:
            return [f"{self.title}: holds in the {count} that were run ({verdict.bound})"]
        example = verdict.counterexample
        if not self.lost or example is None:
            said = f"{self.title}: inconclusive after {count}: {verdict.reason}"
            return wrapped(said, rest="  ", width=WIDTH)
        findings = self.loss.findings if self.loss is not None else (verdict.reason,)
        lines = [f"FAIL {self.title}", *wrapped(self.race.title, "  ", width=WIDTH)]
        for finding in findings:
            lines += wrapped(finding, "  - ", width=WIDTH)
        switches = f"{example.preemptions} preemption" + ("" if example.preemptions == 1 else "s")
        lines += [
            f"  {switches}{'' if example.smallest else ' or fewer'}"
            f" · schedule {example.schedule:,}"
            f" · replayed {example.replayed} of {example.replays}",
            "",
        ]
        if all_of_it:
            lines += [*example.trace.lines(), ""]
        lines += self._beneath()
        if self.replay is not None:
            lines.append(f"  Replay: {self.replay}")
        return lines

    def _beneath(self) -> list[str]:
        """Which rule of the store was broken, if one was."""
        if self.loss is None:
            return []
        broken = self.loss.beneath
        if broken is None:
            return wrapped(
                "No rule of the store was broken beneath it: the fault is above the store.",
                "  ",
                width=WIDTH,
            )
        rule = rules()[broken.rule]
        lines = wrapped(rule.promise, f"  {rule.id}  ", width=WIDTH)
        lines += wrapped(f"{broken.node}: {broken.operation} → {broken.got}", "  got ", width=WIDTH)
        lines += wrapped(broken.expected, "  expected ", width=WIDTH)
        if rule.causes:
            lines += wrapped(rule.causes[0], "  usual cause: ", width=WIDTH)
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())


def parameter_words(race: Race, parameters: Parameters) -> list[str]:
    """The words of a command that choose these parameters; none for the race's first variant."""
    if parameters == race.variants[0]:
        return []
    words = []
    for each in fields(parameters):
        value = getattr(parameters, each.name)
        if value == getattr(race.variants[0], each.name):
            continue
        if each.name == "nodes":
            words += ["--nodes", str(value)]
        else:
            words += ["--set", f"{each.name}={'' if value is None else value}"]
    return words


def play_race(
    race: Race,
    backend: Backend,
    parameters: Parameters | None = None,
    *,
    subject: Subject = KIT,
    runtime: str = "",
    called: str = "",
    headline: bool = False,
    reach: Reach | None = None,
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[Progress], None] | None = None,
    seed: int = 0,
) -> RaceVerdict:
    """Run a race under many schedules.

    Call it outside of any running event loop: it makes its own.

    Args:
        race: the race.
        backend: a started instance.
        parameters: what the race leaves open; its first variant by default.
        subject: what runs it; the kit's runtime by default.
        runtime: how the subject is called.
        called: how the backend is called in commands; its name by default.
        headline: judge only what the race is known for.
        reach: which schedules; the race's own choice by default.
        limits: how far it may go.
        progress: is told how far it has come.
        seed: chooses the schedules of a search by chance.
    """
    play = Play(race, backend, parameters, subject, headline=headline)
    chosen = race.reach(play.parameters) if reach is None else reach
    if chosen.search == "pct":
        limits = Limits(
            min(limits.schedules, chosen.schedules),
            limits.seconds,
            limits.steps,
            limits.patience,
            limits.replays,
        )
    verdict = explore(
        play.scenario(),
        play.storage,
        search=chosen.search,
        preemptions=chosen.preemptions,
        seed=seed,
        limits=limits,
        progress=progress,
    )
    return verdict_of(play, verdict, runtime, called)


def replay_race(
    race: Race,
    backend: Backend,
    token: str,
    parameters: Parameters | None = None,
    *,
    subject: Subject = KIT,
    runtime: str = "",
    called: str = "",
    times: int = 1,
) -> RaceVerdict:
    """Run the one schedule of a race that a token stands for, `times` times.

    Raises:
        BadToken: it is no token, or one of another version, race or parameters.
    """
    play = Play(race, backend, parameters, subject)
    verdict = replay(play.scenario(), play.storage, token, times=times)
    return verdict_of(play, verdict, runtime, called)


def replay_any(
    race: Race,
    backend: Backend,
    token: str,
    candidates: Iterable[Parameters],
    *,
    subject: Subject = KIT,
    runtime: str = "",
    called: str = "",
) -> RaceVerdict:
    """Run the schedule with the first of these parameters that the token was made with.

    Raises:
        BadToken: it is no token, or one of another version, or of none of these.
    """
    refused: BadToken | None = None
    unclear: RaceVerdict | None = None
    for parameters in candidates:
        try:
            verdict = replay_race(
                race, backend, token, parameters, subject=subject, runtime=runtime, called=called
            )
        except BadToken as error:
            refused = error
            continue
        if verdict.verdict.finding is not Finding.INCONCLUSIVE:
            return verdict
        # A token tells scenarios apart by two characters only; another may be meant.
        unclear = unclear or verdict
    if unclear is not None:
        return unclear
    raise refused or BadToken(f"{token} is no schedule of {race.id}")


def verdict_of(
    play: Play, verdict: Verdict, runtime: str, called: str, *, steps: bool = False
) -> RaceVerdict:
    """What the scheduler found of a play, as a race's verdict."""
    example = verdict.counterexample
    error = None if example is None else example.error
    loss = error.loss if isinstance(error, Lost) else None
    return RaceVerdict(
        play.race, play.parameters, called or play.backend.name, runtime, verdict, loss, steps
    )
