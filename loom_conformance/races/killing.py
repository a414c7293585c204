"""Races against real death: processes that run the runtime and are killed at a chosen point."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from ..backend import Backend
from ..lab.backend_ref import BackendRef
from ..lab.verdict import Inconclusive


@dataclass(frozen=True, slots=True)
class Point:
    """Where a process kills itself: at an await of one of its writes, or once that has ended.

    Attributes:
        write: which of its writes, counted from 1; 0 is nowhere.
        suspension: at which await of the write, counted from 1; 0 is after it.
    """

    write: int = 0
    suspension: int = 0

    def __str__(self) -> str:
        if not self.write:
            return "nowhere"
        where = f"at await {self.suspension} of" if self.suspension else "right after"
        return f"{where} write {self.write}"


ALIVE: Final = Point()


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one process.

    Attributes:
        killed: whether it died of the SIGKILL that it was to send itself.
        ends: how each of its acts ended; empty where it died.
        told: the kinds of the events that `on_event` was told.
        storage_errors: what `on_storage_error` was told.
        writes: how many writes it made.
    """

    killed: bool
    ends: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    storage_errors: tuple[str, ...] = ()
    writes: int = 0


class Processes:
    """Makes processes that run the kit's runtime on one backend; open it with `async with`.

    Args:
        backend: the backend's class; each process makes its own instance and only connects.
        folder: where effects are recorded.
        patience: the seconds that a process may take.
    """

    def __init__(self, backend: type[Backend], folder: Path, patience: float = 60.0) -> None:
        self.folder = folder
        self.patience = patience
        self._reference = BackendRef.of(backend)
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "loom_conformance.races.victim"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        try:
            await self._ask({"backend": self._reference.to_json(), "path": sys.path})
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def run(
        self,
        address: str,
        execution_id: str,
        *acts: str,
        point: Point = ALIVE,
        linger: float | None = None,
        limits: dict[str, Any] | None = None,
        input: str | None = None,
    ) -> Fate:
        """Let a process do `"start"` and `"recover"`, all at once, and die at a point.

        Raises:
            Inconclusive: it could not do its work, or did not end in time.
        """
        order = {
            "address": address,
            "execution": execution_id,
            "acts": acts,
            "effects": str(self._effects(execution_id)),
            "write": point.write,
            "suspension": point.suspension,
            "linger": linger,
            "limits": limits or {},
            "input": input,
        }
        answer = await self._ask(order)
        killed = answer.get("signal")
        if killed is not None and (killed != signal.SIGKILL or point is ALIVE):
            raise Inconclusive(f"a process of the race died of signal {killed}")
        return Fate(
            killed is not None,
            tuple(answer.get("ends", ())),
            tuple(answer.get("told", ())),
            tuple(answer.get("storage_errors", ())),
            answer.get("writes", 0),
        )

    def effects(self, execution_id: str) -> int:
        """How often the execution's effect has run, over all processes."""
        path = self._effects(execution_id)
        return len(path.read_text().splitlines()) if path.exists() else 0

    def _effects(self, execution_id: str) -> Path:
        return self.folder / f"{execution_id}.effects"

    async def _ask(self, told: dict[str, Any]) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise Inconclusive("the process that makes the others was not started")
        process.stdin.write(json.dumps(told).encode() + b"\n")
        line = asyncio.ensure_future(process.stdout.readline())
        await asyncio.wait({line}, timeout=self.patience)
        if not line.done():
            line.cancel()
            raise Inconclusive(f"a process of the race did not end in {self.patience:g} s")
        if not line.result():
            raise Inconclusive("the process that makes the others ended; see its stderr")
        answer: dict[str, Any] = json.loads(line.result())
        if "failed" in answer:
            raise Inconclusive(f"a process of the race could not work: {answer['failed']}")
        return answer


def awaits_of(write: int, most: int) -> Iterator[Point]:
    """The first awaits of a write, and the moment after it."""
    yield Point(write)
    for suspension in range(1, most + 1):
        yield Point(write, suspension)
