"""Workers that take dispatches, and dispatchers that try again (ADR 0103, L12 and L20)."""

from __future__ import annotations

import asyncio

from ..clock import Clock
from ..spi import StaleFenceError, is_error
from .errors import ExecutionAlreadyExistsError, ExecutionNotFoundError, StorageWriteError
from .interface import Dispatch, Handle, Runtime, Worker
from .journal import ErrorListener, ignore
from .state import ExecutionState


class LocalWorkerRuntime:
    """Drives what it is given, under a fence of its own."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    async def allocate(self, dispatch: Dispatch) -> Handle:
        """Take the execution over, or start it.

        The fence comes before the look, on a first dispatch too: a loser that saw no execution has
        then superseded nobody, for the winner's bootstrap lands only under a newer token (L12).

        Raises:
            ExecutionAlreadyExistsError: another worker started it meanwhile.
            StorageWriteError: the storage refused the start.
        """
        fence = await self.runtime.acquire_fence(dispatch.execution_id)
        return await self.execute(dispatch, fence)

    async def execute(self, dispatch: Dispatch, fence: int | None) -> Handle:
        """Look whether the execution exists: go on with it, or start it."""
        try:
            return await self.runtime.resume(
                dispatch.execution_id, fence=fence, metadata=dispatch.metadata
            )
        except Exception as error:
            if not is_error(error, ExecutionNotFoundError):
                raise
        return await self.begin(dispatch, fence)

    async def begin(self, dispatch: Dispatch, fence: int | None) -> Handle:
        """Start the execution under the fence of this dispatch."""
        return await self.runtime.start(
            dispatch.workflow,
            dispatch.input,
            execution_id=dispatch.execution_id,
            fence=fence,
            metadata=dispatch.metadata,
        )


def is_superseded(error: BaseException | None) -> bool:
    """Whether a refusal of this execution says that someone else has it: no failed attempt (L20).

    It is told by class alone, for a scoping decorator changes the ids that errors carry. So a run
    that shared a refused flush with another's stale write counts as superseded too, and is left
    for recovery, as any innocent of a refused flush is.
    """
    if error is not None and is_error(error, StorageWriteError):
        return is_error(error.__cause__, StaleFenceError)
    return is_error(error, ExecutionAlreadyExistsError, StaleFenceError)


class LocalDispatcher:
    """Dispatches to a worker of this process, and tries a failed attempt again."""

    def __init__(
        self,
        worker: Worker,
        *,
        max_attempts: int = 1,
        on_error: ErrorListener = ignore,
    ) -> None:
        """A dispatcher on one worker.

        Args:
            worker: takes the dispatches.
            max_attempts: how often one is tried, 1 or more.
            on_error: is told of every attempt that failed.
        """
        if max_attempts < 1:
            raise ValueError(f"max_attempts must be 1 or more, not {max_attempts}")
        self.worker = worker
        self.max_attempts = max_attempts
        self.on_error = on_error

    async def dispatch(self, dispatch: Dispatch) -> ExecutionState | None:
        """Drive the execution until its drive ends.

        Returns:
            The state it was left in, or `None` if the dispatch was superseded: another drives it.

        Raises:
            Exception: what the last attempt raised.
        """
        for attempt in range(1, self.max_attempts + 1):
            try:
                handle = await self.worker.allocate(dispatch)
                return await handle.finished()
            except Exception as error:
                if self.superseded(error):
                    return None
                self.on_error(error)
                if attempt == self.max_attempts:
                    raise
                await self.pause(attempt)
        raise AssertionError("unreachable: max_attempts is 1 or more")

    def superseded(self, error: Exception) -> bool:
        """Whether to let the dispatch go without another attempt (L20)."""
        return is_superseded(error)

    async def pause(self, attempt: int) -> None:
        """Wait before the next attempt: not at all."""


class SupervisingDispatcher(LocalDispatcher):
    """Drives many executions at once, in the background, pausing between attempts."""

    def __init__(
        self,
        worker: Worker,
        clock: Clock,
        *,
        max_attempts: int = 3,
        backoff: float = 1.0,
        on_error: ErrorListener = ignore,
    ) -> None:
        """A dispatcher on one worker.

        Args:
            worker: takes the dispatches.
            clock: paces the attempts.
            max_attempts: how often one is tried, 1 or more.
            backoff: the pause after the first attempt, in seconds; it doubles.
            on_error: is told of every attempt that failed.
        """
        super().__init__(worker, max_attempts=max_attempts, on_error=on_error)
        self.clock = clock
        self.backoff = backoff
        self.supervised: dict[str, asyncio.Task[ExecutionState | None]] = {}

    async def pause(self, attempt: int) -> None:
        """Wait `backoff` seconds after the first attempt, twice that after the second, …"""
        await self.clock.sleep(self.backoff * 2 ** (attempt - 1))

    def supervise(self, dispatch: Dispatch) -> None:
        """Begin to drive the execution, unless it is being driven here."""
        if dispatch.execution_id in self.supervised:
            return
        self.supervised[dispatch.execution_id] = asyncio.create_task(
            self.dispatch(dispatch), name=f"supervise {dispatch.execution_id}"
        )

    async def settled(self) -> dict[str, ExecutionState | BaseException | None]:
        """Wait for all that is supervised: how each dispatch ended, by execution id."""
        supervised, self.supervised = self.supervised, {}
        ends = await asyncio.gather(*supervised.values(), return_exceptions=True)
        return dict(zip(supervised, ends, strict=True))
