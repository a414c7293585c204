"""Reading as fast as the event loop turns, while something goes on beside it.

What is torn is torn for a moment. The suites' bounded calls take several turns of the loop each and
would look past it, so a whole watch is one bounded call, and its reads are the store's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from ..spi import EventEnvelope
from .calls import Handle, settle
from .stage import Stage

Read = Callable[[str], Awaitable[list[EventEnvelope]]]
Look = Callable[[Read], Awaitable[str | None]]

PATIENCE: Final = 6
"""How many deadlines a watch may take: what it waits for has deadlines of its own."""


async def watch(stage: Stage, reader: Handle, look: Look, done: Callable[[], bool]) -> str | None:
    """Look again and again until `done`, and once more after that.

    `look` is given a function that reads an execution, and returns what is wrong, or `None`.

    Returns:
        the first thing that was wrong.

    Raises:
        Inconclusive: a read failed.
        Hung: a read did not settle.
    """

    async def read(execution_id: str) -> list[EventEnvelope]:
        found: object = await reader.store.read_from(execution_id)
        if not isinstance(found, Iterable):
            raise TypeError(f"read_from returned {found!r:.80}, which is no sequence; see READ-2")
        return list(found)

    async def looking() -> str | None:
        last = False
        while not last:
            last = done()
            wrong = await look(read)
            if wrong is not None:
                return wrong
            await asyncio.sleep(0)
        return None

    seconds = stage.session.allowance("read_from") * PATIENCE
    outcome = await settle(f"{reader.name} reading all the while", "read_from", looking, seconds)
    stage.steps.append(outcome.line())
    return stage.given(outcome)
