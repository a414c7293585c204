"""Results as a Markdown table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .pairs import Result

TICKS: Final = (0.5, 1, 2, 3, 5, 10, 20, 50)


def as_markdown(results: Sequence[Result]) -> str:
    """One table; a goal that was reached is marked."""
    lines = [
        "| | work | rate | against | its rate | ratio (quartiles) | goal |",
        "|---|---|---:|---|---:|---:|---|",
    ]
    return "\n".join([*lines, *map(as_row, results)]) + "\n"


def as_row(result: Result) -> str:
    """One line of the table."""
    other = "" if result.other is None else f"{result.other:,.0f}/s"
    ratio = ""
    if result.ratio is not None:
        ratio = f"{result.ratio:.2f} ({result.low:.2f} to {result.high:.2f})"
    return (
        f"| {result.group} | {result.what} | {_rate(result)} | {result.against or ''} | {other}"
        f" | {ratio} | {_goal(result)} |"
    )


def _rate(result: Result) -> str:
    return f"{result.rate:,.0f}/s" if result.unit == "1/s" else f"{result.rate:,.1f} {result.unit}"


def _goal(result: Result) -> str:
    if result.goal is None:
        return ""
    unit = "" if result.ratio is not None else f" {result.unit}"
    return f"{result.goal:g}{unit}{' ✓' if result.reached else ''}"


def draw(results: Sequence[Result], path: Path) -> None:
    """The ratios as bars with their quartiles, and the goals as ticks, in an SVG file.

    Raises:
        ImportError: matplotlib is not installed; it comes with the extra `bench`.
    """
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    drawn = [result for result in results if result.ratio is not None][::-1]
    figure, axes = plt.subplots(figsize=(9, 0.34 * len(drawn) + 1.2), layout="constrained")
    places = range(len(drawn))
    ratios = [result.ratio or 0 for result in drawn]
    spread = [
        [result.ratio - result.low for result in drawn],  # type: ignore[operator]  # drawn have all
        [result.high - result.ratio for result in drawn],  # type: ignore[operator]
    ]
    axes.barh(places, ratios, xerr=spread, color="#4c78a8", ecolor="#222222", height=0.6)
    for place, result in zip(places, drawn, strict=True):
        if result.goal is not None:
            axes.plot([result.goal] * 2, [place - 0.4, place + 0.4], color="#e45756", linewidth=2)
    axes.set_yticks(
        places, [f"{r.group}: {r.what}\nagainst {r.against}" for r in drawn], fontsize=7
    )
    axes.axvline(1, color="#888888", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.minorticks_off()
    axes.margins(y=0.01)
    axes.set_xlabel("operations a second, relative to the other side; red: the goal")
    figure.savefig(path)
    plt.close(figure)
