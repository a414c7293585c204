"""Starting an execution: decisions D1, D2, D3, D5 of ADR 0103."""

from __future__ import annotations

import pytest
from runtime_support import RecordedStore, World, kinds
from ulid import ULID

from loom_conformance.runtime import (
    Event,
    ExecutionAlreadyExistsError,
    ExecutionJournal,
    StartFencedOutError,
    StorageWriteError,
    UnknownWorkflowError,
    append_batch_of,
)
from loom_conformance.spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    EventStoreError,
    StaleFenceError,
    encode_json,
)

pytestmark = pytest.mark.asyncio


def bytes_of(envelope: EventEnvelope) -> str:
    return encode_json(envelope.to_json())


# --- D1 -----------------------------------------------------------------------------------------


async def test_bootstrap_is_durable_before_anything_is_told_or_run() -> None:
    world = World()
    handle = await world.runtime().start("audit", 7, execution_id="daily@1")
    assert world.store.timeline == ["append daily@1[0]", "durable daily@1[0]", "told daily@1[0]"]
    await handle.finished()
    assert world.effects == ["audit", "report"]


async def test_bootstrap_envelope_equals_what_commit_writes_byte_for_byte() -> None:
    world = World()
    event = Event("EXECUTION_STARTED", {"workflow": "audit", "input": {"a": 1.5}})

    def journal() -> ExecutionJournal:
        return ExecutionJournal(
            world.store, "daily@1", world.clock, metadata={"target": "gpu", "fence": 1}, fence=4
        )

    built = journal().bootstrap_envelope(event)
    committing = journal()
    committed = committing.commit(event)
    await committing.drain()
    assert bytes_of(built) == bytes_of(committed)
    assert built.id == "daily@1-0"
    assert built.metadata == {"target": "gpu", "fence": 4}
    assert built.timestamp == world.clock.now()


async def test_adopt_does_all_that_commit_does_but_the_append() -> None:
    world = World()
    event = Event("EXECUTION_STARTED", {"workflow": "audit", "input": None})
    heard: list[tuple[str, int]] = []
    journal = ExecutionJournal(
        world.store,
        "daily@1",
        world.clock,
        on_event=lambda envelope: heard.append(("event", envelope.sequence)),
        on_commit=lambda envelope: heard.append(("commit", envelope.sequence)),
    )
    journal.adopt(journal.bootstrap_envelope(event))
    await journal.drain()
    assert heard == [("event", 0), ("commit", 0)]
    assert journal.next_sequence == 1
    assert world.store.timeline == []


async def test_adopt_refuses_any_sequence_but_the_next_and_any_other_execution() -> None:
    world = World()
    journal = ExecutionJournal(world.store, "daily@1", world.clock)
    other = ExecutionJournal(world.store, "daily@2", world.clock)
    event = Event("EXECUTION_STARTED", {"workflow": "audit", "input": None})
    bootstrap = journal.bootstrap_envelope(event)
    with pytest.raises(ValueError, match="takes sequence 0 next, not 0 of 'daily@2'"):
        journal.adopt(other.bootstrap_envelope(event))
    journal.adopt(bootstrap)
    with pytest.raises(ValueError, match="takes sequence 1 next, not 0"):
        journal.adopt(bootstrap)


async def test_an_unknown_workflow_is_refused_before_anything_is_written() -> None:
    world = World()
    with pytest.raises(UnknownWorkflowError, match="'audti'"):
        await world.runtime().start("audti", execution_id="daily@1")
    assert world.store.timeline == []


# --- D2 -----------------------------------------------------------------------------------------


async def started(world: World, execution_id: str = "daily@1") -> None:
    handle = await world.runtime().start("audit", execution_id=execution_id)
    await handle.finished()
    world.store.timeline.clear()
    world.told.clear()


def assert_nothing_ran(world: World) -> None:
    assert world.told == []
    assert world.effects == []


async def test_a_taken_id_is_refused_by_type_and_nothing_ran() -> None:
    world = World()
    await started(world)
    log = list(world.store.logs["daily@1"])
    with pytest.raises(ExecutionAlreadyExistsError) as caught:
        await world.runtime().start("audit", execution_id="daily@1")
    assert caught.value.execution_id == "daily@1"
    assert isinstance(caught.value.__cause__, DuplicateSequenceError)
    assert world.store.timeline[-1] == "read_range daily@1 0 0"
    assert world.store.logs["daily@1"] == log
    assert world.errors == []
    assert_nothing_ran(world)


async def test_a_store_without_read_range_is_read_from_the_start() -> None:
    class WithoutRange(RecordedStore):
        read_range = None  # type: ignore[assignment]

    world = World(WithoutRange())
    await started(world)
    with pytest.raises(ExecutionAlreadyExistsError):
        await world.runtime().start("audit", execution_id="daily@1")
    assert world.store.timeline[-1] == "read_from daily@1 0"


@pytest.mark.parametrize(
    "refusal",
    [
        DuplicateSequenceError("other", 0),
        DuplicateEnvelopeIdError("other", "other-0"),
        StaleFenceError("other", None, 3),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_conflict_of_someone_else_is_retried_once_alone(refusal: Exception) -> None:
    world = World(RecordedStore(refusals=[refusal]))
    handle = await world.runtime().start("audit", execution_id="fresh")
    assert world.store.timeline == [
        "append fresh[0]",
        f"refused fresh[0]: {type(refusal).__name__}",
        "read_range fresh 0 0",
        "append_batch fresh[0]",
        "durable fresh[0]",
        "told fresh[0]",
    ]
    await handle.finished()
    assert world.effects == ["audit", "report"]
    assert world.errors == []


async def test_a_store_without_append_batch_is_retried_by_append() -> None:
    class WithoutBatch(RecordedStore):
        append_batch = None  # type: ignore[assignment]

    world = World(WithoutBatch(refusals=[DuplicateSequenceError("other", 0)]))
    handle = await world.runtime().start("audit", execution_id="fresh")
    await handle.finished()
    assert world.store.timeline.count("append fresh[0]") == 2


async def test_append_batch_of_falls_back_to_appends_in_order() -> None:
    class WithoutBatch(RecordedStore):
        append_batch = None  # type: ignore[assignment]

    world = World(WithoutBatch())
    journal = ExecutionJournal(world.store, "daily@1", world.clock)
    envelope = journal.bootstrap_envelope(Event("EXECUTION_STARTED", {}))
    await append_batch_of(world.store)([envelope])
    assert world.store.timeline == ["append daily@1[0]", "durable daily@1[0]"]


async def test_a_second_conflict_with_sequence_0_absent_is_a_storage_failure() -> None:
    taken = DuplicateEnvelopeIdError("fresh", "fresh-0")
    world = World(RecordedStore(refusals=[taken, taken]))
    with pytest.raises(StorageWriteError) as caught:
        await world.runtime().start("audit", execution_id="fresh")
    assert caught.value.__cause__ is taken
    assert world.errors == [caught.value]
    assert_nothing_ran(world)


async def test_a_second_conflict_with_sequence_0_present_means_that_it_exists() -> None:
    class Overtaken(RecordedStore):
        async def append_batch(self, envelopes, /) -> None:  # type: ignore[no-untyped-def]
            self.logs["fresh"] = list(envelopes)
            raise DuplicateSequenceError("fresh", 0)

    world = World(Overtaken(refusals=[DuplicateSequenceError("other", 0)]))
    with pytest.raises(ExecutionAlreadyExistsError):
        await world.runtime().start("audit", execution_id="fresh")
    assert world.errors == []
    assert_nothing_ran(world)


async def test_two_stale_tries_with_sequence_0_absent_stay_retryable() -> None:
    stale = StaleFenceError("fresh", 1, 2)
    world = World(RecordedStore(refusals=[stale, stale]))
    with pytest.raises(StorageWriteError) as caught:
        await world.runtime().start("audit", execution_id="fresh", fence=1)
    assert isinstance(caught.value.__cause__, StartFencedOutError)
    assert caught.value.__cause__.__cause__ is stale
    assert world.errors == [caught.value]
    assert_nothing_ran(world)


async def test_a_stale_try_after_another_conflict_is_a_plain_storage_failure() -> None:
    stale = StaleFenceError("fresh", 1, 2)
    world = World(RecordedStore(refusals=[DuplicateSequenceError("other", 0), stale]))
    with pytest.raises(StorageWriteError) as caught:
        await world.runtime().start("audit", execution_id="fresh", fence=1)
    assert caught.value.__cause__ is stale


async def test_a_read_back_that_fails_is_a_storage_failure() -> None:
    dead = EventStoreError("connection lost")
    world = World(RecordedStore(refusals=[DuplicateSequenceError("x", 0)], unreadable=dead))
    with pytest.raises(StorageWriteError) as caught:
        await world.runtime().start("audit", execution_id="fresh")
    assert caught.value.__cause__ is dead
    assert world.errors == [caught.value]
    assert_nothing_ran(world)


async def test_any_other_failure_refuses_the_start_at_once() -> None:
    dead = OSError("disk full")
    world = World(RecordedStore(refusals=[dead]))
    with pytest.raises(StorageWriteError, match="could not write sequence 0: disk full") as caught:
        await world.runtime().start("audit", execution_id="fresh")
    assert caught.value.__cause__ is dead
    assert world.errors == [caught.value]
    assert world.store.timeline == ["append fresh[0]", "refused fresh[0]: OSError"]
    assert_nothing_ran(world)


async def test_a_conflict_of_a_second_copy_of_the_contract_is_told_by_name() -> None:
    copied = type("DuplicateSequenceError", (Exception,), {})
    world = World()
    await started(world)
    world.store.refusals = [copied("taken")]
    with pytest.raises(ExecutionAlreadyExistsError):
        await world.runtime().start("audit", execution_id="daily@1")


async def test_a_duplicate_of_a_fenced_execution_is_refused_on_the_fence_and_exists() -> None:
    world = World()
    await started(world)
    await world.store.acquire_fence("daily@1")
    with pytest.raises(ExecutionAlreadyExistsError) as caught:
        await world.runtime().start("audit", execution_id="daily@1")
    assert isinstance(caught.value.__cause__, StaleFenceError)


# --- D3 -----------------------------------------------------------------------------------------


async def test_a_minted_id_pays_no_barrier_and_keeps_its_interleaving() -> None:
    world = World()
    handle = await world.runtime().start("audit")
    name = handle.execution_id
    assert world.store.timeline == [f"told {name}[0]"]
    await handle.finished()
    assert world.store.timeline == [
        f"told {name}[0]",
        f"append {name}[0]",
        "effect audit",
        f"told {name}[1]",
        f"durable {name}[0]",
        f"append {name}[1]",
        f"durable {name}[1]",
        "effect report",
        f"told {name}[2]",
        f"append {name}[2]",
        f"durable {name}[2]",
        f"told {name}[3]",
        f"append {name}[3]",
        f"durable {name}[3]",
    ]


async def test_minted_ids_are_ulids_of_the_injected_clock_and_randomness() -> None:
    world = World()
    handle = await world.runtime().start("audit")
    await handle.finished()
    minted = ULID.from_str(handle.execution_id)
    assert minted.datetime == world.clock.now()
    assert minted.bytes[6:] == bytes(10)


async def test_chosen_and_minted_starts_write_the_same_log_and_tell_the_same_events() -> None:
    chosen, minted = World(), World()
    options = {"fence": 3, "metadata": {"computeTarget": "gpu"}}
    one = await chosen.runtime().start("audit", 7, execution_id="daily@1", **options)  # type: ignore[arg-type]
    other = await minted.runtime().start("audit", 7, **options)  # type: ignore[arg-type]
    assert (await one.finished()).result == (await other.finished()).result

    def renamed(envelopes: list[EventEnvelope], name: str) -> list[str]:
        return [bytes_of(each).replace(name, "ID") for each in envelopes]

    assert renamed(chosen.store.logs["daily@1"], "daily@1") == renamed(
        minted.store.logs[other.execution_id], other.execution_id
    )
    assert renamed(chosen.told, "daily@1") == renamed(minted.told, other.execution_id)
    assert kinds(chosen.told) == [
        "EXECUTION_STARTED",
        "STEP_COMPLETED",
        "STEP_COMPLETED",
        "EXECUTION_COMPLETED",
    ]


# --- D5, D6 -------------------------------------------------------------------------------------


async def test_start_is_start_once_for_a_caller_that_catches_the_typed_error() -> None:
    world = World()
    for _ in range(3):
        try:
            handle = await world.runtime().start("audit", execution_id="message-17")
        except ExecutionAlreadyExistsError:
            continue
        await handle.finished()
    assert world.effects == ["audit", "report"]


async def test_a_later_event_is_told_before_it_is_durable_and_may_never_be() -> None:
    world = World(RecordedStore(refusals=[None, OSError("disk full")]))
    handle = await world.runtime().start("audit", execution_id="daily@1")
    with pytest.raises(StorageWriteError) as caught:
        await handle.finished()
    assert caught.value.sequence == 1
    assert kinds(world.told) == ["EXECUTION_STARTED", "STEP_COMPLETED"]
    assert kinds(world.store.logs["daily@1"]) == ["EXECUTION_STARTED"]
    assert world.errors == [caught.value]
    assert world.effects == ["audit"]
