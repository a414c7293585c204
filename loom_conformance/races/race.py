"""What a race is: its nodes, what must hold, and the earlier behaviour that must lose it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from ..contract.rules import Rule, rules
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
            "nodes": f"{self.nodes} node{'' if self.nodes == 1 else 's'}",
            "fenced": "fenced",
            "linger": f"coalesced with a linger of {self.linger} s",
            "max_batch": f"flushes of {self.max_batch}",
            "tenant": f"tenant {self.tenant!r}",
            "lag": "a replica that stands still"
            if self.lag == FROZEN
            else f"a replica {self.lag} writes behind",
            "max_attempts": f"{self.max_attempts} attempt{'' if self.max_attempts == 1 else 's'}",
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

    What it promises, why and by which paragraph stands in the contract, as for every rule.

    Attributes:
        id: the race's lasting name, such as `RACE-2`.
        title: what happens in it, a few words.
        needs: the abilities of a store without which it cannot run.
        rests_on: the rules of the contract beneath it.
        wrong: the wrong runtime that the race is known for; the race must be lost with it.
        shows: what some schedule shows with that one.
        variants: the parameters that it is always run with.
        stepped: whether its starts can be led one resumption of the store at a time.
        varies: the parameters that a property draws, each with the values it may take.
    """

    id: ClassVar[str]
    title: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()
    rests_on: ClassVar[tuple[str, ...]]
    wrong: ClassVar[str]
    shows: ClassVar[str]
    variants: ClassVar[tuple[Parameters, ...]] = (Parameters(),)
    stepped: ClassVar[bool] = False
    varies: ClassVar[Mapping[str, Sequence[Any]]]

    @property
    def rule(self) -> Rule:
        """The race as a rule of the contract."""
        return rules()[self.id]

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

    def headline(self, scene: Scene) -> Check:
        """What its own wrong runtime is known to break; the first thing that must hold."""
        return self.holds(scene)[0]

    @abstractmethod
    def holds(self, scene: Scene) -> Sequence[Check]:
        """What must hold in every schedule."""
