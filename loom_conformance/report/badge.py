"""The certificate as a small SVG picture, for a README."""

from __future__ import annotations

from typing import Final
from xml.sax.saxutils import escape, quoteattr

from .document import Document
from .text import printable

LABEL: Final = "loom conformance"
CHARACTER: Final = 6.6
"""Width of one character at 11 pixels, on average."""

COLOURS: Final = {
    "conforms": "#1a7f37",
    "does not conform": "#b42318",
    "undecided": "#8a6100",
    "nothing run": "#57606a",
}


def value_of(report: Document) -> str:
    """What the badge says: never that all is proven where only some of it is."""
    said = report["certificate"]
    verdict = str(said["verdict"])
    if verdict != "conforms":
        return verdict
    return f"conforms: {len(said['proven'])} of {len(report['profiles'])} profiles"


def badge(report: Document) -> str:
    """The badge of one report."""
    value = value_of(report)
    left, right = (round(len(text) * CHARACTER + 14) for text in (LABEL, value))
    colour = COLOURS[report["certificate"]["verdict"]]
    title = f"{report['backend']['name']}: {value}"
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" \
aria-label={quoteattr(printable(title))}>
<title>{escape(printable(report["certificate"]["line"]))}</title>
<clipPath id="r"><rect width="{left + right}" height="20" rx="3"/></clipPath>
<g clip-path="url(#r)">
<rect width="{left}" height="20" fill="#3d444d"/>
<rect x="{left}" width="{right}" height="20" fill="{colour}"/>
</g>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="{left / 2:g}" y="14" textLength="{left - 12}">{escape(LABEL)}</text>
<text x="{left + right / 2:g}" y="14" textLength="{right - 12}">{escape(value)}</text>
</g>
</svg>
"""
