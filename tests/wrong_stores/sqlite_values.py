"""SQLite stores that alter what they are given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from loom_backends.sqlite import SQLiteEventStore
from loom_backends.sqlite.store import EPOCH, Row
from loom_conformance.spi import EventEnvelope, encode_json

from .sqlite_base import changed, wrong_sqlite


@wrong_sqlite("sqlite-whole-seconds")
class WholeSeconds(SQLiteEventStore):
    """Keeps timestamps in whole seconds."""

    def _encode(self, envelope: EventEnvelope) -> Row:
        row = super()._encode(envelope)
        return row._replace(timestamp=row.timestamp // 1000 * 1000)


@wrong_sqlite("sqlite-float-seconds")
class FloatSeconds(SQLiteEventStore):
    """Keeps timestamps as seconds in a column of floats."""

    SCHEMA = changed(
        SQLiteEventStore.SCHEMA, ("timestamp INTEGER NOT NULL", "timestamp REAL NOT NULL")
    )

    def _encode(self, envelope: EventEnvelope) -> Row:
        row = super()._encode(envelope)
        seconds: Any = envelope.timestamp.timestamp()
        return row._replace(timestamp=seconds)

    def _decode(self, execution_id: str, row: Sequence[Any]) -> EventEnvelope:
        sequence, id_, kind, seconds, *rest = row
        instant = EPOCH + timedelta(seconds=seconds)
        found = super()._decode(execution_id, [sequence, id_, kind, 0, *rest])
        return EventEnvelope(
            execution_id, sequence, id_, kind, instant, found.payload, found.metadata
        )


@wrong_sqlite("sqlite-strips-nul")
class StripsNul(SQLiteEventStore):
    """Takes U+0000 out of payloads, since some database would not have it."""

    def _encode(self, envelope: EventEnvelope) -> Row:
        row = super()._encode(envelope)
        return row._replace(payload=row.payload.replace("\\u0000", ""))


@wrong_sqlite("sqlite-short-payload")
class ShortPayload(SQLiteEventStore):
    """Cuts long strings to 64 KiB, as a text column of some databases does."""

    LONGEST = 65_535

    def _encode(self, envelope: EventEnvelope) -> Row:
        row = super()._encode(envelope)
        if isinstance(envelope.payload, str) and len(row.payload) > self.LONGEST:
            return row._replace(payload=encode_json(envelope.payload[: self.LONGEST - 2]))
        return row


@wrong_sqlite("sqlite-no-domain")
class NoDomain(SQLiteEventStore):
    """Checks nothing, and makes text of what is no JSON."""

    def _encode(self, envelope: EventEnvelope) -> Row:
        metadata: Any = envelope.metadata
        fence = metadata.get("fence") if isinstance(metadata, dict) else None
        return Row(
            str(envelope.execution_id),
            int(envelope.sequence),
            str(envelope.id),
            str(envelope.kind),
            round((envelope.timestamp - EPOCH).total_seconds() * 1000),
            json.dumps(envelope.payload, default=str),
            json.dumps(metadata, default=str),
            fence if isinstance(fence, int) else None,
        )
