"""A storage to be harmed: bounded calls on it, and what is in it as others see it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from ...backend import Backend
from ...contract.operations import Append, AppendBatch, Done, Outcome, Unknown, Write, settled
from ...spi import EventEnvelope, EventStore, StoreClosedError, has_ability, is_error
from ..history import perform
from .observation import Harmed, Observation, landed

T = TypeVar("T")

BRIEFLY: Final = 1.0
"""Seconds."""

NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Bench:
    """One storage of a backend, and calls on it that never take longer than `patience` seconds."""

    def __init__(self, backend: Backend, address: str, patience: float) -> None:
        self.backend = backend
        self.address = address
        self.patience = patience
        self._numbers = itertools.count(1)
        self._seen_trouble = False

    async def connect(self, address: str | None = None) -> EventStore:
        """Open a handle.

        Raises:
            TimeoutError: it took longer than the patience.
            Exception: whatever the backend raises.
        """
        async with asyncio.timeout(self.patience):
            return await self.backend.connect(self.address if address is None else address)

    async def close(self, store: EventStore) -> None:
        """Close a handle, whatever it does."""
        await self.bounded(store.close)

    def writes(self, store: EventStore) -> list[Write]:
        """One write of each kind that the store has, each to an execution of its own."""
        writes: list[Write] = [Append(self.envelopes(1)[0])]
        if has_ability(store, "batch"):
            writes.append(AppendBatch(self.envelopes(3)))
        return writes

    def envelopes(self, count: int, payload: Any = None) -> tuple[EventEnvelope, ...]:
        """The first envelopes of an execution that nobody has written."""
        name = f"harm-{next(self._numbers)}"
        return tuple(
            EventEnvelope(name, place, f"{name}-{place}", "STEP_COMPLETED", NOON, payload)
            for place in range(count)
        )

    async def make(self, store: EventStore, write: Write) -> tuple[Outcome, bool | None]:
        """Make a call; its outcome, and whether its error has a cause."""
        outcome, error = await self.bounded(lambda: perform(store, write))
        return outcome, None if error is None else error.__cause__ is not None

    async def bounded(
        self, call: Callable[[], Awaitable[T]]
    ) -> tuple[Outcome, BaseException | None]:
        """Await something, but not for ever; its outcome and what it raised."""
        task = asyncio.ensure_future(call())
        await asyncio.wait({task}, timeout=self.patience)
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=1.0)
            return Unknown("hung", f"did not settle within {self.patience:g} s"), None
        if task.cancelled():
            return Unknown("CancelledError"), None
        error = task.exception()
        return (Done(task.result()), None) if error is None else (settled(error), error)

    async def read(self, execution_id: str, store: EventStore | None = None) -> list[EventEnvelope]:
        """What a fresh handle reads of an execution, or the given one.

        Raises:
            Exception: whatever the backend raises; the storage should be well.
        """
        reader = await self.connect() if store is None else store
        try:
            async with asyncio.timeout(self.patience):
                return list(await reader.read_from(execution_id, 0))
        finally:
            if store is None:
                await self.close(reader)

    async def observe(
        self,
        about: Harmed,
        fault: str,
        write: Write,
        outcome: Outcome,
        caused: bool | None = None,
        *,
        sent: bool = False,
    ) -> Observation:
        """Put down a write under a fault, with what became of it in the storage."""
        written = write.envelopes
        found = await self.read(written[0].execution_id)
        how_much = landed(written, found)
        return Observation(about, fault, str(write), outcome, how_much, sent=sent, caused=caused)

    async def pretence(self, store: EventStore, write: Write) -> str | None:
        """What is wrong when a handle that did not acknowledge a write is given it once more.

        It may refuse it for whatever reason; what it acknowledges has to be there.
        """
        outcome, _ = await self.make(store, write)
        if not isinstance(outcome, Done):
            return None
        found = await self.read(write.envelopes[0].execution_id)
        how_much = landed(write.envelopes, found)
        return None if how_much == "whole" else f"{write} -> {outcome}, and it is {how_much}"

    async def trouble(self, store: EventStore) -> str | None:
        """What keeps a handle from working although its storage is well; `None` if nothing does.

        The handle may fail a few times until it has noticed that all is well again. Once a handle
        has not, the next ones are waited for no longer than `BRIEFLY`: the verdict is known.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + (BRIEFLY if self._seen_trouble else 2 * self.patience)
        while True:
            (write,) = [Append(envelope) for envelope in self.envelopes(1)]
            outcome, error = await self.bounded(lambda write=write: perform(store, write))  # type: ignore[misc]
            if isinstance(outcome, Done):
                found = await self.read(write.envelope.execution_id)
                return None if write.envelope in found else f"{write} -> ok, and it is absent"
            if is_error(error, StoreClosedError):
                return None
            if loop.time() > until:
                self._seen_trouble = True
                return f"{write} -> {outcome}"
            await asyncio.sleep(0.05)

    async def trouble_of_fresh(self, address: str | None = None) -> str | None:
        """The same for a handle that is opened now."""
        outcome, _ = await self.bounded(lambda: self.connect(address))
        if not isinstance(outcome, Done):
            return f"connect -> {outcome}"
        try:
            return await self.trouble(outcome.value)
        finally:
            await self.close(outcome.value)
