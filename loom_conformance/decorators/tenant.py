"""A store in which every tenant has execution ids and envelope ids of its own.

Both ids are renamed on the way in and given back on the way out. The renaming is one-to-one, so
tenants never meet, whatever characters their names and ids hold:

- A tenant of up to 64 characters is written `<length>:<tenant>`; the length says where the name
  ends, so no separator inside it can be mistaken for one of ours. A longer name, or one that a
  store could not keep as text (U+0000, a lone surrogate), is written `#<SHA-256 of the name>`.
- `<tenant>:<id>` is the renamed id where that fits the contract's length, and
  `<tenant>#<SHA-256 of the id>` where it does not. The two marks keep the forms apart; two ids
  of the long form meet only where SHA-256 does.

An execution id needs no way back, because a caller names the execution that it reads. An
envelope id of the long form travels in the envelope's metadata, under a key that the envelope
does not use itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, cast

from ..spi import (
    MAX_ENVELOPE_ID,
    MAX_EXECUTION_ID,
    BatchEventStore,
    EventEnvelope,
    EventStore,
    FencingEventStore,
    InvalidEnvelopeError,
    JsonValue,
    RangeEventStore,
    check_key,
    has_ability,
)

LONGEST_PLAIN_TENANT: Final = 64
"""The longest tenant name, in characters, that is written as it is."""

ENVELOPE_ID_KEY: Final = "tenant-scope.envelope-id"
"""The metadata key under which an envelope id too long to be prefixed is kept."""


class TenantScopedEventStore:
    """A handle on one tenant's part of a store.

    Everything the wrapped store promises holds through it (SCOPE-1). It has `append_batch`,
    `read_range` and `acquire_fence` exactly when the wrapped handle has them. Errors are the
    wrapped store's own, so they carry the renamed ids (ADR 0103, D2: nothing may be decided by
    an error's `execution_id`).

    An envelope id of more than about 230 characters costs up to 1.3 kB of metadata; such an
    envelope whose metadata has no room left under 1 MiB is for the wrapped store to refuse.
    A store that is scoped twice nests: the inner tenant owns all of the outer one's names.
    """

    append_batch: Callable[[Iterable[EventEnvelope]], Awaitable[None]]
    read_range: Callable[[str, int, int], Awaitable[Sequence[EventEnvelope]]]
    acquire_fence: Callable[[str], Awaitable[int]]

    def __init__(self, store: EventStore, tenant: str) -> None:
        """Scope `store` to `tenant`; any text is a tenant's name, the empty one too.

        Raises:
            TypeError: the tenant is no `str`.
        """
        self.tenant: Final = tenant
        self._store = store
        self._names = _Names(tenant)
        if has_ability(store, "batch"):
            self.append_batch = self._append_batch
        if has_ability(store, "range"):
            self.read_range = self._read_range
        if has_ability(store, "fencing"):
            self.acquire_fence = self._acquire_fence

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Store one envelope under the tenant's names.

        Raises:
            InvalidEnvelopeError: the execution id or the envelope id lies outside the contract's
                domain; and all that the wrapped store raises, with the renamed ids.
        """
        await self._store.append(self._names.outward(envelope))

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        """The tenant's execution from `first` on, with the ids that its writer gave.

        Raises:
            InvalidEnvelopeError: the execution id lies outside the contract's domain.
        """
        inner = self._names.execution(execution_id)
        found = await self._store.read_from(inner, first)
        return self._names.inward(execution_id, inner, found)

    async def close(self) -> None:
        """Close the wrapped handle."""
        await self._store.close()

    async def _append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        """Store all of the envelopes, or none, under the tenant's names."""
        renamed = [self._names.outward(envelope) for envelope in envelopes]
        await cast(BatchEventStore, self._store).append_batch(renamed)

    async def _read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        """The tenant's execution from `first` to `last`, with the ids that its writer gave."""
        inner = self._names.execution(execution_id)
        found = await cast(RangeEventStore, self._store).read_range(inner, first, last)
        return self._names.inward(execution_id, inner, found)

    async def _acquire_fence(self, execution_id: str, /) -> int:
        """The new current token of the tenant's execution."""
        inner = self._names.execution(execution_id)
        return await cast(FencingEventStore, self._store).acquire_fence(inner)


class _Names:
    """The one-to-one renaming between a tenant's ids and the store's."""

    def __init__(self, tenant: object) -> None:
        if not isinstance(tenant, str):
            raise TypeError(f"a tenant must be a str, not {tenant!r:.80}")
        scope = f"{len(tenant)}:{tenant}" if _is_plain(tenant) else f"#{_digest(tenant)}"
        self._plain = f"{scope}:"
        self._long = f"{scope}#"

    def execution(self, execution_id: str) -> str:
        """The store's name of the tenant's execution."""
        check_key("execution_id", execution_id, MAX_EXECUTION_ID)
        return self._renamed(execution_id, MAX_EXECUTION_ID)

    def outward(self, envelope: EventEnvelope) -> EventEnvelope:
        """The envelope as the store is to keep it; the one that was given stays as it is."""
        execution_id = self.execution(envelope.execution_id)
        check_key("id", envelope.id, MAX_ENVELOPE_ID)
        envelope_id = self._renamed(envelope.id, MAX_ENVELOPE_ID)
        metadata = envelope.metadata
        if envelope_id.startswith(self._long):
            metadata = _with_id(metadata, envelope.id)
        return EventEnvelope(
            execution_id,
            envelope.sequence,
            envelope_id,
            envelope.kind,
            envelope.timestamp,
            envelope.payload,
            metadata,
        )

    def inward(
        self, execution_id: str, inner: str, envelopes: Sequence[EventEnvelope]
    ) -> list[EventEnvelope]:
        """What was read of the store's execution `inner`, as its writer gave it.

        An envelope that is none of this execution's is handed on unchanged: a store that mixes up
        executions must not look right through a scope.
        """
        return [
            self._given_back(execution_id, envelope) if envelope.execution_id == inner else envelope
            for envelope in envelopes
        ]

    def _given_back(self, execution_id: str, envelope: EventEnvelope) -> EventEnvelope:
        envelope_id, metadata = envelope.id, envelope.metadata
        if envelope_id.startswith(self._plain):
            envelope_id = envelope_id[len(self._plain) :]
        elif envelope_id.startswith(self._long):
            envelope_id, metadata = _without_id(envelope_id, metadata)
        return EventEnvelope(
            execution_id,
            envelope.sequence,
            envelope_id,
            envelope.kind,
            envelope.timestamp,
            envelope.payload,
            metadata,
        )

    def _renamed(self, name: str, longest: int) -> str:
        if len(self._plain) + len(name) <= longest:
            return self._plain + name
        return self._long + _digest(name)


def _with_id(metadata: object, envelope_id: str) -> dict[str, JsonValue]:
    """The metadata and the id under a key longer than any of that beginning which it holds."""
    if not isinstance(metadata, dict):
        raise InvalidEnvelopeError(f"metadata must be a JSON object, not {metadata!r:.80}")
    key = _id_key(metadata)
    return {**metadata, (ENVELOPE_ID_KEY if key is None else f"{key}+"): envelope_id}


def _without_id(renamed: str, metadata: dict[str, JsonValue]) -> tuple[str, dict[str, JsonValue]]:
    """The id that `_with_id` kept and the metadata as it was, if that is what they are."""
    key = _id_key(metadata)
    if key is None:
        return renamed, metadata
    kept = metadata[key]
    if not isinstance(kept, str) or not renamed.endswith(_digest(kept)):
        return renamed, metadata
    return kept, {name: value for name, value in metadata.items() if name != key}


def _id_key(metadata: dict[str, JsonValue]) -> str | None:
    """The longest key that begins with ours; `_with_id` makes the one it adds the longest."""
    found: list[object] = [*metadata]
    names = [name for name in found if isinstance(name, str) and name.startswith(ENVELOPE_ID_KEY)]
    return max(names, key=len, default=None)


def _is_plain(tenant: str) -> bool:
    """Whether every store can keep the name, and leaves room for ids beside it."""
    surrogate = any("\ud800" <= character <= "\udfff" for character in tenant)
    return len(tenant) <= LONGEST_PLAIN_TENANT and "\x00" not in tenant and not surrogate


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
