"""Adds graph inputs that hold the true length of every row to a graph that is to be padded.

Before:
    x [batch, time, 80], cache [batch, cache, W]
After:
    the same, and time_length int64 [batch], real_length int64 [batch]; where the recipe names one, a mask of the cache

Without a batch axis a call is one row, whatever its inputs have in front (rows of a fixed number, layers, frames): the
lengths have one entry, which holds for all of it.
"""

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.stages import Lowered
from compiler.proof.facts.facts import refuse
from compiler.proof.padding.valid_slots import Length, ValidSlots
from runtime_lite.format.cache_axis import CacheAxis


def with_length_inputs(lowered: Lowered, stamp: str) -> ValidSlots:
    """Add the length inputs to the graph, and return the masks to be made from them.

    Args:
        lowered: the graph's record.
        stamp: name of the pass.

    Raises:
        Refused: the graph already has a value of that name.
    """
    batch: str | int = lowered.batch_axis if lowered.batch_axis is not None else 1
    lengths = []
    for padded_axis in lowered.padded_axes:
        lengths.append(
            Length(padded_axis.axis, _input(lowered.model, padded_axis.length_input, ir.DataType.INT64, [batch]))
        )
    for cache in lowered.caches:
        size = graphs.symbol(cache.axis) + frames_of_call(cache)
        value = _input(lowered.model, cache.length_input, ir.DataType.INT64, [batch])
        mask = None
        if cache.mask_input is not None:
            shape: list[int | str] = [batch, str(size)]
            mask = _input(lowered.model, cache.mask_input, ir.DataType.FLOAT, shape)
        lengths.append(Length(cache.axis, value, cache.slots, mask, size))
    return ValidSlots(lowered.model, lengths, batch, stamp)


def _input(model: ir.Model, name: str, dtype: ir.DataType, shape: list[int | str]) -> ir.Value:
    values = (
        *model.graph.inputs,
        *model.graph.initializers.values(),
        *(v for node in model.graph for v in node.outputs),
    )
    if name in {value.name for value in values}:
        raise refuse(f"the graph has a value {name!r} already", "choose another length_input or mask_input")
    value = ir.Value(name=name, shape=ir.Shape(shape))
    value.dtype = dtype
    model.graph.inputs.append(value)
    graphs.names_taken(model.graph).add(name)
    return value


def frames_of_call(cache: CacheAxis) -> Dim:
    """Return the number of frames that a call adds."""
    return cache.step if cache.added is None else graphs.expression(cache.added)
