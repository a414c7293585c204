"""Every race by its id, in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from . import crashes, fences, flushes, starts, timers
from .race import Race

_ALL: Final[tuple[Race, ...]] = (
    starts.StartTwice(),
    starts.SameOccurrence(),
    starts.SameOccurrenceOnMany(),
    flushes.FlushSharedWithDuplicate(),
    flushes.FlushOfOneFreshId(),
    flushes.FlushBehindTenant(),
    fences.FenceBeforeBootstrap(),
    fences.FenceAfterBootstrap(),
    fences.StarterGoesOn(),
    fences.FirstDispatches(),
    fences.RetryingDispatches(),
    fences.FencedOutByTheDead(),
    timers.FireWithoutLeases(),
    timers.FireUnderLease(),
    flushes.FlushSharedWithLiveRun(),
    starts.EnvelopeIdTaken(),
    starts.LaggingReplica(),
    crashes.DiesBeforeBody(),
    starts.StorageFailsAtBootstrap(),
    starts.SecondCopy(),
)

RACES: Final[Mapping[str, Race]] = {race.id: race for race in _ALL}
"""The races RACE-1 to RACE-20."""
