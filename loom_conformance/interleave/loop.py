"""An event loop that tells when it has come to rest, and keeps a node's time and I/O in its hands.

`asyncio.SelectorEventLoop` takes a selector. Ours wraps a real one: it is asked with a timeout
other than 0 exactly when no callback is ready, and that is the moment to choose what goes on.
While a store call is in flight the real selector waits for its I/O.

A node's own timers (`asyncio.sleep`, `asyncio.timeout`, `loop.call_later`) become timers of the
scheduler, and its own I/O (threads, sockets, processes) is refused by name: both through methods
of the loop that are public and overridden here. What a store does inside a call is its own affair.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Mapping
from contextvars import Context
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from .owner import OWNER

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from _typeshed import FileDescriptorLike

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class RestSelector(selectors.BaseSelector):
    """A real selector, and what is to be done when the loop has come to rest.

    Attributes:
        at_rest: called when no callback is ready; `True` says that it made one ready.
        led: called when the loop turns without resting; `True` says that no I/O can be due.
        waits: called with the loop's timeout; the seconds to wait for I/O at most.
    """

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.at_rest: Callable[[], bool] | None = None
        self.led: Callable[[], bool] | None = None
        self.waits: Callable[[float | None], float | None] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0:
            led = self.led
            if led is not None and led():
                return []
        elif self.at_rest is not None:
            if self.at_rest():
                return []
            if self.waits is not None:
                timeout = self.waits(timeout)
        return self._real.select(timeout)

    def register(
        self, fileobj: FileDescriptorLike, events: int, data: Any = None
    ) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(
        self, fileobj: FileDescriptorLike, events: int, data: Any = None
    ) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_key(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self._real.get_key(fileobj)

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class Uncontrolled(Exception):
    """A node did I/O of its own, which no scheduler can put in order; it was refused.

    Attributes:
        node: the node's name.
        what: what it called.
    """

    def __init__(self, node: str, what: str) -> None:
        super().__init__(node, what)
        self.node = node
        self.what = what

    def __str__(self) -> str:
        return (
            f"node {self.node} called {self.what} outside its store: the scheduler cannot put that "
            "in order. Go through node.store, node.effect or node.clock, or wrap the object that "
            "does the I/O with node.gate"
        )


_call_soon = asyncio.SelectorEventLoop.call_soon
"""Looked up once: it is called at every turn of the loop."""


class InterleavingLoop(asyncio.SelectorEventLoop):
    """The loop on which all runs of an exploration happen, one after the other.

    Attributes:
        scheduled: how many callbacks have been made ready so far by code that runs on the loop.
    """

    def __init__(self) -> None:
        self.rest = RestSelector()
        self.scheduled = 0
        super().__init__(self.rest)

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self.scheduled += 1
        return _call_soon(self, callback, *args, context=context)

    # --- a node's time ---

    def time(self) -> float:
        owner = OWNER.get()
        return monotonic() if owner is None else owner.clock.seconds

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        owner = OWNER.get()
        if owner is None:
            return super().call_at(when, callback, *args, context=context)
        return owner.clock.arm(when, callback, args, context)

    # --- a node's tasks ---

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = super().create_task(coro, **options)
        context = options.get("context")
        owner = OWNER.get() if context is None else context.get(OWNER)
        if owner is not None:
            owner.tasks.append(task)
        return task

    # --- a node's I/O ---

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        _refuse(f"a thread ({_name(func)})")
        return super().run_in_executor(executor, func, *args)

    def add_reader(
        self, fd: FileDescriptorLike, callback: Callable[[*Ts], Any], *args: *Ts
    ) -> None:
        _refuse("loop.add_reader")
        super().add_reader(fd, callback, *args)

    def add_writer(
        self, fd: FileDescriptorLike, callback: Callable[[*Ts], Any], *args: *Ts
    ) -> None:
        _refuse("loop.add_writer")
        super().add_writer(fd, callback, *args)

    def add_signal_handler(self, sig: int, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        _refuse("loop.add_signal_handler")
        super().add_signal_handler(sig, callback, *args)


def _refusing(name: str) -> Callable[..., Any]:
    """A method of the loop that a node may not call, and anyone else may."""
    inherited = getattr(asyncio.SelectorEventLoop, name)

    def method(self: InterleavingLoop, *args: Any, **options: Any) -> Any:
        _refuse(f"loop.{name}")
        return inherited(self, *args, **options)

    method.__name__ = name
    method.__doc__ = inherited.__doc__
    return method


for _method in (
    "connect_accepted_socket",
    "connect_read_pipe",
    "connect_write_pipe",
    "create_connection",
    "create_datagram_endpoint",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "getaddrinfo",
    "getnameinfo",
    "sendfile",
    "sock_accept",
    "sock_connect",
    "sock_recv",
    "sock_recv_into",
    "sock_recvfrom",
    "sock_recvfrom_into",
    "sock_sendall",
    "sock_sendfile",
    "sock_sendto",
    "start_tls",
    "subprocess_exec",
    "subprocess_shell",
):
    setattr(InterleavingLoop, _method, _refusing(_method))


def _refuse(what: str) -> None:
    owner = OWNER.get()
    if owner is not None:
        raise owner.refuse(what)


def _name(function: object) -> str:
    """What is called in the end: `asyncio.to_thread` wraps it in a partial of `Context.run`."""
    if isinstance(function, partial) and function.args and callable(function.args[0]):
        return _name(function.args[0])
    return getattr(function, "__qualname__", repr(function))
