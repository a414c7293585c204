"""Wrong stores about what an error says."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from loom_backends.memory import MemoryEventStore, Record
from loom_conformance.spi import (
    FENCE_KEY,
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    EventStoreError,
    StaleFenceError,
    check_key,
    is_token,
)

from .memory_base import SuspendingStore, Volume, turn, wrong_memory


@wrong_memory("drivers-error-in-a-batch")
class DriversErrorInABatch(MemoryEventStore):
    """Translates the driver's integrity error in `append`, and forgot `append_batch`."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        try:
            await super().append_batch(envelopes)
        except (DuplicateSequenceError, DuplicateEnvelopeIdError) as error:
            raise sqlite3.IntegrityError("UNIQUE constraint failed: events") from error


@wrong_memory("everything-is-a-conflict")
class EverythingIsAConflict(MemoryEventStore):
    """Answers every error of a write as a taken slot: bad values and a closed handle too."""

    async def append(self, envelope: EventEnvelope, /) -> None:
        try:
            await super().append(envelope)
        except StaleFenceError:
            raise
        except Exception as error:
            raise DuplicateSequenceError(envelope.execution_id, envelope.sequence) from error


@wrong_memory("lost-connection-is-a-conflict")
class LostConnectionIsAConflict(MemoryEventStore):
    """Answers a fault of the storage as a taken slot."""

    storage: Volume

    def _write(self, records: Sequence[Record]) -> None:
        super()._write(records)
        if self.storage.gone:
            raise DuplicateSequenceError(records[0].execution_id, records[0].sequence)


@wrong_memory("drivers-fault-let-through")
class DriversFaultLetThrough(MemoryEventStore):
    """Lets the driver's error of a storage that is gone pass to the caller."""

    storage: Volume

    def _write(self, records: Sequence[Record]) -> None:
        if self.storage.gone:
            raise OSError("disk I/O error")
        super()._write(records)


@wrong_memory("refuses-with-a-type-error")
class RefusesWithATypeError(MemoryEventStore):
    """Refuses a value that it cannot keep with whatever its encoder raises."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        try:
            return super()._encode(envelope)
        except ValueError as error:
            raise TypeError(f"cannot adapt: {error}") from error


@wrong_memory("names-the-first-of-the-batch")
class NamesTheFirstOfTheBatch(MemoryEventStore):
    """Names the first envelope of the batch in the error, not the one that was refused."""

    def _check_unique(self, records: Iterable[Record]) -> None:
        given = list(records)
        try:
            super()._check_unique(given)
        except DuplicateSequenceError as error:
            raise DuplicateSequenceError(given[0].execution_id, given[0].sequence) from error
        except DuplicateEnvelopeIdError as error:
            raise DuplicateEnvelopeIdError(given[0].execution_id, given[0].id) from error


@wrong_memory("attributes-as-text")
class AttributesAsText(MemoryEventStore):
    """Cuts the sequence out of the driver's message, and leaves it a text."""

    def _check_unique(self, records: Iterable[Record]) -> None:
        try:
            super()._check_unique(records)
        except DuplicateSequenceError as error:
            told = str(error).rpartition(" ")[2]
            raise DuplicateSequenceError(error.execution_id, told) from error  # type: ignore[arg-type]


@wrong_memory("names-the-rows-owner")
class NamesTheRowsOwner(MemoryEventStore):
    """Names the execution that has the id, not the one that was to be written."""

    def _check_unique(self, records: Iterable[Record]) -> None:
        try:
            super()._check_unique(records)
        except DuplicateEnvelopeIdError as error:
            owner = error.envelope_id.rpartition("-")[0]
            raise DuplicateEnvelopeIdError(f"owner {owner}", error.envelope_id) from error


@wrong_memory("exchanges-the-tokens")
class ExchangesTheTokens(MemoryEventStore):
    """Gives the current token as the given one, and the given one as the current."""

    def _check_fence(self, record: Record) -> None:
        current = self.storage.fences.get(record.execution_id)
        if record.fence != current:
            raise StaleFenceError(record.execution_id, current, record.fence)


class _Busy(SuspendingStore):
    """Knows how many writes are in flight on the storage as one begins."""

    storage: Volume

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        ahead = self.storage.notes.get("busy", 0)
        self.storage.notes["busy"] = ahead + 1
        try:
            await turn()
            await self._store_behind(ahead, records)
        finally:
            self.storage.notes["busy"] -= 1

    async def _store_behind(self, ahead: int, records: Sequence[Record]) -> None:
        raise NotImplementedError


@wrong_memory("sends-again-without-reading")
class SendsAgainWithoutReading(_Busy):
    """Sends a write again when its reply is slow, and reports the conflict with itself."""

    async def _store_behind(self, ahead: int, records: Sequence[Record]) -> None:
        self._write(records)
        if ahead == 1:
            self._write(records)


@wrong_memory("slow-commit-is-a-refusal")
class SlowCommitIsARefusal(_Busy):
    """Reports a write whose COMMIT was slow as a conflict, although it lands."""

    async def _store_behind(self, ahead: int, records: Sequence[Record]) -> None:
        self._write(records)
        if ahead == 2:
            raise DuplicateSequenceError(records[0].execution_id, records[0].sequence)


@wrong_memory("fault-without-a-cause")
class FaultWithoutACause(MemoryEventStore):
    """Raises an EventStoreError for a fault of the storage and hides what happened."""

    storage: Volume

    def _write(self, records: Sequence[Record]) -> None:
        if self.storage.gone:
            raise EventStoreError("the write failed") from None
        super()._write(records)


@wrong_memory("fencing-raises-a-drivers-error")
class FencingRaisesADriversError(MemoryEventStore):
    """Hands an id that is no execution id to the driver, whose error is no ValueError."""

    async def acquire_fence(self, execution_id: str, /) -> int:
        try:
            return await super().acquire_fence(execution_id)
        except ValueError as error:
            raise sqlite3.DataError("string or blob too big") from error


@wrong_memory("twins-name-the-first")
class TwinsNameTheFirst(MemoryEventStore):
    """Finds twins in a batch before it writes, and names the batch's first envelope for them."""

    def _check_unique(self, records: Iterable[Record]) -> None:
        given = list(records)
        first = given[0]
        if len({(one.execution_id, one.sequence) for one in given}) < len(given):
            raise DuplicateSequenceError(first.execution_id, first.sequence)
        if len({one.id for one in given}) < len(given):
            raise DuplicateEnvelopeIdError(first.execution_id, first.id)
        super()._check_unique(given)


@wrong_memory("no-fence-is-zero")
class NoFenceIsZero(MemoryEventStore):
    """Says that the current token is 0 where there is none."""

    def _check_fence(self, record: Record) -> None:
        current = self.storage.fences.get(record.execution_id)
        if record.fence != current:
            raise StaleFenceError(record.execution_id, record.fence, current or 0)


@wrong_memory("what-is-no-token-is-none")
class WhatIsNoTokenIsNone(MemoryEventStore):
    """Says of something that is not a token that none was given."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        found: object = envelope.metadata
        given = found.get(FENCE_KEY) if isinstance(found, dict) else None
        if given is not None and not is_token(given):
            check_key("execution_id", envelope.execution_id)
            current = self.storage.fences.get(envelope.execution_id)
            if current is not None:
                raise StaleFenceError(envelope.execution_id, None, current)
        return super()._encode(envelope)


@wrong_memory("loser-is-told-the-version")
class LoserIsToldTheVersion(SuspendingStore):
    """Names the log's next sequence for a conflict that only the commit finds."""

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        for record in records:
            self._check_fence(record)
        self._check_unique(records)
        await turn()
        try:
            self._write(records)
        except DuplicateSequenceError as error:
            following = self.storage.logs[error.execution_id].sequences[-1] + 1
            raise DuplicateSequenceError(error.execution_id, following) from error


@wrong_memory("stale-names-the-first-fenced")
class StaleNamesTheFirstFenced(MemoryEventStore):
    """Names the first fenced execution of a batch, whichever has the stale token."""

    def _write(self, records: Sequence[Record]) -> None:
        try:
            super()._write(records)
        except StaleFenceError as error:
            fences = self.storage.fences
            named = [one.execution_id for one in records if one.execution_id in fences]
            if not named:
                raise
            raise StaleFenceError(named[0], error.given, fences[named[0]]) from error
