"""The contract as a pure, synchronous, executable model: what a store may do, and what follows.

A `StoreModel` knows what a backend declares; a `State` is everything a store holds, immutable and
hashable. Two ways to ask:

- `model.judge(state, operation, outcome)` says whether the outcome is allowed, which states may
  follow, and in words what was allowed. The property tests use it, through an `Oracle`.
- `model.step(state, operation, outcome)` gives the state that follows, or `None`; the history
  checker calls it millions of times.

Where the contract leaves a choice (which of several errors, whether a gap is accepted), every
choice is allowed. Source: the contract page and ADR 0103.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Self

from ..spi import EventEnvelope, InvalidEnvelopeError, check_key, is_token
from .operations import (
    AcquireFence,
    Append,
    AppendBatch,
    Done,
    Operation,
    Outcome,
    ReadFrom,
    ReadRange,
    Refused,
    Unknown,
    Write,
)
from .reasons import Reason, Why, deserves, forbidden_acceptance, forbidden_refusal


def key_of(value: object) -> Hashable:
    """A dictionary key for a field; values outside the domain never pass for those inside."""
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return (type(value).__name__, repr(value))


def _order(envelope: EventEnvelope) -> tuple[int, int, str]:
    sequence: object = envelope.sequence
    if isinstance(sequence, int) and not isinstance(sequence, bool):
        return (0, sequence, "")
    return (1, 0, repr(sequence))


@dataclass(frozen=True, slots=True)
class Fence:
    """The current token of an execution.

    `exact` is false after an `acquire_fence` of unknown outcome took effect: the token is then
    some number from `low` up that no writer ever learned.
    """

    low: int
    exact: bool = True

    def __str__(self) -> str:
        return str(self.low) if self.exact else f"{self.low} or more"


@dataclass(frozen=True, slots=True)
class Log:
    """One execution: its envelopes in ascending sequence, and its fence where it has one."""

    envelopes: tuple[EventEnvelope, ...] = ()
    fence: Fence | None = None

    def find(self, envelope: EventEnvelope) -> EventEnvelope | None:
        """What is stored in the envelope's slot."""
        place = self._place(envelope)
        if place < len(self.envelopes):
            found = self.envelopes[place]
            if _order(found) == _order(envelope):
                return found
        return None

    def next_sequence(self) -> int:
        """One past the last sequence; 0 for an empty log."""
        for envelope in reversed(self.envelopes):
            if _order(envelope)[0] == 0:
                return envelope.sequence + 1
        return 0

    def between(self, first: int, last: int | None) -> tuple[EventEnvelope, ...]:
        """The envelopes from `first` to `last`, both inclusive; `None` is no end."""
        start = bisect_left(self.envelopes, (0, first, ""), key=_order)
        if last is None:
            return self.envelopes[start:]
        return self.envelopes[start : bisect_left(self.envelopes, (0, last + 1, ""), key=_order)]

    def added(self, envelope: EventEnvelope) -> Log:
        """The log with one more envelope."""
        old = self.envelopes
        if not old or _order(old[-1]) < _order(envelope):
            return Log((*old, envelope), self.fence)
        place = self._place(envelope)
        return Log((*old[:place], envelope, *old[place:]), self.fence)

    def _place(self, envelope: EventEnvelope) -> int:
        size = len(self.envelopes)
        order = _order(envelope)
        if size and _order(self.envelopes[-1]) < order:
            return size
        return bisect_left(self.envelopes, order, key=_order)


_NOTHING: Final = Log()


class State:
    """Everything that a store holds. Immutable; equal states hash alike."""

    __slots__ = ("_hash", "ids", "logs")

    def __init__(
        self,
        logs: Mapping[Hashable, Log] | None = None,
        ids: frozenset[Hashable] = frozenset(),
        mark: int = 0,
    ) -> None:
        self.logs: Mapping[Hashable, Log] = logs if logs is not None else {}
        self.ids = ids
        self._hash = mark

    def log(self, execution_id: object) -> Log:
        """One execution's log; empty where nothing was written."""
        return self.logs.get(key_of(execution_id), _NOTHING)

    def with_envelopes(self, envelopes: Sequence[EventEnvelope], ids: Iterable[Hashable]) -> State:
        """The state after these envelopes were stored; `ids` are their keys in scope."""
        logs = dict(self.logs)
        mark = self._hash
        for envelope in envelopes:
            key = key_of(envelope.execution_id)
            logs[key] = logs.get(key, _NOTHING).added(envelope)
            mark ^= hash((key, key_of(envelope.sequence), key_of(envelope.id)))
        return State(logs, self.ids.union(ids), mark)

    def with_fence(self, execution_id: str, fence: Fence) -> State:
        """The state after an execution's current token became another one."""
        key = key_of(execution_id)
        log = self.logs.get(key, _NOTHING)
        mark = self._hash ^ hash((key, fence))
        if log.fence is not None:
            mark ^= hash((key, log.fence))
        return State({**self.logs, key: Log(log.envelopes, fence)}, self.ids, mark)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State):
            return NotImplemented
        return self._hash == other._hash and self.logs == other.logs

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        parts = [
            f"{key!r}: {len(log.envelopes)} envelopes, fence {log.fence}"
            for key, log in self.logs.items()
        ]
        return f"<State {'; '.join(parts) or 'empty'}>"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the contract says of one outcome. True where it is allowed.

    Attributes:
        states: the states that may follow; none where the outcome is forbidden.
        allowed: what was allowed, in words.
        got: what happened, in words.
        rule: the rule that a forbidden outcome breaks first of all.
        advice: SHOULD rules that an allowed outcome does not follow.
    """

    states: tuple[State, ...]
    allowed: str
    got: str
    rule: str | None = None
    advice: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.states)


@dataclass(frozen=True, slots=True)
class StoreModel:
    """The contract, for a store that makes these declarations (see `Backend`).

    `fencing` says whether its handles have `acquire_fence`.
    """

    envelope_ids: Literal["store", "execution"] = "store"
    sparse_sequences: bool = False
    batch_scope: Literal["store", "execution"] = "store"
    max_batch: int | None = None
    fencing: bool = True

    @property
    def initial(self) -> State:
        """A fresh storage."""
        return State()

    # --- What is allowed ---------------------------------------------------------------------

    def judge(self, state: State, operation: Operation, outcome: Outcome) -> Judgement:
        """Whether an outcome is allowed in a state, and what follows.

        An unknown outcome is always allowed and leaves up to two states: it never happened, or
        it did. Attributes of errors are judged too (ERR-2), which `step` does not do.
        """
        if isinstance(operation, Append | AppendBatch):
            return self._judge_write(state, operation, outcome)
        if isinstance(operation, AcquireFence):
            return self._judge_acquire(state, operation, outcome)
        return self._judge_read(state, operation, outcome)

    def step(self, state: State, operation: Operation, outcome: Outcome) -> State | None:
        """The state after an outcome, or `None` where it is forbidden.

        For an unknown outcome: the state after it happened, or `None` where it cannot have.
        """
        if isinstance(operation, Append | AppendBatch):
            reasons = self.reasons(state, operation)
            if isinstance(outcome, Refused):
                return state if deserves(reasons, outcome) else None
            if any(reason.must for reason in reasons):
                return None
            return self.written(state, operation)
        if isinstance(operation, AcquireFence):
            return self._acquired(state, operation, outcome)
        return state if self._read_allows(state, operation, outcome) else None

    def reasons(self, state: State, operation: Write) -> list[Reason]:
        """Why a write must or may be refused in a state; empty where it must be accepted."""
        reasons: list[Reason] = []
        envelopes = operation.envelopes
        several = isinstance(operation, AppendBatch)
        if several and self.max_batch is not None and len(envelopes) > self.max_batch:
            reasons.append(Reason(Why.TOO_LARGE, None))
        if several and self.batch_scope == "execution" and len(envelopes) > 1:
            first = key_of(envelopes[0].execution_id)
            if any(key_of(envelope.execution_id) != first for envelope in envelopes):
                reasons.append(Reason(Why.SPANS, None))
        slots: dict[Hashable, EventEnvelope] = {}
        ids: dict[Hashable, EventEnvelope] = {}
        upcoming: dict[Hashable, int] = {}
        for envelope, fault in zip(envelopes, operation.faults, strict=True):
            execution = key_of(envelope.execution_id)
            log = state.logs.get(execution, _NOTHING)
            if fault is not None:
                reasons.append(Reason(Why.DOMAIN, envelope, detail=fault))
            token = self._token_reason(log, envelope)
            if token is not None:
                reasons.append(token)
            stale = token is not None and token.must
            held = log.find(envelope)
            if held is not None and not stale:
                reasons.append(Reason(Why.SLOT, envelope, held))
            id_key = self.id_key(envelope)
            if id_key in state.ids and not stale:
                reasons.append(Reason(Why.ID, envelope))
            sequence: object = envelope.sequence
            slot = (execution, key_of(sequence))
            if isinstance(sequence, int) and not isinstance(sequence, bool):
                due = upcoming.get(execution)
                if due is None:
                    due = log.next_sequence()
                taken = held is not None or slot in slots
                if sequence != due and not taken and not self.sparse_sequences:
                    reasons.append(Reason(Why.GAP, envelope))
                upcoming[execution] = max(due, sequence + 1)
            if several:
                for why, key, seen in (
                    (Why.BATCH_SLOT, slot, slots),
                    (Why.BATCH_ID, id_key, ids),
                ):
                    if key in seen:
                        reasons += [Reason(why, seen[key]), Reason(why, envelope)]
                    seen[key] = envelope
        return reasons

    def id_key(self, envelope: EventEnvelope) -> Hashable:
        """The envelope's id as it counts in the declared scope."""
        if self.envelope_ids == "store":
            return key_of(envelope.id)
        return (key_of(envelope.execution_id), key_of(envelope.id))

    def written(self, state: State, operation: Write) -> State:
        """The state after a write was stored, whether or not it was allowed."""
        envelopes = operation.envelopes
        if not envelopes:
            return state
        return state.with_envelopes(envelopes, map(self.id_key, envelopes))

    # --- Writes ------------------------------------------------------------------------------

    def _token_reason(self, log: Log, envelope: EventEnvelope) -> Reason | None:
        metadata: object = envelope.metadata
        given = metadata.get("fence") if isinstance(metadata, Mapping) else None
        fence = log.fence
        if given is None:
            # An explicit `None` is not a token either; a store may call it missing or invalid.
            if fence is None:
                return None
            explicit = isinstance(metadata, Mapping) and "fence" in metadata
            return Reason(Why.NOT_A_TOKEN if explicit else Why.MISSING, envelope, fence=fence)
        if not is_token(given):
            return Reason(Why.NOT_A_TOKEN, envelope, fence=fence) if fence is not None else None
        if fence is None:
            return Reason(Why.NEVER_HANDED_OUT if self.fencing else Why.NO_FENCING, envelope)
        if given < fence.low:
            return Reason(Why.STALE, envelope, fence=fence)
        if given == fence.low and fence.exact:
            return None
        return Reason(Why.NEVER_HANDED_OUT, envelope, fence=fence)

    def _judge_write(self, state: State, operation: Write, outcome: Outcome) -> Judgement:
        reasons = self.reasons(state, operation)
        allowed = _allowed_text(reasons)
        must = [reason for reason in reasons if reason.must]
        got = str(outcome)
        if isinstance(outcome, Unknown):
            after = () if must else (self.written(state, operation),)
            return Judgement((state, *after), "any outcome, since it is unknown", got)
        if isinstance(outcome, Done):
            if must:
                rule = forbidden_acceptance(operation, must[0], _is_own_id(state, must[0]))
                return Judgement((), allowed, "it was acknowledged", rule)
            if outcome.value is not None:
                return Judgement((), "the result None", f"the result {got}", "APPEND-1")
            advice = tuple(dict.fromkeys(reason.advice for reason in reasons if reason.advice))
            return Judgement((self.written(state, operation),), allowed, got, advice=advice)
        if not deserves(reasons, outcome):
            return Judgement((), allowed, got, forbidden_refusal(operation, reasons, outcome))
        if not deserves(reasons, outcome, attributes=True):
            expected = "attributes that name what the caller wrote"
            return Judgement((), expected, f"{got} with {dict(outcome.attributes)}", "ERR-2")
        return Judgement((state,), allowed, got)

    # --- Fences ------------------------------------------------------------------------------

    def _acquired(self, state: State, operation: AcquireFence, outcome: Outcome) -> State | None:
        execution_id = operation.execution_id
        fence = state.log(execution_id).fence
        if isinstance(outcome, Unknown):
            low = 1 if fence is None else fence.low + 1
            return state.with_fence(execution_id, Fence(low, exact=False))
        if isinstance(outcome, Refused):
            valid = domain_key_fault(execution_id) is None
            return None if valid or not outcome.is_a(ValueError) else state
        token = outcome.value
        if not is_token(token) or (fence is not None and token <= fence.low):
            return None
        return state.with_fence(execution_id, Fence(token))

    def _judge_acquire(self, state: State, operation: AcquireFence, outcome: Outcome) -> Judgement:
        fence = state.log(operation.execution_id).fence
        allowed = f"an int token greater than {fence if fence is not None else 0}"
        if domain_key_fault(operation.execution_id) is not None:
            allowed += ", or a ValueError for an execution id outside the domain"
        after = self._acquired(state, operation, outcome)
        if isinstance(outcome, Unknown):
            assert after is not None
            return Judgement((state, after), "any outcome, since it is unknown", str(outcome))
        if after is None:
            rule = "FENCE-1" if isinstance(outcome, Done) else "FENCE-10"
            return Judgement((), allowed, str(outcome), rule)
        return Judgement((after,), allowed, str(outcome))

    # --- Reads -------------------------------------------------------------------------------

    def _expected(self, state: State, operation: ReadFrom | ReadRange) -> tuple[EventEnvelope, ...]:
        last = operation.last if isinstance(operation, ReadRange) else None
        return state.log(operation.execution_id).between(operation.first, last)

    def _read_allows(self, state: State, operation: ReadFrom | ReadRange, outcome: Outcome) -> bool:
        if isinstance(outcome, Unknown):
            return True
        if isinstance(outcome, Refused):
            out_of_range = (
                operation.first < 0 or domain_key_fault(operation.execution_id) is not None
            )
            return out_of_range and outcome.is_a(ValueError)
        value = outcome.value
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            return False
        return self._expected(state, operation) == tuple(value)

    def _judge_read(
        self, state: State, operation: ReadFrom | ReadRange, outcome: Outcome
    ) -> Judgement:
        if self._read_allows(state, operation, outcome):
            return Judgement((state,), "this result", str(outcome))
        expected = self._expected(state, operation)
        allowed = str(Done(expected))
        rule = _read_rule(operation, expected, outcome)
        if isinstance(outcome, Done) and rule in ("APPEND-2", "DATA-1"):
            for want, have in zip(expected, outcome.value, strict=False):
                if want != have:
                    return Judgement((), f"{want!r:.300}", f"{have!r:.300}", rule)
        return Judgement((), allowed, str(outcome), rule)


class Oracle:
    """A model that keeps up with a store: every state that the outcomes so far allow.

    More than one state is possible after an unknown outcome, until a later call tells.
    """

    def __init__(self, model: StoreModel) -> None:
        self.model = model
        self.states: tuple[State, ...] = (model.initial,)

    def judge(self, operation: Operation, outcome: Outcome) -> Judgement:
        """Judge an outcome and, where it is allowed, move to the states that may follow."""
        judged = [self.model.judge(state, operation, outcome) for state in self.states]
        allowed = [judgement for judgement in judged if judgement]
        if not allowed:
            return judged[0]
        following = tuple(
            dict.fromkeys(state for judgement in allowed for state in judgement.states)
        )
        self.states = following
        # Advice stands only if no possible state makes the outcome good.
        advice = min((judgement.advice for judgement in allowed), key=len)
        return Judgement(following, allowed[0].allowed, allowed[0].got, advice=advice)

    @property
    def state(self) -> State:
        """One of the possible states; the only one where every outcome is known."""
        return self.states[0]

    def __iter__(self) -> Iterator[State]:
        return iter(self.states)

    def copy(self) -> Self:
        """An oracle that goes on alone from here."""
        twin = type(self)(self.model)
        twin.states = self.states
        return twin


def domain_key_fault(execution_id: object) -> str | None:
    """Why an execution id is outside the domain, or `None`."""
    try:
        check_key("execution_id", execution_id)
    except InvalidEnvelopeError as error:
        return error.reason
    return None


def _is_own_id(state: State, reason: Reason) -> bool:
    """Whether the taken id is taken in the envelope's own execution."""
    envelope = reason.envelope
    return envelope is not None and any(
        held.id == envelope.id for held in state.log(envelope.execution_id).envelopes
    )


def _allowed_text(reasons: Sequence[Reason]) -> str:
    if not reasons:
        return "it had to be acknowledged: nothing stands against it"
    must = [reason for reason in reasons if reason.must]
    texts = list(dict.fromkeys(str(reason) for reason in reasons))
    shown = "; or ".join(texts[:4]) + ("; …" if len(texts) > 4 else "")
    return shown if must else f"acknowledged; or {shown}"


def _read_rule(
    operation: ReadFrom | ReadRange, expected: Sequence[EventEnvelope], outcome: Outcome
) -> str:
    """The rule that a wrong result breaks first of all."""
    value = outcome.value if isinstance(outcome, Done) else None
    if not isinstance(value, Sequence) or not all(isinstance(e, EventEnvelope) for e in value):
        return "RANGE-1" if isinstance(operation, ReadRange) else "READ-2"
    if any(envelope.execution_id != operation.execution_id for envelope in value):
        return "READ-3"
    orders = [_order(envelope) for envelope in value]
    if orders != sorted(orders):
        return "READ-1"
    wanted = [_order(envelope) for envelope in expected]
    if orders == wanted:
        return "APPEND-2"
    if isinstance(operation, ReadRange):
        return "RANGE-1"
    if any(order < (0, operation.first, "") for order in orders):
        return "READ-2"
    return "APPEND-1" if set(wanted) - set(orders) else "READ-5"
