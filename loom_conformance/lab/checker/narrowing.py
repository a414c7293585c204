"""A history with what its reads say put into its times and outcomes, for the search."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from ...contract.operations import (
    AcquireFence,
    Append,
    AppendBatch,
    Done,
    ReadFrom,
    ReadRange,
    Refused,
    Unknown,
    executions_of,
)
from ...spi import EventEnvelope, StaleFenceError, is_token
from .sightings import StoreCall, completed_at, covers, is_read, sightings


def narrowed(calls: Sequence[StoreCall]) -> list[StoreCall]:
    """The calls with what the reads say of the writes put into their times and outcomes.

    An order is legal for the result exactly when it is legal for the calls: every change follows
    from what any legal order must be. Calls that cannot matter any more are left out.
    """
    seen = sightings(calls)
    watchers = _watchers(calls)
    puzzles = _unexplained(calls)
    result = []
    for call in calls:
        operation = call.operation
        sighting = seen.get(call)
        if call.certain and sighting is None:
            result.append(call)
        elif isinstance(operation, AcquireFence):
            if puzzles.get(operation.execution_id, -1) >= call.invoked:
                result.append(_opened(call, call.invoked))
        elif sighting is not None:
            begin, end = sighting.not_before, sighting.not_after
            if end is None:
                if _may_matter(call, begin, watchers):
                    result.append(_opened(call, begin))
            elif begin > end:
                # Impossible; left as it is for the search to show.
                result.append(call)
            else:
                result.append(
                    replace(call, invoked=begin, completed=end, certain=True, outcome=Done())
                )
    return result


def _opened(call: StoreCall, begin: int) -> StoreCall:
    """An uncertain call without what sets it apart from others of the same effect."""
    outcome = Unknown() if isinstance(call.outcome, Unknown) else call.outcome
    return replace(call, invoked=begin, outcome=outcome)


def _unexplained(calls: Sequence[StoreCall]) -> dict[str, int]:
    """For each execution, the end of the last refusal as stale that no known token explains.

    Only such a refusal can need an acquire of unknown outcome: all that such an acquire does is to
    make tokens stale.
    """
    first: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for call in calls:
        operation, outcome = call.operation, call.outcome
        if not (call.certain and isinstance(operation, AcquireFence)):
            continue
        if isinstance(outcome, Done) and is_token(outcome.value):
            first[operation.execution_id].append((completed_at(call), outcome.value))
    highest = {name: _Rising(points) for name, points in first.items()}
    puzzles: dict[str, int] = {}
    for call in calls:
        operation = call.operation
        if (
            not call.certain
            or not isinstance(operation, Append | AppendBatch)
            or not isinstance(call.outcome, Refused)
            or not call.outcome.is_a(StaleFenceError)
        ):
            continue
        explained = any(
            name in highest and highest[name].before(call.invoked) > given
            for name, given in map(_token_of, operation.envelopes)
        )
        if not explained:
            for name in executions_of(operation):
                puzzles[name] = max(puzzles.get(name, -1), completed_at(call))
    return puzzles


def _token_of(envelope: EventEnvelope) -> tuple[str, float]:
    metadata: object = envelope.metadata
    given = metadata.get("fence") if isinstance(metadata, dict) else None
    if given is None:
        return envelope.execution_id, 0
    # What is not a token is never explained by one.
    odd = not (isinstance(given, int) and is_token(given))
    return envelope.execution_id, math.inf if odd else given


class _Rising:
    """The highest of some values by any time."""

    def __init__(self, points: list[tuple[int, int]]) -> None:
        points.sort()
        self.times = [time for time, _ in points]
        self.values = list(accumulate((value for _, value in points), max))

    def before(self, time: int) -> int:
        place = bisect_left(self.times, time)
        return self.values[place - 1] if place else 0


def _watchers(calls: Sequence[StoreCall]) -> dict[str, list[StoreCall]]:
    """For each execution and each envelope id the certain calls on it, the last to end first."""
    found: dict[str, list[StoreCall]] = defaultdict(list)
    for call in calls:
        if not call.certain:
            continue
        for name in executions_of(call.operation):
            found[f"log {name}"].append(call)
        if isinstance(call.operation, Append | AppendBatch):
            for name in {str(envelope.id) for envelope in call.operation.envelopes}:
                found[f"id {name}"].append(call)
    for several in found.values():
        several.sort(key=completed_at, reverse=True)
    return found


def _may_matter(write: StoreCall, begin: int, watchers: dict[str, list[StoreCall]]) -> bool:
    """Whether a write that takes effect after `begin` may change what another call may answer."""
    operation = write.operation
    assert isinstance(operation, Append | AppendBatch)
    for envelope in operation.envelopes:
        for key in (f"log {envelope.execution_id}", f"id {envelope.id}"):
            for call in watchers.get(key, ()):
                if completed_at(call) < begin:
                    break
                if not _comes_before(call, operation):
                    return True
    return False


def _comes_before(call: StoreCall, write: Append | AppendBatch) -> bool:
    """Whether a call is a read that lacks the write, and so comes before it."""
    if not is_read(call):
        return False
    assert isinstance(call.outcome, Done)
    shown = {id(envelope) for envelope in call.outcome.value}
    operation = call.operation
    assert isinstance(operation, ReadFrom | ReadRange)
    return any(
        envelope.execution_id == operation.execution_id
        and covers(call, envelope)
        and id(envelope) not in shown
        for envelope in write.envelopes
    )
