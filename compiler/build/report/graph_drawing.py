"""Draws a graph as one SVG element: boxes in layers, coloured by their kind, with tooltips.

Large graphs are drawn in groups: chains of one kind as one box, without untracked values.
"""

import dataclasses
import enum
import html
from collections.abc import Collection, Iterator, Mapping, Sequence

from compiler.build.report.layered_layout import Point, place

GROUP_ABOVE = 300
"""Graphs of more nodes are drawn in groups: chains of one colour as one box, without what no padding reaches."""

WIDTH, HEIGHT, COLUMN, ROW = 172, 40, 196, 68
"""Pixels of a box, and of the grid it stands in."""

LETTERS = 26
"""Characters that fit on one line of a box."""


@dataclasses.dataclass(frozen=True)
class Box:
    """One node or input as it is drawn.

    Attributes:
        name: of the node or input.
        op: operator, or `input`.
        kind: the word that its colour stands for.
        below: its second line, in few words.
        is_tracked: whether it is drawn in a large graph, too.
        notes: everything known, line by line.
        inputs: names of the values it reads.
        outputs: names of the values it makes.
    """

    name: str
    op: str
    kind: enum.Enum
    below: str
    is_tracked: bool
    notes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Group:
    """Boxes that are drawn as one: a single one, or a chain of one kind."""

    boxes: tuple[Box, ...]

    @property
    def kind(self) -> enum.Enum:
        """Return the kind of the boxes, which decides their colour."""
        return self.boxes[0].kind

    @property
    def title(self) -> str:
        """Return the operators, in order."""
        return " > ".join(box.op for box in self.boxes)

    @property
    def below(self) -> str:
        """Return the caption: the name or number of nodes, and the padding of the last one."""
        last = self.boxes[-1]
        return last.below if len(self.boxes) == 1 else f"{len(self.boxes)} nodes: {last.below}"


# What becomes one box


def group_boxes(
    boxes: Sequence[Box], alone: Collection[enum.Enum] = ()
) -> tuple[list[Group], list[tuple[int, int]], int]:
    """Return groups of boxes, edges between them by index, and the number of boxes left out.

    Args:
        boxes: in the order of the graph.
        alone: kinds whose boxes are never grouped.
    """
    drawn_boxes = [box for box in boxes if box.is_tracked] if len(boxes) > GROUP_ABOVE else list(boxes)
    edges = _edges(drawn_boxes)
    if len(boxes) <= GROUP_ABOVE:
        return [Group((box,)) for box in drawn_boxes], edges, 0
    head = _chains(drawn_boxes, edges, alone)
    members: dict[int, list[Box]] = {}
    for position, box in enumerate(drawn_boxes):
        members.setdefault(head[position], []).append(box)
    number = {
        first_box: n for n, first_box in enumerate(members)
    }  # a chain reads from outside at its head only: still in order
    between = {(number[head[a]], number[head[b]]): None for a, b in edges if head[a] != head[b]}
    return [Group(tuple(chain)) for chain in members.values()], list(between), len(boxes) - len(drawn_boxes)


def _edges(boxes: Sequence[Box]) -> list[tuple[int, int]]:
    maker = {name: at for at, box in enumerate(boxes) for name in box.outputs}
    found = {(maker[name], at): None for at, box in enumerate(boxes) for name in box.inputs if name in maker}
    return [(start, end) for start, end in found if start < end]


def _chains(boxes: Sequence[Box], edges: Sequence[tuple[int, int]], alone: Collection[enum.Enum]) -> list[int]:
    """Return, per box, the first box of its chain, in which each next one is the only reader and reads nothing else."""
    readers: dict[int, list[int]] = {}
    makers: dict[int, list[int]] = {}
    for start, end in edges:
        readers.setdefault(start, []).append(end)
        makers.setdefault(end, []).append(start)
    head = list(range(len(boxes)))
    for position, box in enumerate(boxes):
        before = makers.get(position, [])
        if len(before) == 1 and len(readers[before[0]]) == 1 and boxes[before[0]].op != "input":
            same = boxes[before[0]].kind is box.kind and box.kind not in alone
            head[position] = head[before[0]] if same else position
    return head


# Drawing


def drawn(groups: Sequence[Group], edges: Sequence[tuple[int, int]], styles: Mapping[enum.Enum, str]) -> Iterator[str]:
    """Yield the lines of one SVG element.

    Args:
        groups: from `group_boxes`.
        edges: edges between them.
        styles: style of a kind's rectangle; other kinds are styled by the page's style sheet.
    """
    layout = place(len(groups), edges)
    width = (max((x for x, _ in layout.places), default=0) + 1) * COLUMN + 20
    height = (max((y for _, y in layout.places), default=0) + 1) * ROW + 20
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    for points in layout.lines.values():
        pixels = [_pixel(point) for point in points]
        pixels[0] = (pixels[0][0], pixels[0][1] + HEIGHT / 2)
        pixels[-1] = (pixels[-1][0], pixels[-1][1] - HEIGHT / 2)
        yield f'<polyline class="edge" points="{" ".join(f"{x:.0f},{y:.0f}" for x, y in pixels)}"/>'
    far: dict[int, list[int]] = {}
    for start, end in layout.far:
        far.setdefault(end, []).append(start)
    for number, group in enumerate(groups):
        yield _shape(number, group, _pixel(layout.places[number]), styles.get(group.kind, ""))
        if number in far:
            yield _far(groups, far[number], _pixel(layout.places[number]))
    yield "</svg>"


def _shape(at: int, group: Group, middle: Point, style: str) -> str:
    x, y = middle
    styled = f' style="{style}"' if style else ""
    notes = "\n\n".join("\n".join(box.notes) for box in group.boxes)
    return (
        f'<g id="n{at}" class="node {group.kind.name.lower()}"><title>{escaped(notes)}</title>'
        f'<rect x="{x - WIDTH / 2:.0f}" y="{y - HEIGHT / 2:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="4"'
        f"{styled}/>"
        f'<text class="op" x="{x:.0f}" y="{y - 4:.0f}">{escaped(_short(_heading(group)))}</text>'
        f'<text x="{x:.0f}" y="{y + 12:.0f}">{escaped(_short(group.below))}</text></g>'
    )


def _heading(group: Group) -> str:
    only = group.boxes[0]
    return group.title if len(group.boxes) > 1 else f"{only.op} {only.name}"


def _far(groups: Sequence[Group], starts: Sequence[int], middle: Point) -> str:
    """Return a label for sources far above a node, with a link to the first."""
    x, y = middle
    names = ", ".join(groups[start].boxes[-1].name for start in starts)
    return (
        f'<a href="#n{starts[0]}"><text class="far" x="{x:.0f}" y="{y - HEIGHT / 2 - 4:.0f}">'
        f"<title>{escaped(names)}</title>^ {escaped(_short(names))}</text></a>"
    )


def _pixel(point: Point) -> Point:
    return point[0] * COLUMN + COLUMN / 2 + 10, point[1] * ROW + ROW / 2 + 10


def _short(text: str) -> str:
    return text if len(text) <= LETTERS else f"{text[: LETTERS - 3]}..."


def escaped(text: str) -> str:
    """Return a text escaped for HTML, without characters that no page may contain."""
    return html.escape("".join(each if each.isprintable() or each == "\n" else "?" for each in text))
