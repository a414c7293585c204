"""The PostgreSQL stores, by asyncpg, their backend, and where a server comes from."""

from .backend import PostgresBackend
from .leases import PostgresLeaseStore
from .store import PostgresEventStore

__all__ = ["PostgresBackend", "PostgresEventStore", "PostgresLeaseStore"]
