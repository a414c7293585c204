"""What a failure says: the promise, what was done, what came back, and how to see it again."""

from __future__ import annotations

from collections.abc import Sequence

from ..contract.rules import Rule
from ..lab.verdict import Failure
from .outcomes import Outcome
from .text import WIDTH, command, numbered, printable, wrapped

HEADINGS = {
    Outcome.FAILED: "FAIL",
    Outcome.ADVICE: "ADVICE",
    Outcome.KNOWN_FAILING: "KNOWN FAILING",
}


def failure_text(
    failure: Failure,
    rule: Rule,
    *,
    backend: str,
    replay: Sequence[str],
    outcome: Outcome = Outcome.FAILED,
    known: str = "",
    width: int = WIDTH,
) -> str:
    """Tell a broken rule to the author of the store.

    Args:
        failure: what the test found.
        rule: the rule that it broke.
        backend: the backend's name.
        replay: the words of the command that runs this test again.
        outcome: failed, advice or known failing; it heads the text.
        known: the backend's reason for listing the rule as known to fail.
        width: columns; the replay command and timelines may be longer.
    """
    where = f" on {printable(failure.path)}" if failure.path else ""
    lines = [f"{HEADINGS.get(outcome, 'FAIL')} {rule.id} [{printable(backend)}]{where}"]
    lines += wrapped(_plain(rule.promise), "  ", width=width)
    if known:
        lines += wrapped(f"Known failing: {known}", "  ", width=width)
    lines.append("")
    lines += wrapped(failure.expected, "  Expected  ", width=width)
    lines += wrapped(failure.got, "  Got       ", width=width)
    if failure.steps:
        lines += ["", "  What was done"]
        lines += numbered(failure.steps, "    ", width)
    if failure.trace:
        lines += ["", "  In time"]
        lines += [f"    {printable(line)}".rstrip() for line in failure.trace.splitlines()]
    if failure.log:
        lines += ["", "  What a fresh handle reads after it"]
        for entry in failure.log:
            lines += wrapped(entry, "    ", "      ", width)
    lines.append("")
    if rule.why:
        lines += wrapped(f"Why it matters: {_plain(rule.why)}", "  ", "    ", width)
    if rule.causes:
        lines += wrapped(f"Usual cause: {_plain(rule.causes[0])}", "  ", "    ", width)
        for cause in rule.causes[1:]:
            lines += wrapped(f"Or: {_plain(cause)}", "  ", "    ", width)
    lines.append(f"  Replay: {command(replay)}")
    return "\n".join(lines)


def _plain(text: str) -> str:
    """The contract's Markdown as plain text."""
    return text.replace("`", "").replace("**", "")
