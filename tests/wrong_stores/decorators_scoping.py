"""Wrong tenant scopes over the memory store, each a small correct one with one thing changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from loom_conformance.spi import (
    FENCE_KEY,
    EventEnvelope,
    EventStore,
    InvalidEnvelopeError,
    check_key,
)

from .memory_base import PrivateMemory
from .registry import variant, wrong

OPTIONAL = ("append_batch", "read_range", "acquire_fence")


class PlainScope:
    """A small correct scope: both ids become digests, and travel along in the metadata."""

    def __init__(self, store: Any, tenant: str) -> None:
        self.store = store
        self.tenant = tenant
        for name in OPTIONAL:
            if callable(getattr(store, name, None)):
                setattr(self, name, getattr(self, f"_{name}"))

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Store one envelope under the tenant's names."""
        await self.store.append(self._out(envelope))

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        """The tenant's execution."""
        found = await self.store.read_from(self._execution(execution_id), first)
        return [self._back(execution_id, one) for one in found]

    async def close(self) -> None:
        """Close the store."""
        await self.store.close()

    async def _append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        await self.store.append_batch([self._out(envelope) for envelope in envelopes])

    async def _read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        found = await self.store.read_range(self._execution(execution_id), first, last)
        return [self._back(execution_id, one) for one in found]

    async def _acquire_fence(self, execution_id: str, /) -> int:
        token: int = await self.store.acquire_fence(self._execution(execution_id))
        return token

    def _execution(self, execution_id: str) -> str:
        check_key("execution_id", execution_id, 255)
        return self._joined(execution_id)

    def _id(self, envelope_id: str) -> str:
        check_key("id", envelope_id, 300)
        return self._joined(envelope_id)

    def _joined(self, name: str) -> str:
        text = json.dumps([self.tenant, name])
        return hashlib.sha256(text.encode()).hexdigest()

    def _out(self, envelope: EventEnvelope) -> EventEnvelope:
        metadata: object = envelope.metadata
        if not isinstance(metadata, dict):
            raise InvalidEnvelopeError("metadata must be a JSON object")
        kept: dict[str, Any] = {"id": envelope.id, "metadata": envelope.metadata}
        if FENCE_KEY in metadata:
            kept[FENCE_KEY] = metadata[FENCE_KEY]
        return EventEnvelope(
            self._execution(envelope.execution_id),
            envelope.sequence,
            self._id(envelope.id),
            envelope.kind,
            envelope.timestamp,
            envelope.payload,
            kept,
        )

    def _back(self, execution_id: str, envelope: EventEnvelope) -> EventEnvelope:
        kept: Any = envelope.metadata
        return EventEnvelope(
            execution_id,
            envelope.sequence,
            kept["id"],
            envelope.kind,
            envelope.timestamp,
            envelope.payload,
            kept["metadata"],
        )


def scoped_by(decorator: type[PlainScope]) -> Any:
    """A memory backend that brings a tenant decorator of its own."""

    class Scoped(PrivateMemory):
        def scoping(self, store: EventStore, tenant: str) -> Any:
            return decorator(store, tenant)

    Scoped.__name__ = Scoped.__qualname__ = f"{decorator.__name__}Backend"
    return Scoped


variant("own-scope")(scoped_by(PlainScope))


class JoinsByAColon(PlainScope):
    """Joins tenant and name by a mark that either may contain, and cuts nothing."""

    def _joined(self, name: str) -> str:
        return hashlib.sha256(f"{self.tenant}:{name}".encode()).hexdigest()


class ForgetsTheEnvelopesId(PlainScope):
    """Renames executions and leaves envelope ids as they are, which the whole store shares."""

    def _id(self, envelope_id: str) -> str:
        check_key("id", envelope_id, 300)
        return envelope_id


class FoldsTenants(PlainScope):
    """Lower-cases the tenant's name."""

    def __init__(self, store: Any, tenant: str) -> None:
        super().__init__(store, tenant.lower())


class CutsTenants(PlainScope):
    """Cuts the tenant's name to 64 characters."""

    def __init__(self, store: Any, tenant: str) -> None:
        super().__init__(store, tenant[:64])


class SlugsTenants(PlainScope):
    """Makes a slug of the tenant's name: all but letters and digits become a dash."""

    def __init__(self, store: Any, tenant: str) -> None:
        super().__init__(
            store, "".join(one if one.isascii() and one.isalnum() else "-" for one in tenant)
        )


class FencesTheBareName(PlainScope):
    """Acquires the fence of the name without its tenant."""

    async def _acquire_fence(self, execution_id: str, /) -> int:
        token: int = await self.store.acquire_fence(execution_id)
        return token


class ReadsUnderTheStoresNames(PlainScope):
    """Gives envelopes back under the store's execution id."""

    def _back(self, execution_id: str, envelope: EventEnvelope) -> EventEnvelope:
        return super()._back(envelope.execution_id, envelope)


class PrefixesTooLong(PlainScope):
    """Puts a readable prefix before every id, for which a long one leaves no room."""

    def _joined(self, name: str) -> str:
        return f"{len(self.tenant)}:{self.tenant}:{name}"


class HasEveryMethod(PlainScope):
    """Defines every optional method, and raises where the store has none."""

    def __init__(self, store: Any, tenant: str) -> None:
        super().__init__(store, tenant)
        for name in OPTIONAL:
            setattr(self, name, getattr(self, f"_{name}"))


class ForwardsWhatItKnew(PlainScope):
    """Forwards the methods that stores had when it was written: there were no ranges."""

    def __init__(self, store: Any, tenant: str) -> None:
        super().__init__(store, tenant)
        self.__dict__.pop("read_range", None)


class ForwardsPastTheRenaming(PlainScope):
    """Forwards what it does not know as it comes: a batch keeps its bare names."""

    def __init__(self, store: Any, tenant: str) -> None:
        super().__init__(store, tenant)
        for name in OPTIONAL:
            self.__dict__.pop(name, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class SortsTheBatch(PlainScope):
    """Groups a batch by execution and drops what it takes for repetitions."""

    async def _append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        renamed = {one.sequence: self._out(one) for one in envelopes}
        await self.store.append_batch(list(renamed.values()))


class LosesTheMetadata(PlainScope):
    """Overwrites a metadata key of the caller's with its own."""

    def _out(self, envelope: EventEnvelope) -> EventEnvelope:
        out = super()._out(envelope)
        out.metadata["metadata"] = {
            key: value for key, value in envelope.metadata.items() if key != "nested"
        }
        return out


class LosesTheMetadataOfABatch(PlainScope):
    """Builds the envelopes of a batch by a second function, which knows no metadata."""

    async def _append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        bare = [replace(envelope, metadata={}) for envelope in envelopes]
        await self.store.append_batch([self._out(envelope) for envelope in bare])


class LosesTheMetadataOfARange(PlainScope):
    """Renames what a range shows by a second function, which knows no metadata."""

    async def _read_range(self, execution_id: str, first: int, last: int, /) -> list[EventEnvelope]:
        found = await super()._read_range(execution_id, first, last)
        return [replace(envelope, metadata={}) for envelope in found]


class SendsABatchByExecution(PlainScope):
    """Sends the envelopes of each execution as a batch of their own."""

    async def _append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        by_name: dict[str, list[EventEnvelope]] = {}
        for envelope in envelopes:
            by_name.setdefault(envelope.execution_id, []).append(self._out(envelope))
        for batch in by_name.values() or [[]]:
            await self.store.append_batch(batch)


for _claim, _decorator in {
    "scope-joins-by-a-colon": JoinsByAColon,
    "scope-forgets-envelope-ids": ForgetsTheEnvelopesId,
    "scope-folds-tenants": FoldsTenants,
    "scope-cuts-tenants": CutsTenants,
    "scope-slugs-tenants": SlugsTenants,
    "scope-fences-the-bare-name": FencesTheBareName,
    "scope-reads-under-the-stores-names": ReadsUnderTheStoresNames,
    "scope-prefixes-too-long": PrefixesTooLong,
    "scope-has-every-method": HasEveryMethod,
    "scope-forwards-what-it-knew": ForwardsWhatItKnew,
    "scope-forwards-past-the-renaming": ForwardsPastTheRenaming,
    "scope-drops-repetitions": SortsTheBatch,
    "scope-loses-metadata": LosesTheMetadata,
    "scope-loses-metadata-of-a-batch": LosesTheMetadataOfABatch,
    "scope-loses-metadata-of-a-range": LosesTheMetadataOfARange,
    "scope-sends-a-batch-by-execution": SendsABatchByExecution,
}.items():
    wrong(_claim)(scoped_by(_decorator))
