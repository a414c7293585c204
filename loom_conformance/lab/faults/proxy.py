"""A proxy between a driver and its server that loses requests and answers.

It knows nothing of the protocol. A *round* of a connection is what the client sends after it was
last answered, and the server's answer to it. A driver that has no answer yet waits; so when the
first bytes of an answer come, the server has done what the round asked, and to drop them there is
to lose an answer after the fact. A write of several rounds (BEGIN, INSERT, COMMIT) can be hit at
each of them.

The proxy runs in a thread of its own: a store that blocks the event loop does not block it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, TypeVar

from .address import Endpoint

T = TypeVar("T")

Loss = Literal["request", "answer", "delay"]

CHUNK: Final = 1 << 16
REST_OF_ANSWER: Final = 0.02
"""How long after its first bytes an answer is read on (seconds), so that it is whole."""


@dataclass(frozen=True, slots=True)
class Trap:
    """What is to happen to one round.

    Attributes:
        loss: `"request"` cuts the connection before the round's request reaches the server;
            `"answer"` passes it on, waits for the answer, drops that and cuts; `"delay"` holds the
            answer back for `seconds` and passes it on.
        round: which round it is, counted from 1 since the trap was set.
        seconds: for `"delay"`; for `"answer"`, how long the client waits before the cut.
        warm: only rounds of connections that have seen so many rounds count, so that
            traps are not wasted on handshakes.
    """

    loss: Loss
    round: int = 1
    seconds: float = 0.0
    warm: int = 0


@dataclass(frozen=True, slots=True)
class Sprung:
    """A trap that went off: when, in nanoseconds of the monotonic clock, and on how many bytes."""

    trap: Trap
    at: int
    bytes: int


class Proxy:
    """Listens on the loopback interface and passes everything on to a server.

        async with Proxy(postgres_endpoint(address)) as proxy:
            handle = await backend.connect(postgres_through(address, *proxy.listening))
            proxy.set(Trap("answer"))
            ...
            assert proxy.sprung

    Args:
        upstream: where the server listens.
    """

    def __init__(self, upstream: Endpoint) -> None:
        self.upstream = upstream
        self.sprung: list[Sprung] = []
        self.rounds = 0
        """How many rounds there have been."""
        self.cuts = 0
        """How many connections were cut by `cut`."""
        self._trap: Trap | None = None
        self._seen = 0
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="loom-proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._lines: set[_Line] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._thread.start()
        try:
            await self._ask(self._listen())
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._ask(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    @property
    def listening(self) -> tuple[str, int]:
        """The host and port to connect to."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    def set(self, trap: Trap | None) -> None:
        """Set a trap in place of any other, or none."""
        with self._lock:
            self._trap = trap
            self._seen = 0

    async def cut(self) -> int:
        """Cut every connection now; how many there were."""
        return await self._ask(self._cut())

    # --- In the proxy's own thread -------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        asked: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return await asyncio.wrap_future(asked)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def _shut(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._cut()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _cut(self) -> int:
        lines = list(self._lines)
        for line in lines:
            line.cut()
        self.cuts += len(lines)
        return len(lines)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            if self.upstream.path:
                there = await asyncio.open_unix_connection(self.upstream.path)
            else:
                there = await asyncio.open_connection(self.upstream.host, self.upstream.port)
        except OSError:
            # The server is down: the client finds its connection closed, as it would there.
            writer.transport.abort()
            return
        line = _Line((reader, writer), there, self._begin_round)
        self._lines.add(line)
        try:
            await line.run()
        finally:
            self._lines.discard(line)

    def _begin_round(self, line: _Line) -> Callable[[int], None] | None:
        """Count a round; the trap that it springs, as what to do with the bytes then."""
        with self._lock:
            self.rounds += 1
            trap = self._trap
            if trap is None or line.rounds <= trap.warm:
                return None
            self._seen += 1
            if self._seen != trap.round:
                return None
            self._trap = None
            line.trap = trap
            return lambda size: self._spring(trap, size)

    def _spring(self, trap: Trap, size: int) -> None:
        self.sprung.append(Sprung(trap, time.monotonic_ns(), size))


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Line:
    """One connection through the proxy."""

    def __init__(
        self, client: Ends, server: Ends, begin: Callable[[_Line], Callable[[int], None] | None]
    ) -> None:
        self.client = client
        self.server = server
        self.rounds = 0
        self.trap: Trap | None = None
        self._begin = begin
        self._spring: Callable[[int], None] | None = None
        self._answered = True

    async def run(self) -> None:
        """Pass bytes on both ways until one side ends."""
        ways = [
            asyncio.ensure_future(self._requests()),
            asyncio.ensure_future(self._answers()),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self.cut()

    def cut(self) -> None:
        """Reset the connection on both sides."""
        self.client[1].transport.abort()
        self.server[1].transport.abort()

    async def _requests(self) -> None:
        while data := await self.client[0].read(CHUNK):
            if self._answered:
                self._answered = False
                self.rounds += 1
                self._spring = self._begin(self)
            if self._spring is not None and self.trap is not None and self.trap.loss == "request":
                self._spring(len(data))
                return
            self.server[1].write(data)
            await self.server[1].drain()

    async def _answers(self) -> None:
        while data := await self.server[0].read(CHUNK):
            self._answered = True
            if self._spring is not None and self.trap is not None:
                spring, trap = self._spring, self.trap
                self._spring = self.trap = None
                if trap.loss == "answer":
                    size = len(data) + await self._rest()
                    spring(size)
                    await asyncio.sleep(trap.seconds)
                    return
                await asyncio.sleep(trap.seconds)
                spring(len(data))
            self.client[1].write(data)
            await self.client[1].drain()

    async def _rest(self) -> int:
        size = 0
        try:
            async with asyncio.timeout(REST_OF_ANSWER):
                while data := await self.server[0].read(CHUNK):
                    size += len(data)
        except TimeoutError:
            return size
        return size
