"""A register with read, write and compare-and-set, and histories of one in Jepsen's log format.

It shows that the search is right on histories that others recorded and judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from .call import Call


@dataclass(frozen=True, slots=True)
class Register:
    """The register's state: what it holds, `None` while it is empty."""

    value: int | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """`read()`, `write(value)` or `cas(expected, value)`."""

    kind: Literal["read", "write", "cas"]
    value: int | None = None
    expected: int | None = None

    def __str__(self) -> str:
        if self.kind == "cas":
            return f"cas({self.expected}, {self.value})"
        return f"{self.kind}({'' if self.kind == 'read' else self.value})"


@dataclass(frozen=True, slots=True)
class Answered:
    """How an access ended: `ok` with the value read, `fail` for a refused cas, or `info`."""

    status: Literal["ok", "fail", "info"]
    value: int | None = None

    def __str__(self) -> str:
        return f"ok {self.value}" if self.value is not None else self.status


RegisterCall: TypeAlias = Call[Access, Answered]


class RegisterModel:
    """One register, empty at first."""

    @property
    def initial(self) -> Register:
        """The empty register."""
        return Register()

    def step(self, state: Register, operation: Access, outcome: Answered) -> Register | None:
        """The register after an access, or `None` where the answer is not allowed."""
        if operation.kind == "read":
            uncertain = outcome.status != "ok"
            return state if uncertain or outcome.value == state.value else None
        if operation.kind == "write":
            return Register(operation.value) if outcome.status != "fail" else None
        swaps = state.value == operation.expected
        if outcome.status == "fail":
            return None if swaps else state
        return Register(operation.value) if swaps else None

    def is_pure(self, operation: Access, outcome: Answered) -> bool:
        """Whether it is a read, or a cas that failed."""
        return operation.kind == "read" or outcome.status == "fail"

    def keys(self, operation: Access) -> Iterable[str]:
        """All touch the one register."""
        return ("register",)

    def precedence(
        self, calls: Sequence[RegisterCall]
    ) -> Iterable[tuple[RegisterCall, RegisterCall]]:
        """Nothing is known beyond the calls' times."""
        return ()

    def partition(self, calls: Sequence[RegisterCall]) -> Iterable[list[RegisterCall]]:
        """One register is one part."""
        return [list(calls)]


_LINE: Final = re.compile(
    r"jepsen\.util\s+-\s+(?P<process>\S+)\s+:(?P<type>invoke|ok|fail|info)"
    r"\s+:(?P<kind>read|write|cas)\s+(?P<value>\S.*?)\s*$"
)


class JepsenFormatError(ValueError):
    """A line of a Jepsen log is not as it should be."""


def read_jepsen(path: Path) -> list[RegisterCall]:
    """Read one Jepsen log of a register.

    The lines' order is the clock. A call that ends in `:info`, or not at all, has an uncertain
    outcome. A read that failed says nothing, so it is uncertain too.

    Raises:
        JepsenFormatError: a line does not parse, or a process answers what it did not call.
    """
    pending: dict[str, tuple[int, Access]] = {}
    calls: list[RegisterCall] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        found = _LINE.search(line)
        if found is None:
            raise JepsenFormatError(f"{path}:{number}: no call of a register: {line!r:.120}")
        process, kind = found["process"], found["kind"]
        if found["type"] == "invoke":
            if process in pending:
                raise JepsenFormatError(f"{path}:{number}: process {process} is still in a call")
            pending[process] = (number, _access(kind, found["value"], f"{path}:{number}"))
            continue
        if process not in pending or pending[process][1].kind != kind:
            raise JepsenFormatError(f"{path}:{number}: process {process} made no such call")
        invoked, access = pending.pop(process)
        answered, certain = _answered(found["type"], access, found["value"], f"{path}:{number}")
        calls.append(Call(process, len(calls), access, answered, invoked, number, certain=certain))
    for process, (invoked, access) in pending.items():
        calls.append(
            Call(process, len(calls), access, Answered("info"), invoked, None, certain=False)
        )
    return calls


def _answered(type: str, access: Access, value: str, where: str) -> tuple[Answered, bool]:
    if type == "info" or (type == "fail" and access.kind == "read"):
        return Answered("info"), False
    if type == "fail":
        return Answered("fail"), True
    return Answered("ok", _number(value, where) if access.kind == "read" else None), True


def _access(kind: str, value: str, where: str) -> Access:
    if kind == "cas":
        expected, _, wanted = value.strip("[]").partition(" ")
        return Access("cas", _number(wanted, where), _number(expected, where))
    if kind == "write":
        return Access("write", _number(value, where))
    return Access("read")


def _number(text: str, where: str) -> int | None:
    if text == "nil":
        return None
    try:
        return int(text)
    except ValueError:
        raise JepsenFormatError(f"{where}: {text!r} is neither a number nor nil") from None
