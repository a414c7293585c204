"""Many callers at once, each with its own part of the work, one call after the other."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


async def tasks(count: int, items: Sequence[T], call: Callable[[T], Awaitable[object]]) -> int:
    """Let `count` tasks share the items."""

    async def caller(part: Sequence[T]) -> None:
        for item in part:
            await call(item)

    await asyncio.gather(*(caller(items[number::count]) for number in range(count)))
    return len(items)


def alone(items: Sequence[T], call: Callable[[T], object]) -> int:
    """Let this thread do all of it."""
    for item in items:
        call(item)
    return len(items)


def threads(count: int, items: Sequence[T], call: Callable[[T], object]) -> int:
    """Let `count` threads share the items."""
    with ThreadPoolExecutor(count) as pool:
        parts = (items[number::count] for number in range(count))
        return sum(pool.map(alone, parts, itertools.repeat(call)))
