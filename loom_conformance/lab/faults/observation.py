"""What a write came to while something was wrong, and what was there afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ...contract.operations import Done, Outcome, Unknown
from ...spi import EventEnvelope

Harmed = Literal["connection", "storage"]
Landed = Literal["whole", "part", "absent"]


@dataclass(slots=True)
class Observation:
    """One call under a fault.

    Attributes:
        about: what was harmed: the connection to the storage, or the storage.
        fault: what was done to it, in words.
        call: the call, in words.
        outcome: how the call ended.
        landed: how much of the write a fresh handle found afterwards.
        sent: whether the write was on its way to the storage when the fault struck, so that its
            outcome may be unknown.
        caused: whether the error that the call raised had another one as its cause.
        same: what the same handle's next good write came to once the fault had passed, where that
            was tried and failed; `"closed"` counts as right.
        fresh: the same for a fresh handle.
        again: what the same write came to when the handle was given it a second time, where that
            was acknowledged and it is not stored whole.
    """

    about: Harmed
    fault: str
    call: str
    outcome: Outcome
    landed: Landed
    sent: bool = False
    caused: bool | None = None
    same: str | None = None
    fresh: str | None = None
    again: str | None = None

    @property
    def acknowledged(self) -> bool:
        """Whether the call returned."""
        return isinstance(self.outcome, Done)

    def raised(self, *classes: type[BaseException]) -> bool:
        """Whether the call raised an error of one of these classes, recognised by name."""
        if isinstance(self.outcome, Done):
            return False
        return any(wanted.__name__ in self.outcome.bases for wanted in classes)

    @property
    def gave_up(self) -> bool:
        """Whether the call did not settle in time."""
        return isinstance(self.outcome, Unknown) and self.outcome.error == "hung"

    def line(self) -> str:
        """The observation in one line."""
        return f"{self.fault}: {self.call} -> {self.outcome}; afterwards it is {self.landed}"


@dataclass(slots=True)
class Observations:
    """What was seen of one backend's storages under all the faults that can be done to them.

    Attributes:
        seen: one entry for each call under a fault.
        taken_for_empty: faults under which a read of a log that had been written showed nothing.
        absent: faults that could not be brought about, each with the reason.
    """

    seen: list[Observation] = field(default_factory=list)
    taken_for_empty: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


def landed(written: tuple[EventEnvelope, ...], found: list[EventEnvelope]) -> Landed:
    """How much of a write is among the envelopes that were found."""
    there = sum(envelope in found for envelope in written)
    if there == len(written):
        return "whole"
    return "part" if there else "absent"
