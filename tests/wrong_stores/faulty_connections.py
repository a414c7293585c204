"""PostgreSQL stores that go wrong when a connection dies under them."""

from __future__ import annotations

from collections.abc import Sequence

from loom_backends.postgres import PostgresEventStore
from loom_backends.postgres.handle import Session
from loom_backends.postgres.store import Row
from loom_conformance.spi import (
    DuplicateSequenceError,
    EventStoreError,
    OutcomeUnknownError,
)

from .faulty_base import faulty
from .postgres_base import PATHS, SharedServer


@faulty("retries-into-its-own-conflict", base=SharedServer, paths=PATHS, load=False)
class RetriesIntoItsOwnConflict(PostgresEventStore):
    """Writes again when the answer did not come, and meets what it had written."""

    async def _write(self, rows: Sequence[Row]) -> None:
        try:
            await super()._write(rows)
        except OutcomeUnknownError:
            await super()._write(rows)


@faulty("takes-a-lost-answer-for-success", base=SharedServer, paths=PATHS, load=False)
class TakesALostAnswerForSuccess(PostgresEventStore):
    """Takes a write for done whose connection ended after it was sent."""

    async def _write(self, rows: Sequence[Row]) -> None:
        try:
            await super()._write(rows)
        except OutcomeUnknownError:
            return


@faulty("takes-every-loss-for-a-conflict", base=SharedServer, paths=PATHS, load=False)
class TakesEveryLossForAConflict(PostgresEventStore):
    """Reports a taken slot when the connection was lost, so that its caller reads again."""

    async def _write(self, rows: Sequence[Row]) -> None:
        try:
            await super()._write(rows)
        except OutcomeUnknownError as error:
            raise DuplicateSequenceError(rows[0].execution_id, rows[0].sequence) from error


@faulty("reports-a-loss-as-a-failure", base=SharedServer, paths=PATHS, load=False)
class ReportsALossAsAFailure(PostgresEventStore):
    """Says that a write failed when its answer was lost, not that this is unknown."""

    async def _write(self, rows: Sequence[Row]) -> None:
        try:
            await super()._write(rows)
        except OutcomeUnknownError as error:
            raise EventStoreError("the write failed") from error


@faulty("keeps-its-dead-session", base=SharedServer, deadline=4.0, paths=PATHS, load=False)
class KeepsItsDeadSession(PostgresEventStore):
    """Opens its session once, and uses it to the end although it has died."""

    async def _take(self) -> Session:
        if self._idle:
            return self._idle.pop()
        return await super()._take()

    def _give_back(self, session: Session) -> None:
        self._idle.append(session)


@faulty("resends-in-halves", base=SharedServer, paths=PATHS, load=False)
class ResendsInHalves(PostgresEventStore):
    """Sends a batch again in two halves when it was lost, as if it had been too large."""

    async def _write(self, rows: Sequence[Row]) -> None:
        try:
            await super()._write(rows)
        except OutcomeUnknownError:
            if len(rows) < 2:
                raise
            middle = len(rows) // 2
            await super()._write(rows[:middle])
            raise


@faulty("remembers-what-it-sent", base=SharedServer, paths=PATHS, load=False)
class RemembersWhatItSent(PostgresEventStore):
    """Answers a second try of a lost write with success: it was sent, after all."""

    def __init__(self, dsn: str, max_sessions: int = 8, patience: float = 30.0) -> None:
        super().__init__(dsn, max_sessions, patience)
        self._sent: set[Row] = set()

    async def _write(self, rows: Sequence[Row]) -> None:
        if rows and self._sent.issuperset(rows):
            return
        try:
            await super()._write(rows)
        except OutcomeUnknownError:
            self._sent.update(rows)
            raise
