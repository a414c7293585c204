"""Recorded histories: what is written is read back, and what is torn or wrong is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_support import envelope

from loom_backends.memory import MemoryBackend
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
)
from loom_conformance.lab.history import (
    HistoryFormatError,
    Odd,
    Recorder,
    decode_operation,
    decode_outcome,
    encode_operation,
    encode_outcome,
    read_history,
)
from loom_conformance.spi import (
    DuplicateSequenceError,
    EventEnvelope,
    EventStoreError,
    OutcomeUnknownError,
)

A, B = envelope(0), envelope(1, fence=3, payload={"deep": [1, 1.5, "\x00é\U0001f600"]})

PAIRS: list[tuple[Operation, Outcome]] = [
    (Append(A), Done()),
    (AppendBatch([A, B]), Refused.of(DuplicateSequenceError("e", 0))),
    (AppendBatch(()), Done()),
    (ReadFrom("e", 1), Done((B,))),
    (ReadRange("e", 0, 5), Done((A, B))),
    (AcquireFence("e"), Done(7)),
    (Append(B), Unknown("cancelled")),
    (Append(B), Unknown("OSError", "disk")),
]


@pytest.mark.parametrize(("operation", "outcome"), PAIRS)
def test_operations_and_outcomes_travel_as_json(operation: Operation, outcome: Outcome) -> None:
    told = json.loads(json.dumps([encode_operation(operation), encode_outcome(outcome)]))
    assert decode_operation(told[0]) == operation
    assert decode_outcome(told[1]) == outcome


def test_what_was_recorded_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    with Recorder(path, "one", {"envelope_ids": "execution"}) as recorder:
        for operation, outcome in PAIRS:
            recorder.complete(recorder.invoke("h0", operation), outcome)
        recorder.fault("kill", "two", "at random")
    history = read_history([path])
    assert [(call.operation, call.outcome) for call in history.calls] == PAIRS
    assert [call.certain for call in history.calls] == [True] * 6 + [False] * 2
    assert all(call.completed and call.completed >= call.invoked for call in history.calls)
    assert history.declared == {"envelope_ids": "execution"}
    assert [(fault.kind, fault.target) for fault in history.faults] == [("kill", "two")]
    assert history.counts() == {"calls": 8, "ok": 5, "refused": 1, "unknown": 2}
    assert history.executions() == ["e"]


def test_equal_envelopes_are_one_object_across_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with Recorder(tmp_path / f"{name}.jsonl", name) as recorder:
            twin = EventEnvelope.from_json(json.loads(json.dumps(B.to_json())))
            recorder.complete(recorder.invoke("h0", Append(twin)), Done())
    one, two = read_history(sorted(tmp_path.iterdir())).calls
    assert isinstance(one.operation, Append)
    assert isinstance(two.operation, Append)
    assert one.operation.envelope is two.operation.envelope


def test_an_envelope_is_written_out_once(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    with Recorder(path, "one") as recorder:
        recorder.complete(recorder.invoke("h0", Append(B)), Done())
        for _ in range(5):
            recorder.complete(recorder.invoke("h0", ReadFrom("e")), Done((B,)))
    assert path.read_text().count("deep") == 1
    changed = envelope(1, fence=3, payload={"deep": "else"})
    with Recorder(tmp_path / "two.jsonl", "two") as recorder:
        recorder.complete(recorder.invoke("h0", Append(B)), Done())
        recorder.complete(recorder.invoke("h0", ReadFrom("e")), Done((changed,)))
    assert read_history([tmp_path / "two.jsonl"]).calls[1].outcome == Done((changed,))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_file_cut_anywhere_loses_its_last_line_at_most(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    path = folder / "one.jsonl"
    with Recorder(path, "one") as recorder:
        for operation, outcome in PAIRS:
            recorder.complete(recorder.invoke("h0", operation), outcome)
    whole = path.read_bytes()
    header = whole.index(b"\n") + 1
    cut = data.draw(st.integers(header, len(whole)))
    path.write_bytes(whole[:cut])
    history = read_history([path])
    lines = whole[:cut].count(b"\n")
    complete = whole[:cut].endswith(b"\n")
    # Half a line that happens to end just before its line end is as good as a whole one.
    begun = sum(b'"invoke"' in line for line in whole[:cut].splitlines()[: lines + 1])
    assert begun - 1 <= len(history.calls) <= begun
    assert history.torn == 0 or not complete
    open_calls = [call for call in history.calls if call.completed is None]
    assert len(open_calls) <= 1
    assert all(call.outcome == Unknown("no answer") for call in open_calls)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "empty"),
        (['{"type":"invoke"}'], "begins with a line of type 'header'"),
        (['{"type":"header","format":"other","version":1}'], "this reader knows"),
        (['{"type":"header","format":"loom-history","version":99}'], "version 99"),
        ([..., "half", ...], "no JSON"),
        ([..., "[]"], "must be a JSON object"),
        ([..., '{"type":"ok","call":1,"at":1}'], "never began"),
        ([..., '{"type":"invoke","call":1,"at":1,"op":"pop"}'], "unknown op"),
        ([..., '{"type":"invoke","call":1,"at":1,"op":"append","envelope":9}'], "never written"),
        ([..., '{"type":"invoke","call":1,"op":"read_from","execution_id":"e"}'], "'at'"),
        (
            [...] + ['{"type":"invoke","call":1,"at":1,"op":"read_from","execution_id":"e"}'] * 2,
            "began before",
        ),
        (
            [
                ...,
                '{"type":"invoke","call":1,"at":5,"op":"read_from","execution_id":"e"}',
                '{"type":"ok","call":1,"at":4,"result":[]}',
            ],
            "ended before it began",
        ),
    ],
)
def test_a_broken_file_is_refused_with_its_line(
    tmp_path: Path, lines: list[Any], reason: str
) -> None:
    header = '{"type":"header","format":"loom-history","version":1}'
    path = tmp_path / "broken.jsonl"
    path.write_text("".join(f"{header if line is ... else line}\n" for line in lines))
    with pytest.raises(HistoryFormatError, match=reason) as caught:
        read_history([path])
    assert "broken.jsonl" in str(caught.value)


def test_a_file_is_never_written_over(tmp_path: Path) -> None:
    Recorder(tmp_path / "one.jsonl", "one").close()
    with pytest.raises(FileExistsError):
        Recorder(tmp_path / "one.jsonl", "one")


def test_a_history_from_elsewhere_needs_little(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.jsonl"
    lines = [
        {"type": "header", "format": "loom-history", "version": 1},
        {"type": "invoke", "process": "a", "call": 1, "at": 10, "op": "append",
         "envelope": A.to_json()},
        {"type": "invoke", "process": "b", "call": 1, "at": 11, "op": "read_from",
         "execution_id": "e"},
        {"type": "ok", "process": "b", "call": 1, "at": 12, "result": [A.to_json()]},
        {"type": "refused", "process": "a", "call": 1, "at": 13,
         "error": "DuplicateSequenceError"},
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, lines)))
    one, two = read_history([path]).calls
    assert (one.process, two.process) == ("a", "b")
    assert isinstance(one.outcome, Refused)
    assert one.outcome.is_a(DuplicateSequenceError)
    assert two.outcome == Done((A,))


# --- Calls through a recorded handle -----------------------------------------------------------


class Odds:
    """A store that behaves as it is told."""

    def __init__(self, behave: Callable[[], Awaitable[Any]]) -> None:
        self.behave = behave

    async def append(self, envelope: EventEnvelope) -> None:
        await self.behave()

    async def read_from(self, execution_id: str, first: int = 0) -> Any:
        return await self.behave()

    async def close(self) -> None:
        """Nothing to close."""


async def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (DuplicateSequenceError("e", 0), Refused.of(DuplicateSequenceError("e", 0))),
        (ValueError("no"), Refused.of(ValueError("no"))),
        (OutcomeUnknownError("?"), Unknown("OutcomeUnknownError")),
        (EventStoreError("disk"), Unknown("EventStoreError")),
        (OSError("disk"), Unknown("OSError")),
        (asyncio.CancelledError(), Unknown("CancelledError")),
    ],
)
async def test_what_a_store_raises_is_its_outcome(
    tmp_path: Path, error: BaseException, outcome: Outcome
) -> None:
    with Recorder(tmp_path / "h.jsonl", "p") as recorder:
        handle = recorder.handle(Odds(lambda: _raise(error)))
        assert await handle.do(Append(A)) == outcome
    assert read_history([tmp_path / "h.jsonl"]).calls[0].outcome == outcome


@pytest.mark.asyncio
async def test_a_call_that_hangs_is_given_up(tmp_path: Path) -> None:
    with Recorder(tmp_path / "h.jsonl", "p") as recorder:
        handle = recorder.handle(Odds(asyncio.Event().wait))
        assert await handle.do(Append(A), timeout=0.01) == Unknown("hung")


@pytest.mark.asyncio
async def test_a_call_is_cancelled_at_the_chosen_await(tmp_path: Path) -> None:
    reached = []

    async def three_awaits() -> None:
        for number in range(3):
            await asyncio.sleep(0)
            reached.append(number)

    with Recorder(tmp_path / "h.jsonl", "p") as recorder:
        handle = recorder.handle(Odds(three_awaits))
        assert await handle.do(Append(A), cancel_at=2) == Unknown("cancelled")
        assert reached == [0]
        assert await handle.do(Append(A), cancel_at=4) == Done()


@pytest.mark.asyncio
async def test_a_cancelled_caller_leaves_an_unknown_outcome(tmp_path: Path) -> None:
    with Recorder(tmp_path / "h.jsonl", "p") as recorder:
        handle = recorder.handle(Odds(asyncio.Event().wait))
        task = asyncio.ensure_future(handle.do(Append(A)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert read_history([tmp_path / "h.jsonl"]).calls[0].outcome == Unknown("cancelled")


@pytest.mark.asyncio
async def test_what_is_no_envelope_is_kept_as_text(tmp_path: Path) -> None:
    async def rows() -> object:
        return [A, ("e", 1)]

    with Recorder(tmp_path / "h.jsonl", "p") as recorder:
        await recorder.handle(Odds(rows)).do(ReadFrom("e"))
    assert read_history([tmp_path / "h.jsonl"]).calls[0].outcome == Done((A, Odd("('e', 1)")))


@pytest.mark.asyncio
async def test_every_operation_reaches_the_store(tmp_path: Path) -> None:
    backend = MemoryBackend()
    address = await backend.create()
    with Recorder(tmp_path / "h.jsonl", "p") as recorder:
        handle = recorder.handle(await backend.connect(address))
        one, two = envelope(0, fence=1), envelope(1, fence=1)
        assert await handle.do(AcquireFence("e")) == Done(1)
        assert await handle.do(Append(one)) == Done()
        assert await handle.do(AppendBatch([two])) == Done()
        assert await handle.do(ReadFrom("e", 1)) == Done((two,))
        assert await handle.do(ReadRange("e", 0, 0)) == Done((one,))
        await handle.store.close()
    await backend.destroy(address)
