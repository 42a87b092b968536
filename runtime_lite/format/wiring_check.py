"""Checks that every wire of a manifest connects matching tensors, no input has two wires, and there are no cycles.

Two sizes match if a bucket of the one graph gives a size that a bucket of the other takes; batch axes match each other.
"""

from collections.abc import Mapping

from runtime_lite.errors import show
from runtime_lite.format.checked_json import refuse
from runtime_lite.format.formula import parse_formula
from runtime_lite.format.manifest import Graph, Manifest, Tensor, Wire

MAX_WIRES = 1024


def check_wiring(where: str, manifest: Manifest) -> None:
    """Check that every wire connects an output to an input that can take it, and that the graphs can be ordered.

    Raises:
        BundleRefused: they do not.
    """
    if len(manifest.wiring) > MAX_WIRES:
        refuse(where, f"at most {MAX_WIRES} wires", str(len(manifest.wiring)))
    taken = set()
    sizes = _Sizes(manifest.graphs)
    for number, wire in enumerate(manifest.wiring):
        _check_wire(f"{where}[{number}]", wire, manifest.graphs, sizes)
        if (wire.to_graph, wire.input) in taken:
            refuse(f"{where}[{number}]", "one wire to an input", f"a second one to {_name(wire.to_graph, wire.input)}")
        taken.add((wire.to_graph, wire.input))
    if circle := _circle(manifest.wiring):
        refuse(where, "graphs that run one after the other", f"a circle of {', '.join(circle)}")


class _Sizes:
    """The sizes of a dimension over all buckets, computed once per dimension."""

    def __init__(self, graphs: Mapping[str, Graph]) -> None:
        self._graphs = graphs
        self._known: dict[tuple[str, str], set[int]] = {}

    def of(self, graph: str, size: int | str) -> set[int]:
        if isinstance(size, int):
            return {size}
        if (graph, size) not in self._known:
            formula = parse_formula(size)
            self._known[graph, size] = {formula.value(each.sizes) for each in self._graphs[graph].artifacts}
        return self._known[graph, size]


def _check_wire(where: str, wire: Wire, graphs: Mapping[str, Graph], sizes: _Sizes) -> None:
    for name in (wire.from_graph, wire.to_graph):
        if name not in graphs:
            refuse(where, f"one of the graphs {', '.join(graphs)}", show(name))
    giver, taker = graphs[wire.from_graph], graphs[wire.to_graph]
    source = next((tensor for tensor in giver.outputs if tensor.name == wire.output), None)
    if source is None:
        refuse(f"{where}.output", f"an output of {wire.from_graph!r}", show(wire.output))
    destination = next((tensor for tensor in taker.inputs if tensor.name == wire.input), None)
    if destination is None:
        refuse(f"{where}.input", f"an input of {wire.to_graph!r}", show(wire.input))
    if source.role != destination.role:
        refuse(f"{where}.input", f"an input of role {source.role!r}, as the output", destination.role)
    has_rows = giver.batch_axis is not None or taker.batch_axis is not None
    if source.role == "data" and has_rows and giver.rows_at(source) is None:
        refuse(
            where,
            "a tensor with rows, as the graphs have them",
            f"{_type(source)} from {_name(wire.from_graph, wire.output)}",
        )
    kinds = [(t.dtype, len(t.shape), graph.rows_at(t)) for graph, t in ((giver, source), (taker, destination))]
    pairs = zip(source.shape, destination.shape, strict=False)
    if kinds[0] != kinds[1] or not all(_fits(wire, taker, sizes, gives, takes) for gives, takes in pairs):
        expected = f"what {_name(wire.to_graph, wire.input)} takes, {_type(destination)}"
        refuse(where, expected, f"{_type(source)} from {_name(wire.from_graph, wire.output)}")


def _fits(wire: Wire, taker: Graph, sizes: _Sizes, gives: int | str, takes: int | str) -> bool:
    """Return whether the taker has a bucket for the size; an axis with lengths per row takes shorter sizes, too."""
    given, axis = sizes.of(wire.from_graph, gives), taker.axes.get(str(takes))
    if axis is None or axis.length_input is None:
        return bool(given & sizes.of(wire.to_graph, takes)) or takes == taker.batch_axis
    return any(axis.minimum <= size <= axis.buckets[-1] for size in given)


def _circle(wiring: tuple[Wire, ...]) -> list[str]:
    """Return the graphs of a cycle, sorted; empty without one."""
    before = {wire.to_graph: {each.from_graph for each in wiring if each.to_graph == wire.to_graph} for wire in wiring}
    while ready := [name for name, givers in before.items() if not givers & before.keys()]:
        for name in ready:
            del before[name]
    return sorted(before)


def _name(graph: str, tensor: str) -> str:
    return show(f"{graph}.{tensor}")


def _type(tensor: Tensor) -> str:
    return f"{tensor.dtype} of shape {show(list(tensor.shape))}"
