"""Pictures of what happened: calls of several nodes as lanes, and calls in time as bars.

Everything is drawn as SVG with text that a reader can select; what is cut has its whole text in a
title. The colours come from the page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup, escape

from ..text import printable, shortened

CHARACTER: Final = 7.3
"""Width of one character of the diagrams' font, in pixels, generously."""

PAGE: Final = 1140.0
"""Width that a picture has on a wide screen, in pixels."""

ROW: Final = 26
HEAD: Final = 34
NUMBER: Final = 34
"""Pixels at the left for the numbers of the steps."""

_ERROR: Final = re.compile(r"\w+(Error|Exception|Interrupt)\b")

_CALL: Final = re.compile(r"(?P<node>[\w ]+?)\.(?P<call>\w+\(.*)", re.DOTALL)


def diagram(failure: Mapping[str, Any], name: str) -> Markup:
    """The picture that fits a failure; empty where there is none that tells more than its steps.

    Args:
        failure: an entry of a report's `failures`.
        name: what the picture is called, for those who do not see it.
    """
    picture = failure.get("picture") or {}
    if picture.get("kind") == "calls":
        return bars(picture["bars"], name)
    if "rows" in picture:
        return lanes(picture["nodes"], picture["rows"], name)
    nodes, rows = told_lanes(failure["steps"])
    return lanes(nodes, rows, name) if len(nodes) > 1 else Markup("")


def told_lanes(steps: Sequence[str]) -> tuple[list[str], list[dict[str, Any]]]:
    """Lanes from steps as a failure text tells them: `node.call(…) → what came back`."""
    nodes: list[str] = []
    rows = []
    for number, step in enumerate(steps, 1):
        found = _CALL.match(step)
        node, text = (found["node"], found["call"]) if found else ("", step)
        if node not in nodes:
            nodes.append(node)
        rows.append(
            {
                "step": number,
                "node": nodes.index(node),
                "text": text,
                "remark": "",
                "wrong": number == len(steps),
            }
        )
    return nodes, rows


def lanes(nodes: Sequence[str], rows: Sequence[Mapping[str, Any]], name: str) -> Markup:
    """Nodes side by side, one step a row, the step where it went wrong marked."""
    lane = max(190.0, min(430.0, 960 / max(1, len(nodes))))
    room = int((lane - 24) / CHARACTER) if len(nodes) > 1 else 110
    left = PAGE - NUMBER - lane * (len(nodes) - 1) - 30
    last_room = max(room, min(110, int(left / CHARACTER)))
    heights = [ROW + (16 if row["remark"] else 0) for row in rows]
    width = NUMBER + lane * (len(nodes) - 1) + last_room * CHARACTER + 30
    height = HEAD + sum(heights) + 10
    parts = [_open(width, height, name, f"{len(rows)} steps of {len(nodes)} nodes")]
    for place, node in enumerate(nodes):
        x = NUMBER + place * lane
        parts.append(
            _format('<text class="lane" x="{}" y="18">{}</text>', x + 2, _named(node))
            + _format(
                '<line class="life" x1="{}" y1="{}" x2="{}" y2="{}"/>', x + 6, 26, x + 6, height - 6
            )
        )
    top = float(HEAD)
    wrong_one = _wrong(rows)
    for place, (row, tall) in enumerate(zip(rows, heights, strict=True)):
        x = NUMBER + row["node"] * lane
        chars = last_room if row["node"] == len(nodes) - 1 else room
        text = printable(str(row["text"]))
        wrong = " wrong" if row["wrong"] or place == wrong_one else ""
        if wrong:
            parts.append(
                _format(
                    '<rect class="band" x="0" y="{}" width="{}" height="{}"/>', top, width, tall
                )
            )
        if row["step"] is not None:
            parts.append(
                _format('<text class="number" x="20" y="{}">{}</text>', top + 17, row["step"])
            )
        parts.append(
            _format('<circle class="dot{}" cx="{}" cy="{}" r="4"/>', Markup(wrong), x + 6, top + 13)
            + _format(
                '<text class="call{}" x="{}" y="{}"><title>{}</title>{}</text>',
                *(Markup(wrong), x + 16, top + 17, text, _brief(text, chars)),
            )
        )
        if row["remark"]:
            remark = printable(str(row["remark"]))
            parts.append(
                _format(
                    '<text class="remark" x="{}" y="{}">{}</text>',
                    *(x + 16, top + 33, f"↑ {_middle(remark, chars)}"),
                )
            )
        top += tall
    return Markup("").join([*parts, Markup("</svg>")])


def _wrong(rows: Sequence[Mapping[str, Any]]) -> int | None:
    """The row where it came out, if none says so itself: the last remarkable one, or the last."""
    steps = [place for place, row in enumerate(rows) if row["step"] is not None]
    if not steps or any(row["wrong"] for row in rows):
        return None
    return next((place for place in reversed(steps) if rows[place]["remark"]), steps[-1])


def bars(calls: Sequence[Mapping[str, Any]], name: str) -> Markup:
    """Calls as bars in time; an arrow where an effect may come at any later time."""
    span, left = 420.0, 8.0
    width = left + span + 640
    height = 10 + ROW * len(calls)
    parts = [_open(width, height, name, f"{len(calls)} calls in time")]
    for place, call in enumerate(calls):
        top = 6 + place * ROW
        begin, end = left + call["begin"] * span, left + max(call["end"] * span, 6.0)
        state = " wrong" if call["stuck"] else "" if call["certain"] else " open"
        text = printable(f"{call['process']}  {call['operation']} → {call['outcome']}")
        parts.append(
            _format(
                '<rect class="bar{}" x="{}" y="{}" width="{}" height="14" rx="3"/>',
                *(Markup(state), round(begin, 1), top, round(max(end - begin, 6), 1)),
            )
            + _format(
                '<text class="call{}" x="{}" y="{}"><title>{}</title>{}</text>',
                *(Markup(state), left + span + 14, top + 12, text, _brief(text, 84)),
            )
        )
    return Markup("").join([*parts, Markup("</svg>")])


def _open(width: float, height: float, name: str, what: str) -> Markup:
    return _format(
        '<svg role="img" class="diagram" viewBox="0 0 {0} {1}" width="{0}" height="{1}"'
        ' aria-label="{2}: {3}">',
        *(round(width), round(height), name, what),
    )


def _format(template: str, *values: object) -> Markup:
    """Fill a template of ours with values that are made printable and escaped."""
    return Markup(template).format(
        *(value if isinstance(value, Markup) else escape(printable(str(value))) for value in values)
    )


def _named(node: str) -> str:
    name = printable(node)
    return shortened(f"node {name}" if len(name) == 1 else name, 30)


def _brief(text: str, longest: int) -> str:
    """A call and its answer in at most so many characters: the kind of an error is kept whole."""
    call, arrow, answer = text.rpartition(" → ")
    kind = _ERROR.match(answer)
    if len(text) <= longest or not arrow or kind is None:
        return _middle(text, longest)
    answer = f"{arrow}{kind[0]}"
    method, bracket, _ = call.partition("(")
    shortest = f"{method}(…)" if bracket else call
    room = longest - len(answer)
    if room > len(shortest) + 8:
        return f"{_middle(call, room)}{answer}"
    return f"{shortest}{answer}" if room >= len(shortest) else _middle(answer.strip(), longest)


def _middle(text: str, longest: int) -> str:
    """Text of at most so many characters, cut in the middle."""
    if len(text) <= longest:
        return text
    head = (longest - 1) // 2
    return f"{text[:head]}…{text[len(text) - (longest - 1 - head) :]}"
