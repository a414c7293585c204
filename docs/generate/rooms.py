"""The architecture page: the rooms of the house and who uses whom, read from the imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Final

from contract import filled

ROOT: Final = Path(__file__).resolve().parents[2]
KIT: Final = "loom_conformance"
BACKENDS: Final = "loom_backends"

Uses = Mapping[str, frozenset[str]]
"""Each room and the rooms that it imports from."""

WIDTH, HEIGHT = 132, 34
GAP_X, GAP_Y = 24, 46
LONGEST_ROW: Final = 5


def filled_architecture(template: str) -> str:
    """The page with the picture and the table put in."""
    uses = read_uses()
    rows = [
        f"| `{room}` | {_purpose(room)} | {', '.join(f'`{one}`' for one in sorted(uses[room]))} |"
        for layer in layers(uses)
        for room in layer
    ]
    return filled(template, {"picture": picture(uses), "rooms": "\n".join(rows)})


def read_uses() -> Uses:
    """Which room imports from which, over every module of the kit and the reference backends."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / KIT).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[1] in ("__init__", "__main__"):
            continue
        targets = found.setdefault(parts[1], set())
        targets |= {name for name in _imported(path, parts) if name != parts[1]}
    targets = found.setdefault(BACKENDS, set())
    for path in sorted((ROOT / "backends" / BACKENDS).rglob("*.py")):
        targets |= set(_imported(path, path.relative_to(ROOT / "backends").with_suffix("").parts))
    return {room: frozenset(targets) for room, targets in found.items()}


def layers(uses: Uses) -> list[list[str]]:
    """The rooms by the length of the longest chain of uses below them, the lowest first.

    Raises:
        ValueError: some rooms use each other in a circle.
    """
    depth: dict[str, int] = {}
    while len(depth) < len(uses):
        free = [room for room in uses if room not in depth and uses[room] <= depth.keys()]
        if not free:
            raise ValueError(f"a circle among {sorted(uses.keys() - depth.keys())}")
        for room in free:
            depth[room] = max((depth[one] + 1 for one in uses[room]), default=0)
    rows: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for room in sorted(depth):
        rows[depth[room]].append(room)
    return rows


def direct(uses: Uses) -> dict[str, set[str]]:
    """The uses that are not implied by others: what the picture draws."""
    reached: dict[str, frozenset[str]] = {}
    for layer in layers(uses):
        for room in layer:
            below = [uses[room], *(reached[one] for one in uses[room])]
            reached[room] = frozenset().union(*below)
    return {
        room: {
            one
            for one in targets
            if not any(one in reached[other] for other in targets if other != one)
        }
        for room, targets in uses.items()
    }


def picture(uses: Uses) -> str:
    """The rooms as boxes, the lowest at the bottom, and an arrow from each to what it uses."""
    rows = [row for layer in layers(uses) for row in _cut(layer)]
    arrows = direct(uses)
    widest = max(len(row) for row in rows)
    total = widest * (WIDTH + GAP_X) - GAP_X + 4
    tall = len(rows) * (HEIGHT + GAP_Y) - GAP_Y + 4
    places: dict[str, tuple[float, float]] = {}
    heights: list[float] = []
    for level, row in enumerate(rows):
        row.sort(key=lambda room: (_middle(arrows[room], places, total), room))
        left = (total - len(row) * (WIDTH + GAP_X) + GAP_X) / 2
        heights.append(tall - 2 - (level + 1) * HEIGHT - level * GAP_Y)
        for column, room in enumerate(row):
            places[room] = (left + column * (WIDTH + GAP_X), heights[level])
    lines = [
        f'<svg class="rooms" viewBox="0 0 {total:g} {tall:g}" role="img" '
        'aria-labelledby="rooms-title">',
        '<title id="rooms-title">The rooms of the kit, each with arrows to those it uses; '
        "the table below says the same in words.</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>',
    ]
    for room in sorted(arrows):
        for target in sorted(arrows[room]):
            points = _way(places[room], places[target], rows, heights, places)
            lines.append(f'<path class="arrow" marker-end="url(#tip)" d="{_curve(points)}"/>')
    for room, (x, y) in sorted(places.items()):
        lines.append(
            f'<g><rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="4"/>'
            f'<text x="{x + WIDTH / 2:g}" y="{y + HEIGHT / 2 + 5:g}">{escape(room)}</text></g>'
        )
    return "\n".join([*lines, "</svg>"])


Point = tuple[float, float]


def _way(
    start: Point,
    end: Point,
    rows: list[list[str]],
    heights: list[float],
    places: Mapping[str, Point],
) -> list[Point]:
    """Where an arrow passes: from a box's lower edge, between the boxes of each row, to a box."""
    points = [(start[0] + WIDTH / 2, start[1] + HEIGHT)]
    x2 = end[0] + WIDTH / 2
    between = [level for level, top in enumerate(heights) if start[1] < top < end[1]]
    for level in reversed(between):
        gaps = [places[room][0] - GAP_X / 2 for room in rows[level]]
        gaps.append(places[rows[level][-1]][0] + WIDTH + GAP_X / 2)
        share = (heights[level] - start[1]) / (end[1] - start[1])
        wish = points[0][0] + share * (x2 - points[0][0])
        gap = min(gaps, key=lambda one: abs(one - wish))
        points += [(gap, heights[level]), (gap, heights[level] + HEIGHT)]
    return [*points, (x2, end[1])]


def _curve(points: list[Point]) -> str:
    """A path through the points that is upright at each."""
    path = f"M{points[0][0]:g} {points[0][1]:g}"
    for (x1, y1), (x2, y2) in pairwise(points):
        bend = (y2 - y1) / 2
        path += f"C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} {x2:g} {y2:g}"
    return path


def _cut(layer: list[str]) -> Iterator[list[str]]:
    """Rows of a layer that are not too wide."""
    for start in range(0, len(layer), LONGEST_ROW):
        yield layer[start : start + LONGEST_ROW]


def _middle(targets: set[str], places: Mapping[str, tuple[float, float]], total: float) -> float:
    """Where a room stands best: in the middle above what it uses."""
    columns = [places[target][0] for target in targets if target in places]
    return sum(columns) / len(columns) if columns else total / 2


def _imported(path: Path, parts: tuple[str, ...]) -> Iterator[str]:
    """The rooms of the kit that a module imports from; `parts` is its dotted name."""
    package = parts[:-1]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = (*base, *(node.module.split(".") if node.module else ()))
            names = [(*module, alias.name) for alias in node.names]
        else:
            continue
        for name in names:
            if name[0] == KIT and len(name) > 1 and _is_room(name[1]):
                yield name[1]


def _is_room(name: str) -> bool:
    place = ROOT / KIT / name
    return place.is_dir() or place.with_suffix(".py").is_file()


def _purpose(room: str) -> str:
    """The first sentence of the room's own docstring."""
    place = ROOT / "backends" / BACKENDS if room == BACKENDS else ROOT / KIT / room
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    first = " ".join(text.split("\n\n")[0].split()).rstrip(".")
    return first.replace("|", "\\|")
