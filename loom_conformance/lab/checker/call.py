"""A call in a history, for any kind of object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

O = TypeVar("O", covariant=True)  # noqa: E741
R = TypeVar("R", covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Call(Generic[O, R]):
    """One call of one process.

    Attributes:
        process: who called; a process makes one call at a time unless it has several handles.
        number: the call's number within its process.
        operation: what was called.
        outcome: how it ended.
        invoked: when it began, in the history's clock (nanoseconds, or just an order).
        completed: when it ended; `None` where it never did.
        certain: whether the outcome says what happened. A call of uncertain outcome may take
            effect at any time from `invoked` on, also after `completed`, or never.
        handle: the handle of the process that was used.
    """

    process: str
    number: int
    operation: O
    outcome: R
    invoked: int
    completed: int | None
    certain: bool = True
    handle: str = ""

    @property
    def deadline(self) -> int | None:
        """The time by which the call has taken effect; `None` for no limit."""
        return self.completed if self.certain else None

    def __str__(self) -> str:
        who = f"{self.process}.{self.handle}" if self.handle else self.process
        return f"{who}: {self.operation} -> {self.outcome}"
