"""What stands where in a store's history: who claimed which slot and id, who held which token."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ...contract.model import StoreModel
from ...contract.operations import AcquireFence, Append, AppendBatch, Done, Unknown
from ...spi import EventEnvelope, is_token
from ..history import Fault, History
from .sightings import StoreCall, completed_at, is_read, may_have_landed, sightings


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that no legal order explains.

    Attributes:
        rule: the rule that it breaks.
        expected: what had to be, one sentence.
        got: what was, one sentence.
        calls: the calls that show it, in the order of invocation.
    """

    rule: str
    expected: str
    got: str
    calls: tuple[StoreCall, ...]


class Tokens:
    """One execution's acquires: the highest token returned, or being acquired, by any time."""

    def __init__(self, acquires: Sequence[StoreCall]) -> None:
        self.done: list[StoreCall] = []
        self.odd: list[StoreCall] = []
        for one in acquires:
            if isinstance(one.outcome, Done):
                (self.done if is_token(one.outcome.value) else self.odd).append(one)
        self.uncertain = any(isinstance(one.outcome, Unknown) for one in acquires)
        self._begun = _Highest(self.done, lambda call: call.invoked)
        self._returned = _Highest(self.done, completed_at)

    def before(self, time: int) -> StoreCall | None:
        """Of the acquires that had returned before `time`, the one with the highest token."""
        return self._returned.before(time)

    def begun_before(self, time: int) -> StoreCall | None:
        """Of the acquires that had begun before `time`, the one with the highest token."""
        return self._begun.before(time)


class _Highest:
    """Acquires in the order of a time, each with the highest token up to it."""

    def __init__(self, calls: Sequence[StoreCall], time: Callable[[StoreCall], int]) -> None:
        ordered = sorted(calls, key=time)
        self.times = [time(call) for call in ordered]
        self.highest: list[StoreCall] = list(accumulate(ordered, _higher))

    def before(self, time: int) -> StoreCall | None:
        place = bisect_left(self.times, time)
        return self.highest[place - 1] if place else None


def token_of(acquire: StoreCall) -> int:
    """The token that an acquire returned."""
    assert isinstance(acquire.outcome, Done)
    token: int = acquire.outcome.value
    return token


def _higher(top: StoreCall, call: StoreCall) -> StoreCall:
    return call if token_of(call) > token_of(top) else top


class Index:
    """A history, taken apart once for all checks."""

    def __init__(self, history: History, model: StoreModel) -> None:
        self.model = model
        self.calls = history.calls
        self.faults = history.faults
        self.sightings = sightings(history.calls)
        self.slots: dict[tuple[str, int], list[tuple[StoreCall, EventEnvelope]]] = defaultdict(list)
        self.ids: dict[object, list[tuple[StoreCall, EventEnvelope]]] = defaultdict(list)
        self.refused: dict[int, list[StoreCall]] = defaultdict(list)
        self.acquires: dict[str, list[StoreCall]] = defaultdict(list)
        for call in history.calls:
            operation = call.operation
            if isinstance(operation, AcquireFence):
                self.acquires[operation.execution_id].append(call)
            elif isinstance(operation, Append | AppendBatch):
                landed = may_have_landed(call)
                for envelope in operation.envelopes:
                    if landed:
                        slot = (envelope.execution_id, envelope.sequence)
                        self.slots[slot].append((call, envelope))
                        self.ids[model.id_key(envelope)].append((call, envelope))
                    else:
                        self.refused[id(envelope)].append(call)
        self.tokens = {execution: Tokens(calls) for execution, calls in self.acquires.items()}
        self._shown: dict[int, StoreCall] | None = None
        self._heights = self._measure()

    def _measure(self) -> dict[str, tuple[list[int], list[int]]]:
        """For each execution the times at which writes began and the highest sequence by then."""
        begun: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for (execution, sequence), claims in self.slots.items():
            begun[execution] += [(call.invoked, sequence) for call, _ in claims]
        heights = {}
        for execution, points in begun.items():
            points.sort()
            tops = list(accumulate((sequence for _, sequence in points), max))
            heights[execution] = ([time for time, _ in points], tops)
        return heights

    def reader_of(self, envelope: EventEnvelope) -> StoreCall | None:
        """A read that shows an envelope."""
        if self._shown is None:
            self._shown = {}
            for read in self.calls:
                if is_read(read) and isinstance(read.outcome, Done):
                    for one in read.outcome.value:
                        self._shown.setdefault(id(one), read)
        return self._shown.get(id(envelope))

    def highest_before(self, execution: str, time: int) -> int:
        """The highest sequence that a write begun before `time` may have landed; -1 for none."""
        times, highest = self._heights.get(execution, ((), ()))
        place = bisect_left(times, time)
        return highest[place - 1] if place else -1

    def faults_between(self, begin: int, end: int) -> Iterator[Fault]:
        """The faults that fired in a span of time."""
        return (fault for fault in self.faults if begin <= fault.at <= end)

    def newer(self, call: StoreCall, envelope: EventEnvelope) -> StoreCall | None:
        """An acquire that had returned a newer token before the call began."""
        tokens = self.tokens.get(envelope.execution_id)
        acquire = tokens.before(call.invoked) if tokens is not None else None
        if acquire is None:
            return None
        return acquire if is_older(envelope, token_of(acquire)) else None


def is_older(envelope: EventEnvelope, token: int) -> bool:
    """Whether an envelope carries no token, or one older than `token`."""
    given = given_token(envelope)
    if given is None:
        return True
    return isinstance(given, int) and is_token(given) and given < token


def given_token(envelope: EventEnvelope) -> object:
    """What an envelope carries as its token; `None` where there is nothing."""
    return envelope.metadata.get("fence") if isinstance(envelope.metadata, dict) else None


def in_order(calls: Iterable[StoreCall]) -> tuple[StoreCall, ...]:
    """The calls without repetition, in the order of invocation."""
    return tuple(sorted(dict.fromkeys(calls), key=lambda call: call.invoked))


def slot_of(envelope: EventEnvelope) -> tuple[str, int]:
    """An envelope's slot."""
    return (envelope.execution_id, envelope.sequence)


def name_of(envelope: EventEnvelope) -> str:
    """An envelope's slot, for people."""
    return f"{envelope.execution_id!r}[{envelope.sequence!r}]"
