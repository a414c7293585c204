"""What the commands `races`, `race` and `replay` do; each returns its lines and its exit code."""

from __future__ import annotations

import asyncio
import difflib
import importlib
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Final, TextIO

from ..backend import Backend
from ..interleave.explore import Limits, Progress
from ..interleave.token import BadToken
from ..lab.selection import SelectionError, select
from ..lab.verdict import NotOffered
from ..report.text import counted, wrapped
from ..runtime import Assembly
from .catalogue import RACES
from .drawing import playable
from .exploring import RaceVerdict, parameter_words, play_race, replay_any
from .play import KIT, offered
from .race import Parameters, Race, Reach
from .scene import Subject
from .stepping import made_by_steps, step_race
from .wrong import WRONG

HOLDS: Final = 0
LOST: Final = 1
USAGE: Final = 2
COULD_NOT_RUN: Final = 3

SECONDS: Final = 120.0
"""How long one variant is explored where nobody says how long."""


class Misused(Exception):
    """Something was asked for that is not there; the message is one clear line."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for.

    Attributes:
        race: the race's id.
        backend: `memory`, `sqlite`, `postgres` or `module:Class`.
        runtime: the name of something wrong, or `module:Assembly` for a runtime of one's own; `""`
            is the kit's runtime.
        nodes: how many nodes take part, or `None` for the race's own variants.
        given: further parameters, each as `name=value`.
        everything: whether all schedules are run, however long that takes.
        seconds: how long one variant may be explored; `None` is the kit's own choice.
        seed: chooses the schedules of a search by chance.
        steps: whether the store's methods are led one resumption at a time.
    """

    race: str
    backend: str
    runtime: str = ""
    nodes: int | None = None
    given: Sequence[str] = ()
    everything: bool = False
    seconds: float | None = None
    seed: int = 0
    steps: bool = False


@dataclass(slots=True)
class Answer:
    """What a command has to say.

    Attributes:
        code: its exit code: 0 holds, 1 lost, 2 misused, 3 could not run.
        lines: what it prints.
        complaint: whether the lines are a complaint and not a result.
        verdicts: what was found, for whoever wants more than lines.
    """

    code: int
    lines: list[str]
    complaint: bool = False
    verdicts: list[RaceVerdict] = field(default_factory=list)


ATOMIC: Final = (
    "Each call of the store was taken as one step, so a check that comes before its write looked "
    "whole; --steps looks inside the calls."
)

Watch = Callable[[str], None]
"""Is told what is being done, a line at a time."""


def races() -> Answer:
    """List the races, and what must lose each."""
    lines: list[str] = []
    for race in RACES.values():
        lines += wrapped(race.title, f"{race.id:<9}", width=100)
        losers = [name for name, wrong in WRONG.items() if race.id in wrong.loses]
        others = f" and {len(losers) - 1} more" if len(losers) > 1 else ""
        lines += wrapped(f"lost by {race.wrong}{others}: {race.shows}", " " * 9, width=100)
    lines += ["", f"{len(RACES)} races, {len(WRONG)} wrong runtimes, stores and coalescers"]
    return Answer(HOLDS, lines)


def wrong() -> Answer:
    """List what must lose, and which races."""
    lines: list[str] = []
    for name, one in WRONG.items():
        lines += wrapped(one.fault, f"{name:<36}", width=100)
        loses = ", ".join(race_id for race_id in RACES if race_id in one.loses)
        lines += wrapped(f"loses {loses}", " " * 36, width=100)
    return Answer(HOLDS, lines)


def race(asked: Asked, watch: Watch = lambda line: None) -> Answer:
    """Explore a race and tell what was found."""

    def play() -> Answer:
        one = race_of(asked.race, steps=asked.steps)
        subject, runtime = subject_of(asked.runtime)
        chosen = parameters_of(one, asked)
        with started(asked.backend, one) as backend:
            return _explored(asked, one, backend, subject, runtime, chosen, watch)

    return _answered(play)


def replay(asked: Asked, token: str) -> Answer:
    """Run the one schedule of a race that a token stands for."""

    def play() -> Answer:
        one = race_of(asked.race, steps=asked.steps)
        subject, runtime = subject_of(asked.runtime)
        fixed = asked.nodes is not None or asked.given
        chosen = parameters_of(one, asked) if fixed else playable(one)
        with started(asked.backend, one) as backend:
            if asked.steps:
                return _stepped(asked, one, backend, subject, runtime, token)
            try:
                return _replayed(one, backend, asked.backend, subject, runtime, chosen, token)
            except BadToken as error:
                if one.stepped and made_by_steps(one, backend, token, parameters_of(one, asked)):
                    raise BadToken(
                        f"{token} was made with --steps: give --steps here too"
                    ) from error
                raise

    return _answered(play)


def _answered(play: Callable[[], Answer]) -> Answer:
    try:
        return play()
    except (Misused, SelectionError, BadToken) as error:
        return Answer(USAGE, str(error).splitlines(), complaint=True)
    except NotOffered as reason:
        return Answer(COULD_NOT_RUN, [f"not offered: {reason}"], complaint=True)
    except CouldNotStart as error:
        return Answer(COULD_NOT_RUN, str(error).splitlines(), complaint=True)


def _explored(
    asked: Asked,
    one: Race,
    backend: Backend,
    subject: Subject,
    runtime: str,
    chosen: Sequence[Parameters],
    watch: Watch,
) -> Answer:
    seconds = asked.seconds or (math.inf if asked.everything else SECONDS)
    limits = Limits(schedules=10_000_000, seconds=seconds)
    headline = runtime == one.wrong
    answer = Answer(HOLDS, [])

    def play(parameters: Parameters) -> RaceVerdict:
        if asked.steps:
            return step_race(
                one,
                backend,
                parameters,
                subject=subject,
                runtime=runtime,
                called=asked.backend,
                seconds=seconds,
            )
        return play_race(
            one,
            backend,
            parameters,
            subject=subject,
            runtime=runtime,
            called=asked.backend,
            headline=headline,
            reach=_reach(asked, headline),
            limits=limits,
            progress=_progress(one, parameters, watch),
            seed=asked.seed,
        )

    for parameters in chosen:
        verdict = play(parameters)
        answer.verdicts.append(verdict)
        answer.lines += [*([""] if answer.lines else []), *verdict.lines()]
        if verdict.lost:
            answer.code = LOST
            break
        if not verdict.holds:
            answer.code = COULD_NOT_RUN
    if answer.code == HOLDS and one.stepped and not asked.steps:
        answer.lines += wrapped(ATOMIC, width=100)
    if runtime and answer.code == HOLDS and runtime in WRONG and one.id not in WRONG[runtime].loses:
        answer.lines += wrapped(f"{runtime} does not claim to lose {one.id}.", width=100)
    return answer


def _reach(asked: Asked, headline: bool) -> Reach | None:
    if asked.everything:
        return Reach()
    return Reach("bounded", preemptions=3) if headline else None


def _replayed(
    one: Race,
    backend: Backend,
    called: str,
    subject: Subject,
    runtime: str,
    chosen: Iterable[Parameters],
    token: str,
) -> Answer:
    verdict = replay_any(
        one, backend, token, chosen, subject=subject, runtime=runtime, called=called
    )
    code = LOST if verdict.lost else HOLDS if verdict.holds else COULD_NOT_RUN
    return Answer(code, verdict.lines(), verdicts=[verdict])


def _stepped(
    asked: Asked, one: Race, backend: Backend, subject: Subject, runtime: str, token: str
) -> Answer:
    refused: BadToken | None = None
    for parameters in parameters_of(one, asked):
        try:
            verdict = step_race(
                one,
                backend,
                parameters,
                token=token,
                subject=subject,
                runtime=runtime,
                called=asked.backend,
            )
        except BadToken as error:
            refused = error
            continue
        code = LOST if verdict.lost else HOLDS if verdict.holds else COULD_NOT_RUN
        return Answer(code, verdict.lines(), verdicts=[verdict])
    raise refused or BadToken(f"{token} is no schedule of {one.id}")


# --- what was asked for -------------------------------------------------------------------------


def race_of(name: str, *, steps: bool = False) -> Race:
    """The race of this id.

    Raises:
        Misused: there is none, or it cannot be led by steps and is to be.
    """
    wanted = name.upper()
    if wanted.isdigit():
        wanted = f"RACE-{wanted}"
    if wanted in RACES:
        if steps and not RACES[wanted].stepped:
            can = ", ".join(race_id for race_id, one in RACES.items() if one.stepped)
            raise Misused(f"{wanted} cannot be led by steps; {can} can")
        return RACES[wanted]
    raise Misused(f"there is no race {name!r}{_near(wanted, RACES)}; `races` lists them")


def subject_of(name: str) -> tuple[Subject, str]:
    """What runs a race, and how it is called.

    Raises:
        Misused: there is nothing of this name, or it is no runtime.
    """
    if not name:
        return KIT, ""
    if name in WRONG:
        return WRONG[name].subject, name
    module, colon, attribute = name.partition(":")
    if not colon:
        raise Misused(
            f"there is no runtime {name!r}{_near(name, WRONG)}; `races --wrong` lists the wrong "
            "ones, and MODULE:ASSEMBLY names one of your own"
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
        assembly = found() if isinstance(found, type) else found
    except Exception as error:
        raise Misused(
            f"cannot load the runtime {name!r}: {type(error).__name__}: {error}"
        ) from error
    missing = [part for part in ASSEMBLED if not callable(getattr(assembly, part, None))]
    if missing:
        raise Misused(
            f"{name!r} is no assembly of a runtime: it has no {', '.join(missing)}; subclass "
            "loom_conformance.runtime.Assembly and override what is yours"
        )
    return Subject(assembly), name


ASSEMBLED: Final = tuple(name for name in vars(Assembly) if not name.startswith("_"))
"""The parts that an assembly makes."""


def parameters_of(one: Race, asked: Asked) -> Sequence[Parameters]:
    """The variants to play: the race's own, or the one that was asked for.

    Raises:
        Misused: a parameter is unknown, or a value is none of its kind.
    """
    changes: dict[str, object] = {}
    if asked.nodes is not None:
        if not 1 <= asked.nodes <= 8:
            raise Misused(f"a race has 1 to 8 nodes, not {asked.nodes}")
        changes["nodes"] = asked.nodes
    for word in asked.given:
        name, equals, text = word.partition("=")
        if not equals or name not in _KINDS:
            raise Misused(
                f"{word!r} sets no parameter{_near(name, _KINDS)}; "
                f"give NAME=VALUE with one of {', '.join(_KINDS)}"
            )
        try:
            changes[name] = _KINDS[name](text)
        except ValueError:
            raise Misused(f"{text!r} is no value for {name}") from None
    if not changes:
        return one.variants
    return (replace(one.variants[0], **changes),)  # type: ignore[arg-type]


def _optional(kind: Callable[[str], object]) -> Callable[[str], object]:
    return lambda text: None if text in ("", "none") else kind(text)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


_KINDS: Final[dict[str, Callable[[str], object]]] = {
    "nodes": int,
    "fenced": _flag,
    "linger": _optional(float),
    "max_batch": int,
    "tenant": _optional(str),
    "lag": _optional(int),
    "max_attempts": int,
    "supervised": _flag,
    "rival": str,
    "crash": _optional(int),
}
assert set(_KINDS) == {each.name for each in fields(Parameters)}


def _near(word: str, known: object) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)  # type: ignore[call-overload]
    return f"; did you mean {close[0]}?" if close else ""


# --- the backend --------------------------------------------------------------------------------


class CouldNotStart(Exception):
    """The backend could not be opened; the message says why."""


@contextmanager
def started(spec: str, one: Race) -> Iterator[Backend]:
    """A started backend that can run the race, stopped at the end of the block.

    Raises:
        SelectionError: there is no such backend.
        NotOffered: it lacks what the race needs.
        CouldNotStart: it does not open.
    """
    backend = select(spec)()
    try:
        try:
            asyncio.run(_opened(backend, one))
        except NotOffered:
            raise
        except Exception as error:
            raise CouldNotStart(
                f"the backend {spec!r} does not open: {type(error).__name__}: {error}"
            ) from error
        yield backend
    finally:
        asyncio.run(backend.stop())


async def _opened(backend: Backend, one: Race) -> None:
    await backend.start()
    address = await backend.create()
    try:
        store = await backend.connect(address)
        try:
            await offered(one, backend, store)
        finally:
            await store.close()
    finally:
        await backend.destroy(address)


# --- progress -----------------------------------------------------------------------------------


def _progress(one: Race, parameters: Parameters, watch: Watch) -> Callable[[Progress], None]:
    words = " ".join([one.id, *parameter_words(one, parameters)])

    def tell(progress: Progress) -> None:
        rate = progress.schedules / progress.seconds if progress.seconds else 0.0
        watch(
            f"{words}: {counted(progress.schedules, 'schedule')}, {rate:,.0f}/s, "
            f"{progress.seconds:.0f} s, {progress.bound}"
        )

    return tell


class Status:
    """Shows what is being done: one line that is written over, or now and then a line of its own.

    Args:
        stream: where to; a terminal gets the line that is written over.
        every: the pause between lines in seconds, where it is none.
    """

    def __init__(self, stream: TextIO | None = None, every: float = 10.0) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.every = every
        self._live = self.stream.isatty()
        self._last = time.monotonic()
        self._width = 0

    def __call__(self, line: str) -> None:
        """Show a line."""
        if self._live:
            shown = line[:78]
            self.stream.write("\r" + shown.ljust(self._width))
            self._width = len(shown)
        elif time.monotonic() - self._last >= self.every:
            self._last = time.monotonic()
            self.stream.write(line + "\n")
        self.stream.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self._live and self._width:
            self.stream.write("\r" + " " * self._width + "\r")
            self.stream.flush()
            self._width = 0
