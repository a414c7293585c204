"""The model store: what it allows, what it forbids, and which rule it names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from loom_conformance.contract.model import Fence, Judgement, Oracle, State, StoreModel
from loom_conformance.contract.operations import (
    AcquireFence,
    Append,
    AppendBatch,
    Done,
    Operation,
    Outcome,
    ReadFrom,
    ReadRange,
    Refused,
    Unknown,
    settled,
)
from loom_conformance.contract.rules import rules
from loom_conformance.spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    EventStoreError,
    InvalidEnvelopeError,
    OutcomeUnknownError,
    StaleFenceError,
    StoreClosedError,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def envelope(
    sequence: int, execution: str = "e", *, name: str | None = None, fence: Any = ..., **more: Any
) -> EventEnvelope:
    metadata: dict[str, Any] = {} if fence is ... else {"fence": fence}
    fields = {"kind": "k", "timestamp": NOON, "payload": {"n": sequence}, **more}
    name = name if name is not None else f"{execution}-{sequence}"
    return EventEnvelope(execution, sequence, name, metadata=metadata, **fields)


def slot(sequence: int, execution: str = "e") -> Refused:
    return Refused.of(DuplicateSequenceError(execution, sequence))


def name_taken(name: str, execution: str = "e") -> Refused:
    return Refused.of(DuplicateEnvelopeIdError(execution, name))


def stale(given: object, current: int | None, execution: str = "e") -> Refused:
    return Refused.of(StaleFenceError(execution, given, current))


INVALID = Refused.of(InvalidEnvelopeError("no"))
OTHER = Refused.of(EventStoreError("disk"))


def after(*calls: tuple[Operation, Outcome], model: StoreModel | None = None) -> Oracle:
    oracle = Oracle(model or StoreModel())
    for operation, outcome in calls:
        judged = oracle.judge(operation, outcome)
        assert judged, judged
    return oracle


def wrote(*envelopes: EventEnvelope) -> list[tuple[Operation, Outcome]]:
    return [(Append(each), Done()) for each in envelopes]


def forbids(judged: Judgement, rule: str) -> None:
    assert not judged
    assert judged.states == ()
    assert judged.rule == rule
    assert rule in rules()
    assert judged.allowed
    assert judged.got


# --- One envelope -----------------------------------------------------------------------------


def test_a_good_append_must_be_acknowledged_and_is_read_back() -> None:
    oracle = after((Append(envelope(0)), Done()), (ReadFrom("e"), Done([envelope(0)])))
    assert oracle.state.log("e").envelopes == (envelope(0),)


@pytest.mark.parametrize(
    ("refusal", "rule"),
    [
        (slot(0), "SEQ-3"),
        (name_taken("e-0"), "ID-2"),
        (stale(None, None), "FENCE-5"),
        (INVALID, "DATA-1"),
        (OTHER, "APPEND-1"),
    ],
)
def test_nothing_stands_against_a_good_append(refusal: Refused, rule: str) -> None:
    forbids(Oracle(StoreModel()).judge(Append(envelope(0)), refusal), rule)


def test_a_taken_slot_is_refused_with_the_slots_own_error() -> None:
    oracle = after(*wrote(envelope(0)))
    other = Append(envelope(0, name="other"))
    assert oracle.copy().judge(other, slot(0))
    forbids(oracle.judge(other, Done()), "SEQ-1")
    forbids(oracle.judge(Append(envelope(0)), Done()), "SEQ-2")
    forbids(oracle.judge(other, OTHER), "ERR-1")
    forbids(oracle.judge(other, slot(1)), "ERR-2")
    forbids(oracle.judge(other, slot(0, "f")), "ERR-2")


def test_slot_and_id_both_taken_is_either_error() -> None:
    oracle = after(*wrote(envelope(0)))
    assert oracle.copy().judge(Append(envelope(0)), slot(0))
    assert oracle.copy().judge(Append(envelope(0)), name_taken("e-0"))


def test_an_id_is_taken_in_its_scope() -> None:
    twin_here = Append(envelope(1, name="e-0"))
    twin_there = Append(envelope(0, "f", name="e-0"))
    everywhere = after(*wrote(envelope(0)))
    forbids(everywhere.judge(twin_here, Done()), "ID-1")
    forbids(everywhere.judge(twin_there, Done()), "ID-2")
    assert everywhere.judge(twin_there, name_taken("e-0", "f"))
    alone = after(*wrote(envelope(0)), model=StoreModel(envelope_ids="execution"))
    forbids(alone.judge(twin_here, Done()), "ID-1")
    forbids(alone.judge(twin_there, name_taken("e-0", "f")), "ID-2")
    assert alone.judge(twin_there, Done())


def test_a_gap_may_be_refused_with_any_error_of_the_store_unless_sparse_is_declared() -> None:
    gap = Append(envelope(7))
    assert Oracle(StoreModel()).judge(gap, Done())
    assert Oracle(StoreModel()).judge(gap, OTHER)
    assert Oracle(StoreModel()).judge(gap, slot(7))
    forbids(Oracle(StoreModel(sparse_sequences=True)).judge(gap, OTHER), "APPEND-1")
    filled = after((gap, Done()))
    assert filled.copy().judge(Append(envelope(3)), OTHER)
    assert filled.judge(Append(envelope(3)), Done())
    assert filled.judge(ReadFrom("e"), Done([envelope(3), envelope(7)]))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**60])
def test_a_value_outside_the_domain_is_stored_faithfully_or_refused(value: object) -> None:
    odd = envelope(0, payload={"v": value})
    assert Oracle(StoreModel()).judge(Append(odd), INVALID)
    kept = after((Append(odd), Done()))
    assert kept.judge(ReadFrom("e"), Done([envelope(0, payload={"v": value})]))
    forbids(kept.judge(ReadFrom("e"), Done([envelope(0, payload={"v": None})])), "APPEND-2")
    forbids(Oracle(StoreModel()).judge(Append(odd), OTHER), "APPEND-1")


# --- Fences -----------------------------------------------------------------------------------


def test_tokens_strictly_grow_and_need_not_be_neighbours() -> None:
    oracle = after((AcquireFence("e"), Done(3)), (AcquireFence("e"), Done(40)))
    for wrong in (40, 39, 1, 0, True, "41", None, 41.0):
        forbids(oracle.judge(AcquireFence("e"), Done(wrong)), "FENCE-1")
    forbids(oracle.judge(AcquireFence("e"), OTHER), "FENCE-10")
    assert oracle.judge(AcquireFence("f"), Done(1)), "executions are independent"


def test_a_fenced_execution_takes_the_current_token_only() -> None:
    oracle = after((AcquireFence("e"), Done(1)), (AcquireFence("e"), Done(5)))
    forbids(oracle.judge(Append(envelope(0)), Done()), "FENCE-4")
    forbids(oracle.judge(Append(envelope(0, fence=1)), Done()), "FENCE-3")
    forbids(oracle.judge(Append(envelope(0, fence=1)), stale(1, 1)), "ERR-2")
    forbids(oracle.judge(Append(envelope(0, fence=1)), stale(2, 5)), "ERR-2")
    assert oracle.judge(Append(envelope(0, fence=1)), stale(1, 5))
    assert oracle.judge(Append(envelope(0)), stale(None, 5))
    forbids(oracle.judge(Append(envelope(0, fence=5)), stale(5, 5)), "FENCE-5")
    assert oracle.judge(Append(envelope(0, fence=5)), Done())


def test_the_token_comes_before_the_conflict() -> None:
    oracle = after(
        (AcquireFence("e"), Done(1)),
        (Append(envelope(0, fence=1)), Done()),
        (AcquireFence("e"), Done(2)),
    )
    forbids(oracle.judge(Append(envelope(0, fence=1)), slot(0)), "FENCE-7")
    assert oracle.judge(Append(envelope(0, fence=1)), stale(1, 2))
    assert oracle.judge(Append(envelope(0, fence=2)), slot(0))


@pytest.mark.parametrize("odd", [0, -1, True, "1", 1.5, "token", None, [1]])
def test_what_is_not_a_token_never_passes_for_one(odd: object) -> None:
    fenced = after((AcquireFence("e"), Done(1)))
    write = Append(envelope(0, fence=odd))
    forbids(fenced.judge(write, Done()), "FENCE-12")
    assert fenced.judge(write, stale(odd, 1))
    assert fenced.judge(write, INVALID)
    forbids(fenced.judge(write, OTHER), "ERR-1")
    free = Oracle(StoreModel())
    assert free.copy().judge(write, INVALID)
    assert free.copy().judge(write, Done())
    forbids(free.judge(write, stale(odd, None)), "FENCE-5")


def test_a_token_that_was_never_handed_out_should_be_refused() -> None:
    fenced = after((AcquireFence("e"), Done(1)))
    write = Append(envelope(0, fence=2))
    assert fenced.copy().judge(write, stale(2, 1)).advice == ()
    accepted = fenced.judge(write, Done())
    assert accepted.advice == ("FENCE-13",)
    assert fenced.state.log("e").fence == Fence(1), "only acquire_fence moves the token"
    assert Oracle(StoreModel()).judge(write, Done()).advice == ("FENCE-13",)
    assert Oracle(StoreModel()).judge(write, stale(2, None)).advice == ()
    without = StoreModel(fencing=False)
    assert Oracle(without).judge(write, Done()).advice == ("FENCE-14",)
    assert Oracle(without).judge(write, INVALID)


# --- Batches ----------------------------------------------------------------------------------


def test_a_batch_is_stored_whole_or_refused_whole() -> None:
    oracle = after(*wrote(envelope(0)))
    clash = AppendBatch([envelope(1), envelope(0, name="n"), envelope(0, "f")])
    forbids(oracle.judge(clash, Done()), "BATCH-2")
    assert oracle.judge(clash, slot(0))
    assert oracle.judge(ReadFrom("e"), Done([envelope(0)]))
    assert oracle.judge(AppendBatch([envelope(1), envelope(0, "f")]), Done())
    forbids(oracle.judge(ReadFrom("e"), Done([envelope(0)])), "APPEND-1")
    assert oracle.judge(ReadFrom("f"), Done([envelope(0, "f")]))


def test_an_empty_batch_changes_nothing() -> None:
    oracle = Oracle(StoreModel())
    assert oracle.judge(AppendBatch(()), Done())
    assert oracle.state == State()
    forbids(oracle.judge(AppendBatch(()), OTHER), "BATCH-6")


def test_two_of_a_batch_may_not_share_a_slot_or_an_id() -> None:
    same_slot = AppendBatch([envelope(0), envelope(0, name="n")])
    same_name = AppendBatch([envelope(0), envelope(1, name="e-0")])
    oracle = Oracle(StoreModel())
    forbids(oracle.judge(same_slot, Done()), "BATCH-3")
    forbids(oracle.judge(same_name, Done()), "BATCH-3")
    forbids(oracle.judge(AppendBatch([envelope(0)] * 2), Done()), "BATCH-3")
    once = envelope(0)
    forbids(oracle.judge(AppendBatch([once, once]), Done()), "BATCH-3")
    assert oracle.judge(same_slot, slot(0))
    assert oracle.judge(same_name, name_taken("e-0"))
    apart = AppendBatch([envelope(0), envelope(0, "f", name="e-0")])
    assert Oracle(StoreModel(envelope_ids="execution")).judge(apart, Done())


def test_a_batch_gets_any_error_that_one_of_its_envelopes_deserves() -> None:
    oracle = after(*wrote(envelope(0)), (AcquireFence("f"), Done(1)))
    mixed = AppendBatch([envelope(0, name="n"), envelope(0, "f")])
    assert oracle.copy().judge(mixed, slot(0))
    assert oracle.copy().judge(mixed, stale(None, 1, "f"))
    forbids(oracle.judge(mixed, slot(0, "f")), "ERR-2")
    forbids(oracle.judge(mixed, name_taken("f-0")), "FENCE-7")
    only = AppendBatch([envelope(1), envelope(0, "f")])
    forbids(oracle.judge(only, Done()), "FENCE-9")


def test_declared_limits_are_held() -> None:
    many = AppendBatch([envelope(n) for n in range(101)])
    small = StoreModel(max_batch=100)
    forbids(Oracle(small).judge(many, Done()), "BATCH-7")
    assert Oracle(small).judge(many, INVALID)
    assert Oracle(small).judge(AppendBatch(many.envelopes[:100]), Done())
    forbids(Oracle(StoreModel()).judge(many, INVALID), "DATA-1")
    spanning = AppendBatch([envelope(0), envelope(0, "f")])
    assert Oracle(StoreModel(batch_scope="execution")).judge(spanning, OTHER)
    forbids(Oracle(StoreModel()).judge(spanning, OTHER), "BATCH-1")


def test_a_batch_in_order_is_no_gap() -> None:
    ordered = AppendBatch([envelope(n) for n in range(3)])
    forbids(Oracle(StoreModel()).judge(ordered, OTHER), "BATCH-1")
    backwards = AppendBatch([envelope(1), envelope(0)])
    assert Oracle(StoreModel()).judge(backwards, OTHER)


# --- Reads ------------------------------------------------------------------------------------


def test_reads_are_exact() -> None:
    stored = [envelope(n) for n in range(4)]
    oracle = after(*wrote(*stored, envelope(0, "f")))
    assert oracle.judge(ReadFrom("e", 2), Done(tuple(stored[2:])))
    assert oracle.judge(ReadRange("e", 1, 2), Done(stored[1:3]))
    assert oracle.judge(ReadRange("e", 3, 1), Done([]))
    assert oracle.judge(ReadFrom("e", 9), Done([]))
    assert oracle.judge(ReadFrom("g"), Done([]))
    forbids(oracle.judge(ReadFrom("e"), Done(stored[:3])), "APPEND-1")
    forbids(oracle.judge(ReadFrom("e"), Done(stored[::-1])), "READ-1")
    forbids(oracle.judge(ReadFrom("e"), Done([*stored, envelope(4)])), "READ-5")
    forbids(oracle.judge(ReadFrom("e"), Done([envelope(0, "f")])), "READ-3")
    forbids(oracle.judge(ReadFrom("e", 2), Done(stored[1:])), "READ-2")
    forbids(oracle.judge(ReadRange("e", 1, 2), Done(stored[1:2])), "RANGE-1")
    changed = [*stored[:3], envelope(3, payload=0)]
    forbids(oracle.judge(ReadFrom("e"), Done(changed)), "APPEND-2")
    forbids(oracle.judge(ReadFrom("e"), OTHER), "READ-2")
    forbids(oracle.judge(ReadFrom("e"), Done(None)), "READ-2")
    forbids(oracle.judge(ReadRange("e", 0, 1), OTHER), "RANGE-1")


def test_reading_out_of_range_is_cut_or_refused() -> None:
    oracle = after(*wrote(envelope(0)))
    assert oracle.judge(ReadFrom("e", -5), Done([envelope(0)]))
    assert oracle.judge(ReadFrom("e", -5), INVALID)
    assert oracle.judge(ReadFrom(""), INVALID)
    assert oracle.judge(ReadFrom(""), Done([]))
    assert oracle.judge(AcquireFence(""), INVALID)
    assert oracle.judge(AcquireFence(""), Done(1))


# --- Unknown outcomes -------------------------------------------------------------------------


def test_an_unknown_write_leaves_two_states_until_a_read_tells() -> None:
    oracle = after((Append(envelope(0)), Unknown()))
    assert len(list(oracle)) == 2
    landed, lost = oracle.copy(), oracle.copy()
    assert landed.judge(ReadFrom("e"), Done([envelope(0)]))
    forbids(landed.judge(Append(envelope(0, name="n")), Done()), "SEQ-1")
    assert lost.judge(ReadFrom("e"), Done([]))
    assert lost.judge(Append(envelope(0, name="n")), Done())


def test_an_unknown_write_that_could_not_land_did_not() -> None:
    oracle = after(*wrote(envelope(0)), (Append(envelope(0, name="n")), Unknown()))
    assert len(list(oracle)) == 1


def test_an_unknown_acquire_may_have_used_up_a_token() -> None:
    oracle = after((AcquireFence("e"), Done(1)), (AcquireFence("e"), Unknown()))
    holds = Append(envelope(0, fence=1))
    assert oracle.copy().judge(holds, Done())
    fenced = oracle.copy()
    assert fenced.judge(holds, stale(1, 2))
    forbids(fenced.judge(holds, Done()), "FENCE-3")
    forbids(fenced.judge(AcquireFence("e"), Done(2)), "FENCE-1")
    assert fenced.judge(AcquireFence("e"), Done(3))


# --- States and outcomes ----------------------------------------------------------------------


def test_equal_states_hash_alike_whatever_the_way_there() -> None:
    one = after(*wrote(envelope(0), envelope(0, "f")), (AcquireFence("e"), Done(2))).state
    two = after((AcquireFence("e"), Done(1)), (AcquireFence("e"), Done(2))).state
    two = StoreModel().written(two, AppendBatch([envelope(0, "f"), envelope(0)]))
    assert one == two
    assert hash(one) == hash(two)
    three = StoreModel().written(one, Append(envelope(1)))
    assert three != one
    assert len({one, two, three, State()}) == 3


WRITES = [
    *(Append(envelope(n, e, fence=token)) for n in (0, 1) for e in "ef" for token in (..., 1, 2)),
    AppendBatch([envelope(1), envelope(0, "f", fence=2)]),
]


@pytest.mark.parametrize("operation", [*WRITES, ReadFrom("e"), AcquireFence("f")], ids=str)
def test_step_agrees_with_judge(operation: Operation) -> None:
    model = StoreModel()
    start = after(*wrote(envelope(0)), (AcquireFence("f"), Done(2))).state
    outcomes: list[Outcome] = [slot(0), slot(0, "f"), name_taken("e-0"), OTHER, INVALID]
    outcomes += [stale(1, 2, "f"), stale(None, 2, "f"), Unknown()]
    if isinstance(operation, ReadFrom):
        outcomes += [Done([envelope(0)]), Done([])]
    elif isinstance(operation, AcquireFence):
        outcomes += [Done(2), Done(3)]
    else:
        outcomes.append(Done())
    for outcome in outcomes:
        judged = model.judge(start, operation, outcome)
        stepped = model.step(start, operation, outcome)
        if isinstance(outcome, Unknown):
            happened = [state for state in judged.states if state != start]
            assert ([] if stepped in (None, start) else [stepped]) == happened
        elif judged.rule != "ERR-2":
            assert judged.states == (() if stepped is None else (stepped,))


def test_only_the_contracts_refusals_say_that_nothing_happened() -> None:
    refusals = [
        DuplicateSequenceError("e", 0),
        DuplicateEnvelopeIdError("e", "i"),
        StaleFenceError("e", 1, 2),
        InvalidEnvelopeError("x"),
        ValueError("x"),
        StoreClosedError(),
    ]
    assert all(isinstance(settled(error), Refused) for error in refusals)
    for error in (OutcomeUnknownError("?"), EventStoreError("?"), OSError("?"), TimeoutError()):
        assert isinstance(settled(error), Unknown)


def test_an_error_is_known_by_name_from_another_installation() -> None:
    class DuplicateSequenceError(Exception):
        execution_id = "e"
        sequence = 0

    oracle = after(*wrote(envelope(0)))
    assert oracle.judge(Append(envelope(0)), Refused.of(DuplicateSequenceError()))
