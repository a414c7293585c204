"""Calls on a store and how they ended, as plain values for the model and for histories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from ..spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    InvalidEnvelopeError,
    StaleFenceError,
    StoreClosedError,
    check_envelope,
    is_error,
)


def domain_fault(envelope: EventEnvelope) -> str | None:
    """Why an envelope lies outside the domain of the contract, or `None` where it does not."""
    try:
        check_envelope(envelope)
    except InvalidEnvelopeError as error:
        return error.reason
    return None


@dataclass(frozen=True, slots=True)
class Append:
    """`append(envelope)`. `fault` says why the envelope is outside the domain, if it is."""

    envelope: EventEnvelope
    fault: str | None = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fault", domain_fault(self.envelope))

    @property
    def envelopes(self) -> tuple[EventEnvelope, ...]:
        """What the call writes."""
        return (self.envelope,)

    @property
    def faults(self) -> tuple[str | None, ...]:
        """For each envelope, why it is outside the domain, or `None`."""
        return (self.fault,)

    def __str__(self) -> str:
        return f"append({_envelope_text(self.envelope)})"


@dataclass(frozen=True, slots=True)
class AppendBatch:
    """`append_batch(envelopes)`."""

    envelopes: tuple[EventEnvelope, ...]
    faults: tuple[str | None, ...] = field(init=False, compare=False)

    def __init__(self, envelopes: Iterable[EventEnvelope]) -> None:
        object.__setattr__(self, "envelopes", tuple(envelopes))
        object.__setattr__(self, "faults", tuple(map(domain_fault, self.envelopes)))

    def __str__(self) -> str:
        shown = [_envelope_text(envelope) for envelope in self.envelopes[:4]]
        if len(self.envelopes) > 4:
            shown.append(f"… {len(self.envelopes)} in all")
        return f"append_batch([{', '.join(shown)}])"


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """`read_from(execution_id, first)`."""

    execution_id: str
    first: int = 0

    def __str__(self) -> str:
        return f"read_from({self.execution_id!r}, {self.first})"


@dataclass(frozen=True, slots=True)
class ReadRange:
    """`read_range(execution_id, first, last)`, both ends inclusive."""

    execution_id: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"read_range({self.execution_id!r}, {self.first}, {self.last})"


@dataclass(frozen=True, slots=True)
class AcquireFence:
    """`acquire_fence(execution_id)`."""

    execution_id: str

    def __str__(self) -> str:
        return f"acquire_fence({self.execution_id!r})"


Write: TypeAlias = Append | AppendBatch
Operation: TypeAlias = Append | AppendBatch | ReadFrom | ReadRange | AcquireFence


def executions_of(operation: Operation) -> frozenset[str]:
    """The executions that an operation touches."""
    if isinstance(operation, Append):
        return frozenset((operation.envelope.execution_id,))
    if isinstance(operation, AppendBatch):
        return frozenset(envelope.execution_id for envelope in operation.envelopes)
    return frozenset((operation.execution_id,))


# --- How a call ended -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Done:
    """The call returned: envelopes for a read, a token for `acquire_fence`, else `None`."""

    value: Any = None

    def __str__(self) -> str:
        if isinstance(self.value, tuple | list):
            shown = ", ".join(f"{item.sequence}:{item.id!r}" for item in self.value[:6])
            more = f", … {len(self.value)} in all" if len(self.value) > 6 else ""
            return f"[{shown}{more}]"
        return "ok" if self.value is None else repr(self.value)


ATTRIBUTES: Final = ("execution_id", "sequence", "envelope_id", "given", "current", "reason")
"""The attributes of the contract's errors, which a history keeps."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The call raised, and what it raised says that nothing of it happened.

    Attributes:
        error: the error's class name.
        bases: the names of its class and of all that the class derives from.
        attributes: those of the contract's attributes that the error carries.
        message: the error as text.
    """

    error: str
    bases: frozenset[str]
    attributes: Mapping[str, Any] = field(default_factory=dict, compare=False)
    message: str = field(default="", compare=False)

    @classmethod
    def of(cls, error: BaseException) -> Refused:
        """Take down an error that a call raised."""
        return cls(
            type(error).__name__,
            frozenset(base.__name__ for base in type(error).__mro__),
            {name: getattr(error, name) for name in ATTRIBUTES if hasattr(error, name)},
            str(error),
        )

    def is_a(self, *classes: type[BaseException]) -> bool:
        """Whether the error is of one of these classes, recognised by name."""
        return any(wanted.__name__ in self.bases for wanted in classes)

    def __str__(self) -> str:
        return f"{self.error}: {self.message}" if self.message else self.error


@dataclass(frozen=True, slots=True)
class Unknown:
    """Whether the call happened is not known: at any later time, or never.

    `error` is what ended it: an error's class name, `"cancelled"`, `"hung"` or `"no answer"`;
    `bases` are the names of the classes that the error's class derives from.
    """

    error: str = "no answer"
    message: str = field(default="", compare=False)
    bases: frozenset[str] = field(default=frozenset(), compare=False)

    def __str__(self) -> str:
        return f"unknown ({self.error})"


Outcome: TypeAlias = Done | Refused | Unknown


def settled(error: BaseException) -> Refused | Unknown:
    """The outcome that a raised error stands for, where faults are about.

    Only the contract's refusals say that nothing happened. Any other error, `OutcomeUnknownError`
    and a cancellation among them, leaves it open (ERR-3 asks for no more).
    """
    refusals = (
        DuplicateSequenceError,
        DuplicateEnvelopeIdError,
        StaleFenceError,
        StoreClosedError,
        ValueError,
    )
    if is_error(error, *refusals):
        return Refused.of(error)
    bases = frozenset(base.__name__ for base in type(error).__mro__)
    return Unknown(type(error).__name__, str(error), bases)


def _envelope_text(envelope: EventEnvelope) -> str:
    token = ""
    if isinstance(envelope.metadata, Mapping) and "fence" in envelope.metadata:
        token = f" fence={envelope.metadata['fence']!r}"
    return f"{envelope.execution_id!r}[{envelope.sequence!r}] id={envelope.id!r}{token}"
