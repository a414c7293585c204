"""The command as a user runs it: a process of its own, in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

BACKENDS = '''
"""Backends of one kind: right in what they store, each harmful to its process in one way."""

import asyncio
import os
import signal
import sys
import threading
import time

from loom_backends.memory import MemoryBackend

print("a module that prints when it is imported")


class Harmful(MemoryBackend):
    harm = None

    async def connect(self, address):
        return Store(await super().connect(address), type(self).harm)


class Store:
    def __init__(self, store, harm):
        self.store = store
        self.harm = harm

    async def append(self, envelope):
        if envelope.sequence == 1:
            waiting = self.harm()
            if waiting is not None:
                await waiting
        await self.store.append(envelope)

    async def read_from(self, execution_id, first=0):
        return await self.store.read_from(execution_id, first)

    async def read_range(self, execution_id, first, last):
        return await self.store.read_range(execution_id, first, last)

    async def close(self):
        await self.store.close()


def harmful(name, harm):
    members = {"name": name, "harm": staticmethod(harm), "__module__": __name__}
    globals()[name] = type(name, (Harmful,), members)


def prints():
    print("noise")
    print("noise", file=sys.stderr)
    os.write(1, b"noise")


def closes_stdout():
    sys.stdout.close()
    sys.stderr.close()


def closes_descriptors():
    for descriptor in (1, 2):
        try:
            os.close(descriptor)
        except OSError:
            pass


def closes_loop():
    loop = asyncio.get_running_loop()
    loop.call_soon(loop.close)
    loop.stop()


def interrupts():
    raise KeyboardInterrupt


def never_gives_way():
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass


harmful("Prints", prints)
harmful("ClosesStdout", closes_stdout)
harmful("ClosesDescriptors", closes_descriptors)
harmful("LeavesThreads", lambda: threading.Thread(target=time.sleep, args=(600,)).start())
harmful("Hangs", lambda: asyncio.Event().wait())
harmful("Blocks", lambda: time.sleep(600))
harmful("NeverGivesWay", never_gives_way)
harmful("StopsLoop", lambda: asyncio.get_running_loop().stop())
harmful("ClosesLoop", closes_loop)
harmful("Exits", lambda: sys.exit(0))
harmful("Dies", lambda: os._exit(0))
harmful("Killed", lambda: os.kill(os.getpid(), signal.SIGKILL))
harmful("Interrupts", interrupts)


class Untidy(MemoryBackend):
    async def destroy(self, address):
        raise OSError("the folder is busy")

    async def stop(self):
        await asyncio.Event().wait()


class CreateRaises(MemoryBackend):
    name = "raises"

    async def create(self):
        raise OSError("disk full")


class CreateHangs(MemoryBackend):
    name = "hangs"

    async def create(self):
        await asyncio.Event().wait()


class CreateReturnsANumber(MemoryBackend):
    name = "number"

    async def create(self):
        return 7


class CreateDies(MemoryBackend):
    name = "dies"

    async def create(self):
        os._exit(7)


class ConnectReturnsNoStore(MemoryBackend):
    name = "nothing"

    async def connect(self, address):
        return object()


class StartRaises(MemoryBackend):
    name = "start"

    async def start(self):
        raise RuntimeError("no server")


class DeclinesCore(MemoryBackend):
    name = "wrong"
    declined = {"core": "too hard"}


class Wrong(Store):
    async def read_range(self, execution_id, first, last):
        return await self.store.read_range(execution_id, first, last - 1)


class WrongRange(MemoryBackend):
    name = "wrong range"

    async def connect(self, address):
        return Wrong(await super().connect(address), lambda: None)


class Misspelt(MemoryBackend):
    name = "misspelt"
    envelope_id = "execution"


class NoLeases(MemoryBackend):
    name = "no leases"
    declined = {"leases": "one node only"}


class Listed(WrongRange):
    name = "listed"
    known_failing = {"RANGE-1": "issue 12", "RANGE-2": "issue 13"}


not_a_backend = "text"
'''


def write_backends(folder: Path) -> None:
    """Put the module `harmful` with the backends into a folder."""
    (folder / "harmful.py").write_text(BACKENDS, "utf-8")


def loom(
    folder: Path, *arguments: str, timeout: float = 150, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `loom-conformance` in a folder."""
    words: Sequence[str] = (sys.executable, "-m", "loom_conformance", *arguments)
    return subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "COLUMNS": "80", **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
