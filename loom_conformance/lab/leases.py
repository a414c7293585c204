"""How a suite drives a lease store: bounded calls, passing time, a node with a wrong clock."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from ..backend import Aging, Leasing
from ..spi import LeaseStore
from .backend_ref import BackendRef
from .calls import Hung, Outcome, Patience, settle, short
from .stage import Stage
from .verdict import Inconclusive, NotOffered

LONG: Final = 120.0
"""A time to live in seconds that no test outlives."""


class LeaseHandle:
    """One connected lease store; every call is bounded and noted, and none raises."""

    def __init__(self, store: LeaseStore, name: str, steps: list[str], patience: Patience) -> None:
        self.store = store
        self.name = name
        self.steps = steps
        self.patience = patience

    async def claim(self, name: Any, holder: Any, ttl: Any = LONG) -> Outcome[bool]:
        """`claim(name, holder, ttl)`."""
        return await self._call("claim", name, holder, ttl)

    async def renew(self, name: Any, holder: Any, ttl: Any = LONG) -> Outcome[bool]:
        """`renew(name, holder, ttl)`."""
        return await self._call("renew", name, holder, ttl)

    async def release(self, name: Any, holder: Any) -> Outcome[bool]:
        """`release(name, holder)`."""
        return await self._call("release", name, holder)

    async def close(self) -> Outcome[None]:
        """`close()`."""
        return await self._call("close")

    async def _call(self, method: str, *arguments: object) -> Outcome[Any]:
        told = ", ".join(map(short, arguments))
        call = f"{self.name}.{method}({told})"
        outcome = await settle(
            call,
            method,
            lambda: getattr(self.store, method)(*arguments),
            self.patience.allowance(method),
        )
        self.steps.append(outcome.line())
        self.patience.settled(method)
        return outcome


@asynccontextmanager
async def lease_handles(stage: Stage, count: int) -> AsyncIterator[list[LeaseHandle]]:
    """Handles on the shared storage's leases, closed at the end of the block.

    Raises:
        NotOffered: the backend has no leases, or declines them.
        Inconclusive: a handle could not be opened.
    """
    backend = stage.backend
    if "leases" in backend.declined:
        raise NotOffered(f"declined: {backend.declined['leases']}")
    if not isinstance(backend, Leasing):
        raise NotOffered("the backend has no connect_leases")
    address = await stage.address()
    handles: list[LeaseHandle] = []
    try:
        for number in range(1, count + 1):
            opened = await settle(
                "connect_leases()",
                "connect_leases",
                lambda: backend.connect_leases(address),
                stage.settings.deadline,
            )
            if opened.error is not None or opened.value is None:
                raise Inconclusive(f"set-up failed: {opened.line()}") from opened.error
            handles.append(LeaseHandle(opened.value, f"h{number}", stage.steps, stage.session))
        yield handles
    finally:
        for handle in handles:
            await _discarded(handle)


async def _discarded(handle: LeaseHandle) -> None:
    try:
        await handle.close()
    except Hung:
        return


class Passing:
    """Time that passes for leases: at once where the backend can age them, else by waiting."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.backend = stage.backend
        self.short: float = 60.0 if isinstance(self.backend, Aging) else 0.4
        """A time to live in seconds that `past` waits out."""

    async def past(self) -> None:
        """Let more than `short` seconds pass."""
        await self.passes(self.short * 1.5)

    async def passes(self, seconds: float) -> None:
        """Let so many seconds pass, all but for the moment that a call takes."""
        if isinstance(self.backend, Aging):
            backend, address = self.backend, await self.stage.address()
            aged = await settle(
                f"age_leases({seconds:g})",
                "age_leases",
                lambda: backend.age_leases(address, seconds),
                self.stage.settings.deadline,
            )
            if aged.error is not None:
                raise Inconclusive(f"set-up failed: {aged.line()}") from aged.error
            self.stage.steps.append(f"{seconds:g} s pass for every lease")
        else:
            await asyncio.sleep(seconds)
            self.stage.steps.append(f"{seconds:g} s pass")


class SkewedNode:
    """A process whose clocks are off by `shift` seconds, with one handle on the leases.

    Open it with `async with`; it ends with the block.
    """

    def __init__(self, stage: Stage, shift: float) -> None:
        self.stage = stage
        self.shift = shift
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> SkewedNode:
        reference = BackendRef.of(type(self.stage.backend))
        address = await self.stage.address()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "loom_conformance.lab.skewed",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        opening = {
            "backend": reference.to_json(),
            "address": address,
            "shift": self.shift,
            "path": sys.path,
        }
        try:
            await self._ask(opening)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def claim(self, name: str, holder: str, ttl: float) -> bool:
        """`claim(name, holder, ttl)` as this node makes it.

        Raises:
            Inconclusive: the node could not make it.
        """
        granted = bool(await self._ask([name, holder, ttl]))
        self.stage.steps.append(
            f"a node whose clock is {self.shift:+g} s off: "
            f"claim({short(name)}, {short(holder)}, {ttl:g}) → {granted}"
        )
        return granted

    async def _ask(self, question: object) -> object:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise Inconclusive("the node with the wrong clock was not started")
        process.stdin.write(json.dumps(question).encode() + b"\n")
        line = asyncio.ensure_future(process.stdout.readline())
        await asyncio.wait({line}, timeout=6 * self.stage.settings.deadline)
        if not line.done():
            line.cancel()
            raise Inconclusive("the node with the wrong clock did not answer")
        text = line.result()
        if not text:
            raise Inconclusive("the node with the wrong clock ended")
        answer = json.loads(text)
        if "error" in answer:
            raise Inconclusive(f"a node with a wrong clock: {answer['error']}")
        return answer["value"]
