"""Fresh names for every run, so that one storage serves them all and no run sees another's rows.

A node says `"sched@7"` in every run; the store is given `"k1f~sched@7"`. Executions, envelope ids
and lease names are renamed on the way in, and back again in what is read and in what is raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..spi import EventEnvelope


class Names:
    """The renaming of one run; `begin` makes the next one."""

    def __init__(self, fresh: bool) -> None:
        self._fresh = fresh
        self._run = 0
        self.prefix = ""

    def begin(self) -> None:
        """Let all names be new."""
        if self._fresh:
            self._run += 1
            self.prefix = f"k{self._run:x}~"

    def envelope_in(self, envelope: EventEnvelope) -> EventEnvelope:
        """The envelope under the run's names."""
        prefix = self.prefix
        if not prefix:
            return envelope
        return EventEnvelope(
            prefix + envelope.execution_id,
            envelope.sequence,
            prefix + envelope.id,
            envelope.kind,
            envelope.timestamp,
            envelope.payload,
            envelope.metadata,
        )

    def envelopes_out(self, envelopes: Sequence[EventEnvelope]) -> Sequence[EventEnvelope]:
        """What was read, under the names that the node uses."""
        if not self.prefix or not envelopes:
            return envelopes
        return [
            EventEnvelope(
                self.text_out(envelope.execution_id),
                envelope.sequence,
                self.text_out(envelope.id),
                envelope.kind,
                envelope.timestamp,
                envelope.payload,
                envelope.metadata,
            )
            for envelope in envelopes
        ]

    def text_out(self, text: str) -> str:
        """A name as the node uses it."""
        return text.removeprefix(self.prefix)

    def error_out(self, error: BaseException) -> None:
        """Let an error speak of the names that the node uses."""
        prefix = self.prefix
        if not prefix:
            return
        for value in error.args:
            if isinstance(value, str) and prefix in value:
                error.args = tuple(
                    one.replace(prefix, "") if isinstance(one, str) else one for one in error.args
                )
                break
        held = getattr(error, "__dict__", None)
        if held:
            for name, value in held.items():
                if isinstance(value, str) and prefix in value:
                    held[name] = value.replace(prefix, "")


class RenamedStore:
    """A handle under the names of the run; it has the abilities of the handle, and no more."""

    def __init__(self, handle: Any, names: Names) -> None:
        self.handle = handle
        self.names = names
        for method in ("append_batch", "read_range", "acquire_fence", "claim", "renew", "release"):
            if not callable(getattr(handle, method, None)):
                setattr(self, method, None)

    async def append(self, envelope: EventEnvelope) -> None:
        try:
            await self.handle.append(self.names.envelope_in(envelope))
        except BaseException as error:
            self.names.error_out(error)
            raise

    async def append_batch(self, envelopes: Iterable[EventEnvelope]) -> None:
        rename = self.names.envelope_in
        try:
            await self.handle.append_batch([rename(envelope) for envelope in envelopes])
        except BaseException as error:
            self.names.error_out(error)
            raise

    async def read_from(self, execution_id: str, first: int = 0) -> Sequence[EventEnvelope]:
        names = self.names
        try:
            found = await self.handle.read_from(names.prefix + execution_id, first)
        except BaseException as error:
            names.error_out(error)
            raise
        return names.envelopes_out(found)

    async def read_range(self, execution_id: str, first: int, last: int) -> Sequence[EventEnvelope]:
        names = self.names
        try:
            found = await self.handle.read_range(names.prefix + execution_id, first, last)
        except BaseException as error:
            names.error_out(error)
            raise
        return names.envelopes_out(found)

    async def acquire_fence(self, execution_id: str) -> int:
        try:
            token: int = await self.handle.acquire_fence(self.names.prefix + execution_id)
        except BaseException as error:
            self.names.error_out(error)
            raise
        return token

    async def claim(self, name: str, holder: str, ttl: float) -> bool:
        granted: bool = await self.handle.claim(self.names.prefix + name, holder, ttl)
        return granted

    async def renew(self, name: str, holder: str, ttl: float) -> bool:
        granted: bool = await self.handle.renew(self.names.prefix + name, holder, ttl)
        return granted

    async def release(self, name: str, holder: str) -> bool:
        granted: bool = await self.handle.release(self.names.prefix + name, holder)
        return granted

    async def close(self) -> None:
        """The kit closes its handles itself, when all runs are over."""
