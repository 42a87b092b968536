"""Turns inputs that count a stream's frames into states, which the graph increases by the frames of each call.

Before:
    offset [batch] is an input that nobody feeds back
After:
    offset_after = Add(offset, 4) is an output, and the state of offset; a stream begins with 0. Where chunks may be
    shorter it is Add(offset, Squeeze(Shape(features), 1)): the true length of each row, as every length in a graph.
"""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.stages import State
from compiler.proof.padding.arithmetic import Arithmetic
from compiler.recipe.graph import Graph


def count_states(spec: Graph) -> tuple[State, ...]:
    """Return the states that counting inputs make, in the order of inputs."""
    return tuple(State(name, _output_of(spec, name), None) for name, given in spec.inputs.items() if given.counts)


def frames_counted(spec: Graph, steps: Mapping[str, Dim]) -> dict[str, Dim]:
    """Return the number of frames that a call adds to each counting input, as an expression over its lengths.

    Args:
        spec: the graph's record.
        steps: by window, the frames that a call adds.
    """
    sizes: dict[str, Dim] = {name: axis.fixed for name, axis in spec.axes.items() if axis.fixed is not None}
    sizes |= {name: graphs.symbol(name) for name in spec.padded} | dict(steps)
    return {name: sizes[given.counts] for name, given in spec.inputs.items() if given.counts is not None}


def add_counts(model: ir.Model, spec: Graph, frames: Mapping[str, Dim]) -> None:
    """Make the graph output every count in the form that the next call takes.

    Args:
        model: the captured graph; changed.
        spec: the graph's record.
        frames: by counting input, the number of frames in a call.
    """
    inputs = graphs.inputs_named(model)
    for state in count_states(spec):
        _give_next(model, state, inputs[state.input], frames[state.input])


def start_counts(first: ir.Model, spec: Graph, frames: Mapping[str, Dim], counts: Mapping[str, ir.Value]) -> None:
    """Make the graph of the first call output every count, which starts at 0.

    Args:
        first: the captured graph of the first call; changed.
        spec: the graph's record.
        frames: by counting input, the number of frames in a call.
        counts: the inputs of the later calls, by name.
    """
    for state in count_states(spec):
        count = counts[state.input]
        assert count.dtype is not None and count.shape is not None
        insert = graphs.Inserter(first, "capture")
        dims = list(count.shape)
        fixed = [dim if isinstance(dim, int) else 1 for dim in dims]
        zeros = insert.constant(np.zeros(fixed, count.dtype.numpy()), f"{state.input}_start")
        if dims != fixed:  # [batch], the only shape of a count that names an axis
            rows = _size(first, insert, str(dims[0]))
            zeros = insert.op("Expand", [zeros, rows], name=f"{state.input}_rows", dtype=count.dtype, shape=dims)
        _give_next(first, state, zeros, frames[state.input])


def _give_next(model: ir.Model, state: State, count: ir.Value, frames: Dim) -> None:
    """Add the output of a count's next value."""
    assert count.dtype is not None
    taken = {value.name: value for node in model.graph for value in node.outputs}
    insert = graphs.Inserter(model, "capture")
    step = _step(model, insert, frames, count.dtype, f"{state.input}_frames")
    after = insert.op("Add", [count, step], name=state.output, dtype=count.dtype, shape=count.shape)
    if state.output in taken:
        taken[state.output].name = graphs.fresh_name(model.graph, f"{state.output}_inside")
    after.name = state.output
    model.graph.outputs.append(after)


def _step(model: ir.Model, insert: graphs.Inserter, frames: Dim, dtype: ir.DataType, name: str) -> ir.Value:
    """Return what a call adds to a count: a constant, or a value computed from the lengths of its chunk."""
    if isinstance(frames, int):
        return insert.constant(np.array(frames, dtype.numpy()), name)
    lengths = {str(each): _length(model, insert, str(each)) for each in frames.free_symbols}
    return insert.op("Cast", [Arithmetic(insert, lengths).value(frames)], {"to": dtype}, name=name, dtype=dtype)


def _length(model: ir.Model, insert: graphs.Inserter, axis: str) -> ir.Value:
    """Return the length of an axis as a scalar."""
    size = _size(model, insert, axis)
    return insert.op("Squeeze", [size, insert.int64s(0)], name=f"{axis}_heard", dtype=ir.DataType.INT64)


def _size(model: ir.Model, insert: graphs.Inserter, axis: str) -> ir.Value:
    """Return the length of an axis, int64 [1], read from an input that has the axis."""
    found = ((value, at) for value in model.graph.inputs for at, dim in enumerate(graphs.dims_of(value) or ())
             if dim == graphs.symbol(axis))  # fmt: skip
    value, at = next(found)
    return insert.op("Shape", [value], {"start": at, "end": at + 1}, name=f"{axis}_size", dtype=ir.DataType.INT64)


def _output_of(spec: Graph, name: str) -> str:
    """Return a name for a count's output that no other input or output has."""
    found = f"{name}_after"
    while found in spec.outputs or found in spec.inputs:
        found += "_"
    return found
