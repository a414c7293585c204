"""Wrong stores that hang, close badly, or suffer from a cancelled call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

from loom_backends.memory import MemoryEventStore, MemoryStorage, Record
from loom_conformance.spi import (
    DuplicateEnvelopeIdError,
    EventEnvelope,
    EventStore,
    EventStoreError,
    StoreClosedError,
)

from .memory_base import PrivateMemory, SuspendingStore, Volume, turn, wrong_memory
from .registry import wrong

FEW = ("append", "batch-middle", "coalesced-append")
"""Write paths enough to see a store hang, which takes a deadline each time."""


@wrong_memory("nested-acquire", deadline=2.0, paths=FEW)
class NestedAcquire(SuspendingStore):
    """Takes a second connection from its pool of five while it holds the first."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._pool = asyncio.Semaphore(5)

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        async with self._pool:
            await turn()
            async with self._pool:
                self._write(records)


@wrong_memory("hangs-in-append", deadline=1.0, paths=("append",))
class HangsInAppend(MemoryEventStore):
    """Waits in `append` for a reply that never comes."""

    async def append(self, envelope: EventEnvelope, /) -> None:
        await asyncio.Event().wait()


@wrong_memory("hangs-in-close", deadline=1.0, paths=("append",))
class HangsInClose(MemoryEventStore):
    """Waits in `close` for a worker that never ends."""

    async def close(self) -> None:
        await asyncio.Event().wait()


@wrong_memory("ignores-cancellation", deadline=1.0, paths=("append",))
class IgnoresCancellation(MemoryEventStore):
    """Never answers a range, and goes on waiting for a while when it is cancelled."""

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        for _ in range(20):
            try:
                await asyncio.sleep(0.2)
            except asyncio.CancelledError:
                continue
        raise EventStoreError("no answer")


@wrong_memory("blocks-the-loop", deadline=1.0, paths=("append",))
class BlocksTheLoop(MemoryEventStore):
    """Joins its worker in `close` on the loop's own thread, for as long as a write is in flight."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._writing = 0

    async def append(self, envelope: EventEnvelope, /) -> None:
        records = [self._encode(envelope)]
        self._check_open()
        self._writing += 1
        try:
            await turn()
            self._write(records)
        finally:
            self._writing -= 1

    async def close(self) -> None:
        while self._writing:
            time.sleep(0.01)  # noqa: ASYNC251 - this is the fault
        await super().close()


@wrong_memory("close-loses-replies", deadline=2.0, paths=FEW)
class CloseLosesReplies(SuspendingStore):
    """Drops the queue of waiting writes at `close`: nobody ever answers them."""

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        await turn()
        if self.closed:
            await asyncio.Event().wait()
        self._write(records)


@wrong_memory("close-once-only")
class CloseOnceOnly(MemoryEventStore):
    """Raises when it is closed a second time."""

    async def close(self) -> None:
        self._check_open()
        await super().close()


@wrong_memory("simultaneous-close-fails")
class SimultaneousCloseFails(MemoryEventStore):
    """Closes twice when two callers close at once: the flag is set after an await."""

    async def close(self) -> None:
        if self.closed:
            return
        await turn()
        self._check_open()
        await super().close()


@wrong_memory("works-after-close")
class WorksAfterClose(MemoryEventStore):
    """Connects again in silence when it is used after `close`."""

    def _check_open(self) -> None:
        """Nothing is refused."""


@wrong_memory("reads-after-close")
class ReadsAfterClose(MemoryEventStore):
    """Refuses writes after `close`, and still answers reads."""

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        closed, self.closed = self.closed, False
        try:
            return super()._read(execution_id, first, last)
        finally:
            self.closed = closed


@wrong_memory("drivers-closed-error")
class DriversClosedError(MemoryEventStore):
    """Lets the driver's own error for a closed connection through."""

    def _check_open(self) -> None:
        if self.closed:
            raise RuntimeError("Cannot operate on a closed database")


@wrong_memory("close-answers-as-done")
class CloseAnswersAsDone(SuspendingStore):
    """Cancels the writes in flight at `close`, and answers them as done."""

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        await turn()
        if not self.closed:
            self._write(records)


@wrong_memory("close-refuses-what-lands")
class CloseRefusesWhatLands(SuspendingStore):
    """Answers the writes in flight at `close` with an error, though the database commits them."""

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        await turn()
        if self.closed:
            MemoryEventStore(self.storage)._write(records)
            raise StoreClosedError
        self._write(records)


@wrong_memory("half-a-batch-stays")
class HalfABatchStays(SuspendingStore):
    """Rolls back `except Exception`, which a cancellation is not: half of the batch stays."""

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        try:
            await turn()
        except asyncio.CancelledError:
            self._write(records[: len(records) // 2])
            raise
        self._write(records)


@wrong_memory("lock-stays-held", deadline=2.0, paths=FEW)
class LockStaysHeld(SuspendingStore):
    """Releases its lock after the write, and not where the write is cancelled."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._lock = asyncio.Lock()

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        await self._lock.acquire()
        try:
            await turn()
            self._write(records)
        except Exception:
            self._lock.release()
            raise
        self._lock.release()


@wrong_memory("connections-leak")
class ConnectionsLeak(SuspendingStore):
    """Loses a connection of its pool of ten whenever a call is cancelled."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._lost = 0

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        if self._lost >= 10:
            raise EventStoreError("pool limit of 10 reached, connection timed out")
        try:
            await turn()
        except asyncio.CancelledError:
            self._lost += 1
            raise
        self._write(records)


@wrong_memory("cancelled-write-lands-later")
class CancelledWriteLandsLater(SuspendingStore):
    """Leaves a cancelled statement to the driver's thread, which finishes it later."""

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        writing = asyncio.ensure_future(self._write_later(records))
        await asyncio.shield(writing)

    async def _write_later(self, records: Sequence[Record]) -> None:
        for _ in range(8):
            await turn()
        self._write(records)


@wrong_memory("cancellation-is-an-acknowledgement")
class CancellationIsAnAcknowledgement(SuspendingStore):
    """Swallows the cancellation and returns as if the write were done."""

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        try:
            await turn()
        except asyncio.CancelledError:
            return
        self._write(records)


@wrong_memory("transaction-stays-open")
class TransactionStaysOpen(SuspendingStore):
    """Leaves the transaction of a cancelled call open: the next ROLLBACK or COMMIT decides."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._open: list[Record] = []

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        await turn()
        left, self._open = self._open, [*records[:1]]
        try:
            await turn()
        finally:
            if len(left) and left[0].id not in self.storage.ids:
                self._write([left[0]])
        self._open = []
        self._write(records)


@wrong_memory("cancelled-read-breaks-the-handle")
class CancelledReadBreaksTheHandle(MemoryEventStore):
    """Leaves a read's reply in the connection when the reader is cancelled."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._reading = False

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        if self._reading:
            raise EventStoreError("another operation is in progress")
        self._reading = True
        await turn()
        self._reading = False
        return await super().read_from(execution_id, first)


@wrong("set-up-without-a-lock")
class SetUpWithoutALock(PrivateMemory):
    """Creates its tables `if not exists`, which two sessions do at once: one of them fails."""

    async def connect(self, address: str) -> EventStore:  # type: ignore[override]
        notes = self.storages[address].notes
        fresh = "tables" not in notes
        await turn()
        if fresh:
            if "tables" in notes:
                raise EventStoreError('duplicate key value violates "pg_type_typname_nsp_index"')
            notes["tables"] = True
        return MemoryEventStore(self.storages[address])


@wrong("first-handle-wipes")
class FirstHandleWipes(PrivateMemory):
    """Makes its tables anew in the handle that found none, over what others wrote meanwhile."""

    async def connect(self, address: str) -> EventStore:  # type: ignore[override]
        storage = self.storages[address]
        fresh = "tables" not in storage.notes
        await turn()
        storage.notes["tables"] = True
        store: EventStore = _Wiping(storage) if fresh else MemoryEventStore(storage)
        return store


class _Wiping(MemoryEventStore):
    """Sets its tables up at its first write."""

    _set_up = False

    def _write(self, records: Sequence[Record]) -> None:
        if not self._set_up:
            self._set_up = True
            self.storage.logs.clear()
            self.storage.ids.clear()
        super()._write(records)


@wrong_memory("busy-is-not-retried")
class BusyIsNotRetried(SuspendingStore):
    """Passes on that the database is locked, where it should wait and try again."""

    storage: Volume

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        if self.storage.notes.get("locked"):
            raise EventStoreError("database is locked")
        self.storage.notes["locked"] = True
        try:
            await turn()
            self._write(records)
        finally:
            self.storage.notes["locked"] = False


@wrong_memory("serialization-failure-let-through")
class SerializationFailureLetThrough(SuspendingStore):
    """Passes a serialization failure on when another write came in between."""

    storage: Volume

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        began = self.storage.notes.get("version", 0)
        await turn()
        if self.storage.notes.get("version", 0) != began:
            raise EventStoreError("could not serialize access due to concurrent update")
        self._write(records)
        self.storage.notes["version"] = began + 1


@wrong_memory("handles-share-a-connection")
class HandlesShareAConnection(MemoryEventStore):
    """Shares one connection among all handles of a process, and closes it with the first."""

    storage: Volume

    def __init__(self, storage: Volume) -> None:
        super().__init__(storage)
        storage.notes["open"] = storage.notes.get("open", 0) + 1
        storage.notes["shut"] = False

    async def close(self) -> None:
        await super().close()
        self.storage.notes["shut"] = True

    def _check_open(self) -> None:
        super()._check_open()
        if self.storage.notes["shut"]:
            raise EventStoreError("the connection pool is closed")


@wrong_memory("kills-the-loop", paths=("append",))
class KillsTheLoop(MemoryEventStore):
    """Stops the event loop when it closes, as a library does that owns its loop."""

    async def close(self) -> None:
        await super().close()
        asyncio.get_running_loop().stop()


@wrong_memory("locks-in-the-batchs-order", deadline=2.0, paths=FEW)
class LocksInTheBatchsOrder(SuspendingStore):
    """Locks the executions of a batch one by one, in the order in which it names them."""

    storage: Volume

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        async with AsyncExitStack() as locks:
            for name in dict.fromkeys(record.execution_id for record in records):
                lock = self.storage.notes.setdefault(name, asyncio.Lock())
                await locks.enter_async_context(lock)
                await turn()
            self._write(records)


@wrong_memory("cancelled-close-hangs-the-next", deadline=2.0, paths=FEW)
class CancelledCloseHangsTheNext(MemoryEventStore):
    """Lets a second `close` wait for the first, which never ends where it was cancelled."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._done: asyncio.Event | None = None

    async def close(self) -> None:
        if self._done is not None:
            await self._done.wait()
            return
        self._done = asyncio.Event()
        await turn()
        await super().close()
        self._done.set()


@wrong_memory("cancelled-ids-stay-reserved")
class CancelledIdsStayReserved(SuspendingStore):
    """Reserves ids before the round trip, and gives them back `except Exception` alone."""

    storage: Volume

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        reserved: set[str] = self.storage.notes.setdefault("reserved", set())
        for record in records:
            if record.id in reserved:
                raise DuplicateEnvelopeIdError(record.execution_id, record.id)
        ids = {record.id for record in records}
        reserved |= ids
        try:
            await turn()
            self._write(records)
        except Exception:
            reserved -= ids
            raise
        reserved -= ids


@wrong_memory("rollback-can-be-cancelled")
class RollbackCanBeCancelled(SuspendingStore):
    """Rolls back over an await: a second cancellation leaves the rows to the next COMMIT."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._turn = asyncio.Lock()
        self._open: list[Record] = []

    async def _store(self, records: Sequence[Record]) -> None:
        async with self._turn:
            self._check_open()
            try:
                for record in records:
                    self._open.append(record)
                    await turn()
            except BaseException:
                await turn()
                self._open.clear()
                raise
            rows, self._open = self._open, []
            self._write(rows)


@wrong_memory("cancelled-range-leaks", deadline=2.0, paths=FEW)
class CancelledRangeLeaks(MemoryEventStore):
    """Loses a connection of its pool of four whenever a range is cancelled."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._pool = asyncio.Semaphore(4)

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        self._check_open()
        await self._pool.acquire()
        await turn()
        found = self._read(execution_id, first, last)
        self._pool.release()
        return found


@wrong_memory("calls-in-flight-are-counted")
class CallsInFlightAreCounted(SuspendingStore):
    """Refuses the 25th call in flight on a handle, which is busy and not broken."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._flying = 0

    async def _store(self, records: Sequence[Record]) -> None:
        if self._flying >= 24:
            raise EventStoreError("too many calls in flight")
        self._flying += 1
        try:
            await super()._store(records)
        finally:
            self._flying -= 1


@wrong_memory("compare-and-set-gives-up")
class CompareAndSetGivesUp(SuspendingStore):
    """Writes by compare-and-set of one version, and gives up after twenty tries."""

    storage: Volume

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        for _ in range(20):
            began = self.storage.notes.get("version", 0)
            await turn()
            if self.storage.notes.get("version", 0) == began:
                self._write(records)
                self.storage.notes["version"] = began + 1
                return
        raise EventStoreError("too much contention")


@wrong_memory("cancelled-acquires-give-back", deadline=2.0)
class CancelledAcquiresGiveBack(MemoryEventStore):
    """Counts the token back when an acquire is cancelled, whoever has acquired since."""

    async def acquire_fence(self, execution_id: str, /) -> int:
        token = await super().acquire_fence(execution_id)
        try:
            await turn()
        except asyncio.CancelledError:
            self.storage.fences[execution_id] -= 1
            if not self.storage.fences[execution_id]:
                del self.storage.fences[execution_id]
            raise
        return token
