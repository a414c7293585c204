"""The SQLite store, by aiosqlite, and its backend."""

from .backend import SQLiteBackend
from .store import SQLiteEventStore

__all__ = ["SQLiteBackend", "SQLiteEventStore"]
