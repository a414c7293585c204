"""A race to explore: nodes, what was there before them, and what must hold after them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..spi import EventStore
from .node import Node

NodeFunction: TypeAlias = Callable[[Node], Coroutine[Any, Any, Any]]


@dataclass(slots=True)
class Outcome:
    """What one run left behind, for the scenario's check.

    Attributes:
        results: what each node returned, by its letter; a node that raised has none.
        errors: what a node raised, where the scenario lets it.
        effects: node, name and value of every effect, in the order in which they happened.
        told: node, kind and words of every remark, in that order.
        store: a handle of its own on the storage, under the names that the nodes used.
    """

    results: dict[str, Any]
    errors: dict[str, BaseException]
    effects: list[tuple[str, str, Any]]
    told: list[tuple[str, str, str]]
    store: EventStore


@dataclass(frozen=True, slots=True)
class Scenario:
    """Nodes that run against one storage, and what must hold however they interleave.

    Attributes:
        name: what it is called in verdicts; part of what a token stands for.
        nodes: one `async` function a node, at most 26. The first is node A.
        check: raises `AssertionError` with the reason if the outcome is wrong. It may be `async`,
            and then read the storage. It must depend on the outcome alone.
        given: writes what is there before the nodes start.
        may_raise: the errors that a node may end with; any other is a failure.
        variant: parameters that make it another scenario, for the token.
    """

    name: str
    nodes: Sequence[NodeFunction]
    check: Callable[[Outcome], Awaitable[None] | None]
    given: Callable[[EventStore], Awaitable[None]] | None = None
    may_raise: tuple[type[BaseException], ...] = ()
    variant: str = field(default="")

    def __post_init__(self) -> None:
        if not 1 <= len(self.nodes) <= 26:
            raise ValueError(f"a scenario has 1 to 26 nodes, not {len(self.nodes)}")


def first_line(error: AssertionError | None) -> str:
    """What a check said itself: whatever rewrote the assertion writes into the lines below."""
    return (str(error or "").splitlines() or ["the check failed"])[0]
