"""Whether each answer of a store can be true: what its reads show, why its refusals refuse."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence

from ...contract.operations import Append, AppendBatch, Done, ReadFrom, ReadRange, Refused, Write
from ...spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    StaleFenceError,
    StoreClosedError,
)
from .index import Index, Violation, given_token, in_order, name_of, slot_of, token_of
from .sightings import StoreCall, completed_at, is_read


class Answers:
    """Checks of single answers against all that was written."""

    def __init__(self, index: Index) -> None:
        self.index = index

    def run(self) -> Iterator[Violation]:
        """Everything that is wrong with the answers."""
        for call in self.index.calls:
            if is_read(call):
                yield from self._check_read(call)
            elif isinstance(call.outcome, Refused):
                yield from self._check_refusal(call, call.outcome)

    # --- Reads -------------------------------------------------------------------------------

    def _check_read(self, read: StoreCall) -> Iterator[Violation]:
        operation, outcome = read.operation, read.outcome
        assert isinstance(operation, ReadFrom | ReadRange)
        assert isinstance(outcome, Done)
        before = -1
        for envelope in outcome.value:
            problem = self._envelope_problem(envelope, operation, before)
            if problem is not None:
                rule, expected, got, evidence = problem
                yield Violation(rule, expected, got, in_order([*evidence, read]))
                return
            before = envelope.sequence

    def _envelope_problem(
        self, envelope: object, operation: ReadFrom | ReadRange, before: int
    ) -> tuple[str, str, str, list[StoreCall]] | None:
        if not isinstance(envelope, EventEnvelope):
            return "APPEND-2", "envelopes", f"{operation} returned {envelope}", []
        name = name_of(envelope)
        if envelope.execution_id != operation.execution_id:
            return "READ-3", f"envelopes of {operation.execution_id!r} only", f"{name}", []
        if envelope.sequence == before:
            writers = [
                call for call, _ in self.index.slots.get((envelope.execution_id, before), ())
            ]
            return "SEQ-4", "one envelope a slot", f"a read shows two at {name}", writers
        if envelope.sequence < before:
            return "READ-1", "ascending sequences", f"{name} after sequence {before}", []
        last = operation.last if isinstance(operation, ReadRange) else None
        if envelope.sequence < operation.first or (last is not None and envelope.sequence > last):
            rule = "READ-2" if last is None else "RANGE-1"
            return rule, f"what {operation} asks for", f"{name} was returned", []
        claims = self.index.slots.get((envelope.execution_id, envelope.sequence), [])
        if any(written is envelope for _, written in claims):
            return None
        refusals = self.index.refused.get(id(envelope), [])
        if refusals:
            error = refusals[0].outcome
            assert isinstance(error, Refused)
            got = f"a read shows {name}, which was refused with {error.error}"
            return _refused_rule(refusals[0], error), "no trace of a refused write", got, refusals
        writers = [call for call, _ in claims]
        if writers:
            got = f"{name} reads as something else than any call wrote there"
            return "APPEND-2", "what was written", got, writers
        return "READ-3", "only what was written", f"a read shows {name}, which no call wrote", []

    # --- Refusals ----------------------------------------------------------------------------

    def _check_refusal(self, call: StoreCall, refused: Refused) -> Iterator[Violation]:
        operation = call.operation
        if refused.is_a(StoreClosedError) or not isinstance(operation, Append | AppendBatch):
            return
        if self._may_be_gap(call, operation):
            return
        if refused.is_a(DuplicateSequenceError, DuplicateEnvelopeIdError):
            yield from self._check_conflict(call, operation, refused)
        elif refused.is_a(StaleFenceError):
            yield from self._check_stale(call, operation)
        elif refused.is_a(ValueError):
            limit = self.index.model.max_batch
            too_many = isinstance(operation, AppendBatch) and limit is not None
            if any(operation.faults) or (too_many and len(operation.envelopes) > (limit or 0)):
                return
            yield Violation("DATA-1", f"{operation} to be stored", str(refused), (call,))

    def _check_conflict(
        self, call: StoreCall, operation: Write, refused: Refused
    ) -> Iterator[Violation]:
        stale = [self.index.newer(call, envelope) for envelope in operation.envelopes]
        if len(operation.envelopes) == 1 and stale[0] is not None:
            got = f"{refused.error}, although its token was stale by then"
            yield Violation("FENCE-7", "StaleFenceError", got, in_order([stale[0], call]))
            return
        by_slot = refused.is_a(DuplicateSequenceError)
        if self._has_twins(operation, by_slot):
            return
        own: list[StoreCall] = []
        for envelope in operation.envelopes:
            claims: Sequence[tuple[StoreCall, EventEnvelope]]
            if by_slot:
                claims = self.index.slots.get((envelope.execution_id, envelope.sequence), ())
            else:
                claims = self.index.ids.get(self.index.model.id_key(envelope), ())
            for other, _ in claims:
                if other.invoked < completed_at(call) and self._landed_by(other, call):
                    return
            if not any(written is envelope for _, written in claims):
                shown = self.index.reader_of(envelope)
                own += [shown] if shown is not None else []
        what = "its slot" if by_slot else "its id"
        if own:
            got = f"{refused.error}, and yet a read shows the refused write itself"
            expected = "a write that landed not to conflict with itself"
            yield Violation("ERR-3", expected, got, in_order([call, own[0]]))
        else:
            rule = "SEQ-3" if by_slot else "ID-2"
            got = f"{refused.error}, and nothing else had taken {what}"
            yield Violation(rule, f"{operation} to be acknowledged", got, (call,))

    def _landed_by(self, other: StoreCall, call: StoreCall) -> bool:
        """Whether another write may have taken effect before this call ended."""
        return self.index.sightings[other].not_before <= completed_at(call)

    def _has_twins(self, operation: Write, by_slot: bool) -> bool:
        """Whether two envelopes of one batch conflict with each other."""
        key: Callable[[EventEnvelope], object] = (
            (lambda one: (one.execution_id, one.sequence)) if by_slot else self.index.model.id_key
        )
        return len({key(one) for one in operation.envelopes}) < len(operation.envelopes)

    def _may_be_gap(self, call: StoreCall, operation: Write) -> bool:
        """Whether the write may have left a gap, which a store may refuse with any error."""
        if self.index.model.sparse_sequences:
            return False
        own: set[tuple[str, int]] = set()
        for envelope in operation.envelopes:
            slot = slot_of(envelope)
            execution, sequence = slot
            if slot not in own and not self._is_next(call, execution, sequence, own):
                return True
            own.add(slot)
        return False

    def _is_next(
        self, call: StoreCall, execution: str, sequence: int, own: Container[tuple[str, int]]
    ) -> bool:
        """Whether the sequence was certainly taken or the next one when the call was judged."""
        if any(
            other.certain and completed_at(other) < call.invoked
            for other, _ in self.index.slots.get((execution, sequence), ())
        ):
            return True
        if self.index.highest_before(execution, completed_at(call)) > sequence:
            return False
        before = (execution, sequence - 1)
        return (
            sequence == 0
            or before in own
            or any(
                other.certain and completed_at(other) < call.invoked
                for other, _ in self.index.slots.get(before, ())
            )
        )

    def _check_stale(self, call: StoreCall, operation: Write) -> Iterator[Violation]:
        """A refusal as stale although no newer token can have been handed out."""
        for envelope in operation.envelopes:
            tokens = self.index.tokens.get(envelope.execution_id)
            given = given_token(envelope)
            if tokens is not None and tokens.uncertain:
                return
            newest = tokens.begun_before(completed_at(call)) if tokens is not None else None
            current = None if newest is None else token_of(newest)
            if given != current or isinstance(given, bool):
                return
            if newest is not None and completed_at(newest) >= call.invoked:
                return  # a guess: when the write was judged, the token may not have been out
        yield Violation(
            "FENCE-5", f"the current token in {operation} to pass", str(call.outcome), (call,)
        )


def _refused_rule(call: StoreCall, error: Refused) -> str:
    if isinstance(call.operation, AppendBatch) and len(call.operation.envelopes) > 1:
        return "FENCE-9" if error.is_a(StaleFenceError) else "BATCH-2"
    if error.is_a(StaleFenceError):
        return "FENCE-8"
    if error.is_a(DuplicateSequenceError, DuplicateEnvelopeIdError):
        return "ERR-3"
    return "LIVE-3" if error.is_a(StoreClosedError) else "DATA-2"
