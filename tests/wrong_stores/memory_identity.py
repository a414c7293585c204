"""Wrong stores about envelope ids and the comparison of keys."""

from __future__ import annotations

import unicodedata
from collections import deque
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from uuid import UUID

from loom_backends.memory import Log, MemoryEventStore, Record
from loom_conformance.spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
)

from .memory_base import KeyedStore, SuspendingStore, Volume, turn, wrong_memory


@wrong_memory("ids-by-execution-undeclared")
class IdsByExecutionUndeclared(KeyedStore):
    """Has its unique index on (execution, id), but is declared unique in the whole store."""

    def _id_key(self, record: Record) -> str:
        return f"{record.execution_id}\x00{record.id}"


@wrong_memory("ids-by-store-undeclared", envelope_ids="execution")
class IdsByStoreUndeclared(MemoryEventStore):
    """Has its unique index on the id alone, but is declared unique in an execution."""


@wrong_memory("remembers-recent-ids")
class RemembersRecentIds(MemoryEventStore):
    """Compares an id with the last thousand only."""

    storage: Volume

    def _insert(self, record: Record) -> None:
        super()._insert(record)
        recent = self.storage.notes.setdefault("recent", deque())
        recent.append(record.id)
        while len(recent) > 1000:
            self.storage.ids.discard(recent.popleft())


@wrong_memory("no-index-on-ids")
class NoIndexOnIds(KeyedStore):
    """Has no unique index on the envelope id."""

    def _id_key(self, record: Record) -> str:
        return f"{record.execution_id}\x00{record.sequence}"


@wrong_memory("known-id-is-a-retry")
class KnownIdIsARetry(MemoryEventStore):
    """Answers a known id as if its event were stored already, and stores nothing."""

    def _write(self, records: Sequence[Record]) -> None:
        self._check_open()
        for record in records:
            self._check_fence(record)
        super()._write([record for record in records if record.id not in self.storage.ids])


@wrong_memory("every-conflict-is-a-sequence")
class EveryConflictIsASequence(MemoryEventStore):
    """Reports every unique violation as a taken slot."""

    def _check_unique(self, records: Iterable[Record]) -> None:
        given = list(records)
        try:
            super()._check_unique(given)
        except DuplicateEnvelopeIdError as error:
            offender = next(one for one in given if one.id == error.envelope_id)
            raise DuplicateSequenceError(offender.execution_id, offender.sequence) from error


@wrong_memory("ids-under-the-executions-lock")
class IdsUnderTheExecutionsLock(SuspendingStore):
    """Guards check and insert by a lock on the execution, which two executions do not share."""

    storage: Volume

    async def _store(self, records: Sequence[Record]) -> None:
        self._check_open()
        for record in records:
            self._check_fence(record)
        self._check_unique(records)
        await turn()
        for record in records:
            self._check_fence(record)
            log = self.storage.logs.get(record.execution_id, Log())
            if record.sequence in log.records:
                raise DuplicateSequenceError(record.execution_id, record.sequence)
            if (record.execution_id, record.id) in self.storage.notes:
                raise DuplicateEnvelopeIdError(record.execution_id, record.id)
        for record in records:
            self._insert(record)
            self.storage.notes[record.execution_id, record.id] = True


@wrong_memory("folds-case")
class FoldsCase(KeyedStore):
    """Compares execution ids without regard to case, as `NOCASE` and `citext` do."""

    def _log_key(self, execution_id: str) -> str:
        return execution_id.casefold()


@wrong_memory("folds-envelope-ids")
class FoldsEnvelopeIds(KeyedStore):
    """Compares envelope ids without regard to case."""

    def _id_key(self, record: Record) -> str:
        return record.id.lower()


@wrong_memory("pads-spaces")
class PadsSpaces(KeyedStore):
    """Compares execution ids by a padding collation, which ignores spaces at the end."""

    def _log_key(self, execution_id: str) -> str:
        return execution_id.rstrip(" ")

    def _fence_key(self, execution_id: str) -> str:
        return execution_id.rstrip(" ")


@wrong_memory("normalises-keys")
class NormalisesKeys(KeyedStore):
    """Brings execution ids to a normal form of Unicode before it compares them."""

    def _log_key(self, execution_id: str) -> str:
        return unicodedata.normalize("NFC", execution_id)


@wrong_memory("cuts-keys")
class CutsKeys(KeyedStore):
    """Cuts execution ids to the length of its column, in bytes."""

    def _log_key(self, execution_id: str) -> str:
        return execution_id.encode()[:255].decode(errors="ignore")


@wrong_memory("cuts-envelope-ids")
class CutsEnvelopeIds(KeyedStore):
    """Cuts envelope ids to 255 characters before it compares them."""

    def _id_key(self, record: Record) -> str:
        return record.id[:255]


@wrong_memory("strips-keys")
class StripsKeys(KeyedStore):
    """Strips white space from execution ids, as a form's validation does."""

    def _log_key(self, execution_id: str) -> str:
        return execution_id.strip()

    def _fence_key(self, execution_id: str) -> str:
        return execution_id.strip()


@wrong_memory("fences-fold-case")
class FencesFoldCase(KeyedStore):
    """Keeps its fences in a table whose key ignores case, though its logs do not."""

    def _fence_key(self, execution_id: str) -> str:
        return execution_id.lower()


@wrong_memory("reads-by-prefix")
class ReadsByPrefix(MemoryEventStore):
    """Scans for keys that begin with the execution id."""

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        super()._read(execution_id, first, last)
        found = [
            record
            for name, log in self.storage.logs.items()
            if name.startswith(execution_id)
            for record in log.records.values()
            if first <= record.sequence <= last
        ]
        return [self._decode(one) for one in sorted(found, key=lambda one: one.sequence)]


@wrong_memory("reads-by-pattern")
class ReadsByPattern(MemoryEventStore):
    """Compares by pattern (`LIKE`, a glob) where equality is meant."""

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        super()._read(execution_id, first, last)
        pattern = execution_id.replace("%", "*").replace("_", "?")
        names = [execution_id]
        if pattern != execution_id or any(mark in execution_id for mark in "*?["):
            names = [name for name in self.storage.logs if fnmatchcase(name, pattern)]
        found = [
            record
            for name in names
            if name in self.storage.logs
            for record in self.storage.logs[name].records.values()
            if first <= record.sequence <= last
        ]
        return [self._decode(one) for one in sorted(found, key=lambda one: one.sequence)]


class _OwnKey(KeyedStore):
    """Keeps logs and fences by the key that `_key` makes of the execution id."""

    def _key(self, execution_id: str) -> str:
        raise NotImplementedError

    def _log_key(self, execution_id: str) -> str:
        return self._key(execution_id)

    def _fence_key(self, execution_id: str) -> str:
        return self._key(execution_id)


@wrong_memory("ids-in-a-uuid-column")
class IdsInAUuidColumn(_OwnKey):
    """Keeps what can be read as a UUID as one, so that its spellings are equal."""

    def _key(self, execution_id: str) -> str:
        try:
            return str(UUID(execution_id))
        except ValueError:
            return execution_id


@wrong_memory("ids-as-numbers")
class IdsAsNumbers(_OwnKey):
    """Compares ids that look like whole numbers as numbers, by the affinity of its column."""

    def _key(self, execution_id: str) -> str:
        try:
            return str(int(execution_id))
        except ValueError:
            return execution_id


@wrong_memory("drops-a-leading-slash")
class DropsALeadingSlash(_OwnKey):
    """Drops a slash at the beginning of a key, as some clients of object stores do."""

    def _key(self, execution_id: str) -> str:
        return execution_id.removeprefix("/") or execution_id


@wrong_memory("strips-the-beginning")
class StripsTheBeginning(_OwnKey):
    """Takes white space and a byte order mark off an id's beginning."""

    def _key(self, execution_id: str) -> str:
        return execution_id.lstrip(" \t\n\ufeff") or execution_id


@wrong_memory("scans-behind-a-separator")
class ScansBehindASeparator(MemoryEventStore):
    """Has keys `execution#sequence` in one table, and reads what begins with `execution#`."""

    def _read(self, execution_id: str, first: int, last: int) -> list[EventEnvelope]:
        found = super()._read(execution_id, first, last)
        for name in [one for one in self.storage.logs if one.startswith(f"{execution_id}#")]:
            found += super()._read(name, first, last)
        return found
