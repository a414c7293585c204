"""Wrong stores that let a fenced-out writer through, or hold up the right one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from loom_backends.memory import MemoryEventStore, MemoryStorage, Record, freeze, thaw
from loom_conformance.spi import (
    FENCE_KEY,
    EventEnvelope,
    EventStoreError,
    StaleFenceError,
    check_envelope,
    check_key,
)

from .memory_base import KeyedStore, SuspendingStore, Volume, turn, wrong_memory

_WHEN = datetime(2026, 1, 1, tzinfo=UTC)


class _Judged(MemoryEventStore):
    """Has the comparison of the given token with the current one as a method to override."""

    def _passes(self, given: int | None, current: int | None) -> bool:
        return given == current

    def _check_fence(self, record: Record) -> None:
        current = self.storage.fences.get(record.execution_id)
        if not self._passes(record.fence, current):
            raise StaleFenceError(record.execution_id, record.fence, current)


@wrong_memory("fence-in-the-object")
class FenceInTheObject(MemoryEventStore):
    """Keeps the fences in the store object, so that each handle has its own."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._fences: dict[str, int] = {}

    async def acquire_fence(self, execution_id: str, /) -> int:
        self._check_open()
        check_key("execution_id", execution_id)
        self._fences[execution_id] = self._fences.get(execution_id, 0) + 1
        return self._fences[execution_id]

    def _check_fence(self, record: Record) -> None:
        current = self._fences.get(record.execution_id)
        if record.fence != current:
            raise StaleFenceError(record.execution_id, record.fence, current)


@wrong_memory("checks-against-its-own-token")
class ChecksAgainstItsOwnToken(MemoryEventStore):
    """Compares with the token that this handle acquired, where it acquired one."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._own: dict[str, int] = {}

    async def acquire_fence(self, execution_id: str, /) -> int:
        token = await super().acquire_fence(execution_id)
        self._own[execution_id] = token
        return token

    def _check_fence(self, record: Record) -> None:
        own = self._own.get(record.execution_id)
        if own is None:
            super()._check_fence(record)
        elif record.fence != own:
            raise StaleFenceError(record.execution_id, record.fence, own)


@wrong_memory("token-read-then-written")
class TokenReadThenWritten(MemoryEventStore):
    """Reads the highest token and writes the next one a turn later."""

    async def acquire_fence(self, execution_id: str, /) -> int:
        self._check_open()
        check_key("execution_id", execution_id)
        token = self.storage.fences.get(execution_id, 0) + 1
        await turn()
        self.storage.fences[execution_id] = max(token, self.storage.fences.get(execution_id, 0))
        return token


@wrong_memory("returns-the-token-it-read")
class ReturnsTheTokenItRead(SuspendingStore):
    """Moves the counter in one statement and reads it back in another, after others moved it."""

    async def acquire_fence(self, execution_id: str, /) -> int:
        await super().acquire_fence(execution_id)
        await turn()
        return self.storage.fences[execution_id]


@wrong_memory("acquire-is-idempotent")
class AcquireIsIdempotent(MemoryEventStore):
    """Gives a handle that holds the fence its old token again."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._own: dict[str, int] = {}

    async def acquire_fence(self, execution_id: str, /) -> int:
        own = self._own.get(execution_id)
        if own is not None and own == self.storage.fences.get(execution_id):
            self._check_open()
            return own
        self._own[execution_id] = await super().acquire_fence(execution_id)
        return self._own[execution_id]


@wrong_memory("token-is-the-length")
class TokenIsTheLength(MemoryEventStore):
    """Takes the length of the log for the token, so two acquires without a write get the same."""

    async def acquire_fence(self, execution_id: str, /) -> int:
        self._check_open()
        check_key("execution_id", execution_id)
        log = self.storage.logs.get(execution_id)
        token = 1 + (len(log.sequences) if log is not None else 0)
        self.storage.fences[execution_id] = token
        return token


@wrong_memory("missing-token-skips-the-check")
class MissingTokenSkipsTheCheck(_Judged):
    """Checks the token only where there is one: `if fence is not None`."""

    def _passes(self, given: int | None, current: int | None) -> bool:
        return given is None or given == current


@wrong_memory("older-token-passes")
class OlderTokenPasses(_Judged):
    """Wants a token once there is a fence, and takes any."""

    def _passes(self, given: int | None, current: int | None) -> bool:
        return (given is None) == (current is None)


@wrong_memory("last-two-tokens-pass")
class LastTwoTokensPass(_Judged):
    """Is off by one: the token before the current one still passes."""

    def _passes(self, given: int | None, current: int | None) -> bool:
        if given is None or current is None:
            return given == current
        return current - 1 <= given <= current


@wrong_memory("token-ahead-passes")
class TokenAheadPasses(_Judged):
    """Refuses what is older than the current token, and only that."""

    def _passes(self, given: int | None, current: int | None) -> bool:
        if given is None or current is None:
            return given == current
        return given >= current


@wrong_memory("token-without-fence-passes")
class TokenWithoutFencePasses(_Judged):
    """Takes any token for an execution that was never fenced."""

    def _passes(self, given: int | None, current: int | None) -> bool:
        return current is None or given == current


@wrong_memory("fence-of-batches-unchecked")
class FenceOfBatchesUnchecked(MemoryEventStore):
    """Checks the fence in `append` and forgot it in `append_batch`."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        records = [self._encode(envelope) for envelope in envelopes]
        self._check_open()
        self._check_unique(records)
        for record in records:
            self._insert(record)


@wrong_memory("fence-of-the-first-only")
class FenceOfTheFirstOnly(MemoryEventStore):
    """Checks the token of a batch's first envelope alone."""

    def _write(self, records: Sequence[Record]) -> None:
        self._check_open()
        for record in records[:1]:
            self._check_fence(record)
        self._check_unique(records)
        for record in records:
            self._insert(record)


@wrong_memory("fence-of-the-batchs-executions")
class FenceOfTheBatchsExecutions(MemoryEventStore):
    """Reads one token an execution and batch: the last envelope's answers for all of them."""

    def _write(self, records: Sequence[Record]) -> None:
        self._check_open()
        for record in {record.execution_id: record for record in records}.values():
            self._check_fence(record)
        self._check_unique(records)
        for record in records:
            self._insert(record)


@wrong_memory("one-token-for-the-batch")
class OneTokenForTheBatch(MemoryEventStore):
    """Takes the batch's largest token for all of its envelopes."""

    def _write(self, records: Sequence[Record]) -> None:
        self._check_open()
        token = max((record.fence or 0 for record in records), default=0)
        for record in records:
            current = self.storage.fences.get(record.execution_id, 0)
            if token < current:
                raise StaleFenceError(record.execution_id, record.fence, current)
            if len(records) == 1:
                self._check_fence(record)
        self._check_unique(records)
        for record in records:
            self._insert(record)


@wrong_memory("stale-envelopes-are-dropped")
class StaleEnvelopesAreDropped(MemoryEventStore):
    """Drops the stale envelopes of a batch and writes the others."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        records = [self._encode(envelope) for envelope in envelopes]
        good = []
        for record in records:
            if record.fence == self.storage.fences.get(record.execution_id):
                good.append(record)
        self._write(good)
        if len(good) < len(records):
            self._write(records)


@wrong_memory("one-fence-for-the-store")
class OneFenceForTheStore(KeyedStore):
    """Has one counter and one current token for the whole store."""

    def _fence_key(self, execution_id: str) -> str:
        return "*"


@wrong_memory("fence-by-prefix")
class FenceByPrefix(MemoryEventStore):
    """Finds the fence row by the beginning of the execution id."""

    def _check_fence(self, record: Record) -> None:
        super()._check_fence(record)
        for end in range(1, len(record.execution_id)):
            current = self.storage.fences.get(record.execution_id[:end])
            if current is not None and record.fence != current:
                raise StaleFenceError(record.execution_id, record.fence, current)


@wrong_memory("fence-checked-last")
class FenceCheckedLast(MemoryEventStore):
    """Lets the unique index speak first: a stale duplicate is a duplicate."""

    def _write(self, records: Sequence[Record]) -> None:
        self._check_open()
        self._check_unique(records)
        super()._write(records)


@wrong_memory("known-ids-before-the-fence")
class KnownIdsBeforeTheFence(MemoryEventStore):
    """Refuses a known id before it looks at the fence."""

    def _write(self, records: Sequence[Record]) -> None:
        self._check_open()
        for record in records:
            if record.id in self.storage.ids:
                self._check_unique([record])
        super()._write(records)


@wrong_memory("fence-checked-apart")
class FenceCheckedApart(SuspendingStore):
    """Checks the fence in one step and inserts in another."""

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        for record in records:
            self._check_fence(record)
        await turn()
        self._check_unique(records)
        for record in records:
            self._insert(record)


@wrong_memory("first-acquire-locks-nothing")
class FirstAcquireLocksNothing(SuspendingStore):
    """Locks the fence row between check and insert, and there is none before the first acquire."""

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        for record in records:
            self._check_fence(record)
        unlocked = {record.execution_id for record in records} - set(self.storage.fences)
        await turn()
        for record in records:
            if record.execution_id not in unlocked:
                self._check_fence(record)
        self._check_unique(records)
        for record in records:
            self._insert(record)


@wrong_memory("token-is-used-up")
class TokenIsUsedUp(MemoryEventStore):
    """Takes a token for one write only."""

    storage: Volume

    def _check_fence(self, record: Record) -> None:
        super()._check_fence(record)
        if record.fence is None:
            return
        used = self.storage.notes.get((record.execution_id, record.fence))
        if used is not None and used is not self._batch:
            raise StaleFenceError(record.execution_id, record.fence, record.fence)

    _batch: object = None

    def _write(self, records: Sequence[Record]) -> None:
        self._batch = object()
        super()._write(records)
        for record in records:
            self.storage.notes[record.execution_id, record.fence] = self._batch


@wrong_memory("token-wanted-from-the-start")
class TokenWantedFromTheStart(_Judged):
    """Demands a token before there is one."""

    def _check_fence(self, record: Record) -> None:
        super()._check_fence(record)
        log = self.storage.logs.get(record.execution_id)
        if record.fence is None and log is not None and len(log.sequences) >= 2:
            raise StaleFenceError(record.execution_id, None, None)


@wrong_memory("fence-needs-an-execution")
class FenceNeedsAnExecution(MemoryEventStore):
    """Has a foreign key from the fence to the execution, which its first event makes."""

    async def acquire_fence(self, execution_id: str, /) -> int:
        self._check_open()
        if execution_id not in self.storage.logs:
            raise EventStoreError(f"no such execution: {execution_id!r}")
        return await super().acquire_fence(execution_id)


@wrong_memory("fence-of-the-unwritten-is-lost")
class FenceOfTheUnwrittenIsLost(MemoryEventStore):
    """Updates the fence in the execution's row: where there is none, nothing is kept."""

    async def acquire_fence(self, execution_id: str, /) -> int:
        token = await super().acquire_fence(execution_id)
        if execution_id not in self.storage.logs:
            del self.storage.fences[execution_id]
        return token


@wrong_memory("fence-is-an-event")
class FenceIsAnEvent(MemoryEventStore):
    """Writes an event of its own into the log at every acquire."""

    async def acquire_fence(self, execution_id: str, /) -> int:
        token = await super().acquire_fence(execution_id)
        log = self.storage.logs.get(execution_id)
        if log is None:
            record = Record(
                execution_id,
                0,
                f"fence-{execution_id}",
                "FENCED",
                _WHEN,
                freeze(None),
                freeze({}),
                None,
            )
            self._insert(record)
        return token


@wrong_memory("fence-ends-with-the-handle")
class FenceEndsWithTheHandle(MemoryEventStore):
    """Ties the fence to the session: it is gone when the handle closes."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._own: set[str] = set()

    async def acquire_fence(self, execution_id: str, /) -> int:
        token = await super().acquire_fence(execution_id)
        self._own.add(execution_id)
        return token

    async def close(self) -> None:
        await super().close()
        for execution_id in self._own:
            self.storage.fences.pop(execution_id, None)
        self._own.clear()


class _Lenient(MemoryEventStore):
    """Lets anything stand where the token should, and judges it in a way of its own."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        rest = (
            {key: value for key, value in envelope.metadata.items() if key != FENCE_KEY}
            if (isinstance(envelope.metadata, dict))
            else envelope.metadata
        )
        given: Any = (
            envelope.metadata.get(FENCE_KEY) if isinstance(envelope.metadata, dict) else None
        )
        checked = EventEnvelope(
            envelope.execution_id,
            envelope.sequence,
            envelope.id,
            envelope.kind,
            envelope.timestamp,
            envelope.payload,
            rest,
        )
        check_envelope(checked)
        return super()._encode(checked)._replace(metadata=freeze(envelope.metadata), fence=given)


@wrong_memory("token-through-int")
class TokenThroughInt(_Lenient):
    """Compares after `int()`: `"1"`, `True` and 1.5 pass for 1."""

    def _check_fence(self, record: Record) -> None:
        given: Any = record.fence
        if isinstance(given, str | float | bool):
            try:
                given = int(given)
            except ValueError as error:
                current = self.storage.fences.get(record.execution_id)
                raise StaleFenceError(record.execution_id, given, current) from error
        current = self.storage.fences.get(record.execution_id)
        if given != current:
            raise StaleFenceError(record.execution_id, record.fence, current)


@wrong_memory("token-by-truth")
class TokenByTruth(_Lenient):
    """Tests `if token and token < current`: 0, an empty text and false pass."""

    def _check_fence(self, record: Record) -> None:
        given: Any = record.fence
        current = self.storage.fences.get(record.execution_id)
        if current is None and given is None:
            return
        if given is None or (given and (isinstance(given, bool) or given != current)):
            raise StaleFenceError(record.execution_id, given, current)


@wrong_memory("true-is-one")
class TrueIsOne(_Lenient):
    """Compares with `==`, by which `True` and 1.0 are 1."""

    def _check_fence(self, record: Record) -> None:
        current = self.storage.fences.get(record.execution_id)
        if record.fence != current:
            raise StaleFenceError(record.execution_id, record.fence, current)


@wrong_memory("token-as-text")
class TokenAsText(_Lenient):
    """Compares tokens as text, by which 9 is greater than 10."""

    def _check_fence(self, record: Record) -> None:
        given: Any = record.fence
        current = self.storage.fences.get(record.execution_id)
        if given is None or current is None:
            if given is not current:
                raise StaleFenceError(record.execution_id, given, current)
        elif not isinstance(given, int) or isinstance(given, bool) or str(given) < str(current):
            raise StaleFenceError(record.execution_id, given, current)


@wrong_memory("token-of-another-execution")
class TokenOfAnotherExecution(_Judged):
    """Looks whether the token was handed out at all, for whatever execution."""

    def _passes(self, given: int | None, current: int | None) -> bool:
        if given is None or current is None:
            return given == current
        return given >= current and given in self.storage.fences.values()


class NotFencing(MemoryEventStore):
    """The reference without `acquire_fence`."""

    acquire_fence = None  # type: ignore[assignment]


@wrong_memory("token-means-nothing-here")
class TokenMeansNothingHere(NotFencing):
    """Has no fences, and stores a write that carries a token as if it had."""

    def _check_fence(self, record: Record) -> None:
        """Nothing is refused."""


@wrong_memory("token-beyond-2-53")
class TokenBeyond2To53(_Lenient):
    """Takes nanoseconds of a clock for tokens, which lie beyond 2**53."""

    async def acquire_fence(self, execution_id: str, /) -> int:
        await super().acquire_fence(execution_id)
        self.storage.fences[execution_id] += 1_700_000_000_000_000_000
        return self.storage.fences[execution_id]

    def _check_fence(self, record: Record) -> None:
        given: Any = record.fence
        current = self.storage.fences.get(record.execution_id)
        if type(given) is not type(current) or given != current:
            raise StaleFenceError(record.execution_id, given, current)


@wrong_memory("null-token-passes")
class NullTokenPasses(_Lenient):
    """Asks whether there is a `fence`, and compares it unless it is null."""

    def _check_fence(self, record: Record) -> None:
        given: Any = record.fence
        current = self.storage.fences.get(record.execution_id)
        if thaw(record.metadata) == {FENCE_KEY: None}:
            return
        if type(given) is not type(current) or given != current:
            raise StaleFenceError(record.execution_id, given, current)


@wrong_memory("token-under-any-case")
class TokenUnderAnyCase(MemoryEventStore):
    """Finds the token without regard to the key's case and spaces, as a header's name."""

    def _check_fence(self, record: Record) -> None:
        metadata: Any = thaw(record.metadata)
        current = self.storage.fences.get(record.execution_id)
        tokens = [value for key, value in metadata.items() if key.strip().lower() == FENCE_KEY]
        if current is None or current not in tokens:
            super()._check_fence(record)


@wrong_memory("fence-row-is-not-waited-for")
class FenceRowIsNotWaitedFor(SuspendingStore):
    """Locks the fence row with NOWAIT, so that two writes under one token do not both succeed."""

    storage: Volume

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        rows = {one.execution_id for one in records} & set(self.storage.fences)
        if rows & set(self.storage.notes):
            raise EventStoreError("could not obtain lock on row in relation fences")
        self.storage.notes.update(dict.fromkeys(rows))
        try:
            await turn()
            self._write(records)
        finally:
            for name in rows:
                self.storage.notes.pop(name, None)


@wrong_memory("acquire-joins-a-transaction")
class AcquireJoinsATransaction(SuspendingStore):
    """Locks the fence row by transaction, and runs all calls of a handle on one connection.

    An acquire that comes between a write's check and its insert on the same handle finds itself
    in the same transaction, where no lock keeps it waiting.
    """

    storage: Volume

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._inside = 0

    async def acquire_fence(self, execution_id: str, /) -> int:
        async with self._transaction():
            return await super().acquire_fence(execution_id)

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        async with self._transaction():
            for record in records:
                self._check_fence(record)
            await turn()
            self._check_unique(records)
            for record in records:
                self._insert(record)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        lock = self.storage.notes.setdefault("lock", asyncio.Lock())
        self._inside += 1
        try:
            if self._inside == 1:
                await lock.acquire()
                self.storage.notes["owner"] = self
            while self.storage.notes.get("owner") is not self:
                await turn()
            yield
        finally:
            self._inside -= 1
            if not self._inside and self.storage.notes.get("owner") is self:
                self.storage.notes["owner"] = None
                lock.release()
