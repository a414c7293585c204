"""The SQLite stores, by aiosqlite, and their backend."""

from .backend import SQLiteBackend
from .leases import SQLiteLeaseStore
from .store import SQLiteEventStore

__all__ = ["SQLiteBackend", "SQLiteEventStore", "SQLiteLeaseStore"]
