"""An explanation as one HTML file: the graph in layers, every node in the colour of what lies in its padding.

Nothing is loaded from elsewhere and nothing runs: inline SVG, a few styles, tooltips.
"""

import dataclasses
import html
from collections.abc import Iterator, Sequence
from pathlib import Path

from compiler.explain import Box, Explanation
from compiler.explain_words import Kind
from compiler.layered_layout import Layout, Point, place
from runtime_lite.atomic_file import replace_file

GROUP_ABOVE = 300
"""Graphs of more nodes are drawn in groups: chains of one colour as one box, without what no padding reaches."""

WIDTH, HEIGHT, COLUMN, ROW = 172, 40, 196, 68
"""Pixels of a box, and of the grid it stands in."""

LETTERS = 26
"""Characters that fit on one line of a box."""

STYLES = {
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


@dataclasses.dataclass(frozen=True)
class Group:
    """Boxes that are drawn as one: a single one, or a chain of one kind."""

    boxes: tuple[Box, ...]

    @property
    def kind(self) -> Kind:
        """Their colour."""
        return self.boxes[0].kind

    @property
    def title(self) -> str:
        """The operators, in order."""
        return " > ".join(box.op for box in self.boxes)

    @property
    def below(self) -> str:
        """The name, or how many they are; and what lies in the padding of the last one."""
        last = self.boxes[-1]
        return last.padding if len(self.boxes) == 1 else f"{len(self.boxes)} nodes: {last.padding}"


def write_picture(explanation: Explanation, path: Path) -> None:
    """Write the picture; a reader sees the old file or the whole new one.

    Args:
        explanation: what to draw.
        path: the HTML file; its folder must exist.
    """
    with replace_file(path) as file:
        file.write(picture(explanation).encode())


def picture(explanation: Explanation) -> str:
    """The HTML page, well-formed as XML too."""
    groups, edges, hidden = group_boxes(explanation.boxes)
    title = f"{explanation.graph}: {'refused' if explanation.refusals else 'padding'}"
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"/><title>{_text(title)}</title><style>{CSS}</style></head><body>',
        f"<h1>{_text(title)}</h1>",
        *(f"<p>{_text(line)}</p>" for line in _lines(explanation, hidden)),
        _legend(),
        *_drawn(groups, place(len(groups), edges)),
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
    kinds = "".join(f"<span>{swatch.format(STYLES[kind], _text(kind.value))}</span>" for kind in Kind)
    return f'<p class="legend">{kinds}</p>'


# What becomes one box


def group_boxes(boxes: Sequence[Box]) -> tuple[list[Group], list[tuple[int, int]], int]:
    """Groups, edges between them by number, and how many boxes were left out."""
    kept = [box for box in boxes if box.is_tracked] if len(boxes) > GROUP_ABOVE else list(boxes)
    edges = _edges(kept)
    if len(boxes) <= GROUP_ABOVE:
        return [Group((box,)) for box in kept], edges, 0
    head = _chains(kept, edges)
    members: dict[int, list[Box]] = {}
    for at, box in enumerate(kept):
        members.setdefault(head[at], []).append(box)
    number = {at: n for n, at in enumerate(members)}  # a chain reads from outside at its head only: still in order
    between = {(number[head[a]], number[head[b]]): None for a, b in edges if head[a] != head[b]}
    return [Group(tuple(chain)) for chain in members.values()], list(between), len(boxes) - len(kept)


def _edges(boxes: Sequence[Box]) -> list[tuple[int, int]]:
    maker = {name: at for at, box in enumerate(boxes) for name in box.outputs}
    found = {(maker[name], at): None for at, box in enumerate(boxes) for name in box.inputs if name in maker}
    return [(start, end) for start, end in found if start < end]


def _chains(boxes: Sequence[Box], edges: Sequence[tuple[int, int]]) -> list[int]:
    """Per box the first box of its chain: each next one is the only reader and reads nothing else."""
    readers: dict[int, list[int]] = {}
    makers: dict[int, list[int]] = {}
    for start, end in edges:
        readers.setdefault(start, []).append(end)
        makers.setdefault(end, []).append(start)
    head = list(range(len(boxes)))
    for at, box in enumerate(boxes):
        before = makers.get(at, [])
        if len(before) == 1 and len(readers[before[0]]) == 1 and boxes[before[0]].op != "input":
            same = boxes[before[0]].kind is box.kind and box.kind is not Kind.REFUSED
            head[at] = head[before[0]] if same else at
    return head


# Drawing


def _drawn(groups: Sequence[Group], layout: Layout) -> Iterator[str]:
    width = (max((x for x, _ in layout.places), default=0) + 1) * COLUMN + 20
    height = (max((y for _, y in layout.places), default=0) + 1) * ROW + 20
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}">'
    for points in layout.lines.values():
        pixels = [_pixel(point) for point in points]
        pixels[0] = (pixels[0][0], pixels[0][1] + HEIGHT / 2)
        pixels[-1] = (pixels[-1][0], pixels[-1][1] - HEIGHT / 2)
        yield f'<polyline class="edge" points="{" ".join(f"{x:.0f},{y:.0f}" for x, y in pixels)}"/>'
    far: dict[int, list[int]] = {}
    for start, end in layout.far:
        far.setdefault(end, []).append(start)
    for at, group in enumerate(groups):
        yield _shape(at, group, _pixel(layout.places[at]))
        if at in far:
            yield _far(groups, far[at], _pixel(layout.places[at]))
    yield "</svg>"


def _shape(at: int, group: Group, middle: Point) -> str:
    x, y = middle
    notes = "\n\n".join("\n".join(box.notes) for box in group.boxes)
    return (
        f'<g id="n{at}" class="node {group.kind.name.lower()}"><title>{_text(notes)}</title>'
        f'<rect x="{x - WIDTH / 2:.0f}" y="{y - HEIGHT / 2:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="4" '
        f'style="{STYLES[group.kind]}"/>'
        f'<text class="op" x="{x:.0f}" y="{y - 4:.0f}">{_text(_short(_heading(group)))}</text>'
        f'<text x="{x:.0f}" y="{y + 12:.0f}">{_text(_short(group.below))}</text></g>'
    )


def _heading(group: Group) -> str:
    only = group.boxes[0]
    return group.title if len(group.boxes) > 1 else f"{only.op} {only.name}"


def _far(groups: Sequence[Group], starts: Sequence[int], middle: Point) -> str:
    """A word on what comes from far above, with a link to it."""
    x, y = middle
    names = ", ".join(groups[start].boxes[-1].name for start in starts)
    return (
        f'<a href="#n{starts[0]}"><text class="far" x="{x:.0f}" y="{y - HEIGHT / 2 - 4:.0f}">'
        f"<title>{_text(names)}</title>^ {_text(_short(names))}</text></a>"
    )


def _pixel(point: Point) -> Point:
    return point[0] * COLUMN + COLUMN / 2 + 10, point[1] * ROW + ROW / 2 + 10


def _short(text: str) -> str:
    return text if len(text) <= LETTERS else f"{text[: LETTERS - 3]}..."


def _text(text: str) -> str:
    """Escaped, without characters that no page may hold."""
    return html.escape("".join(each if each.isprintable() or each == "\n" else "?" for each in text))
