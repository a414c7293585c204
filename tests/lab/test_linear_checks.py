"""Each linear check finds its fault, names the rule and shows the calls; and only its fault."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lab_support import Timeline, envelope, writing

from loom_conformance.contract.model import StoreModel
from loom_conformance.contract.operations import (
    AcquireFence,
    Done,
    ReadFrom,
    ReadRange,
    Refused,
    Unknown,
)
from loom_conformance.lab.checker.linear import violations
from loom_conformance.lab.checker.verdict import check
from loom_conformance.spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    InvalidEnvelopeError,
    StaleFenceError,
)

MODEL = StoreModel(sparse_sequences=True)

SLOT = Refused.of(DuplicateSequenceError("e", 0))
NAME = Refused.of(DuplicateEnvelopeIdError("e", "e-0"))
STALE = Refused.of(StaleFenceError("e", None, 1))

A, B, C = (envelope(n) for n in range(3))
OTHER_A = envelope(0, name="other")


def cases() -> dict[str, tuple[Callable[[Timeline], object], str]]:
    """A name for each fault, the calls that show it, and the rule."""
    made: dict[str, tuple[Callable[[Timeline], object], str]] = {}

    def case(rule: str) -> Callable[[Callable[[Timeline], object]], None]:
        def keep(build: Callable[[Timeline], object]) -> None:
            made[build.__name__] = (build, rule)

        return keep

    @case("SEQ-4")
    def two_winners_of_a_slot(t: Timeline) -> None:
        t.wrote(A, begin=0, end=20)
        t.wrote(OTHER_A, begin=10, end=30)

    @case("SEQ-1")
    def a_taken_slot_given_again(t: Timeline) -> None:
        t.wrote(A)
        t.wrote(OTHER_A)

    @case("SEQ-2")
    def an_equal_envelope_accepted_again(t: Timeline) -> None:
        t.wrote(A)
        t.wrote(A)

    @case("ID-3")
    def two_winners_of_an_id(t: Timeline) -> None:
        t.wrote(A, begin=0, end=20)
        t.wrote(envelope(1, name="e-0"), begin=10, end=30)

    @case("ID-1")
    def a_taken_id_given_again(t: Timeline) -> None:
        t.wrote(A)
        t.wrote(envelope(1, name="e-0"))

    @case("ID-2")
    def an_id_taken_in_another_execution(t: Timeline) -> None:
        t.wrote(A)
        t.wrote(envelope(0, "f", name="e-0"))

    @case("BATCH-9")
    def overlapping_batches_both_acknowledged(t: Timeline) -> None:
        t.wrote(A, B, begin=0, end=20)
        t.wrote(envelope(1, name="x"), envelope(2, name="y"), begin=10, end=30)

    @case("BATCH-2")
    def a_batch_accepted_on_a_taken_slot(t: Timeline) -> None:
        t.wrote(A)
        t.wrote(envelope(1), OTHER_A)

    @case("BATCH-3")
    def a_batch_that_conflicts_with_itself(t: Timeline) -> None:
        t.wrote(A, OTHER_A)

    @case("APPEND-1")
    def an_acknowledged_envelope_is_missing(t: Timeline) -> None:
        t.wrote(A)
        t.wrote(B)
        t.read(B)

    @case("DUR-2")
    def lost_with_its_writer(t: Timeline) -> None:
        t.wrote(A, process="w")
        t.read(A)
        t.fault("kill", "w")
        t.read()

    @case("APPEND-1")
    def lost_although_someone_else_was_killed(t: Timeline) -> None:
        t.wrote(A, process="w")
        t.fault("kill", "v")
        t.read()

    @case("DUR-5")
    def lost_with_the_server(t: Timeline) -> None:
        t.wrote(A)
        t.read(A)
        t.fault("crash", "server")
        t.read()

    @case("READ-5")
    def seen_and_later_gone(t: Timeline) -> None:
        t.call(writing(A), Unknown(), begin=0)
        t.read(A)
        t.read()

    @case("READ-5")
    def seen_before_it_was_written(t: Timeline) -> None:
        t.read(A)
        t.wrote(A)

    @case("BATCH-5")
    def part_of_a_batch_is_seen(t: Timeline) -> None:
        t.wrote(A, B, begin=0, end=50)
        t.read(A, begin=10, end=20)

    @case("BATCH-5")
    def a_batch_is_seen_in_one_execution_and_not_yet_in_the_other(t: Timeline) -> None:
        t.wrote(A, envelope(0, "f"), begin=0, end=90)
        t.read(A, begin=10, end=20)
        t.read(execution="f", begin=30, end=40)

    @case("DUR-3")
    def a_batch_torn_by_a_kill(t: Timeline) -> None:
        t.call(writing(A, B), Unknown(), begin=0, process="w")
        t.fault("kill", "w")
        t.read(A)

    @case("LIVE-4")
    def a_batch_torn_by_a_cancellation(t: Timeline) -> None:
        t.call(writing(A, B), Unknown("cancelled"), begin=0, end=10)
        t.read(A)

    @case("ERR-3")
    def a_refused_write_is_there(t: Timeline) -> None:
        t.call(writing(A), SLOT)
        t.read(A)

    @case("FENCE-8")
    def a_stale_write_is_there(t: Timeline) -> None:
        t.acquired(1)
        t.call(writing(A), STALE)
        t.read(A)

    @case("APPEND-2")
    def an_envelope_changed_on_the_way(t: Timeline) -> None:
        t.wrote(A)
        t.read(envelope(0, payload="changed"))

    @case("READ-3")
    def an_envelope_that_nobody_wrote(t: Timeline) -> None:
        t.read(A)

    @case("READ-3")
    def an_envelope_of_another_execution(t: Timeline) -> None:
        t.wrote(envelope(0, "f"))
        t.read(envelope(0, "f"))

    @case("READ-1")
    def a_read_out_of_order(t: Timeline) -> None:
        t.wrote(A)
        t.wrote(B)
        t.read(B, A)

    @case("SEQ-4")
    def a_read_with_one_slot_twice(t: Timeline) -> None:
        t.wrote(A)
        t.call(writing(OTHER_A), Unknown(), begin=0)
        t.read(A, OTHER_A)

    @case("READ-2")
    def a_read_from_too_early(t: Timeline) -> None:
        t.wrote(A)
        t.wrote(B)
        t.call(ReadFrom("e", 1), Done((A, B)))

    @case("RANGE-1")
    def a_read_beyond_its_range(t: Timeline) -> None:
        t.wrote(A)
        t.wrote(B)
        t.call(ReadRange("e", 0, 0), Done((A, B)))

    @case("APPEND-2")
    def a_read_of_no_envelopes(t: Timeline) -> None:
        t.call(ReadFrom("e"), Done(("rows",)))

    @case("FENCE-1")
    def tokens_do_not_grow(t: Timeline) -> None:
        t.acquired(2)
        t.acquired(2)

    @case("FENCE-1")
    def a_token_that_is_no_token(t: Timeline) -> None:
        t.acquired(True)

    @case("FENCE-2")
    def one_token_for_two(t: Timeline) -> None:
        t.acquired(1, begin=0, end=20)
        t.acquired(1, begin=10, end=30)

    @case("FENCE-3")
    def an_old_token_passes(t: Timeline) -> None:
        t.acquired(1)
        t.acquired(2)
        t.wrote(envelope(0, fence=1))

    @case("FENCE-4")
    def a_missing_token_passes(t: Timeline) -> None:
        t.acquired(1)
        t.wrote(A)

    @case("FENCE-9")
    def an_old_token_passes_in_a_batch(t: Timeline) -> None:
        t.acquired(1)
        t.wrote(envelope(0, "f"), A)

    @case("FENCE-8")
    def a_write_in_flight_lands_after_the_acquire(t: Timeline) -> None:
        t.acquired(1)
        t.wrote(envelope(0, fence=1), begin=20, end=90)
        t.acquired(2, begin=30, end=40)
        t.read(begin=50, end=60)

    @case("FENCE-8")
    def an_unknown_write_in_flight_lands_after_the_first_acquire(t: Timeline) -> None:
        t.call(writing(A), Unknown(), begin=0)
        t.acquired(1, begin=30, end=40)
        t.read(begin=50, end=60)
        t.read(A)

    @case("FENCE-11")
    def a_fence_forgotten_with_its_process(t: Timeline) -> None:
        t.acquired(1, process="w")
        t.fault("kill", "w")
        t.wrote(A)

    @case("DUR-5")
    def a_fence_forgotten_in_a_crash(t: Timeline) -> None:
        t.acquired(1)
        t.fault("crash", "server")
        t.wrote(A)

    @case("DUR-5")
    def a_slot_given_again_after_a_crash(t: Timeline) -> None:
        t.wrote(A)
        t.read(A)
        t.fault("crash", "server")
        t.wrote(OTHER_A)

    @case("APPEND-1")
    def acknowledged_and_never_there(t: Timeline) -> None:
        t.wrote(A, process="w")
        t.fault("kill", "w")
        t.read()
        t.wrote(OTHER_A)

    @case("FENCE-5")
    def the_current_token_is_refused(t: Timeline) -> None:
        t.acquired(1)
        t.call(writing(envelope(0, fence=1)), STALE)

    @case("FENCE-5")
    def stale_where_there_is_no_fence(t: Timeline) -> None:
        t.call(writing(A), STALE)

    @case("FENCE-7")
    def a_conflict_although_the_token_was_stale(t: Timeline) -> None:
        t.wrote(A)
        t.acquired(1)
        t.call(writing(A), SLOT)

    @case("ERR-3")
    def a_conflict_with_oneself(t: Timeline) -> None:
        t.call(writing(A), NAME)
        t.read(A)

    @case("SEQ-3")
    def a_conflict_with_nothing(t: Timeline) -> None:
        t.wrote(envelope(0, "f"))
        t.call(writing(A), SLOT)

    @case("SEQ-3")
    def a_conflict_with_what_came_later(t: Timeline) -> None:
        t.call(writing(A), SLOT)
        t.wrote(OTHER_A)

    @case("ID-2")
    def an_id_that_nothing_had_taken(t: Timeline) -> None:
        t.call(writing(A), NAME)

    @case("DATA-1")
    def a_good_value_refused(t: Timeline) -> None:
        t.call(writing(A), Refused.of(InvalidEnvelopeError("no")))

    @case("LIVE-1")
    def a_call_that_hung(t: Timeline) -> None:
        t.call(writing(A), Unknown("hung"), begin=0, end=10)

    @case("LIVE-6")
    def an_error_out_of_the_blue(t: Timeline) -> None:
        t.call(writing(A), Unknown("OperationalError"), begin=0, end=10)

    return made


CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_the_check_finds_it_and_names_the_rule(name: str) -> None:
    build, rule = CASES[name]
    timeline = Timeline()
    build(timeline)
    found = violations(timeline.history, MODEL)
    assert {violation.rule for violation in found} == {rule}
    for violation in found:
        assert violation.calls
        assert set(violation.calls) <= set(timeline.history.calls)
        assert violation.expected
        assert violation.got


@pytest.mark.parametrize("name", CASES)
def test_the_whole_verdict_names_no_other_rule(name: str) -> None:
    build, rule = CASES[name]
    timeline = Timeline()
    build(timeline)
    assert set(check(timeline.history, MODEL).rules) == {rule}


def test_every_check_has_a_case() -> None:
    source = [rule for _, rule in CASES.values()]
    assert len(set(source)) > 25


@pytest.mark.parametrize(
    "shown",
    [(), (A,), (A, B)],
)
def test_what_is_legal_is_left_alone(shown: tuple[EventEnvelope, ...]) -> None:
    t = Timeline()
    t.acquired(1, "f")
    t.call(AcquireFence("f"), Unknown(), begin=0)
    t.wrote(A, begin=20, end=200)
    t.call(writing(B), Unknown("cancelled"), begin=30, end=40)
    t.read(*shown, begin=50, end=60)
    t.call(writing(OTHER_A), SLOT, begin=300)
    t.call(writing(envelope(0, "f")), STALE)
    assert violations(t.history, MODEL) == []


def test_a_fault_excuses_errors_that_come_after_it_and_none_before() -> None:
    t = Timeline()
    t.call(writing(A), Unknown("OSError"), begin=0, end=10)
    t.fault("crash", "server")
    t.call(writing(B), Unknown("OSError"), begin=30, end=40)
    (violation,) = violations(t.history, MODEL)
    assert violation.rule == "LIVE-6"
    assert violation.calls[0].invoked == 0


def test_a_kill_excuses_no_errors() -> None:
    t = Timeline()
    t.fault("kill", "w")
    t.call(writing(B), Unknown("OSError"), begin=30, end=40)
    assert [violation.rule for violation in violations(t.history, MODEL)] == ["LIVE-6"]
