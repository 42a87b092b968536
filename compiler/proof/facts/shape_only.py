"""Evaluates values that depend on shapes alone, for given axis lengths.

index = Concat(Expand(Range(0, batch)), Expand(Range(0, time)))     at batch 3, time 5: [[[0 0] [0 1] ... [2 4]]]
"""

import functools
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir
import sympy

from compiler.graph.model import array_of, dims_of, dims_read, has_body, is_op
from compiler.graph.operators.traits import RANDOM
from compiler.graph.runners.part import Part
from compiler.graph.sizes.expressions import Dim
from compiler.graph.sizes.growth import number
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
    def part(self) -> Part:
        """Return the part of the graph that computes the values from sizes."""
        graph = self.values[0].graph
        assert isinstance(graph, ir.Graph)
        return Part(graph, self.values, self.read)

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
        feeds = {
            str(value.name): np.array([number(dim, lengths) for dim in dims], np.int64)
            for value, dims in self.read.items()
        }
        try:
            return self.part.run(feeds)
        except Exception as error:
            raise ValueError(str(error)) from error


def _known(value: ir.Value | None) -> tuple[Dim, ...]:
    dims = None if value is None else dims_of(value)
    if dims is None or any(isinstance(name, sympy.Dummy) for dim in dims for name in symbols_of(dim)):
        raise ValueError("a size is not known")
    return dims
