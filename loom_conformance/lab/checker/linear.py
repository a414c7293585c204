"""Checks of a store's history that need no search: each takes time in proportion to it.

They find what is wrong outright (a lost envelope, two winners of a slot, a stale token that got
in) and name the rule. They are sound: what they report no legal order explains. They are not
complete: only the search says that there is a legal order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...contract.model import StoreModel
from ...contract.operations import Append, AppendBatch, Done, ReadFrom, ReadRange, Unknown
from ...spi import EventEnvelope
from ..history import History
from .answers import Answers
from .index import (
    Index,
    Tokens,
    Violation,
    given_token,
    in_order,
    is_older,
    name_of,
    slot_of,
    token_of,
)
from .sightings import Sighting, StoreCall, completed_at


def violations(history: History, model: StoreModel) -> list[Violation]:
    """Everything that these checks find in a history."""
    return list(_Checks(history, model).run())


class _Checks:
    def __init__(self, history: History, model: StoreModel) -> None:
        self.index = Index(history, model)

    def run(self) -> Iterator[Violation]:
        yield from self._check_unsettled()
        for execution, tokens in self.index.tokens.items():
            yield from self._check_tokens(execution, tokens)
        for sighting in self.index.sightings.values():
            yield from self._check_sighting(sighting)
            yield from self._check_fence(sighting)
        yield from self._check_winners(self.index.slots.values(), "slot", "SEQ-1", "SEQ-4")
        yield from self._check_winners(self.index.ids.values(), "envelope id", "ID-1", "ID-3")
        yield from Answers(self.index).run()

    def _check_unsettled(self) -> Iterator[Violation]:
        """Calls that hung, and calls that failed although nothing had been done to the storage."""
        harmless = ("kill", "pause", "resume", "lock")
        harmed = min(
            (one.at for one in self.index.faults if one.kind not in harmless), default=None
        )
        for call in self.index.calls:
            if not isinstance(call.outcome, Unknown) or call.completed is None:
                continue
            if call.outcome.error == "hung":
                got = f"{call.operation} {call.outcome.message or 'hung'}"
                yield Violation("LIVE-1", "every call to settle", got, (call,))
            elif call.outcome.error not in ("cancelled", "no answer") and (
                harmed is None or call.completed < harmed
            ):
                yield Violation(
                    "LIVE-6",
                    f"{call.operation} to be answered: nothing was wrong with the storage",
                    f"{call.outcome.error}: {call.outcome.message}",
                    (call,),
                )

    # --- Fences ------------------------------------------------------------------------------

    def _check_tokens(self, execution: str, tokens: Tokens) -> Iterator[Violation]:
        for call in tokens.odd:
            got = f"acquire_fence({execution!r}) returned {call.outcome}"
            yield Violation("FENCE-1", "an int token of 1 or more", got, (call,))
        holders: dict[int, StoreCall] = {}
        for call in tokens.done:
            twin = holders.setdefault(token_of(call), call)
            earlier = tokens.before(call.invoked)
            if earlier is not None and token_of(earlier) >= token_of(call):
                yield Violation(
                    "FENCE-1",
                    f"tokens of {execution!r} to grow: one greater than {token_of(earlier)}",
                    f"token {token_of(call)}, acquired after {token_of(earlier)} had been returned",
                    (earlier, call),
                )
            elif twin is not call:
                yield Violation(
                    "FENCE-2",
                    f"simultaneous acquires of {execution!r} to get different tokens",
                    f"both got {token_of(call)}",
                    (twin, call),
                )

    def _check_fence(self, sighting: Sighting) -> Iterator[Violation]:
        """A write that took effect after a newer token had been returned."""
        if not sighting.effective or sighting.never_there:
            return
        write = sighting.write
        # Where reads contradict each other they prove nothing about this.
        earliest = write.invoked if sighting.contradictory else sighting.not_before
        assert isinstance(write.operation, Append | AppendBatch)
        for envelope in write.operation.envelopes:
            tokens = self.index.tokens.get(envelope.execution_id)
            acquire = tokens.before(earliest) if tokens is not None else None
            if acquire is None or not is_older(envelope, token_of(acquire)):
                continue
            given = given_token(envelope)
            evidence = [acquire, write]
            if sighting.missed is not None and sighting.missed.invoked > write.invoked:
                evidence.append(sighting.missed)
            if not write.certain and sighting.seen is not None:
                evidence.append(sighting.seen)
            token = f"token {given}" if given is not None else "no token"
            yield Violation(
                self._fence_rule(acquire, write, given),
                f"{token} to be refused for {envelope.execution_id!r} once "
                f"{token_of(acquire)} had been returned",
                f"the write of {name_of(envelope)} took effect"
                + (" (it was acknowledged)" if write.certain else " (a read shows it)"),
                in_order(evidence),
            )
            return

    def _fence_rule(self, acquire: StoreCall, write: StoreCall, given: object) -> str:
        assert acquire.completed is not None
        if write.invoked < acquire.completed:
            return "FENCE-8"
        for fault in self.index.faults_between(acquire.completed, write.invoked):
            if fault.kind == "crash":
                return "DUR-5"
            if fault.target == acquire.process:
                return "FENCE-11"
        if isinstance(write.operation, AppendBatch) and len(write.operation.envelopes) > 1:
            return "FENCE-9"
        return "FENCE-4" if given is None else "FENCE-3"

    # --- Writes and what reads say of them -----------------------------------------------------

    def _check_sighting(self, sighting: Sighting) -> Iterator[Violation]:
        write, seen, missed = sighting.write, sighting.seen, sighting.missed
        whole = f"{write.operation} to be seen whole or not at all"
        for read in sighting.torn[:1]:
            yield Violation(
                self._torn_rule(write, read), whole, "a read shows part of it", (write, read)
            )
        if sighting.torn:
            return
        if seen is not None and completed_at(seen) < write.invoked and not sighting.shared:
            got = "a read that ended before shows it"
            yield Violation(
                "READ-5", f"{write.operation} to be seen after it began", got, (seen, write)
            )
        if missed is None:
            return
        if self._shows_a_stranger(missed, write):
            return  # the read itself is reported
        if write.certain and completed_at(write) < missed.invoked:
            yield Violation(
                self._lost_rule(sighting, missed),
                f"what {write.operation} acknowledged to be there",
                f"{missed.operation}, begun after the acknowledgement, does not show it",
                in_order([write, missed]),
            )
        elif seen is not None and not sighting.shared and completed_at(seen) < missed.invoked:
            several = isinstance(write.operation, AppendBatch) and _other_logs(seen, missed)
            yield Violation(
                "BATCH-5" if several else "READ-5",
                f"{write.operation}, once seen, to stay",
                f"{missed.operation}, begun after a read had shown it, does not show it",
                in_order([write, seen, missed]),
            )

    def _shows_a_stranger(self, read: StoreCall, write: StoreCall) -> bool:
        """Whether a read shows, in a slot of the write, something that no call wrote there."""
        assert isinstance(write.operation, Append | AppendBatch)
        assert isinstance(read.outcome, Done)
        slots = {slot_of(envelope) for envelope in write.operation.envelopes}
        return any(
            isinstance(shown, EventEnvelope)
            and slot_of(shown) in slots
            and all(written is not shown for _, written in self.index.slots[slot_of(shown)])
            for shown in read.outcome.value
        )

    def _lost_rule(self, sighting: Sighting, read: StoreCall) -> str:
        write = sighting.write
        if sighting.shown is not None and sighting.shown.invoked > read.invoked:
            return "APPEND-1"  # it was not lost: a read missed it
        if sighting.never_there:
            return "APPEND-1"  # nor was it lost: it was never there
        return self._died_between(write, read) or "APPEND-1"

    def _torn_rule(self, write: StoreCall, read: StoreCall) -> str:
        if isinstance(write.outcome, Unknown):
            if write.outcome.error == "cancelled":
                return "LIVE-4"
            for fault in self.index.faults_between(write.invoked, completed_at(read)):
                if fault.kind == "kill" and fault.target == write.process:
                    return "DUR-3"
                if fault.kind == "crash":
                    return "DUR-5"
        return "BATCH-5"

    def _check_winners(
        self,
        claims: Iterable[Sequence[tuple[StoreCall, EventEnvelope]]],
        what: str,
        apart: str,
        together: str,
    ) -> Iterator[Violation]:
        """Two acknowledged writes that claim one slot, or one id."""
        for claimed in claims:
            first: tuple[StoreCall, EventEnvelope] | None = None
            for call, envelope in claimed:
                if not call.certain:
                    continue
                if first is None:
                    first = (call, envelope)
                    continue
                if what == "envelope id" and slot_of(envelope) == slot_of(first[1]):
                    continue
                overlap = call.invoked <= completed_at(first[0])
                if not overlap and self.index.sightings[first[0]].never_there:
                    # That it was acknowledged is what is wrong, and is reported.
                    first = (call, envelope)
                    continue
                rule = together if overlap else apart
                several = isinstance(call.operation, AppendBatch) or isinstance(
                    first[0].operation, AppendBatch
                )
                if call is first[0]:
                    rule = "BATCH-3"
                elif not overlap and (lost := self._died_between(first[0], call)) is not None:
                    rule = lost
                elif several:
                    rule = "BATCH-9" if overlap else "BATCH-2"
                elif not overlap and envelope == first[1] and what == "slot":
                    rule = "SEQ-2"
                elif not overlap and envelope.execution_id != first[1].execution_id:
                    rule = "ID-2"
                name = repr(envelope.id) if what == "envelope id" else name_of(envelope)
                got = f"{what} {name} was given twice, and both writes acknowledged"
                expected = f"one acknowledged write for {what} {name}"
                yield Violation(rule, expected, got, tuple(dict.fromkeys((first[0], call))))
                break

    def _died_between(self, write: StoreCall, later: StoreCall) -> str | None:
        """The rule that says that a write outlives what happened between it and a later call."""
        killed = False
        for fault in self.index.faults_between(completed_at(write), later.invoked):
            if fault.kind == "crash":
                return "DUR-5"
            killed = killed or (fault.kind == "kill" and fault.target == write.process)
        return "DUR-2" if killed else None


def _other_logs(one: StoreCall, other: StoreCall) -> bool:
    reads = (ReadFrom, ReadRange)
    assert isinstance(one.operation, reads)
    assert isinstance(other.operation, reads)
    return one.operation.execution_id != other.operation.execution_id
