"""Reading as fast as the event loop turns, while something goes on beside it.

What is torn is torn for a moment. The suites' bounded calls take several turns of the loop each and
would look past it, so a whole watch is one bounded call, and its reads are the store's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from ..spi import MAX_SEQUENCE, EventEnvelope
from .calls import Handle, settle
from .stage import Stage

Read = Callable[[str], Awaitable[list[EventEnvelope]]]
Look = Callable[[Read], Awaitable[str | None]]

PATIENCE: Final = 6
"""How many deadlines a watch may take: what it waits for has deadlines of its own."""


async def watch(stage: Stage, reader: Handle, look: Look, done: Callable[[], bool]) -> str | None:
    """Look again and again until `done`, and once more after that.

    `look` is given a function that reads an execution, and returns what is wrong, or `None`. It
    looks by `read_from`, and where there are ranges by `read_range` too.

    Returns:
        the first thing that was wrong.

    Raises:
        Inconclusive: a read failed.
        Hung: a read did not settle.
    """

    store: Any = reader.store

    def listed(method: str, found: object) -> list[EventEnvelope]:
        if not isinstance(found, Iterable):
            raise TypeError(f"{method} returned {found!r:.80}, which is no sequence; see READ-2")
        return list(found)

    async def whole(execution_id: str) -> list[EventEnvelope]:
        return listed("read_from", await store.read_from(execution_id))

    async def in_range(execution_id: str) -> list[EventEnvelope]:
        return listed("read_range", await store.read_range(execution_id, 0, MAX_SEQUENCE))

    ranged = await stage.offers("range")

    async def looking() -> str | None:
        last = False
        while not last:
            last = done()
            wrong = await look(whole)
            if wrong is None and ranged:
                wrong = await look(in_range)
                wrong = wrong and f"in a range, {wrong}"
            if wrong is not None:
                return wrong
            await asyncio.sleep(0)
        return None

    seconds = stage.session.allowance("read_from") * PATIENCE
    outcome = await settle(f"{reader.name} reading all the while", "read_from", looking, seconds)
    stage.steps.append(outcome.line())
    return stage.given(outcome)
