"""Why a write must or may be refused, and with which errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from ..spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    EventStoreError,
    StaleFenceError,
    json_equal,
)
from .operations import AppendBatch, Refused, Write

if TYPE_CHECKING:
    from .model import Fence


class Why(Enum):
    """A reason to refuse a write."""

    MISSING = "the execution has a fence and the write carries no token"
    STALE = "the token is older than the current one"
    NOT_A_TOKEN = "what stands for the token is not a token"
    NEVER_HANDED_OUT = "the token was never handed out"
    NO_FENCING = "the store hands out no tokens"
    SLOT = "the slot is taken"
    ID = "the envelope id is taken"
    BATCH_SLOT = "two envelopes of the batch claim one slot"
    BATCH_ID = "two envelopes of the batch have one id"
    DOMAIN = "a value is outside the domain"
    GAP = "the sequence is not the next one"
    TOO_LARGE = "the batch is larger than the declared max_batch"
    SPANS = "the batch spans executions, and batch_scope is 'execution'"


_ERRORS: Final[Mapping[Why, tuple[type[Exception], ...]]] = {
    Why.MISSING: (StaleFenceError,),
    Why.STALE: (StaleFenceError,),
    Why.NOT_A_TOKEN: (StaleFenceError, ValueError),
    Why.NEVER_HANDED_OUT: (StaleFenceError,),
    Why.NO_FENCING: (EventStoreError, ValueError),
    Why.SLOT: (DuplicateSequenceError,),
    Why.ID: (DuplicateEnvelopeIdError,),
    Why.BATCH_SLOT: (DuplicateSequenceError,),
    Why.BATCH_ID: (DuplicateEnvelopeIdError,),
    Why.DOMAIN: (ValueError,),
    Why.GAP: (EventStoreError,),
    Why.TOO_LARGE: (ValueError,),
    Why.SPANS: (EventStoreError, ValueError),
}

_MAY: Final = frozenset((Why.NEVER_HANDED_OUT, Why.NO_FENCING, Why.DOMAIN, Why.GAP, Why.SPANS))


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason to refuse a write: for which envelope, and against what."""

    why: Why
    envelope: EventEnvelope | None
    held: EventEnvelope | None = None
    fence: Fence | None = None
    detail: str = ""

    @property
    def must(self) -> bool:
        """Whether the write has to be refused for it; else it may be."""
        return self.why not in _MAY

    @property
    def advice(self) -> str | None:
        """The SHOULD rule that speaks against accepting the write all the same."""
        return {Why.NEVER_HANDED_OUT: "FENCE-13", Why.NO_FENCING: "FENCE-14"}.get(self.why)

    def covers(self, refused: Refused, *, attributes: bool = False) -> bool:
        """Whether this reason explains a refusal; with `attributes`, whether it names it too."""
        if not refused.is_a(*_ERRORS[self.why]):
            return False
        return not attributes or self._names(refused)

    def _names(self, refused: Refused) -> bool:
        envelope = self.envelope
        if envelope is None or self.why in (Why.GAP, Why.DOMAIN, Why.SPANS, Why.NO_FENCING):
            return True
        said = refused.attributes
        if said.get("execution_id") != envelope.execution_id:
            return not refused.is_a(
                StaleFenceError, DuplicateSequenceError, DuplicateEnvelopeIdError
            )
        if refused.is_a(DuplicateSequenceError):
            return "sequence" in said and json_equal(said["sequence"], envelope.sequence)
        if refused.is_a(DuplicateEnvelopeIdError):
            return said.get("envelope_id") == envelope.id
        if refused.is_a(StaleFenceError):
            given = envelope.metadata.get("fence") if isinstance(envelope.metadata, dict) else None
            if "given" not in said or not json_equal(said["given"], given):
                return False
            if self.fence is None:
                return "current" in said and said["current"] is None
            if self.fence.exact:
                return json_equal(said.get("current"), self.fence.low)
            current = said.get("current")
            return isinstance(current, int) and current >= self.fence.low
        return True

    def __str__(self) -> str:
        names = " or ".join(error.__name__ for error in _ERRORS[self.why])
        about = ""
        if self.envelope is not None:
            about = f" ({self.envelope.execution_id!r}[{self.envelope.sequence!r}]"
            if self.why in (Why.ID, Why.BATCH_ID):
                about += f", id {self.envelope.id!r}"
            if self.fence is not None:
                about += f", current token {self.fence}"
            about += ")"
        detail = f": {self.detail}" if self.detail else ""
        return f"{names}, because {self.why.value}{about}{detail}"


def deserves(reasons: Sequence[Reason], refused: Refused, *, attributes: bool = False) -> bool:
    """Whether one of the reasons explains a refusal."""
    return any(reason.covers(refused, attributes=attributes) for reason in reasons)


def forbidden_acceptance(operation: Write, reason: Reason, own_id: bool) -> str:
    """The rule that an acknowledged write breaks, given why it had to be refused.

    `own_id`: whether a taken id is taken in the envelope's own execution.
    """
    several = isinstance(operation, AppendBatch) and len(operation.envelopes) > 1
    match reason.why:
        case Why.MISSING:
            return "FENCE-9" if several else "FENCE-4"
        case Why.STALE:
            return "FENCE-9" if several else "FENCE-3"
        case Why.NOT_A_TOKEN:
            return "FENCE-12"
        case Why.SLOT if not several:
            return "SEQ-2" if reason.held == reason.envelope else "SEQ-1"
        case Why.ID if not several:
            return "ID-1" if own_id else "ID-2"
        case Why.SLOT | Why.ID:
            return "BATCH-2"
        case Why.BATCH_SLOT | Why.BATCH_ID:
            return "BATCH-3"
        case _:
            return "BATCH-7"


def forbidden_refusal(operation: Write, reasons: Sequence[Reason], refused: Refused) -> str:
    """The rule that a refusal breaks which none of the reasons explains."""
    conflict = refused.is_a(DuplicateSequenceError, DuplicateEnvelopeIdError)
    fenced = {Why.STALE, Why.MISSING, Why.NOT_A_TOKEN} & {reason.why for reason in reasons}
    if conflict and fenced:
        return "FENCE-7"
    if any(reason.must for reason in reasons):
        return "ERR-1"
    if not operation.envelopes:
        return "BATCH-6"
    if refused.is_a(StaleFenceError):
        return "FENCE-5"
    if conflict:
        return "SEQ-3" if refused.is_a(DuplicateSequenceError) else "ID-2"
    if refused.is_a(ValueError):
        return "DATA-1"
    return "BATCH-1" if isinstance(operation, AppendBatch) else "APPEND-1"
