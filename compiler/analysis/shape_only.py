"""Values that follow from shapes alone, executed for many lengths: what cannot be derived is tried.

index = Concat(Expand(Range(0, batch)), Expand(Range(0, time)))     at batch 3, time 5: [[[0 0] [0 1] ... [2 4]]]
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeGuard

import numpy as np
import onnx_ir as ir
import onnxruntime
import sympy

from compiler.analysis.growth import function_of
from compiler.analysis.layout import symbols_of
from compiler.evaluate import open_session
from compiler.ir import array_of, dims_of, dims_read, is_op
from compiler.sizes import Dim, normal_form, symbol

MOST_NODES = 400
"""Nodes of the largest graph that is tried."""

MOST_ENTRIES = 2**22
"""Entries of the largest value that is computed."""

NO_BOUND = 2**31 - 1
"""Numbers from here on mean "to the end" or "never"; no length comes near."""

RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")

Lengths: TypeAlias = Mapping[sympy.Symbol, int]
"""Values of axis names."""


class ShapeOnly:
    """Values as functions of lengths.

    Args:
        values: the values.
        filled: graph inputs that hold one number whatever their shape: ones in a mask, a length among the inputs.

    Raises:
        ValueError: one depends on data, or on sizes that are not known.
    """

    def __init__(self, values: Sequence[ir.Value], filled: Mapping[ir.Value, Dim] | None = None) -> None:
        self.filled = dict(filled or {})
        self.read: dict[ir.Value, tuple[Dim, ...]] = {}
        self.nodes = self._ancestors(values)
        sizes = [dim for dims in self.read.values() for dim in dims]
        sizes += [number for value, number in self.filled.items() if value in self.read]
        self.sizes = list(dict.fromkeys(size for size in sizes if not isinstance(size, int)))
        self.names = sorted({name for size in self.sizes for name in symbols_of(size)}, key=str)
        self.session = _session(self.nodes, list(self.read), values)

    def _ancestors(self, values: Sequence[ir.Value]) -> list[ir.Node]:
        """The nodes that make the values, down to sizes that are read."""
        found: dict[ir.Node, None] = {}
        waiting = list(values)
        while waiting:
            current = waiting.pop()
            node = current.producer()
            if array_of(current) is not None or current in self.read or (node is not None and node in found):
                continue
            if current in self.filled:
                self.read[current] = _known(current)
            elif node is None or node.op_type in RANDOM or len(found) > MOST_NODES:
                raise ValueError(f"{current.name!r} depends on data")
            elif is_op(node, "Shape"):
                dims = _known(node.inputs[0])
                self.read[current] = tuple(dims[at] for at in dims_read(node, len(dims)))
            elif any(attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for attribute in _of(node)):
                raise ValueError(f"{node.op_type} has a body")
            else:
                found[node] = None
                waiting += [each for each in node.inputs if each is not None]
        graph = next(iter(found)).graph if found else None
        return [node for node in graph if node in found] if graph is not None else []

    @property
    def reach(self) -> float:
        """The largest number among the constants: nothing that a comparison with one changes lies further away."""
        arrays = [array_of(value) for node in self.nodes for value in node.inputs]
        sizes = [float(np.abs(array[np.isfinite(array)]).max(initial=0)) for array in arrays if _counts_entries(array)]
        entries = [float(max(array.shape, default=0)) for array in arrays if array is not None]
        return max([size for size in sizes if size < NO_BOUND] + entries, default=0.0)

    def fits(self, lengths: Lengths) -> bool:
        """Whether no value is too large to be computed for these lengths."""
        shapes = [dims_of(value) for node in self.nodes for value in node.outputs]
        dims = [*self.read.values(), *(shape for shape in shapes if shape is not None)]
        known = [shape for shape in dims if {name for dim in shape for name in symbols_of(dim)} <= set(lengths)]
        return all(np.prod([max(self.size(dim, lengths), 1.0) for dim in shape]) <= MOST_ENTRIES for shape in known)

    def size(self, dim: Dim, lengths: Lengths) -> int:
        """The value of a size.

        Raises:
            ValueError: it has none.
        """
        return _value(dim, self.names, lengths)

    def at(self, lengths: Lengths) -> list[np.ndarray]:
        """The values for given lengths.

        Raises:
            ValueError: the graph does not run for these lengths.
        """
        feeds = {}
        for value, dims in self.read.items():
            sizes = [self.size(dim, lengths) for dim in dims]
            if value in self.filled:
                assert value.dtype is not None
                if min(sizes, default=0) < 0:
                    raise ValueError(f"{value.name!r} has no size")
                feeds[str(value.name)] = np.full(sizes, self.size(self.filled[value], lengths), value.dtype.numpy())
            else:
                feeds[str(value.name)] = np.array(sizes, np.int64)
        options = onnxruntime.RunOptions()
        options.log_severity_level = 4  # lengths that do not run are expected
        try:
            results = self.session.run(None, feeds, options)
        except Exception as error:
            raise ValueError(str(error)) from error
        return [np.asarray(result) for result in results]


def _counts_entries(array: np.ndarray | None) -> TypeGuard[np.ndarray]:
    return array is not None and array.dtype.kind in "iuf"


def _of(node: ir.Node) -> Iterable[ir.Attr]:
    return node.attributes.values()


def _known(value: ir.Value | None) -> tuple[Dim, ...]:
    dims = None if value is None else dims_of(value)
    if dims is None or any(isinstance(name, sympy.Dummy) for dim in dims for name in symbols_of(dim)):
        raise ValueError("a size is not known")
    return dims


def _value(dim: Dim, names: Sequence[sympy.Symbol], lengths: Lengths) -> int:
    if isinstance(dim, int):
        return dim
    missing = symbols_of(dim) - set(lengths)
    if missing:
        raise ValueError(f"no value for {missing}")
    return int(_function(normal_form(dim), tuple(names))(*(lengths.get(name, 0) for name in names)))


_function = functools.lru_cache(maxsize=4096)(function_of)


def _session(
    nodes: Sequence[ir.Node], read: Sequence[ir.Value], values: Sequence[ir.Value]
) -> onnxruntime.InferenceSession:
    """A session that computes values from the values that are read."""
    copies: dict[ir.Value, ir.Value] = {}
    constants: list[ir.Value] = []

    def copy_of(old: ir.Value | None) -> ir.Value | None:
        if old is None:
            return None
        if old not in copies:
            copies[old] = ir.Value(name=str(old.name), type=old.type)
            array = array_of(old)
            if array is not None and old not in read:
                copies[old].const_value = ir.tensor(array, name=old.name)
                copies[old].shape, copies[old].dtype = ir.Shape(array.shape), ir.DataType.from_numpy(array.dtype)
                constants.append(copies[old])
        return copies[old]

    inputs = []
    for old in read:
        new = copy_of(old)
        assert new is not None
        rank = len(dims_of(old) or ())
        new.shape, new.dtype = ir.Shape([None] * rank), old.dtype or ir.DataType.INT64
        inputs.append(new)
    made = []
    for node in nodes:
        operands = [copy_of(each) for each in node.inputs]
        outputs = [copy_of(each) for each in node.outputs]
        attributes = list(node.attributes.values())
        kept = [each for each in outputs if each is not None]
        made.append(ir.Node(node.domain, node.op_type, operands, attributes, outputs=kept, version=node.version))
    results = [result for value in values if (result := copy_of(value)) is not None]
    graph = next((node.graph for node in nodes if node.graph is not None), None)
    opsets = dict(graph.opset_imports) if graph is not None else {"": 20}
    whole = ir.Graph(inputs, results, nodes=made, initializers=constants, opset_imports=opsets, name="shape_only")
    return open_session(ir.serde.serialize_model(ir.Model(whole, ir_version=10)).SerializeToString())


NEAR = 24
"""Every length up to here is tried."""

FAR = (37, 64, 100, 128, 161, 256, 401, 512, 777, 1024, 1600, 2049, 4000, 8003, 16000)

ROWS = (1, 2, 3, 33)
"""Numbers of rows, in turn."""

FEWEST = 12
"""So many lengths have to run."""


def tried(function: ShapeOnly, batch: sympy.Symbol | None) -> Iterator[tuple[Lengths, list[np.ndarray]]]:
    """The values for every small length and for some far ones, with a few rows or many.

    Lengths that are too short for the graph are left out. The furthest lie beyond every constant that lengths may be
    compared with.

    Raises:
        ValueError: the graph runs for too few lengths, or constants are so large that nothing could be seen of them.
    """
    names = [name for name in function.names if name != batch]
    if not names:
        yield from ((each, function.at(each)) for each in trials(function.names, batch, [1]))
        return
    ran, furthest = 0, dict.fromkeys(function.sizes, 0)
    for lengths in trials(function.names, batch, (*range(1, NEAR + 1), *FAR)):
        if not function.fits(lengths):
            continue
        try:
            arrays = function.at(lengths)
        except ValueError:
            if ran:
                raise
            continue
        ran += 1
        furthest = {size: max(reached, function.size(size, lengths)) for size, reached in furthest.items()}
        yield lengths, arrays
    moving = [reached for size, reached in furthest.items() if symbols_of(size) - {batch}]
    if ran < FEWEST or min(moving) <= function.reach:
        raise ValueError(f"only {ran} lengths run, up to sizes {moving}, and constants go up to {function.reach}")


def trials(names: Sequence[sympy.Symbol], batch: sympy.Symbol | None, values: Sequence[int]) -> Iterator[Lengths]:
    """Each length with other numbers of rows; of several names, all alike, and each at some others' small lengths."""
    lengths = [name for name in names if name != batch]
    drawn = [(value,) * len(lengths) for value in values]
    if len(lengths) > 1:
        drawn += list(itertools.product((1, 2, 3, 5, 8, 40), repeat=len(lengths)))
    if not lengths:
        drawn *= len(ROWS)
    ordered = sorted(dict.fromkeys(drawn), key=lambda each: (min(each), each)) if lengths else drawn
    for at, each in enumerate(ordered):
        rows = {} if batch is None else {batch: ROWS[at % len(ROWS)]}
        yield dict(zip(lengths, each, strict=True)) | rows


def counted_axis(value: ir.Value, batch: str | None, entry: int | None = None) -> int | None:
    """The axis along which a value holds 0, 1, 2, ... for all lengths, or None.

    Args:
        value: the value.
        batch: name of the batch axis.
        entry: which entry of the last axis is meant; None for the value itself.
    """
    found: set[int] | None = None
    try:
        function = ShapeOnly([value])
        for _, (array,) in tried(function, None if batch is None else symbol(batch)):
            array = array if entry is None else array[..., entry]
            along = {at for at in range(array.ndim) if _counts(array, at)}
            found = along if found is None else found & along
    except ValueError:
        return None
    return min(found) if found else None


def _counts(array: np.ndarray, at: int) -> bool:
    shape = [-1 if axis == at else 1 for axis in range(array.ndim)]
    return bool(np.all(array == np.arange(array.shape[at]).reshape(shape)))


def stays_below(value: ir.Value, size: Dim, batch: str | None) -> bool:
    """Whether every entry of a value lies in [0, size) for all lengths."""
    try:
        function = ShapeOnly([value])
        if not symbols_of(size) <= set(function.names):
            return False
        for lengths, (array,) in tried(function, None if batch is None else symbol(batch)):
            if array.size and (array.min() < 0 or array.max() >= function.size(size, lengths)):
                return False
    except ValueError:
        return False
    return True


def uniform_values(
    values: Sequence[ir.Value], filled: Mapping[ir.Value, Dim], batch: str | None
) -> dict[ir.Value, np.ndarray]:
    """Those of the values that hold one number at every place for all lengths, with the number.

    A value that never has an entry has a number of shape [0].
    """
    found: dict[ir.Value, np.ndarray] = {}
    dropped: set[ir.Value] = set()
    try:
        function = ShapeOnly(values, filled)
        for _, arrays in tried(function, None if batch is None else symbol(batch)):
            for value, array in zip(values, arrays, strict=True):
                known = found.setdefault(value, array.reshape(-1)[:1])
                if array.size and not known.size:
                    known = found[value] = array.reshape(-1)[:1]
                if array.size and not np.all(array == known):
                    dropped.add(value)
    except ValueError:  # a table may be too short for what one of the values looks up
        half = len(values) // 2
        parts = (values[:half], values[half:]) if half else ()
        return {value: number for part in parts for value, number in uniform_values(part, filled, batch).items()}
    return {value: number for value, number in found.items() if value not in dropped}
