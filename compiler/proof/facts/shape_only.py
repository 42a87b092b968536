"""Values that follow from shapes alone, executed for given lengths.

index = Concat(Expand(Range(0, batch)), Expand(Range(0, time)))     at batch 3, time 5: [[[0 0] [0 1] ... [2 4]]]
"""

import functools
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir
import onnxruntime
import sympy

from compiler.graph.model import array_of, dims_of, dims_read, has_body, is_op
from compiler.graph.operators.traits import RANDOM
from compiler.graph.runners.session import open_session
from compiler.graph.sizes.expressions import Dim, normal_form
from compiler.graph.sizes.growth import function_of
from compiler.proof.facts.layout import symbols_of

MOST_NODES = 400
"""Nodes of the largest graph that is executed."""

Lengths: TypeAlias = Mapping[sympy.Symbol, int]
"""Values of axis names."""


class ShapeOnly:
    """Values as functions of lengths.

    Args:
        values: the values.

    Raises:
        ValueError: one depends on data, or on sizes that are not known.
    """

    def __init__(self, values: Sequence[ir.Value]) -> None:
        self.values = tuple(values)
        self.read: dict[ir.Value, tuple[Dim, ...]] = {}
        self.nodes = self._ancestors(values)
        self.names = sorted({name for dims in self.read.values() for dim in dims for name in symbols_of(dim)}, key=str)

    @functools.cached_property
    def session(self) -> onnxruntime.InferenceSession:
        """Return the session that computes the values."""
        return _session(self.nodes, list(self.read), self.values)

    def _ancestors(self, values: Sequence[ir.Value]) -> list[ir.Node]:
        """Return the nodes that the values are computed from, down to the sizes that are read."""
        ancestors: dict[ir.Node, None] = {}
        waiting = list(values)
        while waiting:
            current = waiting.pop()
            node = current.producer()
            if array_of(current) is not None or current in self.read or (node is not None and node in ancestors):
                continue
            if node is None or node.op_type in RANDOM or len(ancestors) > MOST_NODES:
                raise ValueError(f"{current.name!r} depends on data")
            if is_op(node, "Shape"):
                dims = _known(node.inputs[0])
                self.read[current] = tuple(dims[axis] for axis in dims_read(node, len(dims)))
            elif has_body(node):
                raise ValueError(f"{node.op_type} has a body")
            else:
                ancestors[node] = None
                waiting += [operand for operand in node.inputs if operand is not None]
        graph = next(iter(ancestors)).graph if ancestors else None
        return [node for node in graph if node in ancestors] if graph is not None else []

    def at(self, lengths: Lengths) -> list[np.ndarray]:
        """Return the values at given lengths.

        Raises:
            ValueError: the graph does not run for these lengths.
        """
        feeds = {}
        for value, dims in self.read.items():
            feeds[str(value.name)] = np.array([_value(dim, self.names, lengths) for dim in dims], np.int64)
        options = onnxruntime.RunOptions()
        options.log_severity_level = 4  # lengths that do not run are expected
        try:
            results = self.session.run(None, feeds, options)
        except Exception as error:
            raise ValueError(str(error)) from error
        return [np.asarray(result) for result in results]


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
    """Return a session that computes some values from others."""
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
    new_nodes = []
    for node in nodes:
        operands = [copy_of(operand) for operand in node.inputs]
        outputs = [copy_of(output) for output in node.outputs]
        attributes = list(node.attributes.values())
        outputs_named = [output for output in outputs if output is not None]
        new_nodes.append(
            ir.Node(node.domain, node.op_type, operands, attributes, outputs=outputs_named, version=node.version)
        )
    results = [result for value in values if (result := copy_of(value)) is not None]
    graph = next((node.graph for node in nodes if node.graph is not None), None)
    opsets = dict(graph.opset_imports) if graph is not None else {"": 20}
    whole = ir.Graph(inputs, results, nodes=new_nodes, initializers=constants, opset_imports=opsets, name="shape_only")
    return open_session(ir.serde.serialize_model(ir.Model(whole, ir_version=10)).SerializeToString())
