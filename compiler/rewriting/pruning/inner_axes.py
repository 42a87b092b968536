"""Finds a graph's inner axes, whose entries constant weights make and one MatMul with constant weights reads.

    h = MatMul(x, W [256, 1024]) + b;  g = h * Sigmoid(h);  y = MatMul(g, V [1024, 256])

The 1024 channels are columns of W, entries of b and rows of V, and nothing else. Each of them can be taken out of all
three, and y is then what it is with that row of V set to 0. Heads of attention are entries of the same kind: of each,
d columns of the projections, one of the scores and of their biases, d channels of its caches, d rows of the projection
behind.

No module and no name is known: two axes belong together where an operator computes entry k along one of entry k along
the other, where a product sums over both, or where a reshape parts entry k into several or joins it of several
(compiler/graph/axis_map.py). An axis that a normalisation, a softmax, an input or an output has a part in is not free.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.axis_map import NotMapped, axis_map_of, dims, reshaped_groups
from compiler.graph.operators.reshapes import copies_zeros
from compiler.graph.operators.traits import ENTRYWISE, REDUCTIONS
from compiler.graph.stages import State

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
    """Entries that can be taken out of a graph; along an axis of a value, entry k is the k-th of as many equal blocks.

    Attributes:
        product: the MatMul that reads them, its second operand constant.
        count: number of entries.
        constants: the constants that have a part for every entry, and the axis along which; that operand included.
        computed: what is computed entry by entry, in the order of the graph, and the axis along which.
        carried: inputs of the graph that hold states of which every entry has a part, and the axis along which.
    """

    product: ir.Node
    count: int
    constants: tuple[Place, ...]
    computed: tuple[Place, ...]
    carried: tuple[Place, ...] = ()

    @property
    def name(self) -> str:
        """Return the name of the product."""
        return str(self.product.name)

    @property
    def read(self) -> ir.Value:
        """Return the value that the product reads, [.., channels]."""
        value = self.product.inputs[0]
        assert value is not None
        return value

    @property
    def weights(self) -> np.ndarray:
        """Return the product's weights, float32 [channels, results]."""
        array = graphs.array_of(self.product.inputs[1])
        assert array is not None
        return array

    @property
    def block(self) -> int:
        """Return the number of channels that the product reads of each entry."""
        return len(self.weights) // self.count

    @property
    def bias(self) -> np.ndarray | None:
        """Return what is added behind the product, float32 [results]; None where nothing is."""
        behind = graphs.bias_behind(self.product)
        array = None if behind is None else graphs.array_of(behind[0].inputs[behind[1]])
        return None if array is None else array.reshape(-1)

    @property
    def values(self) -> tuple[ir.Value, ...]:
        """Return what is computed entry by entry, each value once."""
        return tuple(dict.fromkeys(value for value, _ in self.computed))

    @property
    def sources(self) -> tuple[ir.Value, ...]:
        """Return the values from which the entries are computed, each once; states that hold them are none."""
        inside = {*self.values, *(value for value, _ in self.carried)}
        operands = [operand for value in self.values for operand in _operands(value)]
        return tuple(dict.fromkeys(each for each in operands if each not in inside and graphs.array_of(each) is None))

    def indices(self, kept: np.ndarray, size: int) -> np.ndarray:
        """Return what stays along an axis of some size, int64 ascending.

        Args:
            kept: indices of the entries that stay, ascending.
            size: of the axis, a multiple of the number of entries.
        """
        block = size // self.count
        return (kept[:, np.newaxis] * block + np.arange(block)).reshape(-1)


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


def inner_axes(model: ir.Model, states: Sequence[State] = ()) -> tuple[list[InnerAxis], list[Obstacle]]:
    """Return the inner axes of a graph whose shapes are inferred, and the products with constant weights without one.

    Both in the order of the graph.

    Args:
        model: the graph.
        states: those that it carries, of which entries may be taken out with what they are made of.
    """
    classes = _Classes(model, states)
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
        states: those that it carries.
    """

    def __init__(self, model: ir.Model, states: Sequence[State]) -> None:
        self.parents: dict[Place, Place] = {}
        self.obstacles: list[tuple[Place, str]] = []
        self.summed: list[tuple[Place, ir.Node]] = []
        carried = self._join_states(model, states)
        for value in model.graph.inputs:
            if value not in carried:
                self._hold(value, f"{value.name} is an input of the graph")
        for node in model.graph:
            self._follow(node)
        for value in model.graph.outputs:
            if value not in carried:
                self._hold(value, f"{value.name} is an output of the graph")
        self.inputs = set(model.graph.inputs)
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
        root = self._root((data, len(sizes) - 1))
        if root in self.reasons:
            return Obstacle(product, self.reasons[root])
        others = [str(node.name) for node in self.readers[root] if node is not product]
        if others:
            return Obstacle(product, f"{', '.join(sorted(others))} sums over the same channels")
        members = self.members[root]
        counts = {dims(value)[axis] for value, axis in members} - {1}
        numbers = [size for size in counts if isinstance(size, int)]
        if len(numbers) < len(counts) or not numbers:
            return Obstacle(product, "the number of its channels is not known")
        count = min(numbers)
        if any(size % count for size in numbers):
            return Obstacle(product, f"its channels are parted into {' and into '.join(map(str, sorted(numbers)))}")
        parts = [place for place in members if dims(place[0])[place[1]] != 1]
        constants = tuple(place for place in parts if graphs.array_of(place[0]) is not None)
        carried = tuple(place for place in parts if place[0] in self.inputs)
        computed = tuple(place for place in parts if place not in constants and place not in carried)
        return InnerAxis(product, count, constants, computed, carried)

    def _join_states(self, model: ir.Model, states: Sequence[State]) -> set[ir.Value]:
        """Join the axes of the inputs and outputs of states, and return these values.

        States that begin with different numbers stay as they are.
        """
        inputs, outputs = graphs.inputs_named(model), graphs.outputs_named(model)
        carried = set[ir.Value]()
        for state in states:
            value, output = inputs[state.input], outputs[state.output]
            if isinstance(state.initial, tuple) or graphs.dims_of(value) is None or graphs.dims_of(output) is None:
                continue
            for axis in range(len(dims(value))):
                self._join([(value, axis), (output, axis)])
            carried |= {value, output}
        return carried

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
            held = range(len(sizes)) if axes is None else axes
            self.obstacles += [((value, axis), reason) for axis in held if sizes[axis] != 1]

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
            if graphs.is_op(node, "Reshape"):
                self._reshape(node)
            elif graphs.is_op(node, "Conv"):
                self._convolve(node)
            elif graphs.is_op(node, *FOLLOWED):
                self._map(node)
            else:
                raise NotMapped(f"{node.op_type} is not followed")
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
            made = [axis for axis in range(len(dims(value))) if not axis_map.axes.get(axis)]
            self._hold(value, f"{node.op_type} {node.name} makes them together", iter(made))
        followed = {(operand, axis) for group in axis_map.mixed for operand, axis in group.items()}
        followed |= {(operand, axis) for sources in axis_map.axes.values() for operand, axis in sources.items()}
        for operand, read in enumerate(node.inputs):
            sizes = () if read is None else graphs.dims_of(read) or ()
            left = [axis for axis in range(len(sizes)) if (operand, axis) not in followed]
            self._hold(read, f"{node.op_type} {node.name} reads it as a whole", iter(left))

    def _reshape(self, node: ir.Node) -> None:
        """Join the axes of a Reshape that stay, and the first of those that are parted or joined; hold the others.

        Raises:
            NotMapped: it states its sizes in a way in which they cannot be written anew.
        """
        data, result = node.inputs[0], node.outputs[0]
        if graphs.array_of(node.inputs[1]) is None or not copies_zeros(node):
            raise NotMapped("the sizes of a Reshape are computed")
        before, after = dims(data), dims(result)
        assert data is not None
        for old, new in reshaped_groups(before, after):
            wide_old, wide_new = [axis for axis in old if before[axis] != 1], [axis for axis in new if after[axis] != 1]
            if not wide_old or not wide_new:
                continue
            sizes = (before[wide_old[0]], after[wide_new[0]])
            is_parted = all(isinstance(size, int) for size in sizes)
            if len(wide_old) == len(wide_new) == 1 or is_parted:
                self._join([(data, wide_old[0]), (result, wide_new[0])])
                wide_old, wide_new = wide_old[1:], wide_new[1:]
            reason = f"Reshape {node.name} takes them apart or together"
            self._hold(data, reason, iter(wide_old))
            self._hold(result, reason, iter(wide_new))

    def _convolve(self, node: ir.Node) -> None:
        """Join the channels of a convolution's result with its weights and bias; of a depthwise one, with its data too.

        Raises:
            NotMapped: its channels are in groups of several.
        """
        data, weights, result = node.inputs[0], node.inputs[1], node.outputs[0]
        assert data is not None and weights is not None
        count, read = dims(weights)[:2]
        groups = graphs.int_attribute(node, "group", 1)
        if groups not in (1, count) or (groups > 1 and read != 1):
            raise NotMapped("a Conv with groups of several channels")
        self._join([(result, 1), (weights, 0), *((bias, 0) for bias in node.inputs[2:] if bias is not None)])
        self._join([(data, 0), (result, 0)])
        if groups > 1:
            self._join([(data, 1), (result, 1)])
        else:
            self._hold(data, f"Conv {node.name} sums over them", iter((1,)))
        self._hold(weights, f"Conv {node.name} slides along them", iter(range(1, len(dims(weights)))))
        for value in (data, result):
            self._hold(value, f"Conv {node.name} slides along them", iter(range(2, len(dims(value)))))
