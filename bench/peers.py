"""Other event stores, used as their documentation shows, with what they need to be as durable.

eventsourcing (synchronous) is measured by its aggregate recorders, the least of what it does;
eventsource-py by its stores, in memory, on SQLite and on PostgreSQL.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from eventsource.adapters.memory.store import InMemoryEventStore
from eventsource.adapters.postgresql.store import PostgreSQLEventStore
from eventsource.adapters.sqlite.store import SQLiteEventStore
from eventsource.domain.event import DomainEvent
from eventsource.domain.event_registry import EventRegistry
from eventsource.domain.stream_id import StreamId
from eventsource.ports.positions import ExpectedVersion
from eventsourcing.persistence import StoredEvent
from eventsourcing.postgres import PostgresAggregateRecorder, PostgresDatastore
from eventsourcing.sqlite import SQLiteAggregateRecorder, SQLiteDatastore
from sqlalchemy.ext.asyncio import create_async_engine

from .events import KIND, METADATA, PAYLOAD


def stored_events(aggregates: int, count: int) -> list[StoredEvent]:
    """So many events of each of several new aggregates, one of each in turn, for eventsourcing."""
    originators = [uuid.uuid4() for _ in range(aggregates)]
    return [
        StoredEvent(originator, version, KIND, b"")
        for version in range(count)
        for originator in originators
    ]


def with_state(event: StoredEvent) -> StoredEvent:
    """The event with its content encoded, which is part of the work."""
    state = json.dumps([PAYLOAD, METADATA]).encode()
    return StoredEvent(event.originator_id, event.originator_version, event.topic, state)


def eventsourcing_sqlite(directory: Path) -> tuple[SQLiteAggregateRecorder, SQLiteDatastore]:
    """A recorder on a new file, and what to close."""
    datastore = SQLiteDatastore(str(directory / "eventsourcing.db"), pool_size=8)
    recorder = SQLiteAggregateRecorder(datastore)
    recorder.create_table()
    return recorder, datastore


def eventsourcing_postgres(dsn: str) -> tuple[PostgresAggregateRecorder, PostgresDatastore]:
    """A recorder on a new schema of a server, and what to close."""
    url = urlsplit(dsn)
    datastore = PostgresDatastore(
        dbname=url.path.lstrip("/"),
        host=url.hostname or parse_qs(url.query)["host"][0],
        port=url.port or 5432,
        user=url.username or "",
        password=url.password or "",
        pool_size=8,
    )
    recorder = PostgresAggregateRecorder(datastore, events_table_name="eventsourcing_events")
    recorder.create_table()
    return recorder, datastore


class StepCompleted(DomainEvent):
    """The event of `events`, as eventsource-py wants it."""

    aggregate_type: str = "order"
    event_type: str = KIND
    suppress_event_type_warning = True
    payload: dict[str, Any]


Store = InMemoryEventStore | SQLiteEventStore | PostgreSQLEventStore

REGISTRY: Final = EventRegistry()
REGISTRY.register(StepCompleted, KIND)


class Stream:
    """One new stream and the events that are appended to it, in order."""

    def __init__(self, count: int) -> None:
        self.id = StreamId(uuid.uuid4(), "order")
        self.events = [
            StepCompleted(aggregate_id=self.id.aggregate_id, payload=PAYLOAD, metadata=METADATA)
            for _ in range(count)
        ]

    async def append_all(self, store: Store) -> int:
        """One call an event."""
        for version, event in enumerate(self.events):
            await store.append(self.id, [event], ExpectedVersion.exact(version))
        return len(self.events)


def eventsource_memory() -> InMemoryEventStore:
    """A store in memory."""
    return InMemoryEventStore(event_registry=REGISTRY)


def eventsource_sqlite(directory: Path) -> SQLiteEventStore:
    """A store on a new file; its write-ahead log is synced at each commit by SQLite's default."""
    return SQLiteEventStore(str(directory / "eventsource.db"), REGISTRY)


def eventsource_postgres(dsn: str) -> PostgreSQLEventStore:
    """A store on a server, in its public schema."""
    url = dsn.replace("postgresql://", "postgresql+asyncpg://", 1)
    engine = create_async_engine(url, pool_size=8, max_overflow=0)
    return PostgreSQLEventStore(engine, REGISTRY, create_schema=True, owns_engine=True)
