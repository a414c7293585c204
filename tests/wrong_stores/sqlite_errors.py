"""SQLite stores that refuse rightly and say it wrongly."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from loom_backends.sqlite import SQLiteEventStore
from loom_backends.sqlite.store import Row
from loom_conformance.spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventStoreError,
)

from .sqlite_base import StepwiseStore, wrong_sqlite


@wrong_sqlite("sqlite-driver-error")
class DriverError(SQLiteEventStore):
    """Lets the driver's error through where a constraint refuses a row."""

    async def _write(self, rows: Sequence[Row]) -> None:
        try:
            await super()._write(rows)
        except (DuplicateSequenceError, DuplicateEnvelopeIdError) as error:
            cause = error.__cause__
            assert cause is not None
            raise cause from None


@wrong_sqlite("sqlite-conflict-by-message")
class ConflictByMessage(SQLiteEventStore):
    """Looks for "id" in the driver's message, which also names `execution_id`."""

    def _conflict(self, row: Row, error: sqlite3.IntegrityError) -> EventStoreError:
        if "id" in str(error):
            return DuplicateEnvelopeIdError(row.execution_id, row.id)
        return DuplicateSequenceError(row.execution_id, row.sequence)


@wrong_sqlite("sqlite-names-the-first")
class NamesTheFirst(SQLiteEventStore):
    """Names the first envelope of a batch, whichever was refused."""

    async def _write(self, rows: Sequence[Row]) -> None:
        try:
            await super()._write(rows)
        except DuplicateSequenceError as error:
            raise DuplicateSequenceError(rows[0].execution_id, rows[0].sequence) from error
        except DuplicateEnvelopeIdError as error:
            raise DuplicateEnvelopeIdError(rows[0].execution_id, rows[0].id) from error


@wrong_sqlite("sqlite-busy-is-conflict")
class BusyIsConflict(StepwiseStore):
    """Takes a file that another connection has locked for a slot that another writer took."""

    async def _transact(self, rows: Sequence[Row]) -> None:
        try:
            await super()._transact(rows)
        except EventStoreError as error:
            if isinstance(error.__cause__, sqlite3.OperationalError):
                raise DuplicateSequenceError(rows[0].execution_id, rows[0].sequence) from error
            raise

    def _is_busy(self, error: sqlite3.Error) -> bool:
        return False
