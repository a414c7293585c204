"""Stores around a store: group commit, tenants, and reads from a replica that lags."""

from .coalescing import CoalescingEventStore
from .replica import Replica, ReplicaReadingEventStore
from .tenant import TenantScopedEventStore

__all__ = [
    "CoalescingEventStore",
    "Replica",
    "ReplicaReadingEventStore",
    "TenantScopedEventStore",
]
