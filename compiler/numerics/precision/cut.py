"""Chooses the nodes that stay in float32 by a minimum cut, which is optimal under its cost model.

    minimise  weight * sum of noise(node) over nodes in half precision
            + sum of gain(node) over nodes that stay in float32
            + sum of cast(value) over values that are needed in the other type, once per value and direction

As a cut, with float32 on the side of the source:

    source --weight * noise--> node     cut: the node computes in half precision (infinite where it must not)
    node --gain--> sink                 cut: the node stays in float32
    maker --cast--> down, down --infinite--> each reader      paid once if a float32 result has a reader in half
    each reader --infinite--> up, up --cast--> maker          paid once if a half result has a reader in float32

All terms are submodular, so the minimum is global. Source: Boykov, Veksler, Zabih 2001 for the labelling; the shared
casts are one auxiliary vertex per value and direction.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import networkx

SOURCE, SINK = "source", "sink"


@dataclasses.dataclass(frozen=True)
class Choosable:
    """One node of the graph, or an input or output whose type is to be chosen.

    Attributes:
        gain: what half precision saves, in picoseconds.
        noise: predicted share of noise in the worst result if it computes in half precision.
        pinned: whether it must stay in float32.
    """

    gain: int
    noise: float = 0.0
    pinned: bool = False


@dataclasses.dataclass(frozen=True)
class Carried:
    """A value between nodes.

    Attributes:
        maker: name of what makes it.
        readers: names of what reads it.
        cast: picoseconds of writing it in the other type.
    """

    maker: str
    readers: tuple[str, ...]
    cast: int


def choose_float32(nodes: Mapping[str, Choosable], values: Sequence[Carried], weight: float) -> frozenset[str]:
    """Choose the nodes that stay in float32 at the least cost; of equal choices the one with fewest nodes.

    Args:
        nodes: gains and noise of nodes, by name.
        values: values passed between nodes, which cost time to convert.
        weight: picoseconds that a noise share of 1 is worth.
    """
    graph = networkx.DiGraph()
    graph.add_nodes_from((SOURCE, SINK))
    for name, node in nodes.items():
        _edge(graph, SOURCE, ("node", name), None if node.pinned else round(weight * node.noise))
        _edge(graph, ("node", name), SINK, node.gain)
    for index, value in enumerate(values):
        for reader in value.readers:
            if reader == value.maker:
                continue
            _edge(graph, ("down", index), ("node", reader), None)
            _edge(graph, ("node", reader), ("up", index), None)
        _edge(graph, ("node", value.maker), ("down", index), value.cast)
        _edge(graph, ("up", index), ("node", value.maker), value.cast)
    _, (before, _) = networkx.minimum_cut(graph, SOURCE, SINK)
    return frozenset(name for name in nodes if ("node", name) in before)


def _edge(graph: "networkx.DiGraph", start: object, end: object, capacity: int | None) -> None:
    """Add an edge; without a capacity it is infinite."""
    graph.add_edge(start, end, **({} if capacity is None else {"capacity": capacity}))
