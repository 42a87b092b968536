"""Values that follow from shapes alone, executed for many lengths: what cannot be derived is tried.

index = Concat(Expand(Range(0, batch)), Expand(Range(0, time)))     at batch 3, time 5: [[[0 0] [0 1] ... [2 4]]]
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir
import onnxruntime
import sympy

from compiler.analysis.known_sizes import canonical, function_of
from compiler.analysis.layout import symbols_of
from compiler.evaluate import open_session
from compiler.ir import array_of, dims_of, dims_read, is_op
from compiler.sizes import Dim, symbol

MOST_NODES = 400
"""Nodes of the largest graph that is tried."""

RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")


class ShapeOnly:
    """A value as a function of lengths.

    Args:
        value: the value.
        ones: graph inputs that hold ones whatever their shape.

    Raises:
        ValueError: it depends on data, or on sizes that are not known.
    """

    def __init__(self, value: ir.Value, ones: Iterable[ir.Value] = ()) -> None:
        self.ones = frozenset(ones)
        self.read: dict[ir.Value, tuple[Dim, ...]] = {}
        nodes = self._ancestors(value)
        self.names = sorted({name for dims in self.read.values() for dim in dims for name in symbols_of(dim)}, key=str)
        self.session = _session(nodes, list(self.read), value)

    def _ancestors(self, value: ir.Value) -> list[ir.Node]:
        """The nodes that make a value, down to sizes that are read."""
        found: dict[ir.Node, None] = {}
        waiting = [value]
        while waiting:
            current = waiting.pop()
            node = current.producer()
            if array_of(current) is not None or current in self.read:
                continue
            if current in self.ones:
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

    def at(self, lengths: Mapping[sympy.Symbol, int]) -> np.ndarray:
        """The value for given lengths.

        Raises:
            ValueError: the graph does not run for these lengths.
        """
        feeds = {}
        for value, dims in self.read.items():
            sizes = [_value(dim, self.names, lengths) for dim in dims]
            if value in self.ones:
                assert value.dtype is not None
                feeds[str(value.name)] = np.ones(sizes, value.dtype.numpy())
            else:
                feeds[str(value.name)] = np.array(sizes, np.int64)
        try:
            (result,) = self.session.run(None, feeds)
        except Exception as error:
            raise ValueError(str(error)) from error
        return np.asarray(result)


def _of(node: ir.Node) -> Iterable[ir.Attr]:
    return node.attributes.values()


def _known(value: ir.Value | None) -> tuple[Dim, ...]:
    dims = None if value is None else dims_of(value)
    if dims is None or any(isinstance(name, sympy.Dummy) for dim in dims for name in symbols_of(dim)):
        raise ValueError("a size is not known")
    return dims


def _value(dim: Dim, names: Sequence[sympy.Symbol], lengths: Mapping[sympy.Symbol, int]) -> int:
    if isinstance(dim, int):
        return dim
    missing = symbols_of(dim) - set(lengths)
    if missing:
        raise ValueError(f"no value for {missing}")
    return int(_function(canonical(dim), tuple(names))(*(lengths.get(name, 0) for name in names)))


_function = functools.lru_cache(maxsize=4096)(function_of)


def _session(nodes: Sequence[ir.Node], read: Sequence[ir.Value], value: ir.Value) -> onnxruntime.InferenceSession:
    """A session that computes a value from the values that are read."""
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
    result = copy_of(value)
    assert result is not None
    graph = value.producer().graph if value.producer() is not None else None  # type: ignore[union-attr]
    opsets = dict(graph.opset_imports) if graph is not None else {"": 20}
    whole = ir.Graph(inputs, [result], nodes=made, initializers=constants, opset_imports=opsets, name="shape_only")
    return open_session(ir.serde.serialize_model(ir.Model(whole, ir_version=10)).SerializeToString())


def trials(names: Sequence[sympy.Symbol], batch: sympy.Symbol | None) -> Iterator[dict[sympy.Symbol, int]]:
    """Lengths to try: every small one, and some far ones; of several names, small ones in all combinations."""
    lengths = [name for name in names if name != batch]
    values = (*range(1, 25), 37, 64) if len(lengths) < 2 else (1, 2, 3, 5, 8)
    for at, drawn in enumerate(itertools.product(values, repeat=len(lengths))):
        rows = {} if batch is None else {batch: 1 + at % 3}
        yield dict(zip(lengths, drawn, strict=True)) | rows


def counted_axis(value: ir.Value, batch: str | None, entry: int | None = None) -> int | None:
    """The axis along which a value holds 0, 1, 2, ... for all lengths, or None.

    Args:
        value: the value.
        batch: name of the batch axis.
        entry: which entry of the last axis is meant; None for the value itself.
    """
    found: set[int] | None = None
    try:
        function = ShapeOnly(value)
        for lengths in trials(function.names, None if batch is None else symbol(batch)):
            array = function.at(lengths)
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
        function = ShapeOnly(value)
        names = sorted(set(function.names) | symbols_of(size), key=str)
        for lengths in trials(names, None if batch is None else symbol(batch)):
            array = function.at(lengths)
            if array.size and (array.min() < 0 or array.max() >= _value(size, names, lengths)):
                return False
    except ValueError:
        return False
    return True
