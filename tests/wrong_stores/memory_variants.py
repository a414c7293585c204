"""Correct stores that differ from the reference: all of them must pass."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Iterable, Sequence
from datetime import timedelta, timezone
from typing import Any, overload

from loom_backends.lifecycle import finish
from loom_backends.memory import MemoryEventStore, MemoryLeaseStore, MemoryStorage, Record
from loom_conformance.spi import (
    FENCE_KEY,
    MAX_SEQUENCE,
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    EventStore,
    EventStoreError,
    InvalidEnvelopeError,
    StaleFenceError,
    StoreClosedError,
    differing_fields,
)

from .memory_base import (
    KeyedStore,
    PrivateMemory,
    SuspendingStore,
    Volume,
    correct_memory,
    memory,
    turn,
)
from .registry import variant


@correct_memory("reference")
class Reference(MemoryEventStore):
    """The reference store as it is; none of its calls ever gives way to the event loop."""


@correct_memory("suspending")
class Suspending(SuspendingStore):
    """Gives way once before each write."""


@correct_memory("slow")
class Slow(SuspendingStore):
    """Gives way several times in every call, before and after its work."""

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        await _turns()
        self._write(records)
        await _turns()

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        await _turns()
        found = self._read(execution_id, first, MAX_SEQUENCE)
        await _turns()
        return found

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        await _turns()
        return self._read(execution_id, first, last)

    async def acquire_fence(self, execution_id: str, /) -> int:
        await _turns()
        token = await super().acquire_fence(execution_id)
        await _turns()
        return token

    async def close(self) -> None:
        await super().close()
        await _turns()


async def _turns() -> None:
    for _ in range(4):
        await turn()


class SlowLeases(MemoryLeaseStore):
    """Gives way around each step."""

    async def claim(self, name: str, holder: str, ttl: float, /) -> bool:
        await _turns()
        granted = await super().claim(name, holder, ttl)
        await _turns()
        return granted

    async def renew(self, name: str, holder: str, ttl: float, /) -> bool:
        await _turns()
        return await super().renew(name, holder, ttl)


variant("slow-leases")(memory(MemoryEventStore, leases=SlowLeases))


@correct_memory("one-lock")
class OneLock(SuspendingStore):
    """Serialises all writes of the storage behind one lock, and gives it back when cancelled."""

    storage: Volume

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        async with self.storage.notes.setdefault("lock", asyncio.Lock()):
            await turn()
            self._write(records)
            await turn()


@correct_memory("finishes-what-is-cancelled")
class FinishesWhatIsCancelled(SuspendingStore):
    """Lets a cancelled write end before the cancellation goes on."""

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        await finish(super()._store(records))


@correct_memory("close-waits")
class CloseWaits(SuspendingStore):
    """Waits in `close` for the writes in flight, which it accepts to their end."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._running = 0
        self._closing = False

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        self._running += 1
        try:
            await _turns()
            super()._write(records)
        finally:
            self._running -= 1

    async def close(self) -> None:
        self._closing = True
        while self._running:
            await turn()
        await super().close()

    def _check_open(self) -> None:
        if self.closed or (self._closing and not self._running):
            raise StoreClosedError


@correct_memory("ids-by-execution", envelope_ids="execution")
class IdsByExecution(KeyedStore):
    """Has envelope ids unique in an execution, and says so."""

    def _id_key(self, record: Record) -> str:
        return f"{record.execution_id}\x00{record.id}"


@correct_memory("refuses-gaps", sparse_sequences=False)
class RefusesGaps(MemoryEventStore):
    """Refuses a write that does not follow the last one."""

    def _check_unique(self, records: Iterable[Record]) -> None:
        given = list(records)
        super()._check_unique(given)
        ends: dict[str, int] = {}
        for record in given:
            log = self.storage.logs.get(record.execution_id)
            stored = len(log.sequences) if log is not None else 0
            following = ends.get(record.execution_id, stored)
            if record.sequence != following:
                raise EventStoreError(f"expected version {following}, not {record.sequence}")
            ends[record.execution_id] = following + 1


@correct_memory("no-batch")
class NoBatch(MemoryEventStore):
    """Writes one envelope a call."""

    append_batch = None  # type: ignore[assignment]


@correct_memory("no-range")
class NoRange(MemoryEventStore):
    """Reads from a sequence on, and no closed interval."""

    read_range = None  # type: ignore[assignment]


@correct_memory("no-fencing")
class NoFencing(MemoryEventStore):
    """Has no fences, and refuses a token."""

    acquire_fence = None  # type: ignore[assignment]


@correct_memory("core-only", declined={"leases": "one node", "coalescing": "no batches"})
class CoreOnly(MemoryEventStore):
    """Has nothing optional, and says of some of it why."""

    append_batch = None  # type: ignore[assignment]
    read_range = None  # type: ignore[assignment]
    acquire_fence = None  # type: ignore[assignment]


@correct_memory("declines-what-it-has", declined={"fencing": "single node", "batch": "untested"})
class DeclinesWhatItHas(MemoryEventStore):
    """Has methods that it does not stand behind."""


@correct_memory("batch-of-one-execution", batch_scope="execution")
class BatchOfOneExecution(MemoryEventStore):
    """Refuses a batch that spans executions, and says so."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        given = list(envelopes)
        if len({envelope.execution_id for envelope in given}) > 1:
            raise ValueError("a batch holds one execution here")
        await super().append_batch(given)


@correct_memory("batch-of-a-hundred", max_batch=100)
class BatchOfAHundred(MemoryEventStore):
    """Takes batches of up to 100, and says so."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        given = list(envelopes)
        if len(given) > 100:
            raise ValueError(f"a batch of {len(given)}; the limit is 100")
        await super().append_batch(given)


@correct_memory("reads-in-chunks")
class ReadsInChunks(MemoryEventStore):
    """Reads pages of 100 by the last sequence seen, each in a turn of its own."""

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        return await self._pages(execution_id, first, MAX_SEQUENCE)

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        return await self._pages(execution_id, first, last)

    async def _pages(self, execution_id: str, first: int, last: int) -> Sequence[EventEnvelope]:
        snapshot = self._read(execution_id, first, last)
        found: list[EventEnvelope] = []
        for start in range(0, len(snapshot), 100):
            await turn()
            found += snapshot[start : start + 100]
        return found


@correct_memory("returns-tuples")
class ReturnsTuples(MemoryEventStore):
    """Returns tuples."""

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        return tuple(self._read(execution_id, first, MAX_SEQUENCE))


class Rows(Sequence[EventEnvelope]):
    """A result set that decodes each row when it is asked for."""

    def __init__(self, store: MemoryEventStore, rows: Sequence[Record]) -> None:
        self._decode = store._decode
        self._rows = rows

    @overload
    def __getitem__(self, place: int) -> EventEnvelope: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[EventEnvelope]: ...

    def __getitem__(self, place: int | slice) -> EventEnvelope | Sequence[EventEnvelope]:
        if isinstance(place, slice):
            return [self._decode(row) for row in self._rows[place]]
        return self._decode(self._rows[place])

    def __len__(self) -> int:
        return len(self._rows)


@correct_memory("returns-a-result-set")
class ReturnsAResultSet(MemoryEventStore):
    """Returns a sequence of a class of its own."""

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        self._read(execution_id, first, first)
        log = self.storage.logs.get(execution_id)
        if log is None:
            return Rows(self, [])
        return Rows(self, [log.records[place] for place in log.sequences if place >= first])


class Event(EventEnvelope):
    """An envelope of the store's own class."""

    __slots__ = ()


@correct_memory("envelopes-of-its-own")
class EnvelopesOfItsOwn(MemoryEventStore):
    """Returns instances of a subclass, with timestamps in another zone and numbers as floats."""

    def _decode(self, record: Record) -> EventEnvelope:
        one = super()._decode(record)
        payload: Any = one.payload
        if type(payload) is int and abs(payload) < 2**52:
            payload = float(payload)
        zone = timezone(timedelta(hours=-3))
        moment = one.timestamp.astimezone(zone) if one.timestamp.year < 9999 else one.timestamp
        return Event(
            one.execution_id, one.sequence, one.id, one.kind, moment, payload, one.metadata
        )


@correct_memory("falsy")
class Falsy(MemoryEventStore):
    """Is false, since it is empty by its own count, and hands out methods beside the contract's."""

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    async def read_all(self) -> Sequence[EventEnvelope]:
        """Everything."""
        return []

    def append_many(self, *_: object) -> None:
        """No method of the contract's."""
        raise NotImplementedError


class Slotted:
    """A handle without a dictionary, that takes its calls to a reference store."""

    __slots__ = ("_inner",)

    def __init__(self, storage: MemoryStorage) -> None:
        self._inner = MemoryEventStore(storage)

    async def append(self, envelope: EventEnvelope, /) -> None:
        """As the reference."""
        await self._inner.append(envelope)

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        """As the reference."""
        await self._inner.append_batch(envelopes)

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        """As the reference."""
        return await self._inner.read_from(execution_id, first)

    async def close(self) -> None:
        """As the reference."""
        await self._inner.close()


@correct_memory("slotted")
class SlottedWithoutFences(Slotted):
    """A slotted handle; it has neither ranges nor fences, and refuses tokens."""

    __slots__ = ()


class Decorated:
    """A decorator that forwards whatever its store has."""

    def __init__(self, storage: MemoryStorage) -> None:
        self._inner = MemoryEventStore(storage)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


variant("decorated")(memory(Decorated))


class ReturnsFutures:
    """A handle whose plain methods return awaitables that are no coroutines."""

    def __init__(self, storage: MemoryStorage) -> None:
        self._inner = MemoryEventStore(storage)

    def append(self, envelope: EventEnvelope, /) -> Awaitable[None]:
        """As the reference, in a task; the value is taken at once."""
        return asyncio.ensure_future(self._store([self._inner._encode(envelope)]))

    def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> Awaitable[None]:
        """As the reference, in a task; the values are taken at once."""
        records = [self._inner._encode(envelope) for envelope in envelopes]
        return asyncio.ensure_future(self._store(records))

    async def _store(self, records: Sequence[Record]) -> None:
        self._inner._write(records)

    def read_from(self, execution_id: str, first: int = 0, /) -> Awaitable[Sequence[EventEnvelope]]:
        """As the reference, in a task."""
        return asyncio.ensure_future(self._inner.read_from(execution_id, first))

    def acquire_fence(self, execution_id: str, /) -> Awaitable[int]:
        """As the reference, in a task."""
        return asyncio.ensure_future(self._inner.acquire_fence(execution_id))

    def close(self) -> Awaitable[None]:
        """As the reference, in a task."""
        return asyncio.ensure_future(self._inner.close())


variant("returns-futures")(memory(ReturnsFutures))


class TakenError(DuplicateSequenceError):
    """A subclass with a message of its own."""

    def __str__(self) -> str:
        return f"version conflict on {self.execution_id}"


class StaleRunnerError(StaleFenceError):
    """A subclass."""


class HandleGoneError(StoreClosedError):
    """A subclass."""


@correct_memory("raises-subclasses")
class RaisesSubclasses(MemoryEventStore):
    """Raises subclasses of the contract's errors."""

    def _check_unique(self, records: Iterable[Record]) -> None:
        try:
            super()._check_unique(records)
        except DuplicateSequenceError as error:
            raise TakenError(error.execution_id, error.sequence) from None

    def _check_fence(self, record: Record) -> None:
        try:
            super()._check_fence(record)
        except StaleFenceError as error:
            raise StaleRunnerError(error.execution_id, error.given, error.current) from None

    def _check_open(self) -> None:
        if self.closed:
            raise HandleGoneError


def _second_copy() -> dict[str, type[Exception]]:
    """The contract's errors once more, as another installation would define them."""
    root = type("EventStoreError", (Exception,), {})
    copies: dict[str, type[Exception]] = {"EventStoreError": root}
    for name in ("DuplicateSequenceError", "DuplicateEnvelopeIdError", "StaleFenceError"):
        copies[name] = type(name, (root,), {})
    copies["StoreClosedError"] = type("StoreClosedError", (root,), {})
    copies["InvalidEnvelopeError"] = type("InvalidEnvelopeError", (root, ValueError), {})
    return copies


_COPIES = _second_copy()


@correct_memory("second-copy-of-the-errors")
class SecondCopyOfTheErrors(MemoryEventStore):
    """Raises the errors of a second copy of the contract, which are known by name."""

    def _write(self, records: Sequence[Record]) -> None:
        try:
            super()._write(records)
        except EventStoreError as error:
            raise self._copied(error) from None

    def _encode(self, envelope: EventEnvelope) -> Record:
        try:
            return super()._encode(envelope)
        except EventStoreError as error:
            raise self._copied(error) from None

    def _check_open(self) -> None:
        if self.closed:
            raise _COPIES["StoreClosedError"]("closed")

    def _copied(self, error: EventStoreError) -> Exception:
        twin = _COPIES[type(error).__name__](str(error))
        twin.__dict__.update(error.__dict__)
        return twin


@correct_memory("refuses-with-a-value-error")
class RefusesWithAValueError(MemoryEventStore):
    """Refuses what is outside the domain with a plain ValueError."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        try:
            return super()._encode(envelope)
        except InvalidEnvelopeError as error:
            raise ValueError(error.reason) from None


@correct_memory("takes-tokens-that-are-news", advice=("FENCE-13",))
class TakesTokensThatAreNews(MemoryEventStore):
    """Takes a larger token for the news of an acquire elsewhere."""

    def _check_fence(self, record: Record) -> None:
        current = self.storage.fences.get(record.execution_id)
        if current is not None and (record.fence is None or record.fence < current):
            raise StaleFenceError(record.execution_id, record.fence, current)


@correct_memory("tokens-of-one-counter")
class TokensOfOneCounter(MemoryEventStore):
    """Counts tokens for the whole store in steps of seven, and compares them by execution."""

    storage: Volume

    async def acquire_fence(self, execution_id: str, /) -> int:
        await super().acquire_fence(execution_id)
        token: int = self.storage.notes.get("tokens", 1000) + 7
        self.storage.notes["tokens"] = self.storage.fences[execution_id] = token
        return token


@correct_memory("set-up-before", sets_up_on_connect=False)
class SetUpBefore(MemoryEventStore):
    """Is set up by a step of its own."""


@correct_memory("one-process", one_process_at_a_time=True)
class OneProcess(MemoryEventStore):
    """Is locked by one process."""


@correct_memory("knows-a-fault")
class KnowsAFault(MemoryEventStore):
    """Raises an EventStoreError, with its cause, when its storage is gone."""

    storage: Volume

    def _write(self, records: Sequence[Record]) -> None:
        if self.storage.gone:
            raise EventStoreError("the storage is gone") from OSError("no such file")
        super()._write(records)


def _key(value: object) -> tuple[str, object]:
    return type(value).__name__, value


class KeepsEverything:
    """Keeps any value whose copy equals it, in the domain or not, and refuses the others."""

    def __init__(self, storage: Volume) -> None:
        self.storage = storage
        self.closed = False
        notes = storage.notes
        self._slots: dict[Any, dict[Any, EventEnvelope]] = notes.setdefault("slots", {})
        self._ids: dict[Any, None] = notes.setdefault("ids", {})

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Store one envelope."""
        self._write([envelope])

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        """Store all envelopes or none."""
        self._write(list(envelopes))

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        """The execution from `first` on; numbers before everything else."""
        self._check_open()
        return [
            copy.deepcopy(one)
            for one in sorted(self._slots.get(_key(execution_id), {}).values(), key=_place)
            if not isinstance(one.sequence, int) or one.sequence >= first
        ]

    async def acquire_fence(self, execution_id: str, /) -> int:
        """One more than the last."""
        self._check_open()
        token = self.storage.fences.get(execution_id, 0) + 1
        self.storage.fences[execution_id] = token
        return token

    async def close(self) -> None:
        """Refuse further calls."""
        self.closed = True

    def _check_open(self) -> None:
        if self.closed:
            raise StoreClosedError

    def _write(self, envelopes: Sequence[EventEnvelope]) -> None:
        self._check_open()
        try:
            kept = [copy.deepcopy(envelope) for envelope in envelopes]
        except RecursionError as error:
            raise InvalidEnvelopeError("a value that is nested too deep") from error
        for envelope, twin in zip(envelopes, kept, strict=True):
            if differing_fields(envelope, twin):
                raise InvalidEnvelopeError("a value that cannot be copied")
            if isinstance(envelope.sequence, int) and envelope.sequence < 0:
                raise InvalidEnvelopeError("no read would show a negative sequence")
        for envelope in kept:
            self._check_fence(envelope)
        slots: set[object] = set()
        ids: set[object] = set()
        for envelope in kept:
            slot = _key(envelope.execution_id), _key(envelope.sequence)
            if slot in slots or slot[1] in self._slots.get(slot[0], {}):
                raise DuplicateSequenceError(envelope.execution_id, envelope.sequence)
            if _key(envelope.id) in self._ids or _key(envelope.id) in ids:
                raise DuplicateEnvelopeIdError(envelope.execution_id, envelope.id)
            slots.add(slot)
            ids.add(_key(envelope.id))
        for envelope in kept:
            log = self._slots.setdefault(_key(envelope.execution_id), {})
            log[_key(envelope.sequence)] = envelope
            self._ids[_key(envelope.id)] = None

    def _check_fence(self, envelope: EventEnvelope) -> None:
        current = self.storage.fences.get(envelope.execution_id)
        metadata: object = envelope.metadata
        given: Any = metadata.get(FENCE_KEY) if isinstance(metadata, dict) else None
        strange = given is not None and (type(given) is not int or given < 1)
        if current is None and strange:
            return
        if type(given) is not type(current) or given != current:
            raise StaleFenceError(envelope.execution_id, given, current)


def _place(envelope: EventEnvelope) -> tuple[int, Any]:
    sequence: object = envelope.sequence
    if isinstance(sequence, int | float):
        return 0, sequence
    return 1, str(sequence)


variant("keeps-everything")(memory(KeepsEverything))


@variant("addresses-of-any-form")
class AddressesOfAnyForm(PrivateMemory):
    """Has addresses with everything that a DSN may hold."""

    name = "memory, by DSN"

    async def create(self) -> str:
        address = f"mem://user:p%40ss@[::1]:0/a b/ä?x='1'&n={len(self.storages)}#f"
        self.storages[address] = Volume()
        return address


@variant("handles-are-one-object")
class HandlesAreOneObject(PrivateMemory):
    """Hands out facades over one shared store object."""

    async def connect(self, address: str) -> EventStore:  # type: ignore[override]
        storage = self.storages[address]
        shared = storage.notes.setdefault("shared", MemoryEventStore(storage))
        facade: EventStore = Facade(shared)
        return facade


class Facade:
    """A handle that closes itself and not what it shares."""

    def __init__(self, shared: MemoryEventStore) -> None:
        self._shared = shared
        self._closed = False

    def _open(self) -> MemoryEventStore:
        if self._closed:
            raise StoreClosedError
        return self._shared

    async def append(self, envelope: EventEnvelope, /) -> None:
        """As the shared store."""
        await self._open().append(envelope)

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        """As the shared store."""
        await self._open().append_batch(envelopes)

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        """As the shared store."""
        return await self._open().read_from(execution_id, first)

    async def acquire_fence(self, execution_id: str, /) -> int:
        """As the shared store."""
        return await self._open().acquire_fence(execution_id)

    async def close(self) -> None:
        """Refuse further calls."""
        self._closed = True
