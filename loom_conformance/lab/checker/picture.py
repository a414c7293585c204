"""Calls drawn as bars in time, as text and as data for a page.

Bars are spaced by the order of their ends, not by the clock: what overlaps is what matters, and a
call that waited a second would hide a dozen that took a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from .call import Call

O = TypeVar("O")  # noqa: E741
R = TypeVar("R")


def draw(calls: Sequence[Call[O, R]], stuck: Iterable[Call[O, R]] = (), *, width: int = 60) -> str:
    """The calls as text, one line each: a bar, who called, what, and what came back.

    `[===]` is a call, `[===>` one whose effect may come at any later time or never. The calls
    that no order could take next are marked with `!`.
    """
    marked = {(call.process, call.number) for call in stuck}
    ordered = sorted(calls, key=lambda call: call.invoked)
    spots, columns = _spots(ordered, width)
    lines = []
    for call in ordered:
        begin = spots[call.invoked]
        open_end = not call.certain
        end = columns if open_end or call.completed is None else spots[call.completed]
        bar = "[" + "=" * max(1, end - begin - 1) + (">" if open_end else "]")
        mark = "!" if (call.process, call.number) in marked else " "
        lines.append(f"{mark} {' ' * begin}{bar}".ljust(columns + 4) + f" {call}")
    return "\n".join(lines)


def picture(calls: Sequence[Call[O, R]], stuck: Iterable[Call[O, R]] = ()) -> dict[str, Any]:
    """The calls as data: bars with a begin and an end from 0 to 1, for a page to draw."""
    marked = {(call.process, call.number) for call in stuck}
    ordered = sorted(calls, key=lambda call: call.invoked)
    spots, columns = _spots(ordered, 1000)
    first = ordered[0].invoked if ordered else 0
    bars = [
        {
            "process": call.process,
            "handle": call.handle,
            "operation": str(call.operation),
            "outcome": str(call.outcome),
            "certain": call.certain,
            "stuck": (call.process, call.number) in marked,
            "begin": spots[call.invoked] / columns,
            "end": 1.0
            if not call.certain or call.completed is None
            else spots[call.completed] / columns,
            "invoked_ns": call.invoked - first,
            "completed_ns": None if call.completed is None else call.completed - first,
        }
        for call in ordered
    ]
    return {"kind": "calls", "bars": bars}


def _spots(calls: Sequence[Call[O, R]], width: int) -> tuple[dict[int, int], int]:
    """A column for every moment at which something begins or ends, and the last column."""
    moments = sorted(
        {call.invoked for call in calls}
        | {call.completed for call in calls if call.completed is not None}
    )
    gap = max(2, width // max(1, len(moments)))
    return {moment: place * gap for place, moment in enumerate(moments)}, len(moments) * gap
