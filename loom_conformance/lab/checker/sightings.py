"""What the reads of a history say of its writes.

A log only grows, so a read that shows a write's envelope ended after the write took effect, and
one that does not show it began before. That bounds when the write took effect, often far better
than the write's own interval does, and tells most unknown outcomes apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ...contract.operations import (
    Append,
    AppendBatch,
    Done,
    Operation,
    Outcome,
    ReadFrom,
    ReadRange,
    Refused,
)
from ...spi import EventEnvelope
from .call import Call

StoreCall: TypeAlias = Call[Operation, Outcome]


@dataclass(slots=True)
class Sighting:
    """What reads say of one write that was acknowledged or whose outcome is unknown.

    Attributes:
        write: the write.
        seen: of the reads that show any of it, the one that ended first.
        shown: of the reads that show any of it, the one that began last.
        missed: of the reads that lack any of it, the one that began last.
        torn: reads that show some of its envelopes and lack others.
        shared: whether another such write has one of its envelopes, so that a read cannot tell
            which of them it shows.
    """

    write: StoreCall
    seen: StoreCall | None = None
    shown: StoreCall | None = None
    missed: StoreCall | None = None
    torn: list[StoreCall] = field(default_factory=list)
    shared: bool = False

    @property
    def effective(self) -> bool:
        """Whether the write certainly took effect."""
        return self.write.certain or (self.seen is not None and not self.shared)

    @property
    def contradictory(self) -> bool:
        """Whether the reads and the write's own end leave it no instant."""
        return self.not_after is not None and self.not_before > self.not_after

    @property
    def never_there(self) -> bool:
        """Whether it was acknowledged, a later read lacks it, and no read ever showed it."""
        return (
            self.write.certain
            and self.shown is None
            and self.missed is not None
            and self.missed.invoked > completed_at(self.write)
        )

    @property
    def not_before(self) -> int:
        """The write took effect after this time, if it did."""
        missed = self.missed.invoked if self.missed is not None else self.write.invoked
        return max(self.write.invoked, missed)

    @property
    def not_after(self) -> int | None:
        """The write took effect before this time, or `None` where nothing says so."""
        known = [self.write.deadline]
        if self.seen is not None and not self.shared:
            known.append(self.seen.completed)
        times = [time for time in known if time is not None]
        return min(times) if times else None


def is_read(call: StoreCall) -> bool:
    """Whether a call is a read that returned envelopes."""
    return (
        call.certain
        and isinstance(call.operation, ReadFrom | ReadRange)
        and isinstance(call.outcome, Done)
        and isinstance(call.outcome.value, list | tuple)
    )


def may_have_landed(call: StoreCall) -> bool:
    """Whether a call is a write that was not refused."""
    return isinstance(call.operation, Append | AppendBatch) and not isinstance(
        call.outcome, Refused
    )


def sightings(calls: Sequence[StoreCall]) -> dict[StoreCall, Sighting]:
    """What the reads among these calls say of each write that may have landed.

    The time it takes grows with the calls and with what the reads returned.
    """
    found: dict[StoreCall, Sighting] = {}
    writers: dict[int, list[StoreCall]] = defaultdict(list)
    by_execution: dict[str, list[tuple[StoreCall, EventEnvelope]]] = defaultdict(list)
    for call in calls:
        if may_have_landed(call) and isinstance(call.operation, Append | AppendBatch):
            found[call] = Sighting(call)
            for envelope in call.operation.envelopes:
                by_execution[envelope.execution_id].append((call, envelope))
                writers[id(envelope)].append(call)
    for several in writers.values():
        if len(several) > 1:
            for call in several:
                found[call].shared = True
    reads: dict[str, list[StoreCall]] = defaultdict(list)
    for call in calls:
        if is_read(call) and isinstance(call.operation, ReadFrom | ReadRange):
            reads[call.operation.execution_id].append(call)
    for execution, readers in reads.items():
        _note_seen(readers, writers, found)
        _note_missed(readers, by_execution.get(execution, []), writers, found)
    return found


def _note_seen(
    readers: Sequence[StoreCall],
    writers: dict[int, list[StoreCall]],
    found: dict[StoreCall, Sighting],
) -> None:
    for read in sorted(readers, key=completed_at):
        for envelope in read.outcome.value:  # type: ignore[union-attr]
            for write in writers.get(id(envelope), ()):
                sighting = found[write]
                if sighting.seen is None:
                    sighting.seen = read
                if sighting.shown is None or sighting.shown.invoked < read.invoked:
                    sighting.shown = read


def _note_missed(
    readers: Sequence[StoreCall],
    written: Sequence[tuple[StoreCall, EventEnvelope]],
    writers: dict[int, list[StoreCall]],
    found: dict[StoreCall, Sighting],
) -> None:
    """From the last read back to the first: a write leaves the list when a read lacks it."""
    waiting = list(written)
    for read in sorted(readers, key=lambda call: call.invoked, reverse=True):
        shown = {id(envelope) for envelope in read.outcome.value}  # type: ignore[union-attr]
        stays = []
        missed: dict[StoreCall, None] = {}
        for write, envelope in waiting:
            if id(envelope) in shown or not covers(read, envelope):
                stays.append((write, envelope))
                continue
            missed[write] = None
            sighting = found[write]
            if sighting.missed is None or sighting.missed.invoked < read.invoked:
                sighting.missed = read
        waiting = stays
        if not missed:
            continue
        for write in missed:
            operation = write.operation
            if isinstance(operation, AppendBatch) and any(
                id(envelope) in shown and writers[id(envelope)] == [write]
                for envelope in operation.envelopes
            ):
                found[write].torn.append(read)


def covers(read: StoreCall, envelope: EventEnvelope) -> bool:
    """Whether a read asks for the envelope's sequence."""
    operation = read.operation
    sequence: object = envelope.sequence
    if not isinstance(sequence, int) or not isinstance(operation, ReadFrom | ReadRange):
        return False
    last = operation.last if isinstance(operation, ReadRange) else None
    return operation.first <= sequence and (last is None or sequence <= last)


def completed_at(call: StoreCall) -> int:
    """When a call of certain outcome ended."""
    assert call.completed is not None
    return call.completed
