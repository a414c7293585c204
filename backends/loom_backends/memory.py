"""An event store in this process's memory, and its backend."""

from __future__ import annotations

import itertools
import marshal
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Final, NamedTuple

from loom_conformance.backend import Backend
from loom_conformance.spi import (
    FENCE_KEY,
    MAX_SEQUENCE,
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    JsonValue,
    StaleFenceError,
    StoreClosedError,
    check_envelope,
    check_key,
    decode_json,
    encode_json,
)

from .leases import check_lease, check_ttl


class Record(NamedTuple):
    """An envelope as it is kept: its JSON as bytes, so that nobody can change it from outside."""

    execution_id: str
    sequence: int
    id: str
    kind: str
    timestamp: datetime
    payload: bytes
    metadata: bytes
    fence: int | None


def freeze(value: JsonValue) -> bytes:
    """A checked JSON value as bytes that only this process reads; JSON text would cost thrice."""
    try:
        return marshal.dumps(value, _WITHOUT_REFERENCES)
    except ValueError:  # a subclass of a JSON class, such as an enumeration's member
        return marshal.dumps(decode_json(encode_json(value)), _WITHOUT_REFERENCES)


def thaw(data: bytes) -> JsonValue:
    """A value of its own for each reader, equal to the one that was frozen."""
    value: JsonValue = marshal.loads(data)
    return value


_WITHOUT_REFERENCES: Final = 2
"""The format in which a list that stands twice in a value comes back as two lists, as in JSON."""


@dataclass(slots=True)
class Log:
    """One execution's records, and their sequences in order."""

    records: dict[int, Record] = field(default_factory=dict)
    sequences: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Lease:
    """Who holds a lease, and until when by `time.monotonic`."""

    holder: str
    ends: float


@dataclass(slots=True)
class MemoryStorage:
    """What the handles of one storage share."""

    logs: dict[str, Log] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    fences: dict[str, int] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)


class MemoryEventStore:
    """One handle on a `MemoryStorage`.

    No method suspends between its check and its write, so each is atomic on the event loop that
    all handles of the storage share. Envelopes are kept as encoded records: they are values.
    """

    def __init__(self, storage: MemoryStorage) -> None:
        self.storage = storage
        self.closed = False

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Store one envelope."""
        self._write([self._encode(envelope)])

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        """Store all envelopes or none."""
        self._write([self._encode(envelope) for envelope in envelopes])

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        """The execution's envelopes with `sequence >= first`, ascending."""
        return self._read(execution_id, first, MAX_SEQUENCE)

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        """The execution's envelopes with `first <= sequence <= last`, ascending."""
        return self._read(execution_id, first, last)

    async def acquire_fence(self, execution_id: str, /) -> int:
        """The execution's new current token; older ones are stale from now on."""
        self._check_open()
        check_key("execution_id", execution_id)
        token = self.storage.fences.get(execution_id, 0) + 1
        self.storage.fences[execution_id] = token
        return token

    async def close(self) -> None:
        """Refuse further calls; the storage lives on for other handles."""
        self.closed = True

    def _write(self, records: Sequence[Record]) -> None:
        """Check every record, then keep every record: nothing else runs in between."""
        self._check_open()
        for record in records:
            self._check_fence(record)
        self._check_unique(records)
        for record in records:
            self._insert(record)

    def _check_fence(self, record: Record) -> None:
        current = self.storage.fences.get(record.execution_id)
        if record.fence != current:
            raise StaleFenceError(record.execution_id, record.fence, current)

    def _check_unique(self, records: Iterable[Record]) -> None:
        slots: set[tuple[str, int]] = set()
        ids: set[str] = set()
        for record in records:
            slot = record.execution_id, record.sequence
            log = self.storage.logs.get(record.execution_id)
            if slot in slots or (log is not None and record.sequence in log.records):
                raise DuplicateSequenceError(record.execution_id, record.sequence)
            if record.id in ids or record.id in self.storage.ids:
                raise DuplicateEnvelopeIdError(record.execution_id, record.id)
            slots.add(slot)
            ids.add(record.id)

    def _insert(self, record: Record) -> None:
        log = self.storage.logs.get(record.execution_id)
        if log is None:
            log = self.storage.logs[record.execution_id] = Log()
        log.records[record.sequence] = record
        if not log.sequences or log.sequences[-1] < record.sequence:
            log.sequences.append(record.sequence)
        else:
            insort(log.sequences, record.sequence)
        self.storage.ids.add(record.id)

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        self._check_open()
        check_key("execution_id", execution_id)
        log = self.storage.logs.get(execution_id)
        if log is None:
            return []
        low, high = bisect_left(log.sequences, first), bisect_right(log.sequences, last)
        return [self._decode(log.records[sequence]) for sequence in log.sequences[low:high]]

    def _check_open(self) -> None:
        if self.closed:
            raise StoreClosedError

    def _encode(self, envelope: EventEnvelope) -> Record:
        check_envelope(envelope)
        return Record(
            envelope.execution_id,
            envelope.sequence,
            envelope.id,
            envelope.kind,
            envelope.timestamp,
            freeze(envelope.payload),
            freeze(envelope.metadata),
            envelope.metadata.get(FENCE_KEY),  # type: ignore[arg-type]  # checked: a token or None
        )

    def _decode(self, record: Record) -> EventEnvelope:
        return EventEnvelope(
            record.execution_id,
            record.sequence,
            record.id,
            record.kind,
            record.timestamp,
            thaw(record.payload),
            thaw(record.metadata),  # type: ignore[arg-type]  # it was an object
        )


class MemoryLeaseStore:
    """One handle on the leases of a `MemoryStorage`, judged by this process's monotonic clock."""

    def __init__(self, storage: MemoryStorage) -> None:
        self.storage = storage
        self.closed = False

    async def claim(self, name: str, holder: str, ttl: float, /) -> bool:
        """Take the lease if nobody's is live, the holder's own included; whether it was taken."""
        self._check_open()
        check_lease(name, holder)
        ends = time.monotonic() + check_ttl(ttl)
        if self._live(name) is not None:
            return False
        self.storage.leases[name] = Lease(holder, ends)
        return True

    async def renew(self, name: str, holder: str, ttl: float, /) -> bool:
        """Let a live lease end `ttl` from now; `False` if the holder's is not live any more."""
        self._check_open()
        check_lease(name, holder)
        ends = time.monotonic() + check_ttl(ttl)
        lease = self._live(name)
        if lease is None or lease.holder != holder:
            return False
        lease.ends = ends
        return True

    async def release(self, name: str, holder: str, /) -> bool:
        """End the holder's lease; `False` if the holder's is not live any more."""
        self._check_open()
        check_lease(name, holder)
        lease = self._live(name)
        if lease is None or lease.holder != holder:
            return False
        del self.storage.leases[name]
        return True

    async def close(self) -> None:
        """Refuse further calls; leases go on."""
        self.closed = True

    def _live(self, name: str) -> Lease | None:
        lease = self.storage.leases.get(name)
        return lease if lease is not None and time.monotonic() < lease.ends else None

    def _check_open(self) -> None:
        if self.closed:
            raise StoreClosedError


_STORAGES: Final[dict[str, MemoryStorage]] = {}
_NUMBERS: Final = itertools.count(1)


class MemoryBackend(Backend):
    """Storages in a table of this process; an address is a key of it."""

    name = "memory"
    envelope_ids = "store"
    outlives_process = False
    sparse_sequences = True
    durability: ClassVar[str] = "none: the storage ends with its process"

    async def create(self) -> str:
        """Make an empty storage."""
        address = f"memory:{next(_NUMBERS)}"
        _STORAGES[address] = MemoryStorage()
        return address

    async def connect(self, address: str) -> MemoryEventStore:
        """Open a handle on a storage of this process."""
        return MemoryEventStore(_STORAGES[address])

    async def destroy(self, address: str) -> None:
        """Forget a storage."""
        _STORAGES.pop(address, None)

    async def connect_leases(self, address: str) -> MemoryLeaseStore:
        """Open a handle on the leases of a storage."""
        return MemoryLeaseStore(_STORAGES[address])

    async def age_leases(self, address: str, seconds: float) -> None:
        """Move the end of every lease `seconds` back, which is the same as waiting so long."""
        for lease in _STORAGES[address].leases.values():
            lease.ends -= seconds
