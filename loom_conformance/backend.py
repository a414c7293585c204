"""What an author hands over: where storages come from, how handles open, what is declared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Set
from typing import ClassVar, Literal, Protocol, runtime_checkable

from .spi import EventStore, LeaseStore


class Backend(ABC):
    """One kind of store under test. Subclass it; the kit does the rest.

    One instance serves a whole session. A child process makes its own, unstarted, and only
    calls `connect` with an address that it was given, so an address must say all there is to
    know: a path, a DSN. `create`, `connect` and `destroy` may be called many times, and from
    several event loops in turn.
    """

    name: ClassVar[str]
    """A short name for reports, such as `"sqlite"`."""

    envelope_ids: ClassVar[Literal["store", "execution"]]
    """The scope in which envelope ids are unique; the store is held to it (ID-2)."""

    outlives_process: ClassVar[bool] = True
    """Whether the storage outlives the process that wrote it; `False` for memory."""

    one_process_at_a_time: ClassVar[bool] = False
    """Whether one process locks the storage, as some embedded databases do."""

    sparse_sequences: ClassVar[bool] = False
    """Whether the store accepts a gap in an execution's sequences."""

    batch_scope: ClassVar[Literal["store", "execution"]] = "store"
    """Whether one batch may span executions; with `"execution"` BATCH-4 is not offered."""

    max_batch: ClassVar[int | None] = None
    """The largest batch, 100 or more, or `None` where there is no limit."""

    sets_up_on_connect: ClassVar[bool] = True
    """Whether `connect` sets up a fresh storage; `False` where `create` migrates."""

    durability: ClassVar[str] = ""
    """What the store's settings say of power loss, in words, for the report alone."""

    declined: ClassVar[Mapping[str, str]] = {}
    """Profiles that the store does not mean to offer, each with the reason."""

    known_failing: ClassVar[Mapping[str, str]] = {}
    """Rules that are known to fail, each with the reason; one that passes is a failure."""

    async def start(self) -> None:  # noqa: B027
        """Start what all storages need (a server), once a session."""

    async def stop(self) -> None:  # noqa: B027
        """Stop what `start` started."""

    @abstractmethod
    async def create(self) -> str:
        """Make a fresh, empty storage and return its address."""

    @abstractmethod
    async def connect(self, address: str) -> EventStore:
        """Open one more handle on a storage; any process may call it."""

    @abstractmethod
    async def destroy(self, address: str) -> None:
        """Remove a storage and all it holds."""


@runtime_checkable
class Crashing(Protocol):
    """A backend whose server the kit may kill."""

    async def crash(self, address: str) -> None:
        """Kill the server that the storages share, without warning, and bring it back."""


@runtime_checkable
class Coalescing(Protocol):
    """A backend with a group-commit decorator of its own, to be tested in place of the kit's."""

    def coalescing(self, store: EventStore, *, max_linger: float, max_batch: int) -> EventStore:
        """Wrap a handle; `max_linger` in seconds."""


@runtime_checkable
class Scoping(Protocol):
    """A backend with a tenant decorator of its own, to be tested in place of the kit's."""

    def scoping(self, store: EventStore, tenant: str) -> EventStore:
        """Wrap a handle for one tenant."""


@runtime_checkable
class Leasing(Protocol):
    """A backend whose storages keep leases too."""

    async def connect_leases(self, address: str) -> LeaseStore:
        """Open one more handle on a storage's leases; any process may call it."""


@runtime_checkable
class Aging(Protocol):
    """A backend that can let time pass for its leases, so that nobody has to wait for it."""

    async def age_leases(self, address: str, seconds: float) -> None:
        """Leave every lease of a storage as it would be `seconds` later by the storage's clock."""


@runtime_checkable
class Blocking(Protocol):
    """A backend that can say which handles wait for a lock inside the database."""

    async def blocked(self, address: str) -> Set[object]:
        """The handles of this process on `address` that wait for a lock right now."""


@runtime_checkable
class Networked(Protocol):
    """A backend whose server is reached over TCP, so that the kit can lose what is said to it.

    Stores whose address is a PostgreSQL DSN need not say this.
    """

    def endpoint(self, address: str) -> tuple[str, int]:
        """The host and port where the storage's server listens."""

    def through(self, address: str, host: str, port: int) -> str:
        """The address of the same storage by way of another host and port."""
