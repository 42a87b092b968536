"""Draws an explanation as one HTML file: the graph in layers, every node coloured by the content of its padding.

Nothing is loaded from elsewhere and nothing runs: inline SVG, a few styles, tooltips.
"""

import enum
from collections.abc import Iterator, Mapping
from pathlib import Path

from compiler.build.report.files import GENERATOR
from compiler.build.report.graph_drawing import drawn, escaped, group_boxes
from compiler.front.explain.explanation import Explanation
from compiler.front.explain.words import Kind
from runtime_lite.format.atomic_file import replace_file

STYLES: Mapping[enum.Enum, str] = {
    Kind.NONE: "fill:#e4e4e4;stroke:#8a8a8a",
    Kind.CONSTANT: "fill:#bfe6b8;stroke:#4b8a42",
    Kind.FINITE: "fill:#fff1a6;stroke:#a8922a",
    Kind.ANYTHING: "fill:#f5aaa0;stroke:#a8392b",
    Kind.INSERTED: "fill:#b3d3f7;stroke:#1c5fb0;stroke-width:3.5",
    Kind.REFUSED: "fill:#000;stroke:#000",
    Kind.UNKNOWN: "fill:#fff;stroke:#8a8a8a;stroke-dasharray:4 3",
}

CSS = """body{font:14px sans-serif;margin:1.5em;color:#111;background:#fff}
svg text{font:11px sans-serif;text-anchor:middle}
svg .op{font-weight:bold}
svg .far{font-size:9px;fill:#1c5fb0}
svg .edge{fill:none;stroke:#777;stroke-width:1}
pre{font:12px monospace;white-space:pre-wrap}
.legend span{display:inline-block;margin:0 1.2em .4em 0}
.refused text{fill:#fff}
"""


def write_picture(explanation: Explanation, path: Path) -> None:
    """Write the picture as HTML, atomically: a reader sees the old file or the new one.

    Args:
        explanation: what to draw.
        path: the HTML file; its folder must exist.
    """
    with replace_file(path) as file:
        file.write(picture(explanation).encode())


def picture(explanation: Explanation) -> str:
    """Return the HTML page of an explanation; it is well-formed XML, too."""
    groups, edges, hidden = group_boxes(explanation.boxes, (Kind.REFUSED,))
    title = f"{explanation.graph}: {'refused' if explanation.refusals else 'padding'}"
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"/>{GENERATOR}<title>{escaped(title)}</title>',
        f"<style>{CSS}</style></head><body>",
        f"<h1>{escaped(title)}</h1>",
        *(f"<p>{escaped(line)}</p>" for line in _lines(explanation, hidden)),
        _legend(),
        *drawn(groups, edges, STYLES),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _lines(explanation: Explanation, hidden: int) -> Iterator[str]:
    for axis in explanation.axes:
        limits = "" if axis.minimum is None else f"; proved from {axis.minimum}"
        limits += "" if axis.maximum is None else f" to {axis.maximum}"
        yield f"axis {axis.name}: {axis.side}{limits}; {', '.join(axis.inputs)}"
    if explanation.batch is not None:
        yield f"axis {explanation.batch}: rows{', independent' if explanation.rows_independent else ''}"
    for refusal in explanation.refusals:
        yield f"refused: {refusal.place}: {refusal.reason}; {refusal.cure}"
    if hidden:
        yield f"{hidden} nodes that no padding reaches are not drawn; chains of one colour are drawn as one box"


def _legend() -> str:
    swatch = '<svg width="30" height="18"><rect x="2" y="2" width="26" height="14" style="{}"/></svg> {}'
    kinds = "".join(f"<span>{swatch.format(STYLES[kind], escaped(kind.value))}</span>" for kind in Kind)
    return f'<p class="legend">{kinds}</p>'
