"""Processes that run the runtime and die on purpose: `python -m loom_conformance.races.victim`.

The process that is started loads the backend once and forks a process of its own for every order,
which comes as a JSON line on its standard input. A fork connects, does what it was told with the
kit's runtime, and at the chosen point it kills itself with SIGKILL: nothing is flushed, closed or
caught. Its answer, if it lives, and the signal that it died of are one JSON line in return.

Effects are lines in a file, each on the disk before the effect counts as done.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..backend import Backend
from ..clock import SystemClock
from ..contract.operations import Append, AppendBatch, Operation
from ..decorators import CoalescingEventStore
from ..lab.backend_ref import BackendRef
from ..lab.faults.moments import at_suspension
from ..lab.faults.process import limit_child
from ..runtime import (
    ExecutionAlreadyExistsError,
    RuntimeDeps,
    StepContext,
    StorageWriteError,
    Workflow,
    WorkflowRuntime,
)
from ..spi import EventEnvelope, EventStore, JsonValue, is_error
from .stores import Around

T = TypeVar("T")


class Fatal(Around):
    """Kills the process at a point of one of its writes.

    Args:
        store: the handle.
        write: which of the process's writes, counted from 1; 0 is none.
        suspension: at which await of that write, counted from 1; 0 is once it has ended.
    """

    def __init__(self, store: EventStore, write: int, suspension: int) -> None:
        super().__init__(store)
        self.write = write
        self.suspension = suspension
        self.seen = 0

    async def call(self, operation: Operation, run: Callable[[], Awaitable[T]]) -> T:
        """Make the call, and die in it or after it if it is the chosen one."""
        if not isinstance(operation, Append | AppendBatch):
            return await run()
        self.seen += 1
        if self.seen != self.write:
            return await run()
        if self.suspension:

            async def running() -> T:
                return await run()

            return await at_suspension(running(), self.suspension, die)
        try:
            return await run()
        finally:
            die()


def die() -> None:
    """End this process as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


class Run:
    """What one fork does, and what it has to say."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self.order = order
        self.told: list[str] = []
        self.storage_errors: list[str] = []

    async def obey(self, backend: Backend) -> dict[str, Any]:
        """Carry out the order; how each of its acts ended."""
        order = self.order
        store: EventStore = await backend.connect(order["address"])
        fatal = Fatal(store, order.get("write", 0), order.get("suspension", 0))
        seen: EventStore = fatal
        if order.get("linger") is not None:
            seen = CoalescingEventStore(seen, max_linger=order["linger"])
        runtime = WorkflowRuntime(
            RuntimeDeps(
                store=seen,
                clock=SystemClock(),
                workflows=[Workflow("audit", self._audit)],
                on_event=self._tell,
                on_storage_error=lambda error: self.storage_errors.append(_named(error)),
            )
        )
        acts = order["acts"]
        ends = await asyncio.gather(*(self._act(runtime, act) for act in acts))
        await seen.close()
        return {
            "ends": ends,
            "told": self.told,
            "storage_errors": self.storage_errors,
            "writes": fatal.seen,
        }

    async def _act(self, runtime: WorkflowRuntime, act: str) -> str:
        execution_id = self.order["execution"]
        try:
            if act == "start":
                handle = await runtime.start(
                    "audit", self.order.get("input"), execution_id=execution_id
                )
                return (await handle.finished()).status
            for found in await runtime.recover_abandoned([execution_id]):
                return (await found.finished()).status
        except Exception as error:  # noqa: BLE001 - told to the parent, who judges it
            return _named(error)
        return "nothing to recover"

    async def _audit(self, context: StepContext, input: JsonValue) -> JsonValue:
        return await context.step("audit", self._effect)

    async def _effect(self) -> JsonValue:
        path = Path(self.order["effects"])
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, b"audit\n")
            os.fsync(fd)
        finally:
            os.close(fd)
        return None

    def _tell(self, envelope: EventEnvelope) -> None:
        self.told.append(envelope.kind)


def _named(error: BaseException) -> str:
    for known in (ExecutionAlreadyExistsError, StorageWriteError):
        if is_error(error, known):
            return known.__name__
    return "".join(traceback.format_exception_only(error)).strip()


def main() -> None:
    """Fork for every order until the standard input ends."""
    opening = json.loads(sys.stdin.readline())
    sys.path[:] = opening["path"]
    try:
        backend = BackendRef.from_json(opening["backend"]).load()
    except Exception as error:  # noqa: BLE001 - told to the parent, who raises it
        _say({"failed": _named(error)})
        return
    _say({})
    for line in sys.stdin:
        _say(_forked(backend, json.loads(line)))


def _forked(backend: type[Backend], order: Mapping[str, Any]) -> dict[str, Any]:
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        answer: dict[str, Any]
        try:
            limit_child(order.get("limits", {}))
            answer = asyncio.run(Run(order).obey(backend()))
        except BaseException as error:  # noqa: BLE001 - told to the parent, who raises it
            answer = {"failed": _named(error)}
        os.write(theirs, json.dumps(answer).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    return {**(json.loads(said) if said else {}), "signal": killed}


def _say(answer: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
