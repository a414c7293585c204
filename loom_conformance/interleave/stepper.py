"""A coroutine that asks before each of its resumptions.

The coroutine runs in an ordinary task: its timeouts, its context and its cancellation work as
ever. Only the moments at which it goes on are somebody else's choice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import CoroutineType
from typing import Any, Final

_LOCKS: Final = {asyncio.locks.__file__, asyncio.queues.__file__}


class Stepped:
    """Awaits `coroutine`, and before each resumption what `permission` gives."""

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        permission: Callable[[], asyncio.Future[None]],
    ) -> None:
        self._coroutine = coroutine
        self._permission = permission

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine = self._coroutine
        raised: BaseException | None = None
        try:
            while True:
                if not isinstance(raised, asyncio.CancelledError):
                    try:
                        yield from self._permission()
                    except asyncio.CancelledError as cancelled:
                        raised = cancelled
                try:
                    if raised is None:
                        waited_for = coroutine.send(None)
                    else:
                        error, raised = raised, None
                        waited_for = coroutine.throw(error)
                except StopIteration as end:
                    return end.value
                try:
                    yield waited_for
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001 - it belongs to the coroutine
                    raised = error
        finally:
            coroutine.close()


def waits_in_process(coroutine: object) -> bool:
    """Whether a suspended coroutine waits at one of asyncio's own locks or queues."""
    while isinstance(coroutine, CoroutineType):
        if coroutine.cr_code.co_filename in _LOCKS:
            return True
        coroutine = coroutine.cr_await
    return False


def innermost(coroutine: object) -> str:
    """The function in which a suspended coroutine waits."""
    name = ""
    while isinstance(coroutine, CoroutineType):
        name = coroutine.cr_code.co_qualname
        coroutine = coroutine.cr_await
    return name


def where(coroutine: object) -> str:
    """Where a suspended coroutine waits: the innermost function, and who called it in what line."""
    inner = outer = coroutine
    while isinstance(inner, CoroutineType) and isinstance(inner.cr_await, CoroutineType):
        outer, inner = inner, inner.cr_await
    name = innermost(coroutine)
    if isinstance(outer, CoroutineType) and outer is not inner and outer.cr_frame is not None:
        return f"{name}, called by {outer.cr_code.co_qualname} in line {outer.cr_frame.f_lineno}"
    return name


def lines_of(coroutine: object) -> tuple[tuple[str, int], ...]:
    """The functions of a suspended coroutine, outermost first, each with the line it waits in."""
    found = []
    while isinstance(coroutine, CoroutineType):
        if coroutine.cr_frame is not None:
            found.append((coroutine.cr_code.co_qualname, coroutine.cr_frame.f_lineno))
        coroutine = coroutine.cr_await
    return tuple(found)
