"""Envelopes as values, the domain's edges, exact JSON, and the errors."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given

from loom_conformance.lab.values import OUTSIDE, json_values, nested, sized
from loom_conformance.spi import (
    MAX_DEPTH,
    MAX_JSON_BYTES,
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    EventStoreError,
    InvalidEnvelopeError,
    OutcomeUnknownError,
    StaleFenceError,
    StoreClosedError,
    check_envelope,
    decode_json,
    differing_fields,
    encode_json,
    is_error,
    json_equal,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PLAIN = EventEnvelope("e", 0, "e-0", "K", NOON, {"a": 1}, {})


@pytest.mark.parametrize("what", list(OUTSIDE))
def test_a_value_outside_the_domain_is_refused_with_its_field(what: str) -> None:
    fields: dict[str, Any] = dict(OUTSIDE[what])
    with pytest.raises(InvalidEnvelopeError) as caught:
        check_envelope(replace(PLAIN, **fields))
    assert isinstance(caught.value, ValueError)
    assert next(iter(fields)) in caught.value.reason


@pytest.mark.parametrize(
    "fields",
    [
        {"execution_id": "\U0010ffff" * 255, "id": "é" * 300, "kind": "k" * 255},
        {"sequence": 2**53 - 1},
        {"timestamp": datetime(1970, 1, 1, tzinfo=UTC)},
        {"timestamp": datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)},
        {"payload": nested(MAX_DEPTH)},
        {"payload": sized(MAX_JSON_BYTES)},
        {"payload": "é" * (MAX_JSON_BYTES // 2 - 1)},
        {"payload": ["\x00", 2**53 - 1, -(2**53) + 1, 5e-324, True, None, {"": []}]},
        {"metadata": {"fence": 1}},
    ],
)
def test_the_domains_edges_are_inside(fields: dict[str, Any]) -> None:
    check_envelope(replace(PLAIN, **fields))


def test_a_list_that_stands_in_itself_many_times_is_refused_at_once() -> None:
    value: list[Any] = []
    for _ in range(90):
        value = [value, value]
    with pytest.raises(InvalidEnvelopeError, match="larger than 1 MiB"):
        check_envelope(replace(PLAIN, payload=value))


@given(json_values())
def test_json_comes_back_as_it_was(value: Any) -> None:
    text = encode_json(value)
    assert text.isascii()
    assert json_equal(decode_json(text), value)
    assert type(decode_json(text)) is type(value)


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (1, 1.0, True),
        (0, -0.0, True),
        (1, True, False),
        (0, False, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ([1, 2], [2, 1], False),
        (float("nan"), float("nan"), True),
        (None, False, False),
        ("1", 1, False),
        ([[]], [{}], False),
    ],
)
def test_json_is_compared_as_json(left: Any, right: Any, equal: bool) -> None:
    assert json_equal(left, right) is equal
    assert json_equal([left], [right]) is equal
    assert (replace(PLAIN, payload=left) == replace(PLAIN, payload=right)) is equal


def test_timestamps_are_compared_as_instants() -> None:
    there = NOON.astimezone(timezone(timedelta(hours=2)))
    assert replace(PLAIN, timestamp=there) == PLAIN
    assert replace(PLAIN, timestamp=NOON.replace(tzinfo=None)) != PLAIN


def test_an_envelope_survives_json_and_pickle() -> None:
    assert EventEnvelope.from_json(PLAIN.to_json()) == PLAIN
    assert pickle.loads(pickle.dumps(PLAIN)) == PLAIN
    with pytest.raises(InvalidEnvelopeError, match="not an envelope"):
        EventEnvelope.from_json({"execution_id": "e"})


ERRORS: list[tuple[EventStoreError, dict[str, object]]] = [
    (DuplicateSequenceError("e", 3), {"execution_id": "e", "sequence": 3}),
    (DuplicateEnvelopeIdError("e", "i"), {"execution_id": "e", "envelope_id": "i"}),
    (StaleFenceError("e", "1", 2), {"execution_id": "e", "given": "1", "current": 2}),
    (StaleFenceError("e", None, None), {"given": None, "current": None}),
    (InvalidEnvelopeError("why"), {"reason": "why"}),
    (StoreClosedError(), {}),
    (OutcomeUnknownError("the connection died"), {}),
]


@pytest.mark.parametrize(("error", "attributes"), ERRORS, ids=lambda one: type(one).__name__)
def test_an_error_keeps_what_it_says(error: EventStoreError, attributes: dict[str, object]) -> None:
    again = pickle.loads(pickle.dumps(error))
    for one in (error, again):
        assert {name: getattr(one, name) for name in attributes} == attributes
        assert str(one)
    assert is_error(error, EventStoreError)


def test_an_error_is_recognised_by_the_name_of_its_class() -> None:
    copy = type("DuplicateSequenceError", (Exception,), {})
    heir = type("Heir", (copy,), {})
    assert is_error(heir(), DuplicateSequenceError)
    assert not is_error(copy(), StaleFenceError)
    assert not is_error(None, Exception)


def test_a_sequence_that_is_a_boolean_differs_even_from_itself() -> None:
    strange = replace(PLAIN, sequence=True)
    assert differing_fields(strange, replace(PLAIN, sequence=True)) == ["sequence"]
    assert differing_fields(PLAIN, replace(PLAIN)) == []
