"""A workflow, the context its body is given, and one drive of its body."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from ..spi import JsonValue
from .errors import StorageWriteError
from .journal import ExecutionJournal
from .state import (
    EXECUTION_COMPLETED,
    EXECUTION_FAILED,
    STEP_COMPLETED,
    TIMER_SET,
    Event,
    ExecutionState,
)

Effect = Callable[[], Awaitable[JsonValue]]


class Asleep(BaseException):
    """Leaves a body that waits for a timer; a body must let it through."""


class StepContext:
    """What the body of a workflow is given: recorded steps and durable sleep.

    A step that the log has is not run again: its recorded result is returned.
    """

    def __init__(self, journal: ExecutionJournal) -> None:
        self.journal = journal

    @property
    def state(self) -> ExecutionState:
        """The execution's fold so far."""
        state = self.journal.state
        if state is None:
            raise ValueError(f"{self.journal.execution_id!r} is driven before its bootstrap")
        return state

    async def step(self, name: str, effect: Effect) -> JsonValue:
        """Run an effect once and record its result; the name is the step's own in the workflow.

        Raises:
            StorageWriteError: the effect ran, and its record, or one before it, did not land.
        """
        if name in self.state.steps:
            return self.state.steps[name]
        result = await effect()
        self.journal.commit(Event(STEP_COMPLETED, {"step": name, "result": result}))
        await self.journal.drain()
        return result

    async def sleep(self, name: str, seconds: float) -> None:
        """Set a durable timer and leave the body until it has fired.

        Raises:
            StorageWriteError: the timer, or a record before it, did not land.
        """
        if name in self.state.fired:
            return
        if name not in self.state.timers:
            due = self.journal.clock.now() + timedelta(seconds=seconds)
            self.journal.commit(Event(TIMER_SET, {"timer": name, "due": due.isoformat()}))
            await self.journal.drain()
        raise Asleep


Body = Callable[[StepContext, JsonValue], Awaitable[JsonValue]]


@dataclass(frozen=True, slots=True)
class Workflow:
    """A named body: an `async def` that reaches the world through recorded steps only."""

    name: str
    body: Body


async def drive(workflow: Workflow, context: StepContext) -> ExecutionState:
    """Run a body until it ends or sleeps, record how it ended, and wait for the record.

    Raises:
        StorageWriteError: a write did not land; the log is left as it was, for recovery.
    """
    journal = context.journal
    try:
        result = await workflow.body(context, context.state.input)
    except Asleep:
        pass
    except StorageWriteError:
        raise
    except Exception as error:  # noqa: BLE001 - a body may raise anything; it ends the execution
        journal.commit(Event(EXECUTION_FAILED, {"error": f"{type(error).__name__}: {error}"}))
    else:
        journal.commit(Event(EXECUTION_COMPLETED, {"result": result}))
    await journal.drain()
    return context.state
