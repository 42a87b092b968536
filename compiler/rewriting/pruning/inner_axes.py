"""Finds the inner axes of a graph: channels made by constant weights and read by one product with constant weights.

    h = MatMul(x, W [256, 1024]) + b;  g = h * Sigmoid(h);  y = MatMul(g, V [1024, 256])

The 1024 channels are columns of W, entries of b and rows of V, and nothing else. Each of them can be taken out of all
three, and y is then what it is with that row of V set to 0.

No module and no name is known: two axes belong together where an operator computes entry k along one of entry k along
the other, or where a product sums over both (compiler/graph/axis_map.py). An axis that a normalisation, a softmax, an
input or an output has a part in is not free.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.axis_map import NotMapped, axis_map_of, dims
from compiler.graph.operators.traits import ENTRYWISE, REDUCTIONS

SUMMING = ("Einsum", "Gemm", "MatMul")
"""A list of its own: they sum over products of entries; one that is 0 in one operand may be absent from both."""

FOLLOWED = (
    ENTRYWISE
    | REDUCTIONS
    | {
        "Concat", "Einsum", "Gather", "Gemm", "LayerNormalization", "LogSoftmax", "MatMul", "RMSNormalization", "Slice",
        "Softmax", "Split", "Squeeze", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""A list of its own: their axis map says everything of the sizes of their axes, no other operand states one."""

Place = tuple[ir.Value, int]
"""A value and one of its axes, counted from the front."""


@dataclasses.dataclass(frozen=True, eq=False)
class InnerAxis:
    """Channels that can be taken out of a graph.

    Attributes:
        product: the MatMul that reads them, its second operand constant.
        width: number of channels.
        constants: the constants that have a part for every channel, and the axis along which; that operand included.
        values: what is computed channel by channel, in the order of the graph.
    """

    product: ir.Node
    width: int
    constants: tuple[Place, ...]
    values: tuple[ir.Value, ...]

    @property
    def name(self) -> str:
        """Return the name of the product."""
        return str(self.product.name)

    @property
    def read(self) -> ir.Value:
        """Return the value that the product reads, [.., width]."""
        value = self.product.inputs[0]
        assert value is not None
        return value

    @property
    def weights(self) -> np.ndarray:
        """Return the product's weights, float32 [width, results]."""
        array = graphs.array_of(self.product.inputs[1])
        assert array is not None
        return array

    @property
    def bias(self) -> np.ndarray | None:
        """Return what is added behind the product, float32 [results]; None where nothing is."""
        behind = graphs.bias_behind(self.product)
        array = None if behind is None else graphs.array_of(behind[0].inputs[behind[1]])
        return None if array is None else array.reshape(-1)

    @property
    def sources(self) -> tuple[ir.Value, ...]:
        """Return the computed values from which the channels are computed, each once."""
        inside = set(self.values)
        operands = [operand for value in self.values for operand in _operands(value)]
        return tuple(dict.fromkeys(each for each in operands if each not in inside and graphs.array_of(each) is None))


def _operands(value: ir.Value) -> Iterator[ir.Value]:
    node = value.producer()
    yield from (() if node is None else (operand for operand in node.inputs if operand is not None))


@dataclasses.dataclass(frozen=True, eq=False)
class Obstacle:
    """A product whose channels cannot be taken out.

    Attributes:
        product: the MatMul.
        reason: why not, with the node or value that is in the way.
    """

    product: ir.Node
    reason: str


def inner_axes(model: ir.Model) -> tuple[list[InnerAxis], list[Obstacle]]:
    """Return the inner axes of a graph whose shapes are inferred, and the products with constant weights without one.

    Both in the order of the graph.
    """
    classes = _Classes(model)
    axes, obstacles = list[InnerAxis](), list[Obstacle]()
    for node in model.graph:
        if graphs.is_op(node, "MatMul", "Gemm") and _weights(node) is not None:
            found = classes.read_by(node)
            (axes if isinstance(found, InnerAxis) else obstacles).append(found)  # type: ignore[arg-type]
    return axes, obstacles


def _weights(node: ir.Node) -> np.ndarray | None:
    """Return the constant real matrix by which a node multiplies computed data; None for other nodes."""
    array = graphs.array_of(node.inputs[1])
    is_matrix = array is not None and array.ndim == 2 and array.dtype == np.float32
    return array if is_matrix and graphs.array_of(node.inputs[0]) is None else None


class _Classes:
    """The axes of a graph's values, those that belong together in one class.

    Args:
        model: the graph.
    """

    def __init__(self, model: ir.Model) -> None:
        self.parents: dict[Place, Place] = {}
        self.obstacles: list[tuple[Place, str]] = []
        self.summed: list[tuple[Place, ir.Node]] = []
        for value in model.graph.inputs:
            self._hold(value, f"{value.name} is an input of the graph")
        for node in model.graph:
            self._follow(node)
        for value in model.graph.outputs:
            self._hold(value, f"{value.name} is an output of the graph")
        self.reasons: dict[Place, str] = {}
        for place, reason in self.obstacles:
            self.reasons.setdefault(self._root(place), reason)
        self.readers: dict[Place, dict[ir.Node, None]] = {}
        for place, node in self.summed:
            self.readers.setdefault(self._root(place), {})[node] = None
        self.members: dict[Place, list[Place]] = {}
        for place in list(self.parents):
            self.members.setdefault(self._root(place), []).append(place)

    def read_by(self, product: ir.Node) -> "InnerAxis | Obstacle":
        """Return the inner axis that a product with constant weights sums over, or what is in the way."""
        data = product.inputs[0]
        sizes = None if data is None else graphs.dims_of(data)
        if data is None or sizes is None or product.op_type != "MatMul":
            return Obstacle(product, f"{product.op_type} is not followed here; write it as MatMul")
        place = self._root((data, len(sizes) - 1))
        width = sizes[-1]
        if place in self.reasons:
            return Obstacle(product, self.reasons[place])
        others = [str(node.name) for node in self.readers[place] if node is not product]
        if others:
            return Obstacle(product, f"{', '.join(sorted(others))} sums over the same channels")
        if not isinstance(width, int):
            return Obstacle(product, f"the number of its channels is {width}, no number")
        constants = [place for place in self.members[place] if graphs.array_of(place[0]) is not None]
        values = [value for value, _ in self.members[place] if graphs.array_of(value) is None]
        return InnerAxis(product, width, tuple(constants), tuple(dict.fromkeys(values)))

    def _root(self, place: Place) -> Place:
        root = place
        while self.parents.setdefault(root, root) != root:
            root = self.parents[root]
        while self.parents[place] != root:
            self.parents[place], place = root, self.parents[place]
        return root

    def _join(self, places: list[Place]) -> None:
        for place in places[1:]:
            self.parents[self._root(place)] = self._root(places[0])

    def _hold(self, value: ir.Value | None, reason: str, axes: Iterator[int] | None = None) -> None:
        """Note that axes of a value, all by default, cannot lose entries."""
        sizes = None if value is None else graphs.dims_of(value)
        if value is not None and sizes is not None:
            self.obstacles += [((value, axis), reason) for axis in (range(len(sizes)) if axes is None else axes)]

    def _follow(self, node: ir.Node) -> None:
        for value in graphs.read_inside(node):
            self._hold(value, f"a body of {node.name} reads {value.name}")
        if graphs.is_op(node, "Constant"):
            return
        if graphs.is_op(node, "Shape") and node.inputs[0] is not None:
            read = graphs.dims_read(node, len(graphs.dims_of(node.inputs[0]) or ()))
            self._hold(node.inputs[0], f"{node.name} reads the number of them", iter(read))
            return
        try:
            if not graphs.is_op(node, *FOLLOWED):
                raise NotMapped(f"{node.op_type} is not followed")
            self._map(node)
        except NotMapped as reason:
            for touched in (*node.inputs, *node.outputs):
                self._hold(touched, f"{node.name}: {reason}")

    def _map(self, node: ir.Node) -> None:
        """Join the axes of a node's operands and results.

        Raises:
            NotMapped: there is no rule for it.
        """
        axis_map = axis_map_of(node)
        outputs = node.outputs if graphs.is_op(node, "Split") else node.outputs[:1]
        for axis, sources in axis_map.axes.items():
            operands = [(node.inputs[operand], own) for operand, own in sources.items()]
            places = [(value, own) for value, own in operands if value is not None]
            self._join([*((value, axis) for value in outputs), *places])
        for group in axis_map.mixed:
            places = [(value, axis) for operand, axis in group.items() if (value := node.inputs[operand]) is not None]
            if graphs.is_op(node, *SUMMING):
                self._join(places)
                self.summed.append((places[0], node))
            else:
                self.obstacles += [(place, f"{node.op_type} {node.name} computes over all of them") for place in places]
        for value in node.outputs[len(outputs) :]:
            self._hold(value, f"it is a further result of {node.name}")
        for value in outputs:
            made = [axis for axis in range(len(dims(value))) if not axis_map.axes.get(axis) and dims(value)[axis] != 1]
            self._hold(value, f"{node.op_type} {node.name} makes them together", iter(made))
        followed = {(operand, axis) for group in axis_map.mixed for operand, axis in group.items()}
        followed |= {(operand, axis) for sources in axis_map.axes.values() for operand, axis in sources.items()}
        for operand, read in enumerate(node.inputs):
            sizes = () if read is None else graphs.dims_of(read) or ()
            left = [axis for axis, size in enumerate(sizes) if size != 1 and (operand, axis) not in followed]
            self._hold(read, f"{node.op_type} {node.name} reads it as a whole", iter(left))
