"""What happened in a run, as one timeline with a column for each node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ..spi import EventEnvelope
from .engine import Run
from .node import Operation
from .token import is_start

WIDTH: Final = 100
_COLUMN: Final = 42
_ROOM: Final = 34


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a timeline.

    Attributes:
        step: its number, or `None` for what is no step: a remark, the end of a node.
        node: the node's place.
        text: what was done, and what came back.
        remark: what is noteworthy about it, or `""`.
        wrong: whether this is where it went wrong.
    """

    step: int | None
    node: int
    text: str
    remark: str = ""
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """A timeline: for people as text, for reports as JSON.

    Attributes:
        nodes: the nodes' letters.
        rows: what happened, in order.
    """

    nodes: tuple[str, ...]
    rows: tuple[Row, ...]

    def lines(self) -> list[str]:
        """The timeline in 100 columns."""
        digits = max([3, *(len(str(row.step)) for row in self.rows if row.step is not None)])
        gutter = digits + 4
        others = max(1, len(self.nodes) - 1)
        column = max(2, min(_COLUMN, (WIDTH - gutter - _ROOM) // others))
        titles = [f"node {name}" if column > len("node ") + 1 else name for name in self.nodes]
        lines = [(" " * gutter + "".join(title.ljust(column) for title in titles)).rstrip()]
        for row in self.rows:
            number = "" if row.step is None else str(row.step)
            mark = "✗" if row.wrong else " "
            head = f"{number:>{digits}}  {mark} " + " " * (column * row.node)
            room = WIDTH - len(head)
            remark = f"  ← {row.remark}" if row.remark else ""
            text = cut(row.text, max(room - len(remark), room // 2))
            lines.append((head + text + cut(remark, room - len(text))).rstrip())
        return lines

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"nodes": list(self.nodes), "rows": [asdict(row) for row in self.rows]}

    def __str__(self) -> str:
        return "\n".join(self.lines())


def cut(text: str, width: int) -> str:
    """A text of at most `width` characters: what is too long loses its middle."""
    if len(text) <= width:
        return text
    if width < 3:
        return text[: max(0, width)]
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def trace_of(nodes: Sequence[str], run: Run) -> Trace:
    """The timeline of a run."""
    rows: list[Row] = []
    spoken = sorted(run.remarks, key=lambda remark: remark.after)
    slots: dict[tuple[object, object], int] = {}
    effects: set[object] = set()
    number = 0
    place = 0

    def speak(until: int) -> None:
        nonlocal place
        while place < len(spoken) and spoken[place].after <= until:
            one = spoken[place]
            rows.append(Row(None, one.node, f"{one.kind} {one.words}".rstrip()))
            place += 1

    for index, step in enumerate(run.trail):
        if not is_start(step):
            number += 1
            remark, wrong = _noteworthy(step, number, slots, effects)
            rows.append(Row(number, step.strand[0], told(step), remark, wrong))
        speak(index)
    speak(len(run.trail))
    for node, name in enumerate(nodes):
        if name in run.errors:
            rows.append(Row(None, node, f"raised {_error(run.errors[name])}"))
        elif name in run.results and run.results[name] is not None:
            rows.append(Row(None, node, f"returned {_value(run.results[name])}"))
    return Trace(tuple(nodes), tuple(rows))


def _noteworthy(
    step: Operation,
    number: int,
    slots: dict[tuple[object, object], int],
    effects: set[object],
) -> tuple[str, bool]:
    name, *rest = step.key if isinstance(step.key, tuple) else (step.key,)
    if name == "effect":
        again = rest[0] in effects
        effects.add(rest[0])
        return ("once more" if again else ""), False
    if name == "append" and step.settled and step.error is None:
        slot = (rest[0], rest[1])
        first = slots.setdefault(slot, number)
        if first != number:
            return f"the slot was taken at step {first}", True
    if name == "append_batch" and step.settled and step.error is None:
        for shown in rest[0]:
            first = slots.setdefault((shown[0], shown[1]), number)
            if first != number:
                return f"a slot was taken at step {first}", True
    return "", False


def told(step: Operation) -> str:
    """One step in words: the call as it was made, and how it ended."""
    name, *rest = step.key if isinstance(step.key, tuple) else (step.key,)
    if name == "timer":
        return f"timer fires at {rest[0] / 1000:g} s"
    if name == "effect":
        value = step.args[0]
        return f'effect "{rest[0]}"' + ("" if value is None else f" = {_value(value)}")
    if name == "append":
        call = f"append({_appended(rest, step.args[0])})"
    elif name == "append_batch":
        each = zip(rest[0], step.args[0], strict=True)
        inner = ", ".join(f"({_appended(list(shown), envelope)})" for shown, envelope in each)
        call = f"append_batch([{inner}])"
    else:
        call = f"{name}({', '.join(_value(value) for value in rest)})"
    if not step.settled:
        return f"{call} → did not settle"
    if step.error is not None:
        return f"{call} → {type(step.error).__name__}"
    return f"{call} → {told_result(step.result)}"


def _appended(shown: list[Any], envelope: EventEnvelope) -> str:
    token = envelope.metadata.get("fence") if isinstance(envelope.metadata, dict) else None
    fence = "" if token is None else f", fence {_value(token)}"
    execution_id, sequence, envelope_id, kind = shown
    usual = envelope_id == f"{execution_id}-{sequence}"
    named = "" if usual else f", id {envelope_id}"
    return f"{execution_id}, {sequence}, {kind}{_number(envelope)}{named}{fence}"


def _number(envelope: EventEnvelope) -> str:
    """A payload that is a number says much in little room; all others are left out."""
    payload = envelope.payload
    return f" {payload}" if isinstance(payload, int | float) else ""


def told_result(result: Any) -> str:
    """What a call returned, in little room."""
    if result is None:
        return "ok"
    if isinstance(result, list | tuple):
        found = [
            f"{item.sequence}:{item.kind}{_number(item)}"
            if isinstance(item, EventEnvelope)
            else _value(item)
            for item in result
        ]
        return f"[{cut(', '.join(found), 40)}]"
    return _value(result)


def _value(value: object) -> str:
    return cut(repr(value), 40)


def _error(error: BaseException) -> str:
    return cut(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, 80)
