"""The store's side of the contract: envelopes, the `EventStore` protocols and the errors.

Everything here is what a store author imports; nothing here knows of pytest or of the kit.
The words and the domains are those of the contract page (ADR 0103 is its source).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any, Final, Protocol, TypeAlias, cast, runtime_checkable

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

FENCE_KEY: Final = "fence"
"""The metadata key under which a write carries its fence token."""

MAX_SEQUENCE: Final = 2**53 - 1
MAX_INTEGER: Final = 2**53 - 1
_MIN_INTEGER: Final = -MAX_INTEGER
MAX_EXECUTION_ID: Final = 255
MAX_ENVELOPE_ID: Final = 300
MAX_KIND: Final = 255
MAX_DEPTH: Final = 100
MAX_JSON_BYTES: Final = 1024 * 1024


# --- JSON -------------------------------------------------------------------------------------


def encode_json(value: object) -> str:
    """Encode a JSON value as text that decodes to an equal value.

    Integers stay integers, floats stay floats with their shortest exact form, and every character
    outside ASCII is escaped, U+0000 too, so any text column can hold the result.

    Raises:
        InvalidEnvelopeError: the value is no JSON: NaN, an infinity, a key that is not a string,
            an object of another type, or nesting that the encoder cannot follow.
    """
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEnvelopeError(f"not JSON: {error}") from error


# A value that holds itself is refused as one that is nested too deep.
_ENCODER: Final = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":"))


def decode_json(text: str | bytes) -> JsonValue:
    """Decode what `encode_json` wrote: integers come back as `int`, other numbers as `float`."""
    if isinstance(text, str):
        try:
            value, end = _DECODER.raw_decode(text)
        except ValueError:
            end = -1  # `loads` passes over white space, or says what is wrong
        if end == len(text):
            return cast(JsonValue, value)
    return cast(JsonValue, json.loads(text))


_DECODER: Final = json.JSONDecoder()


def json_equal(left: object, right: object) -> bool:
    """Compare as JSON: numbers by value, booleans apart from numbers, key order ignored.

    NaN equals NaN, so that a store which keeps values outside the domain can be judged.
    The walk keeps its own stack: nesting of any depth is compared.
    """
    kind = type(left)
    if kind is type(right) and (kind is str or kind is int or (kind is dict and not left)):
        return left == right
    pending = [(left, right)]
    while pending:
        a, b = pending.pop()
        kind = type(a)
        if kind is type(b) and (kind is str or kind is int):
            if a != b:
                return False
        elif isinstance(a, bool) or isinstance(b, bool):
            if a is not b:
                return False
        elif isinstance(a, int | float) and isinstance(b, int | float):
            if a != b and not (a != a and b != b):
                return False
        elif isinstance(a, str) and isinstance(b, str):
            if a != b:
                return False
        elif isinstance(a, Mapping) and isinstance(b, Mapping):
            if len(a) != len(b):
                return False
            for key, item in a.items():
                if key not in b:
                    return False
                pending.append((item, b[key]))
        elif isinstance(a, list | tuple) and isinstance(b, list | tuple):
            if len(a) != len(b):
                return False
            pending.extend(zip(a, b, strict=True))
        elif a is None or b is None:
            if a is not b:
                return False
        elif type(a) is not type(b) or a != b:
            return False
    return True


# --- Envelopes --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class EventEnvelope:
    """One event of an execution, as it is stored.

    Attributes:
        execution_id: the execution; 1 to 255 Unicode scalar values but U+0000.
        sequence: the place in the execution's log, 0 to 2**53 - 1.
        id: the envelope's own name, 1 to 300 characters; the runtime uses
            `<execution_id>-<sequence>`.
        kind: what happened, 1 to 255 characters.
        timestamp: when, timezone-aware, UTC, in whole milliseconds.
        payload: a JSON value.
        metadata: a JSON object; its key `"fence"` carries the fence token, an `int` >= 1.

    Two envelopes are equal when their seven fields are, JSON compared as JSON and timestamps as
    instants. Construction checks nothing: `check_envelope` does.
    """

    execution_id: str
    sequence: int
    id: str
    kind: str
    timestamp: datetime
    payload: JsonValue = None
    metadata: dict[str, JsonValue] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EventEnvelope):
            return NotImplemented
        return not differing_fields(self, other)

    def __hash__(self) -> int:
        return hash((self.execution_id, self.sequence, self.id))

    def to_json(self) -> dict[str, JsonValue]:
        """The envelope as one JSON object, exact in every field, for files and pipes."""
        return {
            "execution_id": self.execution_id,
            "sequence": self.sequence,
            "id": self.id,
            "kind": self.kind,
            "timestamp": self.timestamp.isoformat(),
            "payload": self.payload,
            "metadata": self.metadata,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> EventEnvelope:
        """Build the envelope that `to_json` described.

        Raises:
            InvalidEnvelopeError: a field is missing or its timestamp is not ISO 8601.
        """
        try:
            return cls(
                execution_id=value["execution_id"],
                sequence=value["sequence"],
                id=value["id"],
                kind=value["kind"],
                timestamp=datetime.fromisoformat(value["timestamp"]),
                payload=value["payload"],
                metadata=value["metadata"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidEnvelopeError(f"not an envelope: {error!r}") from error


def differing_fields(left: EventEnvelope, right: EventEnvelope) -> list[str]:
    """The names of the fields in which two envelopes differ, in the order of the dataclass."""
    names = []
    for name in ("execution_id", "sequence", "id", "kind"):
        a, b = getattr(left, name), getattr(right, name)
        if type(a) is bool or type(b) is bool or a != b:
            names.append(name)
    if not _same_instant(left.timestamp, right.timestamp):
        names.append("timestamp")
    if not json_equal(left.payload, right.payload):
        names.append("payload")
    if not json_equal(left.metadata, right.metadata):
        names.append("metadata")
    return names


def _same_instant(left: object, right: object) -> bool:
    if not isinstance(left, datetime) or not isinstance(right, datetime):
        return left == right
    return (left.tzinfo is None) == (right.tzinfo is None) and left == right


def check_envelope(envelope: EventEnvelope) -> None:
    """Refuse an envelope that lies outside the domain of the contract.

    Raises:
        InvalidEnvelopeError: with the field and what is wrong with it.
    """
    _check_text("execution_id", envelope.execution_id, MAX_EXECUTION_ID)
    _check_text("id", envelope.id, MAX_ENVELOPE_ID)
    _check_text("kind", envelope.kind, MAX_KIND)
    sequence: object = envelope.sequence
    if not isinstance(sequence, int) or isinstance(sequence, bool):
        raise InvalidEnvelopeError(f"sequence must be an int, not {sequence!r}")
    if not 0 <= sequence <= MAX_SEQUENCE:
        raise InvalidEnvelopeError(f"sequence must be from 0 to 2**53 - 1, not {sequence}")
    _check_timestamp(envelope.timestamp)
    metadata: object = envelope.metadata
    if not isinstance(metadata, dict):
        raise InvalidEnvelopeError(f"metadata must be a JSON object, not {metadata!r:.80}")
    if not _is_small_json((envelope.payload, metadata)):
        _check_json_with_care("payload", envelope.payload)
        _check_json_with_care("metadata", metadata)
    if FENCE_KEY in metadata and not is_token(metadata[FENCE_KEY]):
        raise InvalidEnvelopeError(
            f"metadata['fence'] must be an int >= 1, not {metadata[FENCE_KEY]!r:.80}"
        )


def is_token(value: object) -> bool:
    """Whether a value can be a fence token at all: an `int` >= 1, and no `bool`."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_INTEGER


def check_key(name: str, value: object, longest: int = MAX_EXECUTION_ID) -> None:
    """Refuse an id that is no text of 1 to `longest` Unicode scalar values but U+0000.

    Raises:
        InvalidEnvelopeError: with the name and what is wrong with it.
    """
    _check_text(name, value, longest)


def _check_text(name: str, value: object, longest: int) -> None:
    if not isinstance(value, str):
        raise InvalidEnvelopeError(f"{name} must be a str, not {value!r:.80}")
    if not 1 <= len(value) <= longest:
        raise InvalidEnvelopeError(
            f"{name} must have 1 to {longest} characters, not {len(value)}: {value!r:.80}"
        )
    if value.isascii():
        if "\x00" in value:
            raise InvalidEnvelopeError(f"{name} must not contain U+0000: {value!r:.80}")
        return
    if "\x00" in value or not _is_scalar_text(value):
        raise InvalidEnvelopeError(
            f"{name} must hold Unicode scalar values but U+0000: {value!r:.80}"
        )


def _is_scalar_text(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_OFFSET = timedelta(0)


def _check_timestamp(value: object) -> None:
    if not isinstance(value, datetime):
        raise InvalidEnvelopeError(f"timestamp must be a datetime, not {value!r:.80}")
    if value.tzinfo is not UTC and value.utcoffset() != _NO_OFFSET:
        raise InvalidEnvelopeError(f"timestamp must be timezone-aware and UTC: {value!r}")
    if value.microsecond % 1000:
        raise InvalidEnvelopeError(f"timestamp must be in whole milliseconds: {value!r}")
    if value < _EPOCH:
        raise InvalidEnvelopeError(f"timestamp must be in the years 1970 to 9999: {value!r}")


def _is_small_json(values: tuple[object, ...]) -> bool:
    """Whether values lie in the domain at first sight; others may do so too."""
    try:
        return _size_bound(values, MAX_DEPTH + 1) <= MAX_JSON_BYTES
    except TypeError:  # a key is no text
        return False


def _size_bound(values: Collection[Any], depth: int) -> int:
    """No less than what plain values take as JSON, in bytes; too much where they want more care.

    That is so for values of other classes, numbers beyond the domain, lone surrogates, and nesting
    of `depth` or more. The walk ends where the bound is passed: a list that stands in
    itself many times over is small here and huge as JSON.

    Raises:
        TypeError: a key is no `str`.
    """
    if not depth:
        return _TOO_MUCH
    # A number has 24 characters at most; quotes, a colon and a comma stand around a value.
    bound = 30 * len(values)
    for value in values:
        kind = type(value)
        if kind is str:
            if not (value.isascii() or _is_scalar_text(value)):
                return _TOO_MUCH
            bound += 6 * len(value)
        elif kind is int:
            if not _MIN_INTEGER <= value <= MAX_INTEGER:
                return _TOO_MUCH
        elif kind is dict:
            keys = "".join(value)
            if not (keys.isascii() or _is_scalar_text(keys)):
                return _TOO_MUCH
            bound += 6 * len(keys) + _size_bound(value.values(), depth - 1)
            if bound > MAX_JSON_BYTES:
                return bound
        elif kind is list:
            bound += _size_bound(value, depth - 1)
            if bound > MAX_JSON_BYTES:
                return bound
        elif kind is float:
            if not isfinite(value):
                return _TOO_MUCH
        elif value is not None and kind is not bool:
            return _TOO_MUCH
    return bound


_TOO_MUCH: Final = MAX_JSON_BYTES + 1


def _check_json_with_care(name: str, value: object) -> None:
    """Walk the value once, level by level; encode it only where it might be too large."""
    level: list[Any] = [value]
    depth = 0
    bound = 0
    while level:
        below: list[Any] = []
        nested = False
        for item in level:
            kind = type(item)
            if kind is str:
                bound += 6 * len(item)
                if not item.isascii() and not _is_scalar_text(item):
                    raise InvalidEnvelopeError(f"{name} holds a lone surrogate: {item!r:.80}")
            elif kind is int:
                if not _MIN_INTEGER <= item <= MAX_INTEGER:
                    raise InvalidEnvelopeError(f"{name} holds an integer beyond 2**53 - 1")
            elif kind is dict:
                nested = True
                for key, inner in item.items():
                    if not isinstance(key, str):
                        raise InvalidEnvelopeError(f"{name} has a key that is no str: {key!r:.80}")
                    bound += 6 * len(key)
                    if not key.isascii() and not _is_scalar_text(key):
                        raise InvalidEnvelopeError(f"{name} has a key with a lone surrogate")
                    below.append(inner)
            elif kind is list:
                nested = True
                below += item
            elif kind is float:
                if not isfinite(item):
                    raise InvalidEnvelopeError(f"{name} holds {item!r}, which is no JSON number")
            elif item is not None and kind is not bool:
                level.append(_plain(name, item))
            if len(below) > MAX_JSON_BYTES:
                raise InvalidEnvelopeError(f"{name} is larger than 1 MiB as JSON")
        if nested:
            depth += 1
            if depth > MAX_DEPTH:
                raise InvalidEnvelopeError(f"{name} is nested more than {MAX_DEPTH} deep")
        bound += 30 * len(level)
        level = below
    if bound > MAX_JSON_BYTES:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if len(text.encode("utf-8")) > MAX_JSON_BYTES:
            raise InvalidEnvelopeError(f"{name} is larger than 1 MiB as JSON")


def _plain(name: str, item: object) -> str | int | float | list[Any] | dict[Any, Any]:
    """The JSON value that an object of a subclass stands for, an enumeration's member among them.

    Raises:
        InvalidEnvelopeError: it stands for none.
    """
    if isinstance(item, str):
        return str.__str__(item)
    if isinstance(item, int):
        return int.__int__(item)
    if isinstance(item, float):
        return float.__float__(item)
    if isinstance(item, list):
        return list(item)
    if isinstance(item, dict):
        return dict(item)
    raise InvalidEnvelopeError(f"{name} holds {type(item).__name__}, which is no JSON value")


# --- The store --------------------------------------------------------------------------------


@runtime_checkable
class EventStore(Protocol):
    """What every store has. All calls are made with positional arguments.

    The optional abilities are protocols of their own; a handle has one exactly when it has the
    method, so that a decorator which forwards methods counts.
    """

    async def append(self, envelope: EventEnvelope, /) -> None:
        """Store one envelope; return once it is durable."""

    async def read_from(self, execution_id: str, first: int = 0, /) -> Sequence[EventEnvelope]:
        """The execution's envelopes with `sequence >= first`, ascending."""

    async def close(self) -> None:
        """Settle what is in flight and release everything; a second call does nothing."""


@runtime_checkable
class BatchEventStore(EventStore, Protocol):
    """A store that writes several envelopes as one atomic step."""

    async def append_batch(self, envelopes: Iterable[EventEnvelope], /) -> None:
        """Store all of them or none; return once all are durable."""


@runtime_checkable
class RangeEventStore(EventStore, Protocol):
    """A store that reads a closed interval of sequences."""

    async def read_range(
        self, execution_id: str, first: int, last: int, /
    ) -> Sequence[EventEnvelope]:
        """The execution's envelopes with `first <= sequence <= last`, ascending."""


@runtime_checkable
class FencingEventStore(EventStore, Protocol):
    """A store that hands out fence tokens and holds writers to them."""

    async def acquire_fence(self, execution_id: str, /) -> int:
        """The execution's new current token, greater than any before it."""


ABILITIES: Final[Mapping[str, str]] = {
    "batch": "append_batch",
    "range": "read_range",
    "fencing": "acquire_fence",
}
"""The optional abilities of a handle, each with the method that grants it."""


def has_ability(handle: object, ability: str) -> bool:
    """Whether a handle offers `"batch"`, `"range"` or `"fencing"`."""
    return callable(getattr(handle, ABILITIES[ability], None))


def abilities(handle: object) -> frozenset[str]:
    """The optional abilities that a handle offers."""
    return frozenset(name for name in ABILITIES if has_ability(handle, name))


# --- Leases -----------------------------------------------------------------------------------


@runtime_checkable
class LeaseStore(Protocol):
    """Named leases with a time to live, judged by the storage's own clock.

    A lease is live from a claim until its time to live is over or its holder releases it. Names
    and holders are text of 1 to 255 Unicode scalar values but U+0000, compared code point by code
    point; `ttl` is in seconds and greater than 0. Anything else is a `ValueError`.
    """

    async def claim(self, name: str, holder: str, ttl: float, /) -> bool:
        """Take the lease if nobody's is live, the holder's own included; whether it was taken."""

    async def renew(self, name: str, holder: str, ttl: float, /) -> bool:
        """Let a live lease end `ttl` from now; `False` if the holder's is not live any more."""

    async def release(self, name: str, holder: str, /) -> bool:
        """End the holder's lease; `False` if the holder's is not live any more."""

    async def close(self) -> None:
        """Release the handle, not the leases; a second call does nothing."""


# --- Errors -----------------------------------------------------------------------------------


class EventStoreError(Exception):
    """The root of all that a store raises on purpose."""


class DuplicateSequenceError(EventStoreError):
    """The slot (`execution_id`, `sequence`) is taken; nothing was written."""

    def __init__(self, execution_id: str, sequence: int) -> None:
        super().__init__(execution_id, sequence)
        self.execution_id = execution_id
        self.sequence = sequence

    def __str__(self) -> str:
        return f"execution {self.execution_id!r} already has an envelope at {self.sequence}"


class DuplicateEnvelopeIdError(EventStoreError):
    """The envelope id is taken in its scope; nothing was written."""

    def __init__(self, execution_id: str, envelope_id: str) -> None:
        super().__init__(execution_id, envelope_id)
        self.execution_id = execution_id
        self.envelope_id = envelope_id

    def __str__(self) -> str:
        return f"envelope id {self.envelope_id!r} is taken (writing to {self.execution_id!r})"


class StaleFenceError(EventStoreError):
    """The write's token is older than the current one, or missing where there is one.

    Attributes:
        execution_id: the execution that was to be written.
        given: the token as it was given, or `None`.
        current: the current token, or `None` where the execution has none.
    """

    def __init__(self, execution_id: str, given: object, current: int | None) -> None:
        super().__init__(execution_id, given, current)
        self.execution_id = execution_id
        self.given = given
        self.current = current

    def __str__(self) -> str:
        given = "no fence token" if self.given is None else f"fence token {self.given!r}"
        current = "none" if self.current is None else str(self.current)
        return f"{given} given for execution {self.execution_id!r}; the current one is {current}"


class InvalidEnvelopeError(EventStoreError, ValueError):
    """A value lies outside the domain of the contract and was not stored."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StoreClosedError(EventStoreError):
    """The handle was used after `close`."""

    def __init__(self, message: str = "the store is closed; connect a new handle") -> None:
        super().__init__(message)


class OutcomeUnknownError(EventStoreError):
    """The store cannot know whether the write landed; read back before writing again."""


def is_error(error: BaseException | None, *classes: type[BaseException]) -> bool:
    """Whether an error is of one of these classes, by class or by the name of one of its bases.

    The name serves where the class is a second copy from another installation (ADR 0103, D2).
    """
    if error is None:
        return False
    if isinstance(error, classes):
        return True
    names = {wanted.__name__ for wanted in classes}
    return any(base.__name__ in names for base in type(error).__mro__)
