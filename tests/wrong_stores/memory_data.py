"""Wrong stores that alter values, or refuse what they must keep."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timezone
from typing import Any

from loom_backends.memory import MemoryEventStore, Record, freeze, thaw
from loom_conformance.spi import (
    FENCE_KEY,
    EventEnvelope,
    InvalidEnvelopeError,
    check_key,
    encode_json,
)

from .memory_base import wrong_memory


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """A JSON value with every leaf and key that is text, number or constant changed."""
    if isinstance(value, dict):
        return {change(key): mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mapped(item, change) for item in value]
    return change(value)


class _Alters(MemoryEventStore):
    """Writes the payload that `_altered` makes of the one it was given."""

    def _altered(self, payload: Any) -> Any:
        raise NotImplementedError

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        return record._replace(payload=freeze(self._altered(thaw(record.payload))))


@wrong_memory("strips-nul")
class StripsNul(_Alters):
    """Removes U+0000 from text, which its column refuses."""

    def _altered(self, payload: Any) -> Any:
        return mapped(payload, lambda one: one.replace("\x00", "") if isinstance(one, str) else one)


@wrong_memory("refuses-nul")
class RefusesNul(MemoryEventStore):
    """Refuses a payload with U+0000, as `jsonb` does."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        if "\\u0000" in encode_json(envelope.payload).replace("\\\\", ""):
            raise InvalidEnvelopeError("unsupported Unicode escape sequence: \\u0000")
        return record


@wrong_memory("rounds-numbers")
class RoundsNumbers(_Alters):
    """Prints numbers with 15 significant digits."""

    def _altered(self, payload: Any) -> Any:
        return mapped(payload, lambda one: float(f"{one:.15g}") if isinstance(one, float) else one)


@wrong_memory("line-ends-of-one-kind")
class LineEndsOfOneKind(_Alters):
    """Keeps text as a text file does, where a carriage return and a line feed are one end."""

    def _altered(self, payload: Any) -> Any:
        return mapped(
            payload, lambda one: one.replace("\r\n", "\n") if isinstance(one, str) else one
        )


@wrong_memory("zone-by-its-class")
class ZoneByItsClass(MemoryEventStore):
    """Takes no zone but those of `datetime.timezone`, whatever their offset."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        if not isinstance(envelope.timestamp.tzinfo, timezone):
            raise InvalidEnvelopeError(f"no timezone: {envelope.timestamp.tzinfo!r}")
        return record


@wrong_memory("numbers-are-doubles")
class NumbersAreDoubles(MemoryEventStore):
    """Reads every number as a double, so that an integer beyond 2**53 comes back as another."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        if not _is_json(envelope.payload):
            return super()._encode(envelope)
        payload: Any = json.loads(json.dumps(envelope.payload), parse_int=float)
        small = replace(envelope, payload=None)
        return super()._encode(small)._replace(payload=freeze(payload))


@wrong_memory("nan-is-null")
class NanIsNull(MemoryEventStore):
    """Stores NaN and the infinities as null, as JavaScript does."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        return super()._encode(_with_payload(envelope, _finite))


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _with_payload(envelope: EventEnvelope, change: Callable[[Any], Any]) -> EventEnvelope:
    payload = mapped(envelope.payload, change) if _is_json(envelope.payload) else envelope.payload
    return replace(envelope, payload=payload)


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


@wrong_memory("replaces-surrogates")
class ReplacesSurrogates(MemoryEventStore):
    """Replaces what UTF-8 cannot hold by a question mark."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        return super()._encode(_with_payload(envelope, _as_utf8))


def _as_utf8(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


@wrong_memory("booleans-are-numbers")
class BooleansAreNumbers(_Alters):
    """Stores booleans as 0 and 1, as SQLite has them."""

    def _altered(self, payload: Any) -> Any:
        return mapped(payload, lambda one: int(one) if isinstance(one, bool) else one)


@wrong_memory("drops-nulls")
class DropsNulls(_Alters):
    """Leaves out an object's members that are null, as `exclude_none` does."""

    def _altered(self, payload: Any) -> Any:
        if isinstance(payload, dict):
            return {k: self._altered(v) for k, v in payload.items() if v is not None}
        return [self._altered(one) for one in payload] if isinstance(payload, list) else payload


@wrong_memory("empty-text-is-null")
class EmptyTextIsNull(_Alters):
    """Stores an empty text as null, as Oracle does."""

    def _altered(self, payload: Any) -> Any:
        return None if payload == "" else payload


@wrong_memory("no-payload-is-an-object")
class NoPayloadIsAnObject(_Alters):
    """Stores `payload or {}`: null, false, 0 and empty values all become an object."""

    def _altered(self, payload: Any) -> Any:
        return payload or {}


@wrong_memory("normalises-text")
class NormalisesText(_Alters):
    """Ends lines in one way and joins a letter with its accent, as some columns do."""

    def _altered(self, payload: Any) -> Any:
        return mapped(
            payload,
            lambda one: one.replace("e\u0301", "\u00e9") if isinstance(one, str) else one,
        )


@wrong_memory("replaces-astral-characters")
class ReplacesAstralCharacters(MemoryEventStore):
    """Keeps three bytes a character (`utf8mb3`): what lies beyond comes back as a question mark."""

    def _decode(self, record: Record) -> EventEnvelope:
        envelope = super()._decode(record)
        return replace(
            envelope,
            kind=_three_bytes(envelope.kind),
            payload=mapped(envelope.payload, _three_bytes),
        )


def _three_bytes(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return "".join("?" if character > "\uffff" else character for character in value)


@wrong_memory("text-column-of-64-kib")
class TextColumnOf64KiB(MemoryEventStore):
    """Refuses a payload of more than 64 KiB."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        if len(record.payload) > 65_535:
            raise InvalidEnvelopeError("data too long for column 'payload'")
        return record


@wrong_memory("copies-50-deep")
class CopiesFiftyDeep(MemoryEventStore):
    """Refuses what is nested more than 50 deep."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        if _depth(envelope.payload) > 50:
            raise InvalidEnvelopeError("maximum nesting depth exceeded")
        return record


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [
        inner
        for one in level
        if isinstance(one, dict | list)
        for inner in (one.values() if isinstance(one, dict) else one)
    ]:
        depth += 1
    return depth


@wrong_memory("cuts-a-large-payload")
class CutsALargePayload(MemoryEventStore):
    """Cuts text that is longer than 1 MiB instead of refusing it."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        if isinstance(envelope.payload, str):
            return super()._encode(_with_payload(envelope, lambda one: one[: 2**20 - 2]))
        return super()._encode(envelope)


@wrong_memory("timestamps-in-seconds")
class TimestampsInSeconds(MemoryEventStore):
    """Cuts timestamps to whole seconds."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        return record._replace(timestamp=record.timestamp.replace(microsecond=0))


@wrong_memory("timestamps-as-32-bit-seconds")
class TimestampsAs32BitSeconds(MemoryEventStore):
    """Refuses a timestamp after January 2038."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        if record.timestamp >= datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC):
            raise InvalidEnvelopeError("timestamp out of range")
        return record


@wrong_memory("cuts-microseconds")
class CutsMicroseconds(MemoryEventStore):
    """Accepts a timestamp in microseconds and keeps its milliseconds."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        return super()._encode(_at(envelope, _in_milliseconds))


@wrong_memory("naive-time-is-utc")
class NaiveTimeIsUtc(MemoryEventStore):
    """Takes a timestamp without a zone for UTC."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        return super()._encode(_at(envelope, lambda one: one.replace(tzinfo=UTC)))


@wrong_memory("offset-is-dropped")
class OffsetIsDropped(MemoryEventStore):
    """Drops the offset of a timestamp that is not UTC, and keeps its digits."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        return super()._encode(
            _at(envelope, lambda one: one.replace(tzinfo=UTC) if one.tzinfo else one)
        )


def _in_milliseconds(timestamp: datetime) -> datetime:
    return timestamp.replace(microsecond=timestamp.microsecond // 1000 * 1000)


def _at(envelope: EventEnvelope, change: Callable[[datetime], datetime]) -> EventEnvelope:
    timestamp: object = envelope.timestamp
    return replace(
        envelope,
        timestamp=change(timestamp) if isinstance(timestamp, datetime) else envelope.timestamp,
    )


@wrong_memory("keys-become-text")
class KeysBecomeText(MemoryEventStore):
    """Lets the encoder make text of keys that are none: `1` becomes `"1"`."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        payload: object = envelope.payload
        if isinstance(payload, dict) and _is_json(payload):
            return super()._encode(replace(envelope, payload=json.loads(json.dumps(payload))))
        return super()._encode(envelope)


@wrong_memory("sequences-become-integers")
class SequencesBecomeIntegers(MemoryEventStore):
    """Puts `int()` round the sequence: `"1"` and 0.5 become numbers that nobody wrote."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        sequence: object = envelope.sequence
        if isinstance(sequence, str | float):
            envelope = replace(envelope, sequence=int(sequence))
        return super()._encode(envelope)


@wrong_memory("ids-become-text")
class IdsBecomeText(MemoryEventStore):
    """Formats ids into its keys: the number 7 becomes the text `"7"`."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        if type(envelope.execution_id) is str and type(envelope.id) is str:
            return super()._encode(envelope)
        return super()._encode(
            replace(envelope, execution_id=f"{envelope.execution_id}", id=f"{envelope.id}")
        )


@wrong_memory("kind-of-64-characters")
class KindOf64Characters(MemoryEventStore):
    """Has a column of 64 characters for the kind and refuses a longer one."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        check_key("kind", record.kind, 64)
        return record


@wrong_memory("kind-in-capitals")
class KindInCapitals(MemoryEventStore):
    """Writes the kind in capitals, as an enumeration's name."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        return record._replace(kind=record.kind.upper())


@wrong_memory("metadata-is-left-out")
class MetadataIsLeftOut(MemoryEventStore):
    """Has columns for the fence and the payload and leaves other metadata out."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        return record._replace(
            metadata=freeze(
                {key: value for key, value in envelope.metadata.items() if key == FENCE_KEY}
            )
        )


@wrong_memory("fence-is-taken-out")
class FenceIsTakenOut(MemoryEventStore):
    """Takes the token out of the metadata to check it, and does not put it back."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        rest = {key: value for key, value in envelope.metadata.items() if key != FENCE_KEY}
        return record._replace(metadata=freeze(rest))


@wrong_memory("metadata-keys-fold")
class MetadataKeysFold(MemoryEventStore):
    """Treats metadata as headers, whose names ignore case."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        kept = {key.lower().strip(): value for key, value in envelope.metadata.items()}
        return record._replace(metadata=freeze(kept))


@wrong_memory("bad-value-is-dropped")
class BadValueIsDropped(MemoryEventStore):
    """Logs an envelope that it cannot encode, drops it, and acknowledges."""

    async def append(self, envelope: EventEnvelope, /) -> None:
        try:
            record = self._encode(envelope)
        except InvalidEnvelopeError:
            self._check_open()
            return
        self._write([record])


@wrong_memory("batch-lands-before-a-bad-value")
class BatchLandsBeforeABadValue(MemoryEventStore):
    """Encodes and writes a batch one by one: what stands before a bad value stays."""

    async def append_batch(self, envelopes: Any, /) -> None:
        given: Sequence[EventEnvelope] = list(envelopes)
        good: list[Record] = []
        try:
            good = [self._encode(one) for one in given]
        except InvalidEnvelopeError:
            for one in given:
                self._write([self._encode(one)])
        self._write(good)


@wrong_memory("metadata-column-of-64-kib")
class MetadataColumnOf64KiB(MemoryEventStore):
    """Has room for a large payload, and for 64 KiB of metadata."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        if len(record.metadata) > 65_535:
            raise InvalidEnvelopeError("data too long for column 'metadata'")
        return record


@wrong_memory("utc-by-identity")
class UtcByIdentity(MemoryEventStore):
    """Wants `tzinfo is UTC`, and refuses a zone that is UTC under another name."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        if record.timestamp.tzinfo is not UTC:
            raise InvalidEnvelopeError("timestamp must be UTC")
        return record


@wrong_memory("true-is-a-sequence")
class TrueIsASequence(MemoryEventStore):
    """Takes `True` for the sequence 1, since it is an int."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        if envelope.sequence is True:
            envelope = replace(envelope, sequence=1)
        return super()._encode(envelope)


@wrong_memory("kind-by-its-printed-name")
class KindByItsPrintedName(MemoryEventStore):
    """Formats the kind into its row: an enumeration's member is stored by the name it prints."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        return super()._encode(envelope)._replace(kind=f"{envelope.kind!s}")


@wrong_memory("keys-of-64-kib")
class KeysOf64KiB(MemoryEventStore):
    """Counts the bytes of an object's key in 16 bits, and refuses a longer one."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        for value in (envelope.payload, envelope.metadata):
            json.loads(encode_json(value), object_pairs_hook=self._short)
        return record

    def _short(self, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        if any(len(key.encode(errors="surrogatepass")) > 65_535 for key, _ in pairs):
            raise InvalidEnvelopeError("a key of an object is too long")
        return dict(pairs)


@wrong_memory("rows-of-a-limited-size")
class RowsOfALimitedSize(MemoryEventStore):
    """Sends a row as one request, which holds a payload or metadata of 1 MiB and not both."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        if len(record.payload) + len(record.metadata) > 3 * 2**19:
            raise InvalidEnvelopeError("the request is too large")
        return record


@wrong_memory("reserves-ids")
class ReservesIds(MemoryEventStore):
    """Refuses ids that its document database keeps for itself: `.`, `..` and `__any__`."""

    def _encode(self, envelope: EventEnvelope) -> Record:
        record = super()._encode(envelope)
        for name in (record.execution_id, record.id):
            if name in (".", "..") or (name.startswith("__") and name.endswith("__")):
                raise InvalidEnvelopeError(f"{name!r} is reserved")
        return record
