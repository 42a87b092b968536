"""Finds the range of every integer input: the recipe's, checked against lookup tables, or all legal indices."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph.stages import State
from compiler.proof.facts.lookup_ranges import Carried, Ranges, lookup_ranges
from compiler.recipe.graph import Graph


def ranges_of_lookups(model: ir.Model, spec: Graph, states: Sequence[State] = ()) -> Ranges:
    """Return the range of integers that inputs hold: declared, or those that are legal indices of tables.

    Args:
        model: the captured graph, with shapes.
        spec: the graph's record.
        states: states that a stream carries.

    Raises:
        Refused: a declared number is an index outside a table.
    """
    declared = {name: input_spec.range for name, input_spec in spec.inputs.items() if input_spec.range is not None}
    fed = [name for name, input_spec in spec.inputs.items() if input_spec.is_data]
    sizes = {name: axis.fixed for name, axis in spec.axes.items() if axis.fixed is not None}
    carried = {state.input: Carried(state.output, _begins(state)) for state in states if _is_whole(model, state)}
    return lookup_ranges(model, declared, fed, sizes, carried)


def _is_whole(model: ir.Model, state: State) -> bool:
    dtype = next((value.dtype for value in model.graph.inputs if value.name == state.input), None)
    return dtype is not None and dtype.is_integer()


def _begins(state: State) -> tuple[int, int]:
    numbers = np.asarray(state.initial, np.int64)
    return int(numbers.min()), int(numbers.max())
