"""The PostgreSQL store, by asyncpg, its backend, and where a server comes from."""

from .backend import PostgresBackend
from .store import PostgresEventStore

__all__ = ["PostgresBackend", "PostgresEventStore"]
