"""A process of its own that calls a store: `python -m loom_conformance.lab.child FD`.

It is started by `lab.processes`. The process that is started first, the nursery, loads the backend
once and then forks a child whenever it is asked to, since a fork is much cheaper than a new
interpreter. Each child has a socket to the parent, takes commands from it as JSON lines, makes its
own backend that was never started, and only connects. When the parent's end of a socket closes,
whoever has the other end goes away.

Commands to the nursery: `load`, `fork` (with the child's end of a socket attached), `wait`.
Commands to a child: `connect`, `do`, `load`, `counts`, `stop`, `close`, `quit`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..backend import Backend
from .backend_ref import BackendRef
from .faults.moments import Moment
from .faults.process import limit_child
from .history import RecordedHandle, Recorder, decode_operation, encode_outcome
from .load import Load, LoadRun

LONGEST_LINE = 256 * 1024 * 1024


def main() -> None:
    """Be a nursery on the socket whose file descriptor is the first argument."""
    nursery = socket.socket(fileno=int(sys.argv[1]))
    backend: type[Backend] | None = None
    while True:
        data, fds = b"", list[int]()
        while not data.endswith(b"\n"):
            piece, came, _, _ = socket.recv_fds(nursery, 1 << 16, 1)
            if not piece:
                return
            data += piece
            fds += came
        told = json.loads(data)
        try:
            answer: dict[str, Any] = {}
            if told["do"] == "load":
                sys.path[:] = told["path"]
                backend = BackendRef.from_json(told["backend"]).load()
            elif told["do"] == "fork":
                assert backend is not None
                answer = {"pid": _fork(nursery, fds[0], backend, told)}
            elif told["do"] == "wait":
                answer = {"status": _status(told["pid"])}
        except Exception as error:  # noqa: BLE001 - told to the parent, who raises it
            answer = {"failed": _reason(error)}
        nursery.sendall(json.dumps(answer).encode() + b"\n")


def _reason(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()


def _status(pid: int) -> int | None:
    """The raw wait status of a child if it has ended or stopped."""
    found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
    return status if found else None


def _fork(nursery: socket.socket, fd: int, backend: type[Backend], told: Mapping[str, Any]) -> int:
    pid = os.fork()
    if pid:
        os.close(fd)
        return pid
    status = 1
    try:
        nursery.close()
        random.seed()
        recorder = Recorder(Path(told["history"]), told["name"], told["declared"])
        # From here on the process may not do what its limits forbid.
        limit_child(told.get("limits", {}))
        child = _Child(backend(), told["address"], recorder)
        asyncio.run(child.serve(socket.socket(fileno=fd)))
        status = 0
    except BaseException:  # noqa: BLE001 - the last word of a process that must not return
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


class _Child:
    """One forked process: its backend, its handles and its load."""

    def __init__(self, backend: Backend, address: str, recorder: Recorder) -> None:
        self.backend = backend
        self.address = address
        self.recorder = recorder
        self.handles: dict[str, RecordedHandle] = {}
        self.running: LoadRun | None = None

    async def serve(self, sock: socket.socket) -> None:
        """Obey commands until the parent goes away or says `quit`."""
        # Whatever a store leaves behind in the background is its own affair: its calls are judged.
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        reader, writer = await asyncio.open_connection(sock=sock, limit=LONGEST_LINE)
        tasks: set[asyncio.Task[None]] = set()
        while line := await reader.readline():
            told = json.loads(line)
            if told["do"] == "quit":
                await self._close_all()
                await self._answer(writer, told, {})
                return
            # Commands run side by side: a call may wait for another one's lock.
            task = asyncio.ensure_future(self._obey(writer, told))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        # The parent is gone: nothing that is still under way matters to anyone.
        os._exit(0)

    async def _obey(self, writer: asyncio.StreamWriter, told: Mapping[str, Any]) -> None:
        try:
            answer = await self._act(told)
        except Exception as error:  # noqa: BLE001 - told to the parent, who raises it
            answer = {"failed": _reason(error)}
        await self._answer(writer, told, answer)

    async def _answer(
        self, writer: asyncio.StreamWriter, told: Mapping[str, Any], answer: Mapping[str, Any]
    ) -> None:
        writer.write(json.dumps({"id": told["id"], **answer}).encode() + b"\n")
        await writer.drain()

    async def _act(self, told: Mapping[str, Any]) -> dict[str, Any]:
        match told["do"]:
            case "connect":
                store = await self.backend.connect(self.address)
                self.handles[told["handle"]] = self.recorder.handle(store, told["handle"])
                return {}
            case "do":
                moment = Moment.from_json(told["moment"]) if told.get("moment") else None
                outcome = await self.handles[told["handle"]].do(
                    decode_operation(told["operation"]),
                    timeout=told["timeout"],
                    moment=moment,
                    cancel_at=told.get("cancel_at"),
                )
                return {"outcome": encode_outcome(outcome)}
            case "load":
                load = Load.from_json(told["load"])
                moment = Moment.from_json(told["moment"]) if told.get("moment") else None
                self.running = LoadRun(
                    load, self.recorder, lambda: self.backend.connect(self.address), moment
                )
                return {"counts": await self.running.run()}
            case "counts":
                return {"counts": self.running.counts() if self.running else {}}
            case "stop":
                if self.running is not None:
                    self.running.stop()
                return {}
            case "close":
                await self.handles.pop(told["handle"]).store.close()
                return {}
            case other:
                raise ValueError(f"no such command: {other!r}")

    async def _close_all(self) -> None:
        for handle in self.handles.values():
            await handle.store.close()
        self.recorder.close()


if __name__ == "__main__":
    main()
