"""Child processes that call a store, and what is done to them: killed, paused, woken.

    async with Nursery(backend_class, folder) as nursery:
        child = await nursery.spawn("writer", address)
        await child.connect()
        outcome = await child.do(AcquireFence("e"))
        await child.kill()

Every child records its calls in a history file of its own in `folder`. What is done to a child is
proven: `kill` and `pause` return only when the operating system has said that the child died of
the signal, or stopped. Needs a POSIX system.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from ..backend import Backend
from ..contract.operations import Operation, Outcome
from .backend_ref import BackendRef
from .child import LONGEST_LINE
from .faults.moments import Moment
from .history import declarations, decode_outcome, encode_operation
from .load import Load

PATIENCE: Final = 60.0
"""Seconds to wait for a process to load the backend, or for an answer that is no call's."""


class ChildFailed(Exception):
    """A child could not do what it was told; the message is its error."""


class ChildDied(ChildFailed):
    """A child ended before it answered."""


def _child_process(theirs: socket.socket) -> subprocess.Popen[bytes]:
    """Start the module that forks, at the other end of a socket.

    It is no process of the event loop, since it may outlive the loop that it was started on.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "loom_conformance.lab.child", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


class Forker:
    """A process that has loaded a backend once, and forks children of itself when it is asked to.

    It serves any number of nurseries, one after the other.

    Args:
        backend: the backend's class.

    Raises:
        UnreachableBackendError: the class cannot be loaded by another process.
    """

    def __init__(self, backend: type[Backend]) -> None:
        self._ref = BackendRef.of(backend)
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._lock = asyncio.Lock()

    async def start(self, patience: float = PATIENCE) -> None:
        """Start it, and have it load the backend.

        Raises:
            ChildFailed: it could not.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            self._process = _child_process(theirs)
        self._socket = ours
        try:
            order = {"do": "load", "path": sys.path, "backend": self._ref.to_json()}
            await self.ask(order, patience)
        except BaseException:
            await self.end()
            raise

    async def ask(
        self, told: Mapping[str, Any], patience: float, fd: int | None = None
    ) -> dict[str, Any]:
        """Have it do something, and wait `patience` seconds at most.

        Raises:
            ChildFailed: it could not.
        """
        assert self._socket is not None
        loop = asyncio.get_running_loop()
        async with self._lock, asyncio.timeout(patience):
            data = json.dumps(told).encode() + b"\n"
            # The socket is empty and the message short, so that it is sent in one piece.
            socket.send_fds(self._socket, [data], [] if fd is None else [fd])
            line = b""
            while not line.endswith(b"\n"):
                piece = await loop.sock_recv(self._socket, 1 << 16)
                if not piece:
                    raise ChildDied("the process that makes the children ended; see its stderr")
                line += piece
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise ChildFailed(answer["failed"])
        return answer

    async def end(self) -> None:
        """Let it go away, which it does when its socket closes; do not trust it to."""
        if self._socket is not None:
            self._socket.close()
        try:
            for _ in range(2500):
                if self._process is None or self._process.poll() is not None:
                    break
                await asyncio.sleep(0.002)
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill it, if it is there: nobody waits for it any more."""
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Nursery:
    """Makes child processes for one backend.

    Args:
        backend: the backend's class.
        folder: where the children's histories are written.
        patience: seconds to wait for a child to answer anything but a call or a load.
        forker: the process that forks them; one of its own by default.

    Raises:
        UnreachableBackendError: the class cannot be loaded by another process.
    """

    def __init__(
        self,
        backend: type[Backend],
        folder: Path,
        patience: float = PATIENCE,
        forker: Forker | None = None,
    ) -> None:
        self.backend = backend
        self.folder = folder
        self.patience = patience
        self.children: list[Child] = []
        self._own = forker is None
        self._forker = Forker(backend) if forker is None else forker

    async def __aenter__(self) -> Self:
        if self._own:
            await self._forker.start(self.patience)
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            for child in self.children:
                await child.discard()
        finally:
            if self._own:
                await self._forker.end()

    async def spawn(
        self, name: str, address: str, *, limits: Mapping[str, Any] | None = None
    ) -> Child:
        """Start a child that will connect to `address`; see `limit_child` for `limits`.

        Raises:
            FileExistsError: the name was used before in this folder.
        """
        history = self.folder / f"{name}.jsonl"
        if history.exists():
            raise FileExistsError(f"{history} exists: a child's name may be used once")
        ours, theirs = socket.socketpair()
        order = {
            "do": "fork",
            "name": name,
            "address": address,
            "history": str(history),
            "declared": declarations(self.backend),
            "limits": dict(limits or {}),
        }
        with theirs:
            pid = (await self._forker.ask(order, self.patience, theirs.fileno()))["pid"]
        child = Child(self, name, pid, history)
        await child.open(ours)
        self.children.append(child)
        return child

    async def wait(self, pid: int) -> int:
        """The raw wait status of a child once it has ended or stopped."""
        while True:
            order = {"do": "wait", "pid": pid}
            status: int | None = (await self._forker.ask(order, self.patience))["status"]
            if status is not None:
                return status
            await asyncio.sleep(0.002)


class Child:
    """One child process."""

    def __init__(self, nursery: Nursery, name: str, pid: int, history: Path) -> None:
        self.name = name
        self.pid = pid
        self.history = history
        self.status: int | None = None
        """The raw wait status, once the child has ended."""
        self._nursery = nursery
        self._waiting_for_status = asyncio.Lock()
        self._numbers = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._listener: asyncio.Task[None] | None = None

    async def open(self, sock: socket.socket) -> None:
        """Take the parent's end of the child's socket."""
        reader, self._writer = await asyncio.open_connection(sock=sock, limit=LONGEST_LINE)
        self._listener = asyncio.ensure_future(self._listen(reader))

    async def connect(self, handle: str = "h0") -> None:
        """Open a handle in the child.

        Raises:
            ChildFailed: the backend could not connect.
        """
        await self._ask({"do": "connect", "handle": handle})

    async def do(
        self,
        operation: Operation,
        *,
        handle: str = "h0",
        timeout: float = 30.0,
        moment: Moment | None = None,
        cancel_at: int | None = None,
    ) -> Outcome:
        """Have the child make a call.

        With a `moment`, the child hits itself with the signal at that await of this call; a
        killed child raises `ChildDied` here, a stopped one answers after it was resumed.

        Raises:
            ChildDied: the child ended before the call did.
        """
        answer = await self._ask(
            {
                "do": "do",
                "handle": handle,
                "operation": encode_operation(operation),
                "timeout": timeout,
                "moment": moment.to_json() if moment else None,
                "cancel_at": cancel_at,
            },
            patience=None,
        )
        return decode_outcome(answer["outcome"])

    async def load(self, load: Load, moment: Moment | None = None) -> dict[str, int]:
        """Have the child put a load on the store, to its end; what its calls came to.

        Raises:
            ChildDied: the child ended before the load did.
        """
        told = {
            "do": "load",
            "load": load.to_json(),
            "moment": moment.to_json() if moment else None,
        }
        counts: dict[str, int] = (await self._ask(told, patience=None))["counts"]
        return counts

    async def counts(self) -> dict[str, int]:
        """What the calls of a load that is going on have come to so far."""
        counts: dict[str, int] = (await self._ask({"do": "counts"}))["counts"]
        return counts

    async def stop(self) -> None:
        """Have the load begin no more calls."""
        await self._ask({"do": "stop"})

    async def close(self, handle: str = "h0") -> None:
        """Close a handle in the child."""
        await self._ask({"do": "close", "handle": handle})

    async def quit(self) -> None:
        """Have the child close its handles and end."""
        if self.status is None:
            await self._ask({"do": "quit"})
            await self.ended()

    async def kill(self) -> bool:
        """Kill the child with SIGKILL; whether that was what it died of."""
        if self.status is None:
            self._send(signal.SIGKILL)
        return await self.ended() == signal.SIGKILL

    async def ended(self) -> int | None:
        """Wait for the child's end; the signal that it died of, or `None`."""
        if self._listener is not None:
            # Its socket closes when it ends.
            await asyncio.wait({self._listener})
        async with self._waiting_for_status:
            if self.status is None:
                self.status = await self._nursery.wait(self.pid)
        return os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else None

    async def pause(self) -> bool:
        """Stop the child with SIGSTOP; whether it stopped."""
        return self._send(signal.SIGSTOP) and await self.paused()

    async def paused(self) -> bool:
        """Wait until the child has stopped; `False` if it ended instead."""
        async with self._waiting_for_status:
            if self.status is not None:
                return False
            status = await self._nursery.wait(self.pid)
            if os.WIFSTOPPED(status):
                return True
            self.status = status
            return False

    def resume(self) -> None:
        """Wake the child with SIGCONT."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> bool:
        """Send a signal; `False` if the child has ended, though that may not be known here yet."""
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    async def discard(self) -> None:
        """Be rid of the child, whatever state it is in."""
        if self.status is None:
            await self.kill()
        if self._writer is not None:
            self._writer.close()

    async def _ask(self, told: Mapping[str, Any], patience: float | None = -1.0) -> dict[str, Any]:
        assert self._writer is not None
        if self._listener is None or self._listener.done():
            raise ChildDied(f"the child {self.name!r} has ended")
        self._numbers += 1
        number = self._numbers
        answered = asyncio.get_running_loop().create_future()
        self._waiting[number] = answered
        self._writer.write(json.dumps({"id": number, **told}).encode() + b"\n")
        limit = self._nursery.patience if patience == -1.0 else patience
        try:
            async with asyncio.timeout(limit):
                answer: dict[str, Any] = await answered
        finally:
            self._waiting.pop(number, None)
        if "failed" in answer:
            raise ChildFailed(answer["failed"])
        return answer

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                answer = json.loads(line)
                waiting = self._waiting.get(answer.pop("id"))
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        except ConnectionError:
            # A killed child may leave data unread on its end: that resets ours.
            return
        finally:
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(ChildDied(f"the child {self.name!r} ended"))
