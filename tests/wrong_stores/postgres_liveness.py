"""PostgreSQL stores that wait, give up, close or are cancelled wrongly, or tell the wrong fault."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import asyncpg

from loom_backends.postgres import PostgresEventStore
from loom_backends.postgres.handle import RETRIED, Session
from loom_backends.postgres.store import Row
from loom_conformance.spi import DuplicateSequenceError, EventStoreError

from .postgres_base import StepwiseStore, wrong_postgres
from .sqlite_base import changed

T = TypeVar("T")


@wrong_postgres("postgres-serializable-without-retry")
class SerializableWithoutRetry(StepwiseStore):
    """Runs in serializable transactions and does not try again when the server asks for it."""

    ISOLATION = "serializable"

    async def _transact(self, session: Session, rows: Sequence[Row]) -> None:
        try:
            await super()._transact(session, rows)
        except asyncpg.SerializationError as error:
            raise EventStoreError(f"PostgreSQL failed: {error}") from error


@wrong_postgres("postgres-everything-is-a-conflict")
class EverythingIsAConflict(PostgresEventStore):
    """Takes every error of the database for a taken slot."""

    async def _write(self, rows: Sequence[Row]) -> None:
        try:
            await super()._write(rows)
        except EventStoreError as error:
            if isinstance(error.__cause__, asyncpg.PostgresError):
                raise DuplicateSequenceError(rows[0].execution_id, rows[0].sequence) from error
            raise


@wrong_postgres("postgres-driver-error")
class DriverError(PostgresEventStore):
    """Lets the driver's errors through, but for those of a constraint."""

    def _fault(self, error: Exception, *, writing: bool) -> EventStoreError:
        raise error


@wrong_postgres("postgres-message-is-the-cause")
class MessageIsTheCause(PostgresEventStore):
    """Says what the driver said, and drops its error."""

    async def _write(self, rows: Sequence[Row]) -> None:
        try:
            await super()._write(rows)
        except EventStoreError as error:
            error.__cause__ = None
            raise


@wrong_postgres("postgres-nested-session", deadline=2.0)
class NestedSession(StepwiseStore):
    """Looks something up on another session, while it holds one: all wait for the last one."""

    async def _check_fences(self, session: Session, rows: Sequence[Row]) -> None:
        await self._fetch(self.IS_SET_UP)
        await super()._check_fences(session, rows)


@wrong_postgres("postgres-session-lost-on-cancel", deadline=2.0)
class SessionLostOnCancel(PostgresEventStore):
    """Gives a session back after an answer and after an error, and not after a cancellation."""

    async def _patiently(
        self, work: Callable[[Session], Awaitable[T]], *, writing: bool = False
    ) -> T:
        while True:
            await self._limit.acquire()
            try:
                done = await self._once(work, writing=writing)
            except Exception as error:
                self._limit.release()
                if not isinstance(error, RETRIED):
                    raise
            else:
                self._limit.release()
                return done


@wrong_postgres("postgres-begin-cancelled")
class BeginCancelled(StepwiseStore):
    """Leaves the transaction open whose `BEGIN` was cancelled: the next is a savepoint in it."""

    async def _leave(self, session: Session) -> None:
        """Take it that the context manager has ended the transaction."""


@wrong_postgres("postgres-set-up-once")
class SetUpOnce(PostgresEventStore):
    """Looks whether the tables are there, and makes them if not: two handles do both."""

    SCHEMA = changed(
        PostgresEventStore.SCHEMA,
        ("SELECT pg_advisory_xact_lock(hashtext(current_schema()));", ""),
        ("CREATE TABLE IF NOT EXISTS", "CREATE TABLE"),
    )


@wrong_postgres("postgres-closes-at-once")
class ClosesAtOnce(PostgresEventStore):
    """Ends its sessions when it is closed, whatever they are at, and calls that a refusal."""

    async def _close(self) -> None:
        for session in self._sessions:
            session.terminate()

    def _fault(self, error: Exception, *, writing: bool) -> EventStoreError:
        return EventStoreError(f"the store was closed: {error}")
