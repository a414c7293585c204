"""Which calls of a store's history come before which in every legal order.

These follow from what a log and its fences are: a read comes after what it shows and before what
it lacks; tokens are handed out in their order; a write that was accepted comes before the acquire
that outdates its token. With them the search does not begin orders that cannot end well. Pairs that
the calls' times settle anyway are left out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from ...contract.model import StoreModel
from ...contract.operations import (
    AcquireFence,
    Append,
    AppendBatch,
    Done,
    ReadFrom,
    ReadRange,
    Refused,
    Unknown,
)
from ...spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    StaleFenceError,
    is_token,
)
from .sightings import StoreCall, covers, is_read

Pair = tuple[StoreCall, StoreCall]


def precedence(model: StoreModel, calls: Sequence[StoreCall]) -> Iterator[Pair]:
    """Pairs of certain calls of which the first comes before the second in every legal order."""
    certain = [call for call in calls if call.certain]
    for one, other in _around_reads(certain):
        if not _settled(one, other):
            yield one, other
    for one, other in _around_fences(model, calls):
        if not _settled(one, other):
            yield one, other


def _settled(one: StoreCall, other: StoreCall) -> bool:
    """Whether the times say already that the first comes before the second."""
    return one.completed is not None and one.completed < other.invoked


# --- Reads ------------------------------------------------------------------------------------


def _around_reads(certain: Sequence[StoreCall]) -> Iterator[Pair]:
    owners: dict[int, StoreCall | None] = {}
    writes: dict[str, list[tuple[StoreCall, EventEnvelope]]] = defaultdict(list)
    reads: dict[str, list[StoreCall]] = defaultdict(list)
    for call in certain:
        operation = call.operation
        if isinstance(operation, Append | AppendBatch) and isinstance(call.outcome, Done):
            for envelope in operation.envelopes:
                owners[id(envelope)] = None if id(envelope) in owners else call
                writes[envelope.execution_id].append((call, envelope))
        elif is_read(call) and isinstance(operation, ReadFrom | ReadRange):
            reads[operation.execution_id].append(call)
    for execution, readers in reads.items():
        for read, write, envelope in _meetings(readers, writes.get(execution, [])):
            assert isinstance(read.outcome, Done)
            if any(shown is envelope for shown in read.outcome.value):
                if owners[id(envelope)] is write:
                    yield write, read
            elif covers(read, envelope):
                yield read, write


def _meetings(
    reads: Sequence[StoreCall], writes: Sequence[tuple[StoreCall, EventEnvelope]]
) -> Iterator[tuple[StoreCall, StoreCall, EventEnvelope]]:
    """Every read with every write of its execution that it overlaps in time."""
    moments: list[tuple[int, int, int]] = []
    for place, read in enumerate(reads):
        moments.append((read.invoked, 0, place))
    for place, (write, _) in enumerate(writes):
        moments.append((write.invoked, 1, place))
    moments.sort()
    open_reads: list[StoreCall] = []
    open_writes: list[tuple[StoreCall, EventEnvelope]] = []
    for time, kind, place in moments:
        if kind == 0:
            read = reads[place]
            open_writes = [one for one in open_writes if _end(one[0]) >= time]
            for write, envelope in open_writes:
                yield read, write, envelope
            open_reads.append(read)
        else:
            write, envelope = writes[place]
            open_reads = [one for one in open_reads if _end(one) >= time]
            for read in open_reads:
                yield read, write, envelope
            open_writes.append((write, envelope))


def _end(call: StoreCall) -> int:
    assert call.completed is not None
    return call.completed


# --- Fences and conflicts ---------------------------------------------------------------------


class _Fences:
    """One execution's acquires by their tokens."""

    def __init__(self) -> None:
        self.acquires: list[StoreCall] = []
        self.tokens: list[int] = []
        self.uncertain = False

    def after(self, token: int | None) -> StoreCall | None:
        """The acquire of the next greater token; of the first one for no token."""
        place = 0 if token is None else bisect_right(self.tokens, token)
        return self.acquires[place] if place < len(self.acquires) else None

    def held(self, token: int) -> StoreCall | None:
        """The acquire that returned the token."""
        place = bisect_right(self.tokens, token)
        found = place and self.tokens[place - 1] == token
        return self.acquires[place - 1] if found else None


def _fences(calls: Sequence[StoreCall]) -> dict[str, _Fences]:
    fences: dict[str, _Fences] = defaultdict(_Fences)
    known: dict[str, list[tuple[int, StoreCall]]] = defaultdict(list)
    for call in calls:
        if isinstance(call.operation, AcquireFence):
            name = call.operation.execution_id
            if isinstance(call.outcome, Done) and is_token(call.outcome.value) and call.certain:
                known[name].append((call.outcome.value, call))
            elif not call.certain or isinstance(call.outcome, Unknown):
                fences[name].uncertain = True
    for name, pairs in known.items():
        pairs.sort(key=lambda pair: pair[0])
        fences[name].tokens = [token for token, _ in pairs]
        fences[name].acquires = [call for _, call in pairs]
    return fences


def _around_fences(model: StoreModel, calls: Sequence[StoreCall]) -> Iterator[Pair]:
    fences = _fences(calls)
    for one in fences.values():
        yield from zip(one.acquires, one.acquires[1:], strict=False)
    claims = _claims(model, calls)
    for call in calls:
        operation, outcome = call.operation, call.outcome
        if not call.certain or not isinstance(operation, Append | AppendBatch):
            continue
        if isinstance(outcome, Done):
            for envelope in operation.envelopes:
                yield from _before_outdated(call, envelope, fences)
        elif isinstance(outcome, Refused) and isinstance(operation, Append):
            yield from _around_refusal(model, call, operation.envelope, outcome, fences, claims)


def _before_outdated(
    call: StoreCall, envelope: EventEnvelope, fences: dict[str, _Fences]
) -> Iterator[Pair]:
    """A write that was not stale comes before the acquire that outdates its token."""
    fence = fences.get(envelope.execution_id)
    given = _token(envelope)
    if fence is not None and given != ODD:
        newer = fence.after(given)
        if newer is not None:
            yield call, newer


Claims = dict[object, list[StoreCall]]


def _claims(model: StoreModel, calls: Sequence[StoreCall]) -> Claims:
    """Who may have taken a slot or an id: writes that were not refused."""
    claims: Claims = defaultdict(list)
    for call in calls:
        operation = call.operation
        if isinstance(operation, Append | AppendBatch) and not isinstance(call.outcome, Refused):
            for envelope in operation.envelopes:
                claims["slot", envelope.execution_id, envelope.sequence].append(call)
                claims["id", model.id_key(envelope)].append(call)
    return claims


def _around_refusal(
    model: StoreModel,
    call: StoreCall,
    envelope: EventEnvelope,
    refused: Refused,
    fences: dict[str, _Fences],
    claims: Claims,
) -> Iterator[Pair]:
    if not model.sparse_sequences:
        return  # it may have been refused for a gap
    fence = fences.get(envelope.execution_id)
    given = _token(envelope)
    if refused.is_a(DuplicateSequenceError, DuplicateEnvelopeIdError):
        yield from _before_outdated(call, envelope, fences)
        takers: list[StoreCall] = []
        if refused.is_a(DuplicateSequenceError):
            takers += claims.get(("slot", envelope.execution_id, envelope.sequence), [])
        if refused.is_a(DuplicateEnvelopeIdError):
            takers += claims.get(("id", model.id_key(envelope)), [])
        if len(takers) == 1 and takers[0].certain:
            yield takers[0], call
    elif refused.is_a(StaleFenceError) and fence is not None and not fence.uncertain:
        if given is None:
            first = fence.after(None)
            if first is not None:
                yield first, call
        elif given != ODD:
            held, newer = fence.held(given), fence.after(given)
            if held is not None and newer is not None and _settled(held, call):
                yield newer, call


ODD: Final = -1
"""Stands for something that is not a token."""


def _token(envelope: EventEnvelope) -> int | None:
    metadata: object = envelope.metadata
    given = metadata.get("fence") if isinstance(metadata, dict) else None
    if given is None or (isinstance(given, int) and is_token(given)):
        return given
    return ODD
