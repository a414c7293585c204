"""PostgreSQL stores whose fence has a hole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loom_backends.postgres import PostgresEventStore
from loom_backends.postgres.handle import Session
from loom_backends.postgres.store import Row
from loom_conformance.spi import StaleFenceError, check_key

from .postgres_base import StepwiseStore, wrong_postgres
from .sqlite_base import changed


@wrong_postgres("postgres-fence-without-lock")
class FenceWithoutLock(StepwiseStore):
    """Reads the token without a lock: an acquire commits between the check and the commit."""

    CURRENT = changed(StepwiseStore.CURRENT, ("FOR SHARE", ""))


@wrong_postgres("postgres-lock-on-no-row")
class LockOnNoRow(StepwiseStore):
    """Locks the row of the fence, which is not there before the first acquire."""

    async def _current(self, session: Session, execution_id: str) -> int | None:
        token: int | None = await session.fetchval(self.CURRENT, execution_id)
        return token


@wrong_postgres("postgres-fence-before-transaction")
class FenceBeforeTransaction(StepwiseStore):
    """Checks the token, gives the lock back, and begins the transaction then."""

    async def _transact(self, session: Session, rows: Sequence[Row]) -> None:
        await super()._check_fences(session, rows)
        await super()._transact(session, rows)

    async def _check_fences(self, session: Session, rows: Sequence[Row]) -> None:
        """In the transaction: not again."""


@wrong_postgres("postgres-fence-in-memory")
class FenceInMemory(StepwiseStore):
    """Keeps the tokens that it handed out in the handle, and checks against those."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._tokens: dict[str, int] = {}

    async def acquire_fence(self, execution_id: str, /) -> int:
        """One more than the last that this handle gave."""
        check_key("execution_id", execution_id)
        with self._calls:
            self._tokens[execution_id] = self._tokens.get(execution_id, 0) + 1
            return self._tokens[execution_id]

    async def _current(self, session: Session, execution_id: str) -> int | None:
        return self._tokens.get(execution_id)


@wrong_postgres("postgres-max-plus-one")
class MaxPlusOne(PostgresEventStore):
    """Reads the largest token, adds one and writes it, with nothing that keeps others out."""

    LAST = "SELECT coalesce(max(token), 0) + 1 FROM executions WHERE execution_id = $1"

    ACQUIRE = """
        INSERT INTO executions (execution_id, token) VALUES ($1, $2)
        ON CONFLICT (execution_id) DO UPDATE SET token = excluded.token
        RETURNING token
    """

    async def acquire_fence(self, execution_id: str, /) -> int:
        """One more than the largest token."""
        check_key("execution_id", execution_id)
        with self._calls:
            ((next_token,),) = await self._fetch(self.LAST, execution_id)
            ((token,),) = await self._fetch(self.ACQUIRE, execution_id, next_token, writing=True)
        return int(token)


@wrong_postgres("postgres-null-compares-to-nothing")
class NullComparesToNothing(PostgresEventStore):
    """Refuses where the tokens differ; a missing one differs from nothing."""

    APPEND = changed(
        PostgresEventStore.APPEND,
        ("WHERE token IS NOT DISTINCT FROM $8::bigint", "WHERE (token <> $8::bigint) IS NOT TRUE"),
    )
    APPEND_BATCH = changed(
        PostgresEventStore.APPEND_BATCH, ("OR token IS DISTINCT FROM given", "OR token <> given")
    )

    async def _write_one(self, row: Row) -> None:
        try:
            await super()._write_one(row)
        except StaleFenceError as error:
            if row.fence is not None and error.current is not None:
                raise


@wrong_postgres("postgres-token-at-commit")
class TokenAtCommit(StepwiseStore):
    """Writes first, with the slot's own lock, and checks the token before it commits."""

    async def _transact(self, session: Session, rows: Sequence[Row]) -> None:
        async with session.transaction():
            await self._insert(session, rows)
            await self._check_fences(session, rows)
