"""`loom-conformance judge`: a verdict on recorded histories, from their files alone.

Exit codes: 0 all legal; 1 one is illegal; 2 a file cannot be used; 3 the checker gave up on one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from .checker.minimal import smallest_illegal
from .checker.picture import draw
from .checker.register import JepsenFormatError, RegisterModel, read_jepsen
from .checker.search import Answer, Budget, search
from .checker.verdict import Verdict, check, drawing, model_of
from .history import HistoryFormatError, read_history

EXIT: Final[Mapping[Answer, int]] = {Answer.LEGAL: 0, Answer.ILLEGAL: 1, Answer.UNKNOWN: 3}
UNUSABLE: Final = 2

MOST_SHOWN: Final = 10
"""How many violations are drawn; the others are counted."""


def run(
    paths: Sequence[Path],
    *,
    format: Literal["loom", "jepsen"] = "loom",
    model: Literal["store", "register"] = "store",
    declared: Mapping[str, Any] | None = None,
    seconds: float = 60.0,
    pictures: bool = True,
    write: Callable[[str], object] = print,
) -> int:
    """Judge histories and write what was found.

    Args:
        paths: files, or folders that hold `*.jsonl` files. In the format `loom` all of them are
            one history; in the format `jepsen` each is one.
        format: how the files are written.
        model: what they are histories of; `store` goes with `loom`, `register` with `jepsen`.
        declared: declarations that go before those in the files' headers, such as
            `{"envelope_ids": "execution"}`.
        seconds: how long the search may take (for each history) before it gives up.
        pictures: whether to draw the calls that show a violation.
        write: takes one line, or several.

    Returns:
        the exit code.
    """
    if (format, model) not in (("loom", "store"), ("jepsen", "register")):
        write(f"the model {model!r} cannot judge the format {format!r}: use loom with store, or")
        write("jepsen with register")
        return UNUSABLE
    try:
        if format == "jepsen":
            return _judge_registers(paths, seconds, pictures, write)
        return _judge_store(paths, declared or {}, seconds, pictures, write)
    except (HistoryFormatError, JepsenFormatError, OSError, UnicodeDecodeError) as error:
        write(f"cannot read the history: {error}")
        return UNUSABLE


def _judge_registers(
    paths: Sequence[Path], seconds: float, pictures: bool, write: Callable[[str], object]
) -> int:
    codes = [0]
    register = RegisterModel()
    for path in paths:
        calls = read_jepsen(path)
        found = search(register, calls, Budget(seconds=seconds))
        codes.append(EXIT[found.answer])
        write(f"{path} {found.answer.value}")
        if found.answer is Answer.ILLEGAL and pictures and len(paths) == 1:
            small = smallest_illegal(register, calls)
            write(draw(small, search(register, small).stuck))
    return 1 if 1 in codes else max(codes)


def _judge_store(
    paths: Sequence[Path],
    declared: Mapping[str, Any],
    seconds: float,
    pictures: bool,
    write: Callable[[str], object],
) -> int:
    files = [file for path in paths for file in _files(path)]
    history = read_history(files)
    model = model_of({**history.declared, **declared})
    verdict = check(history, model, Budget(seconds=seconds))
    write(summary(verdict))
    if pictures:
        for line in told_violations(verdict):
            write(line)
    return EXIT[verdict.answer]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.jsonl"))
    if not files:
        raise HistoryFormatError(f"{path} holds no *.jsonl file")
    return files


def summary(verdict: Verdict) -> str:
    """The verdict in one line."""
    counted = (
        f"{verdict.calls} call{'s' * (verdict.calls != 1)} in "
        f"{verdict.parts} part{'s' * (verdict.parts != 1)}"
    )
    if verdict.answer is Answer.ILLEGAL:
        return f"illegal: {counted}; broken: {', '.join(verdict.rules)}"
    if verdict.answer is Answer.UNKNOWN:
        return (
            f"unknown: {counted}; the search gave up on {verdict.unjudged} of them "
            "(give it more time, or record shorter executions)"
        )
    return f"legal: {counted}"


def told_violations(verdict: Verdict) -> list[str]:
    """The violations with the calls that show them, for a terminal."""
    lines = []
    for violation in verdict.violations[:MOST_SHOWN]:
        lines += [
            "",
            f"{violation.rule}: expected {violation.expected}",
            f"    got {violation.got}",
            drawing(violation),
        ]
    more = len(verdict.violations) - MOST_SHOWN
    return [*lines, "", f"and {more} more"] if more > 0 else lines
