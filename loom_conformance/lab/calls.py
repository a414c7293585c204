"""One call of a store, bounded in time and told as an outcome.

`Handle` puts a connected store behind calls that never raise what the store raises: each returns
an `Outcome`, and each is written into a shared list of steps, so that a failure can tell what was
done. A call that does not settle raises `Hung`.
"""

from __future__ import annotations

import asyncio
import inspect
import reprlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from ..spi import EventEnvelope, EventStore, EventStoreError, is_error
from .awaits import watched
from .loop import LoopBlocked

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class _Ticks:
    """Counts the moments at which calls begin and end."""

    def __init__(self) -> None:
        self.count = 0

    def __next__(self) -> int:
        self.count += 1
        return self.count


_tick = _Ticks()


def ticks() -> int:
    """How many calls have begun and ended in this process; it grows while there is progress."""
    return _tick.count


BULKY: Final = 4
"""How many envelopes are named one by one before a step says only how many there were."""


class Hung(Exception):
    """A call did not settle within its deadline."""

    def __init__(self, call: str, method: str, seconds: float, *, ignored: bool) -> None:
        also = ", and ignored its cancellation" if ignored else ""
        super().__init__(f"{call} did not settle within {seconds:g} s{also}")
        self.method = method


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T_co]):
    """What one call came to.

    Attributes:
        call: the call as a person writes it.
        value: what it returned, where it did.
        error: what it raised, or `None`.
        began, ended: ticks of one counter at the call's first step and at its end.
        suspensions: how often the call gave way to the event loop.
    """

    call: str
    value: T_co | None
    error: BaseException | None
    began: int
    ended: int
    suspensions: int

    @property
    def ok(self) -> bool:
        """Whether the call returned."""
        return self.error is None

    def told(self) -> str:
        """What came back, in a few words."""
        if self.error is None:
            return told_value(self.value)
        return told_error(self.error) + told_place(self.error)

    def line(self) -> str:
        """The call and what came back, as one line."""
        return f"{self.call} → {self.told()}"


async def _begun(
    start: Callable[[], Awaitable[T]], seen: list[int], ticks: list[int]
) -> tuple[T | None, BaseException | None]:
    ticks.append(next(_tick))
    try:
        awaitable: Any = start()
        if not inspect.isawaitable(awaitable):
            returned = short(awaitable)
            return None, TypeError(f"it returned {returned}, no awaitable: is it `async def`?")
        if not isinstance(awaitable, Coroutine):
            return await awaitable, None
        return await watched(awaitable, seen.append), None
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return None, error
    except (Exception, LoopBlocked, SystemExit) as error:  # noqa: BLE001 - told as the outcome
        return None, error
    finally:
        ticks.append(next(_tick))


async def settle(
    call: str, method: str, start: Callable[[], Awaitable[T]], deadline: float
) -> Outcome[T]:
    """Make one call and wait for it, but never longer than `deadline` seconds.

    Raises:
        Hung: the call did not settle, or blocked the event loop. It was cancelled.
    """
    seen, ticks = list[int](), list[int]()
    loop = asyncio.get_running_loop()
    task = loop.create_task(_begun(start, seen, ticks))
    # What `asyncio.wait` does for many tasks, at half its price: every call comes by here.
    over = loop.create_future()
    task.add_done_callback(partial(_note, over))
    timer = loop.call_later(deadline, _note, over)
    try:
        await over
    except asyncio.CancelledError:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task}, timeout=deadline)
        raise
    finally:
        timer.cancel()
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=min(1.0, deadline))
        raise Hung(call, method, deadline, ignored=not task.done())
    value, error = task.result()
    if isinstance(error, LoopBlocked):
        raise Hung(f"{call} blocked the event loop: it", method, deadline, ignored=False)
    return Outcome(call, value, error, ticks[0], ticks[1], len(seen))


def _note(over: asyncio.Future[None], _: object = None) -> None:
    if not over.done():
        over.set_result(None)


class Patience(Protocol):
    """Who says how long a call may take, and hears that it settled."""

    def allowance(self, method: str) -> float:
        """Seconds that the next call of the method may take."""

    def settled(self, method: str) -> None:
        """Note that a call of the method settled."""


class Handle:
    """One connected store as the suites use it; every call is bounded and noted.

    The contract's calls are positional. Methods for optional abilities exist here always: ask
    `spi.has_ability(handle.store, …)` first.
    """

    def __init__(
        self,
        store: EventStore,
        name: str,
        steps: list[str],
        patience: Patience,
        factor: float = 1.0,
    ) -> None:
        self.store = store
        self.name = name
        self.steps = steps
        self.patience = patience
        self._factor = factor

    def patient(self, factor: float) -> Handle:
        """The same store with deadlines longer by a factor, for large work."""
        return Handle(self.store, self.name, self.steps, self.patience, factor)

    async def append(self, envelope: EventEnvelope) -> Outcome[None]:
        """`append(envelope)`."""
        return await self._call("append", told_envelope(envelope), envelope)

    async def append_batch(self, envelopes: Iterable[EventEnvelope]) -> Outcome[None]:
        """`append_batch(envelopes)`; an iterator is handed on unread."""
        listed = list(envelopes) if isinstance(envelopes, Sequence) else None
        told = told_envelopes(listed) if listed is not None else f"{type(envelopes).__name__}"
        return await self._call("append_batch", f"[{told}]", envelopes)

    async def read_from(
        self, execution_id: str, first: int | None = None
    ) -> Outcome[Sequence[EventEnvelope]]:
        """`read_from(execution_id, first)`; without `first` the store's default stands."""
        if first is None:
            return await self._call("read_from", short(execution_id), execution_id)
        return await self._call("read_from", f"{short(execution_id)}, {first}", execution_id, first)

    async def read_range(
        self, execution_id: str, first: int, last: int
    ) -> Outcome[Sequence[EventEnvelope]]:
        """`read_range(execution_id, first, last)`."""
        told = f"{short(execution_id)}, {first}, {last}"
        return await self._call("read_range", told, execution_id, first, last)

    async def acquire_fence(self, execution_id: str) -> Outcome[int]:
        """`acquire_fence(execution_id)`."""
        return await self._call("acquire_fence", short(execution_id), execution_id)

    async def close(self) -> Outcome[None]:
        """`close()`."""
        return await self._call("close", "")

    async def _call(self, method: str, told: str, *arguments: object) -> Outcome[Any]:
        call = f"{self.name}.{method}({told})"
        allowed = self.patience.allowance(method) * self._factor
        place = len(self.steps)
        self.steps.append(f"{call} → (not settled)")
        outcome = await settle(
            call, method, lambda: getattr(self.store, method)(*arguments), allowed
        )
        self.steps[place] = outcome.line()
        self.patience.settled(method)
        return outcome


# --- telling ----------------------------------------------------------------------------------


class _Reprs(reprlib.Repr):
    """Values cut short, but for instants: what is wrong with one may be any part of it."""

    def repr_datetime(self, value: datetime, level: int) -> str:
        return value.isoformat()


_reprs = _Reprs()
_reprs.maxstring = _reprs.maxother = 60
_reprs.maxlevel = 3

AT_SIGHT: Final = 30
"""Characters of a text that is short enough to be printed as it is."""


def short(value: object) -> str:
    """A value as text, cut in the middle; never raises."""
    try:
        if type(value) is int or (type(value) is str and len(value) <= AT_SIGHT):
            text = repr(value)
            if len(text) <= _reprs.maxlong:
                return text
        return _reprs.repr(value)
    except Exception as error:  # noqa: BLE001 - a value under test may do anything when printed
        return f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"


def told_error(error: BaseException) -> str:
    """An error as its class and the first line of its message."""
    try:
        message = str(error).strip().split("\n", 1)[0]
    except Exception as broken:  # noqa: BLE001 - the error's own __str__ is under test too
        message = f"<its message raises {type(broken).__name__}>"
    if len(message) > 160:
        message = f"{message[:120]} … {message[-30:]}"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def told_place(error: BaseException) -> str:
    """Where an error was raised that is none of the contract's, as ` (store.py:42)`."""
    if not isinstance(error, Exception) or is_error(error, EventStoreError, ValueError):
        return ""
    place = ""
    trace = error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if not file.is_relative_to(_KIT):
            place = f" ({file.name}:{trace.tb_lineno})"
        trace = trace.tb_next
    return place


_KIT: Final = Path(__file__).parent.parent


def told_envelope(envelope: object) -> str:
    """An envelope as its execution, sequence, id and fence; never raises."""
    if not isinstance(envelope, EventEnvelope):
        return short(envelope)
    parts = [f"{short(envelope.execution_id)} at {short(envelope.sequence)}"]
    if envelope.id != f"{envelope.execution_id}-{envelope.sequence}":
        parts.append(f"id {short(envelope.id)}")
    if isinstance(envelope.metadata, dict) and "fence" in envelope.metadata:
        parts.append(f"fence {short(envelope.metadata['fence'])}")
    return ", ".join(parts)


def told_envelopes(envelopes: Sequence[object]) -> str:
    """Some envelopes, one by one while they are few."""
    if len(envelopes) <= BULKY:
        return "; ".join(told_envelope(envelope) for envelope in envelopes)
    first, last = told_envelope(envelopes[0]), told_envelope(envelopes[-1])
    return f"{len(envelopes)} envelopes: {first} … {last}"


def told_answers(outcomes: Sequence[Outcome[Any]]) -> str:
    """How many of several calls were acknowledged, and what the others raised."""
    acknowledged = sum(outcome.ok for outcome in outcomes)
    raised = sorted({outcome.told() for outcome in outcomes if not outcome.ok})
    return "; ".join([f"{acknowledged} of {len(outcomes)} were acknowledged", *raised])


def told_value(value: object) -> str:
    """What a call returned."""
    if value is None:
        return "ok"
    if isinstance(value, list | tuple):
        return f"[{told_envelopes(value)}]"
    return short(value)
