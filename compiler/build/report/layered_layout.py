"""Computes the layout of a directed acyclic graph: layers from top to bottom, few crossing edges, straight chains."""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence

FAR = 8
"""Edges over more layers are not drawn as lines: the reader is told their end instead."""

SWEEPS = 4
"""Passes over all layers, downwards and upwards, to order and to straighten them."""

Point = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where everything lies, in units of one box: x in boxes, y in layers.

    Attributes:
        places: the middle of every node.
        lines: (from, to) -> the points of the edge, ends included.
        far: edges over too many layers to draw.
    """

    places: Sequence[Point]
    lines: Mapping[tuple[int, int], Sequence[Point]]
    far: Sequence[tuple[int, int]]


def place(count: int, edges: Sequence[tuple[int, int]]) -> Layout:
    """Lay out `count` nodes.

    Args:
        count: number of nodes; every edge leads from a smaller to a larger index.
        edges: (from, to), without duplicates.
    """
    layer = _layers(count, edges)
    near = [edge for edge in edges if layer[edge[1]] - layer[edge[0]] <= FAR]
    paths: dict[tuple[int, int], list[int]] = {}
    for start, end in near:  # a corner per layer between keeps lines out of boxes
        corners = range(layer[start] + 1, layer[end])
        paths[start, end] = [start, *range(len(layer), len(layer) + len(corners)), end]
        layer += corners
    rows = _Rows(count, layer, paths.values())
    for _ in range(SWEEPS):
        rows.order()
    for _ in range(SWEEPS):
        rows.straighten()
    points = [(rows.x[node], float(layer[node])) for node in range(len(layer))]
    left = min((x for x, _ in points), default=0.0)
    points = [(x - left, y) for x, y in points]
    return Layout(
        points[:count],
        {edge: [points[node] for node in path] for edge, path in paths.items()},
        [edge for edge in edges if edge not in paths],
    )


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return each node's longest distance from a source; sources lie just above their first reader."""
    layer = [0] * count
    sources = set(range(count)) - {end for _, end in edges}
    for start, end in sorted(edges, key=lambda edge: edge[1]):
        layer[end] = max(layer[end], layer[start] + 1)
    first: dict[int, int] = {}
    for start, end in edges:
        first[start] = min(first.get(start, layer[end]), layer[end])
    return [first[each] - 1 if each in sources and each in first else layer[each] for each in range(count)]


class _Rows:
    """Layers as rows of nodes and corners, with their neighbours above and below."""

    def __init__(self, count: int, layer: Sequence[int], paths: Iterable[Sequence[int]]) -> None:
        self.rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
        self.above: list[list[int]] = [[] for _ in layer]
        self.below: list[list[int]] = [[] for _ in layer]
        self.width = [1.0 if node < count else 0.25 for node in range(len(layer))]
        for node, depth in enumerate(layer):
            self.rows[depth].append(node)
        for path in paths:
            for start, end in itertools.pairwise(path):
                self.below[start].append(end)
                self.above[end].append(start)
        self.x = [0.0] * len(layer)
        for row in self.rows:
            self._spread(row)

    def _spread(self, row: Sequence[int]) -> None:
        """Place the nodes of a row side by side, centred at 0."""
        at = -sum(self.width[each] for each in row) / 2
        for each in row:
            self.x[each] = at + self.width[each] / 2
            at += self.width[each]

    def order(self) -> None:
        """Sort every row by the middle of its neighbours: downwards, then upwards."""
        for rows, neighbours in ((self.rows, self.above), (self.rows[::-1], self.below)):
            for row in rows:
                row.sort(key=lambda each: self._middle(neighbours[each], self.x[each]))
                self._spread(row)

    def straighten(self) -> None:
        """Move the nodes of every row towards their neighbours without changing their order."""
        for rows, neighbours in ((self.rows, self.above), (self.rows[::-1], self.below)):
            for row in rows:
                wanted = [self._middle(neighbours[node], self.x[node]) for node in row]
                positions: list[float] = []
                for node, wish in zip(row, wanted, strict=True):
                    if positions:
                        wish = max(wish, positions[-1] + (self.width[row[len(positions) - 1]] + self.width[node]) / 2)
                    positions.append(wish)
                shift = sum(w - f for w, f in zip(wanted, positions, strict=True)) / max(len(row), 1)
                for node, position in zip(row, positions, strict=True):
                    self.x[node] = position + shift

    def _middle(self, neighbours: Sequence[int], otherwise: float) -> float:
        return sum(self.x[each] for each in neighbours) / len(neighbours) if neighbours else otherwise
