"""Gives a state along a padded axis one fixed size, by slicing it where the graph reads it and padding its output.

Before:
    weights [batch, text] -> ... -> next_weights [batch, text]
After:
    weights [batch, 64] -> Slice(:text) -> ... -> next_weights [batch, text] -> Pad -> [batch, 64], zeros behind

A stream has one length along such an axis, so that what lies behind it is never read. The state itself has one size for
every length and every bucket.
"""

from collections.abc import Mapping

import onnx_ir as ir

from compiler.build.capture.next_states import lengths_of
from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.stages import Array, Feed
from compiler.recipe.graph import Graph

STAMP = "capture"


def slice_states(spec: Graph, feed: Feed, states: Mapping[str, Array]) -> dict[str, Array]:
    """Return states sliced to the length of the call along every axis that they are held along.

    Args:
        spec: the graph's record.
        feed: the feed of the call.
        states: states by input, with the batch as first axis.
    """
    lengths = lengths_of(spec, feed)
    return {
        name: array[tuple(slice(lengths.get(str(dim))) for dim in spec.inputs[name].shape)]
        if spec.held_along(name)
        else array
        for name, array in states.items()
    }


def hold_states(model: ir.Model, spec: Graph) -> None:
    """Give the states of a graph along padded axes one size; the graph is changed in place.

    Raises:
        Refused: the size of a returned state is not known from the sizes of inputs.
    """
    inputs, outputs = graphs.inputs_named(model), graphs.outputs_named(model)
    for name, input_spec in spec.inputs.items():
        for axis in spec.held_along(name):
            if input_spec.state in outputs:
                _fill_up(model, spec, outputs[input_spec.state], axis)
            if name in inputs:
                _read_first_slots(model, spec, inputs[name], axis)
    graphs.infer_shapes(model)


def _read_first_slots(model: ir.Model, spec: Graph, state: ir.Value, axis: str) -> None:
    """Make a graph take all slots of a state, and read the first ones, as many as the call is long."""
    dims = list(graphs.dims_of(state) or ())
    at = dims.index(graphs.symbol(axis))
    insert = graphs.Inserter(model, STAMP, before=next(iter(model.graph)))
    bounds = [insert.int64s(0), _length(insert, model, spec, axis), insert.int64s(at)]
    sliced = insert.op("Slice", [state, *bounds], name=f"{state.name}_of_call", dtype=state.dtype, shape=state.shape)
    assert state.shape is not None
    sizes = list(state.shape)
    sizes[at] = spec.slots(axis)
    state.shape = ir.Shape(sizes)
    graphs.take_over(model, state, sliced, except_in=[node for node in [sliced.producer()] if node is not None])


def _fill_up(model: ir.Model, spec: Graph, state: ir.Value, axis: str) -> None:
    """Make a graph return all slots of a state."""
    dims, slots = list(graphs.dims_of(state) or ()), spec.slots(axis)
    if dims.count(graphs.symbol(axis)) != 1:
        raise Refused(
            f"a state along {axis!r} is returned as {list(map(str, dims))}, and not known to be as long as the call",
            cure=f"compute it from inputs along {axis!r}, and slice by fixed bounds: sizes must follow from shapes",
            place=Location(STAMP, tensor=str(state.name), axis=axis, source=graphs.source_of(state.producer())),
        )
    position, rank = dims.index(graphs.symbol(axis)), len(dims)
    insert = graphs.Inserter(model, STAMP, source=graphs.source_of(state.producer()))
    behind = insert.op("Sub", [insert.int64s(slots), _length(insert, model, spec, axis)], name=f"{axis}_free")
    amounts = [insert.int64s(*[0] * (rank + position)), behind]
    amounts += [insert.int64s(*[0] * (rank - position - 1))] if position < rank - 1 else []
    pads = insert.op("Concat", amounts, {"axis": 0}, name=f"{state.name}_amounts")
    sizes = [slots if place == position else size for place, size in enumerate(state.shape or ())]
    filled = insert.op("Pad", [state, pads], name=f"{state.name}_held", dtype=state.dtype, shape=sizes)
    graphs.take_over(model, state, filled, except_in=graphs.consumers_of(state))


def _length(insert: graphs.Inserter, model: ir.Model, spec: Graph, axis: str) -> ir.Value:
    """Return the length of a call, int64 [1], read from the shape of a fed input."""
    symbol, inputs = graphs.symbol(axis), graphs.inputs_named(model)
    fed = [inputs[name] for name, given in spec.inputs.items() if given.is_data and axis in given.shape]
    at = list(graphs.dims_of(fed[0]) or ()).index(symbol)
    return insert.op(
        "Shape", [fed[0]], {"start": at, "end": at + 1}, name=f"{axis}_of_call", dtype=ir.DataType.INT64, shape=[1]
    )
