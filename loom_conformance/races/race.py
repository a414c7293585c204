"""What a race is: its nodes, what must hold, and the earlier behaviour that must lose it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from ..spi import EventStore
from .checks import Check

if TYPE_CHECKING:
    from .scene import Node, Scene

Act = Callable[["Node"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Parameters:
    """What the ADR leaves open in a race.

    Attributes:
        nodes: how many nodes (or callers of one node) take part.
        fenced: whether timer services fence their fires.
        linger: how long a shared flush waits for company, in seconds; `None` does not coalesce.
        max_batch: how many writes a shared flush holds.
        tenant: the tenant that every node's store is scoped to, or `None`.
        lag: how many writes the replica that serves reads is behind; `None` has no replica, and
            `FROZEN` a replica that never catches up.
        max_attempts: how often a dispatcher tries.
        supervised: whether the dispatcher is the one that pauses between attempts.
        rival: what another node does meanwhile: `"cancel"` or `"recover"`.
        crash: after how many of its store calls and effects a node dies, or `None`.
    """

    nodes: int = 2
    fenced: bool = False
    linger: float | None = None
    max_batch: int = 500
    tenant: str | None = None
    lag: int | None = None
    max_attempts: int = 1
    supervised: bool = False
    rival: str = ""
    crash: int | None = None

    def __str__(self) -> str:
        """What differs from the default, in words."""
        told = {
            "nodes": f"{self.nodes} nodes",
            "fenced": "fenced",
            "linger": f"coalesced with a linger of {self.linger} s",
            "max_batch": f"flushes of {self.max_batch}",
            "tenant": f"tenant {self.tenant!r}",
            "lag": "a replica that stands still"
            if self.lag == FROZEN
            else f"a replica {self.lag} writes behind",
            "max_attempts": f"{self.max_attempts} attempts",
            "supervised": "supervised",
            "rival": self.rival,
            "crash": f"dies after {self.crash}",
        }
        default = Parameters()
        return ", ".join(
            told[each.name]
            for each in fields(self)
            if getattr(self, each.name) != getattr(default, each.name)
        )


@dataclass(frozen=True, slots=True)
class Reach:
    """Which schedules of a race are run at the default depth.

    Attributes:
        search: `"all"` up to equivalence, `"bounded"` by preemptions, or `"pct"`, by chance with a
            probability bound.
        preemptions: the bound of `"bounded"`.
        schedules: how many `"pct"` runs.
    """

    search: Literal["all", "bounded", "pct"] = "all"
    preemptions: int = 2
    schedules: int = 100_000


FROZEN: Final = -1
"""The lag of a replica that applies nothing until it is told to."""


def varying(**values: Sequence[Any]) -> Mapping[str, Sequence[Any]]:
    """Parameters by name, each with the values that a property draws from."""
    return MappingProxyType(values)


class Race(ABC):
    """A named scenario that runs on any backend, under every schedule of its nodes' store calls.

    Attributes:
        id: the race's lasting name, such as `RACE-2`.
        title: what happens in it, a few words.
        story: what happens in it, and what is at stake.
        source: the paragraph of ADR 0103 that it comes from.
        needs: the abilities of a store without which it cannot run.
        rules: the rules of the contract that it rests on.
        wrong: the wrong runtime that the race is known for; the race must be lost with it.
        shows: what some schedule shows with that one.
        variants: the parameters that it is always run with.
        varies: the parameters that a property draws, each with the values it may take.
    """

    id: ClassVar[str]
    title: ClassVar[str]
    story: ClassVar[str]
    source: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()
    rules: ClassVar[tuple[str, ...]]
    wrong: ClassVar[str]
    shows: ClassVar[str]
    variants: ClassVar[tuple[Parameters, ...]] = (Parameters(),)
    varies: ClassVar[Mapping[str, Sequence[Any]]]

    def around(self, store: EventStore) -> EventStore:
        """What the race puts around every handle that a node gets, such as a fault."""
        return store

    def reach(self, parameters: Parameters) -> Reach:
        """Which schedules are run at the default depth: all of them, where that is feasible."""
        return Reach()

    async def given(self, scene: Scene) -> None:  # noqa: B027
        """Set up what the race starts from; nothing of it is scheduled."""

    @abstractmethod
    def nodes(self, scene: Scene) -> Mapping[str, Act]:
        """What each node does, by its name."""

    async def after(self, scene: Scene, node: Node) -> None:  # noqa: B027
        """What one more node does once every other is done, such as a recovery pass."""

    @abstractmethod
    def holds(self, scene: Scene) -> Sequence[Check]:
        """What must hold in every schedule."""
