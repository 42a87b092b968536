"""Computes the states of a rewritten graph from the states of the graph before the rewrite, with a small ONNX graph."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.runners.session import Session, open_structure
from compiler.graph.runners.structure import Structure, split
from compiler.graph.stages import Array, StateMap
from compiler.states.streaming.stable import Stable, is_constant


@dataclasses.dataclass(frozen=True)
class Projected(StateMap):
    """State map: the carried values are computed from the caches by a small graph.

    Attributes:
        model: ONNX graph from caches to carried values, dynamic along frames; None when there are none.
        gone: caches that are no longer states.
    """

    model: Structure | None
    gone: tuple[str, ...]

    def apply(self, states: Mapping[str, Array]) -> dict[str, Array]:
        """Map state values by input name to those of the rewritten graph; empty caches give empty values."""
        kept = {name: array for name, array in states.items() if name not in self.gone}
        if self.model is None:
            return kept
        graph = self.model.proto.graph
        feeds = {value.name: states[value.name] for value in graph.input}
        if any(array.size == 0 for array in feeds.values()):
            rows = next(iter(feeds.values())).shape[0]
            return kept | {str(o.name): _empty(o, rows) for o in self.model.model().graph.outputs}
        names = [output.name for output in graph.output]
        return kept | dict(zip(names, self._session.run(names, feeds), strict=True))

    @functools.cached_property
    def _session(self) -> Session:
        """Return the session of the map; opened once and kept, since opening takes longer than a call."""
        assert self.model is not None
        return open_structure(self.model)


def _empty(value: ir.Value, rows: int) -> Array:
    assert value.shape is not None and value.dtype is not None
    sizes = [rows if at == 0 else dim if isinstance(dim, int) else 0 for at, dim in enumerate(value.shape)]
    return np.zeros(sizes, value.dtype.numpy())


def map_of(model: ir.Model, stable: Stable, values: Sequence[ir.Value], names: Sequence[str]) -> Structure:
    """Return the graph that computes the old frames of stable values from the states.

    Args:
        model: the graph; unchanged.
        stable: the stable values of the graph.
        values: stable values to compute.
        names: names of the new graph's outputs.
    """
    return split(_Map(model, stable).model(values, names))


class _Map:
    """The graph from caches to carried values, with its own copies of the weights."""

    def __init__(self, model: ir.Model, stable: Stable) -> None:
        self.origin, self.stable = model, stable
        self.inputs: dict[ir.Value, ir.Value] = {}
        self.nodes: list[ir.Node] = []
        self.weights: list[ir.Value] = []
        self.copies: dict[ir.Value, ir.Value] = {}

    def model(self, values: Sequence[ir.Value], names: Sequence[str]) -> ir.Model:
        """Return a model whose outputs, under the given names, are the old frames of some values."""
        outputs = [self._old(value) for value in values]
        for value, output, name in zip(values, outputs, names, strict=True):
            assert value.shape is not None
            dims = list(value.shape)
            dims[self.stable.axes[value]] = self.stable.frames.cached_dim
            output.name, output.shape, output.type = name, ir.Shape(dims), value.type
        graph = ir.Graph(
            list(self.inputs.values()),
            outputs,
            nodes=self.nodes,
            initializers=self.weights,
            opset_imports=dict(self.origin.opset_imports),
            name="map",
        )
        return ir.Model(graph, ir_version=self.origin.ir_version)

    def _old(self, value: ir.Value) -> ir.Value:
        """Return the old frames of a stable value, or a copy of a constant."""
        if value in self.copies:
            return self.copies[value]
        cache = next((cache for cache in self.stable.caches if cache.joined is value), None)
        node = value.producer()
        if cache is not None:
            copy = ir.Value(name=cache.state.input, shape=cache.old.shape, type=cache.old.type)
            self.inputs[value] = copy
        elif graphs.array_of(value) is not None:
            tensor = ir.convenience.get_const_tensor(value)
            copy = ir.Value(name=value.name, const_value=tensor, shape=value.shape, type=value.type)
            self.weights.append(copy)
        else:
            assert node is not None and (value in self.stable.axes or is_constant(value))
            node_copy = copied(
                node,
                [None if operand is None else self._old(operand) for operand in node.inputs],
                [str(output.name) for output in node.outputs],
            )
            self.nodes.append(node_copy)
            self.copies |= zip(node.outputs, node_copy.outputs, strict=True)
            return self.copies[value]
        self.copies[value] = copy
        return copy


def copied(node: ir.Node, inputs: list[ir.Value | None], names: list[str]) -> ir.Node:
    """Return a node with the same operator on other inputs, with its outputs renamed."""
    return ir.Node(
        node.domain,
        node.op_type,
        inputs,
        list(node.attributes.values()),
        outputs=[ir.Value(name=name, type=value.type) for name, value in zip(names, node.outputs, strict=True)],
        name=f"{names[0]}_node",
        metadata_props=dict(node.metadata_props),
    )
