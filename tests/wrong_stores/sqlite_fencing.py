"""SQLite stores that let a fenced-out writer in, or keep the right one out."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from loom_backends.sqlite import SQLiteEventStore
from loom_backends.sqlite.store import Row
from loom_conformance.spi import InvalidEnvelopeError, StaleFenceError, check_key

from .sqlite_base import OwnTokens, StepwiseStore, changed, wrong_sqlite

CHECK = "(SELECT token FROM fences WHERE execution_id = new.execution_id) IS fence"
"""The condition under which a row is written."""


@wrong_sqlite("sqlite-fence-in-temp-table")
class FenceInTempTable(SQLiteEventStore):
    """Keeps the tokens in a temporary table: every connection has one of its own."""

    SCHEMA = changed(
        SQLiteEventStore.SCHEMA,
        ("CREATE TABLE IF NOT EXISTS fences", "CREATE TEMP TABLE IF NOT EXISTS fences"),
    )


@wrong_sqlite("sqlite-fence-cached")
class FenceCached(StepwiseStore):
    """Remembers the token that it read or acquired last, and asks the table no more."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._tokens: dict[str, int | None] = {}

    async def acquire_fence(self, execution_id: str, /) -> int:
        """The execution's new current token, remembered."""
        token = await super().acquire_fence(execution_id)
        self._tokens[execution_id] = token
        return token

    async def _current(self, execution_id: str) -> int | None:
        if execution_id not in self._tokens:
            self._tokens[execution_id] = await super()._current(execution_id)
        return self._tokens[execution_id]


@wrong_sqlite("sqlite-fence-read-first")
class FenceReadFirst(StepwiseStore):
    """Checks the token before the transaction begins."""

    async def _transact(self, rows: Sequence[Row]) -> None:
        await super()._check_fences(rows)
        await super()._transact(rows)

    async def _check_fences(self, rows: Sequence[Row]) -> None:
        """In the transaction: not again."""


@wrong_sqlite("sqlite-token-read-then-written")
class TokenReadThenWritten(SQLiteEventStore):
    """Reads the last token, adds one, and writes it in another statement."""

    LAST = "SELECT coalesce(max(token), 0) FROM fences WHERE execution_id = ?"
    ACQUIRE = """
        INSERT INTO fences (execution_id, token) VALUES (?, ?)
        ON CONFLICT (execution_id) DO UPDATE SET token = excluded.token
        RETURNING token
    """

    async def acquire_fence(self, execution_id: str, /) -> int:
        """One more than the token that was there."""
        check_key("execution_id", execution_id)
        with self._calls:
            ((last,),) = await self._fetch(self.LAST, execution_id)
            ((token,),) = await self._fetch(self.ACQUIRE, execution_id, last + 1, writing=True)
        return int(token)


@wrong_sqlite("sqlite-token-of-the-process")
class TokenOfTheProcess(SQLiteEventStore):
    """Counts tokens in the process, from one on."""

    TOKENS = itertools.count(1)

    ACQUIRE = TokenReadThenWritten.ACQUIRE

    async def acquire_fence(self, execution_id: str, /) -> int:
        """The process's next token."""
        check_key("execution_id", execution_id)
        with self._calls:
            token = next(self.TOKENS)
            await self._fetch(self.ACQUIRE, execution_id, token, writing=True)
        return token


@wrong_sqlite("sqlite-first-envelope-answers")
class FirstEnvelopeAnswers(StepwiseStore):
    """Checks the token of a batch's first envelope."""

    async def _check_fences(self, rows: Sequence[Row]) -> None:
        await super()._check_fences(rows[:1])


@wrong_sqlite("sqlite-no-token-skips-the-check")
class NoTokenSkipsTheCheck(SQLiteEventStore):
    """Checks the token where one was given."""

    INSERT = changed(SQLiteEventStore.INSERT, (CHECK, f"fence IS NULL OR {CHECK}"))


@wrong_sqlite("sqlite-token-from-zero", paths=("append", "batch-first", "batch-last"))
class TokenFromZero(OwnTokens):
    """Counts from zero, which is also what it takes for a token that is missing."""

    INSERT = changed(
        SQLiteEventStore.INSERT,
        (
            CHECK,
            """coalesce((
                SELECT token FROM fences WHERE execution_id = new.execution_id
            ), 0) = coalesce(fence, 0)""",
        ),
    )
    ACQUIRE = changed(SQLiteEventStore.ACQUIRE, ("VALUES (?, 1)", "VALUES (?, 0)"))

    def _token(self, given: object) -> int | None:
        if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
            return given
        raise InvalidEnvelopeError(f"no token: {given!r}")


@wrong_sqlite("sqlite-newer-token-passes")
class NewerTokenPasses(SQLiteEventStore):
    """Accepts any token that is not older than the current one."""

    INSERT = changed(
        SQLiteEventStore.INSERT,
        (CHECK, changed(CHECK, (" IS fence", " <= fence")) + f" OR {CHECK}"),
    )


@wrong_sqlite("sqlite-one-fence-for-all")
class OneFenceForAll(SQLiteEventStore):
    """Has one counter for the whole file, and holds every execution to it once it is fenced."""

    INSERT = changed(
        SQLiteEventStore.INSERT,
        (
            CHECK,
            """(
                SELECT (SELECT max(token) FROM fences)
                FROM fences WHERE execution_id = new.execution_id
            ) IS fence""",
        ),
    )
    ACQUIRE = """
        INSERT INTO fences (execution_id, token)
        SELECT ?, coalesce(max(token), 0) + 1 FROM fences WHERE true
        ON CONFLICT (execution_id) DO UPDATE SET token = excluded.token
        RETURNING token
    """


@wrong_sqlite("sqlite-slot-before-fence")
class SlotBeforeFence(StepwiseStore):
    """Writes first and checks the token then, so that a stale duplicate is a duplicate."""

    async def _check_fences(self, rows: Sequence[Row]) -> None:
        await super()._insert(rows)

    async def _insert(self, rows: Sequence[Row]) -> None:
        await super()._check_fences(rows)


@wrong_sqlite("sqlite-token-as-it-comes")
class TokenAsItComes(OwnTokens):
    """Makes an int of whatever stands where the token belongs."""

    def _token(self, given: object) -> int | None:
        try:
            return int(given)  # type: ignore[call-overload,no-any-return]  # that is the fault
        except (TypeError, ValueError) as error:
            raise InvalidEnvelopeError(f"no token: {given!r}") from error


@wrong_sqlite("sqlite-first-write-unfenced")
class FirstWriteUnfenced(SQLiteEventStore):
    """Lets the first write of an execution through, since a start has no token."""

    INSERT = changed(
        SQLiteEventStore.INSERT,
        (
            CHECK,
            f"""({CHECK} OR NOT EXISTS (
                SELECT 1 FROM envelopes WHERE execution_id = new.execution_id
            ))""",
        ),
    )


_LOCKS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


def _process_lock() -> asyncio.Lock:
    """The one lock of all handles on this event loop."""
    return _LOCKS.setdefault(asyncio.get_running_loop(), asyncio.Lock())


@wrong_sqlite("sqlite-token-under-a-lock-of-the-process")
class TokenUnderALockOfTheProcess(SQLiteEventStore):
    """Reads the last token and writes the next in two transactions, under an asyncio lock."""

    WRITE = """
        INSERT INTO fences (execution_id, token) VALUES (?, ?)
        ON CONFLICT (execution_id) DO UPDATE SET token = excluded.token RETURNING token
    """

    async def acquire_fence(self, execution_id: str, /) -> int:
        """The execution's new current token."""
        check_key("execution_id", execution_id)
        with self._calls:
            async with _process_lock():
                found = await self._fetch(self.CURRENT, execution_id)
                token: int = found[0][0] + 1 if found else 1
                await self._fetch(self.WRITE, execution_id, token, writing=True)
        return token


@wrong_sqlite("sqlite-fence-under-a-lock-of-the-process")
class FenceUnderALockOfTheProcess(SQLiteEventStore):
    """Checks the token in a hop before the write, with acquires of this process kept out alone."""

    INSERT = changed(SQLiteEventStore.INSERT, (CHECK, "fence IS fence"))

    async def _write(self, rows: Sequence[Row]) -> None:
        async with _process_lock():
            for execution_id, given in dict.fromkeys((row.execution_id, row.fence) for row in rows):
                found = await self._fetch(self.CURRENT, execution_id)
                current = found[0][0] if found else None
                if given != current:
                    raise StaleFenceError(execution_id, given, current)
            await super()._write(rows)

    async def acquire_fence(self, execution_id: str, /) -> int:
        """The execution's new current token."""
        async with _process_lock():
            return await super().acquire_fence(execution_id)
