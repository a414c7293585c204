"""Recorded histories: every call on a store, as JSON lines that survive the caller's death.

A `Recorder` writes one process's file. Each line goes to the operating system in one unbuffered
write, a call's invocation before the call is made, so a process that is killed loses at most the
line that it was writing; what it had begun and not told is read back as an unknown outcome.
`read_history` takes any number of files together again. Times are nanoseconds of the machine's
monotonic clock, which all its processes share. The format is described in `docs/histories.md`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

from ..contract.operations import (
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
from ..spi import EventEnvelope, EventStore, InvalidEnvelopeError
from .checker.call import Call
from .faults.moments import Moment, at_suspension

StoreCall: TypeAlias = Call[Operation, Outcome]

FORMAT: Final = "loom-history"
VERSION: Final = 1


class HistoryFormatError(ValueError):
    """A history file is not as `docs/histories.md` says; the message names file and line."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that was done to a store or a process, and that proved to have happened.

    Attributes:
        kind: what was done, such as `"kill"`, `"crash"` or `"cut"`.
        target: to whom: a process's name, or the place.
        at: when, in the history's clock.
        detail: more of it, for people.
    """

    kind: str
    target: str
    at: int
    detail: str = ""


@dataclass(slots=True)
class History:
    """All that was recorded, in the order of invocation."""

    calls: list[StoreCall] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    declared: dict[str, Any] = field(default_factory=dict)
    torn: int = 0
    """How many files ended in half a line."""

    def executions(self) -> list[str]:
        """Every execution that was called on, in the order of first mention."""
        seen: dict[str, None] = {}
        for call in self.calls:
            operation = call.operation
            if isinstance(operation, Append | AppendBatch):
                seen.update((one.execution_id, None) for one in operation.envelopes)
            else:
                seen[operation.execution_id] = None
        return list(seen)

    def counts(self) -> dict[str, int]:
        """How many calls, and how many of each outcome."""
        counts = {"calls": len(self.calls), "ok": 0, "refused": 0, "unknown": 0}
        names = {Done: "ok", Refused: "refused", Unknown: "unknown"}
        for call in self.calls:
            counts[names[type(call.outcome)]] += 1
        return counts


# --- Writing ----------------------------------------------------------------------------------


def encode_operation(operation: Operation) -> dict[str, Any]:
    """An operation as plain data, its envelopes in full."""
    match operation:
        case Append(envelope=envelope):
            return {"op": "append", "envelope": envelope.to_json()}
        case AppendBatch(envelopes=envelopes):
            return {"op": "append_batch", "envelopes": [one.to_json() for one in envelopes]}
        case ReadFrom(execution_id, first):
            return {"op": "read_from", "execution_id": execution_id, "first": first}
        case ReadRange(execution_id, first, last):
            return {"op": "read_range", "execution_id": execution_id, "first": first, "last": last}
        case AcquireFence(execution_id):
            return {"op": "acquire_fence", "execution_id": execution_id}


def encode_outcome(outcome: Outcome) -> dict[str, Any]:
    """An outcome as plain data, its envelopes in full."""
    match outcome:
        case Done(value):
            return {"type": "ok", "result": _encode_result(value)}
        case Refused(error, bases, attributes, message):
            return {
                "type": "refused",
                "error": error,
                "bases": sorted(bases),
                "attributes": {name: _plain(value) for name, value in attributes.items()},
                "message": message,
            }
        case Unknown(error, message, bases):
            told = {"type": "unknown", "error": error, "message": message}
            return {**told, "bases": sorted(bases)} if bases else told


def _encode_result(value: object) -> object:
    if isinstance(value, list | tuple):
        return [
            one.to_json() if isinstance(one, EventEnvelope) else {"odd": repr(one)} for one in value
        ]
    return _plain(value)


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return {"odd": repr(value)}


class Recorder:
    """Writes one process's calls and faults to a file.

    Args:
        path: the file, which must not exist yet.
        process: the process's name, unique in the history.
        declared: what the backend declares, for the reader: `envelope_ids` and so on.
    """

    def __init__(self, path: Path, process: str, declared: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.process = process
        self.calls = 0
        self.outcomes: dict[str, int] = {"ok": 0, "refused": 0, "unknown": 0}
        self._numbers = itertools.count(1)
        self._refs = itertools.count(1)
        self._known: dict[tuple[Any, Any, Any], list[tuple[EventEnvelope, int]]] = {}
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        self._write(
            {
                "type": "header",
                "format": FORMAT,
                "version": VERSION,
                "process": process,
                "pid": os.getpid(),
                "clock": "monotonic, ns",
                "declared": dict(declared or {}),
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def handle(self, store: EventStore, name: str = "h0") -> RecordedHandle:
        """A store handle whose every call is recorded."""
        return RecordedHandle(self, store, name)

    def fault(self, kind: str, target: str, detail: str = "", at: int | None = None) -> Fault:
        """Record a fault that has been proven to have fired."""
        moment = time.monotonic_ns() if at is None else at
        fault = Fault(kind, target, moment, detail)
        self._write(
            {"type": "fault", "at": moment, "fault": kind, "target": target, "detail": detail}
        )
        return fault

    def invoke(self, handle: str, operation: Operation) -> int:
        """Record that a call is about to be made; the number that `complete` wants."""
        number = next(self._numbers)
        self.calls += 1
        lines: list[dict[str, Any]] = []
        told = self._operation(operation, lines)
        at = time.monotonic_ns()
        lines.append({"type": "invoke", "call": number, "handle": handle, "at": at, **told})
        self._write(*lines)
        return number

    def complete(self, number: int, outcome: Outcome) -> None:
        """Record how a call ended."""
        at = time.monotonic_ns()
        lines: list[dict[str, Any]] = []
        if isinstance(outcome, Done) and isinstance(outcome.value, list | tuple):
            result: object = [
                self._reference(one, lines)
                if isinstance(one, EventEnvelope)
                else {"odd": repr(one)}
                for one in outcome.value
            ]
            told: dict[str, Any] = {"type": "ok", "result": result}
        else:
            told = encode_outcome(outcome)
        self.outcomes[told["type"]] += 1
        lines.append({**told, "call": number, "at": at})
        self._write(*lines)

    def _operation(self, operation: Operation, lines: list[dict[str, Any]]) -> dict[str, Any]:
        if isinstance(operation, Append):
            return {"op": "append", "envelope": self._reference(operation.envelope, lines)}
        if isinstance(operation, AppendBatch):
            refs = [self._reference(one, lines) for one in operation.envelopes]
            return {"op": "append_batch", "envelopes": refs}
        return encode_operation(operation)

    def _reference(self, envelope: EventEnvelope, lines: list[dict[str, Any]]) -> int:
        """The envelope's number in this file, which is given to it at its first mention."""
        key = (str(envelope.execution_id), str(envelope.sequence), str(envelope.id))
        known = self._known.setdefault(key, [])
        for other, ref in known:
            if other is envelope or other == envelope:
                return ref
        ref = next(self._refs)
        known.append((envelope, ref))
        lines.append({"type": "envelope", "ref": ref, "envelope": envelope.to_json()})
        return ref

    def _write(self, *lines: Mapping[str, Any]) -> None:
        text = "".join(
            json.dumps(line, separators=(",", ":"), default=repr) + "\n" for line in lines
        )
        data = memoryview(text.encode("ascii"))
        while data:
            data = data[os.write(self._file, data) :]


class RecordedHandle:
    """One handle whose calls are recorded; `do` makes a call and returns its outcome."""

    def __init__(self, recorder: Recorder, store: EventStore, name: str) -> None:
        self.recorder = recorder
        self.store = store
        self.name = name

    async def do(
        self,
        operation: Operation,
        *,
        timeout: float | None = None,
        moment: Moment | None = None,
        cancel_at: int | None = None,
    ) -> Outcome:
        """Make a call; its outcome, whatever the store raises.

        Args:
            operation: the call.
            timeout: seconds after which the call is cancelled; its outcome is then unknown, with
                `"hung"` as the error.
            moment: when this process is to be hit during the call.
            cancel_at: the suspension, counted from 1, at which the call is cancelled; its outcome
                is then unknown, with `"cancelled"` as the error. A call with fewer suspensions
                is not cancelled.

        Raises:
            asyncio.CancelledError: the caller was cancelled; the outcome is recorded as unknown.
        """
        number = self.recorder.invoke(self.name, operation)
        outcome: Outcome = Unknown("cancelled")
        try:
            outcome = await self._settle(operation, timeout, moment, cancel_at)
        finally:
            self.recorder.complete(number, outcome)
        return outcome

    async def _settle(
        self,
        operation: Operation,
        timeout: float | None,
        moment: Moment | None,
        cancel_at: int | None,
    ) -> Outcome:
        call = attempt(self.store, operation)
        if moment is not None:
            call = _struck(call, moment.suspension, moment.strike)
        if cancel_at is not None:
            call = _struck(call, cancel_at, lambda: task.cancel())
        task = asyncio.ensure_future(call)
        try:
            await asyncio.wait({task}, timeout=timeout)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task}, timeout=timeout)
            raise
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=1.0)
            return Unknown("hung", f"did not settle within {timeout:g} s")
        return Unknown("cancelled") if task.cancelled() else task.result()


async def _struck(
    call: Coroutine[Any, Any, Outcome], suspension: int, act: Callable[[], object]
) -> Outcome:
    return await at_suspension(call, suspension, act)


async def attempt(store: EventStore, operation: Operation) -> Outcome:
    """Make a call on a store and return its outcome, whatever it raises."""
    try:
        value = await perform(store, operation)
        return Done(tuple(value) if isinstance(value, list) else value)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return Unknown("CancelledError", "the store raised it of its own accord")
    except Exception as error:  # noqa: BLE001 - whatever a store raises is its outcome
        return settled(error)


async def perform(store: Any, operation: Operation) -> object:
    """Make the call that an operation describes.

    Raises:
        AttributeError: the store does not have the method.
    """
    match operation:
        case Append(envelope=envelope):
            return await store.append(envelope)
        case AppendBatch(envelopes=envelopes):
            return await store.append_batch(list(envelopes))
        case ReadFrom(execution_id, first):
            return await store.read_from(execution_id, first)
        case ReadRange(execution_id, first, last):
            return await store.read_range(execution_id, first, last)
        case AcquireFence(execution_id):
            return await store.acquire_fence(execution_id)


# --- Reading ----------------------------------------------------------------------------------


def decode_operation(told: Mapping[str, Any]) -> Operation:
    """The operation that `encode_operation` described.

    Raises:
        KeyError: a field is missing.
        ValueError: no such operation, or an envelope that is none.
    """
    return _Reader().operation(told)


def decode_outcome(told: Mapping[str, Any]) -> Outcome:
    """The outcome that `encode_outcome` described."""
    return _Reader().outcome(told)


def read_history(paths: Iterable[Path]) -> History:
    """Read files that belong together.

    Raises:
        HistoryFormatError: a file is not a history, or a line that is not the last is broken.
        OSError: a file cannot be read.
    """
    reader = _Reader()
    for path in paths:
        reader.file(path)
    reader.history.calls.sort(key=lambda call: call.invoked)
    reader.history.faults.sort(key=lambda fault: fault.at)
    return reader.history


@dataclass(frozen=True, slots=True)
class Odd:
    """Something that a store returned and that is no envelope."""

    text: str

    def __str__(self) -> str:
        return self.text


class _Reader:
    """Puts files together; equal envelopes become one object, so that comparing them is fast."""

    def __init__(self) -> None:
        self.history = History()
        self._known: dict[tuple[str, str, str], list[EventEnvelope]] = {}
        self._refs: dict[int, EventEnvelope] = {}
        self._where = ""

    def file(self, path: Path) -> None:
        """Read one file."""
        self._refs = {}
        process = path.stem
        pending: dict[tuple[str, int], tuple[Operation, int, str]] = {}
        begun = False
        for number, line, last in _lines(path):
            self._where = f"{path}:{number}"
            told = self._parse(line, last)
            if told is None:
                continue
            process = told.get("process", process)
            kind = told.get("type")
            if not begun and kind != "header":
                raise HistoryFormatError(
                    f"{self._where}: a history begins with a line of type 'header'; "
                    "see docs/histories.md (or pass --format jepsen)"
                )
            try:
                if kind == "header":
                    begun = True
                    self._header(told)
                elif kind == "envelope":
                    self._refs[told["ref"]] = self._envelope(told["envelope"])
                elif kind == "fault":
                    self.history.faults.append(
                        Fault(told["fault"], told["target"], told["at"], told.get("detail", ""))
                    )
                elif kind == "invoke":
                    key = (process, told["call"])
                    if key in pending:
                        raise HistoryFormatError(f"{self._where}: call {key} began before")
                    pending[key] = (self.operation(told), told["at"], told.get("handle", ""))
                else:
                    key = (process, told["call"])
                    if key not in pending:
                        raise HistoryFormatError(f"{self._where}: call {key} never began")
                    self._call(key, *pending.pop(key), self.outcome(told), told["at"])
            except (KeyError, TypeError, ValueError) as error:
                if isinstance(error, HistoryFormatError):
                    raise
                raise HistoryFormatError(f"{self._where}: {error!r} in {line:.200}") from error
        if not begun:
            raise HistoryFormatError(f"{path} is empty")
        for key, begun_call in pending.items():
            self._call(key, *begun_call, Unknown("no answer"), None)

    def _parse(self, line: str, last: bool) -> dict[str, Any] | None:
        try:
            told = json.loads(line)
        except ValueError as error:
            if last:
                self.history.torn += 1
                return None
            raise HistoryFormatError(f"{self._where}: no JSON: {error}") from error
        if not isinstance(told, dict):
            raise HistoryFormatError(f"{self._where}: a line must be a JSON object")
        return told

    def _header(self, told: Mapping[str, Any]) -> None:
        if told.get("format") != FORMAT or told.get("version") != VERSION:
            raise HistoryFormatError(
                f"{self._where}: format {told.get('format')!r} version {told.get('version')!r}; "
                f"this reader knows {FORMAT!r} version {VERSION}"
            )
        self.history.declared.update(told.get("declared", {}))

    def _call(
        self,
        key: tuple[str, int],
        operation: Operation,
        invoked: int,
        handle: str,
        outcome: Outcome,
        completed: int | None,
    ) -> None:
        if completed is not None and completed < invoked:
            raise HistoryFormatError(f"{self._where}: call {key} ended before it began")
        certain = not isinstance(outcome, Unknown)
        process, number = key
        self.history.calls.append(
            Call(process, number, operation, outcome, invoked, completed, certain, handle)
        )

    def operation(self, told: Mapping[str, Any]) -> Operation:
        """The operation of a line."""
        match told["op"]:
            case "append":
                return Append(self._envelope(told["envelope"]))
            case "append_batch":
                return AppendBatch(map(self._envelope, told["envelopes"]))
            case "read_from":
                return ReadFrom(told["execution_id"], told.get("first", 0))
            case "read_range":
                return ReadRange(told["execution_id"], told["first"], told["last"])
            case "acquire_fence":
                return AcquireFence(told["execution_id"])
            case other:
                raise ValueError(f"unknown op {other!r}")

    def outcome(self, told: Mapping[str, Any]) -> Outcome:
        """The outcome of a line."""
        match told["type"]:
            case "ok":
                result = told.get("result")
                if isinstance(result, list):
                    return Done(tuple(map(self._item, result)))
                return Done(_odd(result))
            case "refused":
                return Refused(
                    told["error"],
                    frozenset((told["error"], *told.get("bases", ()))),
                    {name: _odd(value) for name, value in told.get("attributes", {}).items()},
                    told.get("message", ""),
                )
            case "unknown":
                return Unknown(
                    told.get("error", "no answer"),
                    told.get("message", ""),
                    frozenset(told.get("bases", ())),
                )
            case other:
                raise ValueError(f"unknown type {other!r}")

    def _item(self, told: Any) -> EventEnvelope | Odd:
        if isinstance(told, Mapping) and "odd" in told:
            return Odd(told["odd"])
        return self._envelope(told)

    def _envelope(self, told: Any) -> EventEnvelope:
        if isinstance(told, int):
            if told not in self._refs:
                raise ValueError(f"envelope {told} was never written out")
            return self._refs[told]
        try:
            envelope = EventEnvelope.from_json(told)
        except InvalidEnvelopeError as error:
            raise ValueError(str(error)) from error
        key = (str(envelope.execution_id), str(envelope.sequence), str(envelope.id))
        known = self._known.setdefault(key, [])
        for other in known:
            if other == envelope:
                return other
        known.append(envelope)
        return envelope


def _odd(value: Any) -> Any:
    return Odd(value["odd"]) if isinstance(value, Mapping) and "odd" in value else value


def _lines(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Numbered lines, each with whether it may be torn: the last one, without its line end."""
    with path.open("r", encoding="utf-8", errors="surrogatepass", newline="\n") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, line, not line.endswith("\n")


def declarations(backend: object) -> dict[str, Any]:
    """What of a backend's declarations a checker needs to know."""
    names: Sequence[str] = ("envelope_ids", "sparse_sequences", "batch_scope", "max_batch")
    return {name: getattr(backend, name) for name in names if hasattr(backend, name)}
