"""Chooses the sizes of axes other than time at which position-dependent values are evaluated.

All sizes are evaluated, except along axes on which the value is only repeated: there size 1 is enough.

    Expand(mask, [batch, 1, time, time])      repeated along the batch
    places < heard - 2                        depends on the size of the axis `heard`
"""

import itertools
import math
from collections.abc import Mapping

import onnx_ir as ir
import sympy

from compiler.graph import model as graphs
from compiler.graph.lengths.symbolic_values import symbolic_values_of
from compiler.graph.operators.traits import ENTRYWISE
from compiler.proof.facts.shape_only import ShapeOnly

SHAPES = {"ConstantOfShape": 0, "Expand": 1, "Reshape": 1}
"""A list of its own: operators with an operand that says how many entries there are, and nothing of what they hold."""

REPEATING = ENTRYWISE | {"ConstantOfShape", "Expand", "Squeeze", "Transpose", "Unsqueeze"}
"""A list of its own: operators that do along every axis the same at each of its places."""

MOST_SIZES = 2048
"""For which one value is looked at."""


class NotBounded(Exception):
    """There are too many sizes to check each; the text names the axis."""


def sizes_of(made: ShapeOnly, frames: sympy.Symbol, most: Mapping[str, int]) -> list[dict[sympy.Symbol, int]]:
    """Return every assignment of sizes to axes other than frames on which the value's entries may depend.

    Args:
        made: the value, to be evaluated from shapes.
        frames: the number of frames.
        most: the largest sizes, by name.

    Raises:
        NotBounded: there is no largest size, or there are too many.
    """
    others = [name for name in made.names if name != frames]
    ranges = {name: range(1, 2) for name in others}
    for name in others:
        if not is_repeated(made, name):
            if str(name) not in most:
                raise NotBounded(f"it changes with the length of axis {name}, which has no largest size in the recipe")
            ranges[name] = range(1, most[str(name)] + 1)
    if math.prod(len(sizes) for sizes in ranges.values()) > MOST_SIZES:
        names = " and ".join(str(name) for name, sizes in ranges.items() if len(sizes) > 1)
        raise NotBounded(f"it changes with the length of axis {names}, which has too many sizes to look at each")
    return [dict(zip(ranges, sizes, strict=True)) for sizes in itertools.product(*ranges.values())]


def is_repeated(made: ShapeOnly, name: sympy.Symbol) -> bool:
    """Whether a value repeats the same entries along the axis of a name, for each of its sizes."""
    carrying = {value for value, dims in made.read.items() if any(graphs.mentions(dim, str(name)) for dim in dims)}
    for node in made.nodes:
        data_operands = [value for number, value in enumerate(node.inputs) if number != SHAPES.get(node.op_type)]
        is_carried = any(value in carrying for value in data_operands)
        for value in node.outputs:
            if not _is_along(value, name, node):
                return False
            numbers = symbolic_values_of(value)
            if is_carried if numbers is None else any(graphs.mentions(size, str(name)) for size in numbers):
                carrying.add(value)
    return not carrying & set(made.values)


def _is_along(value: ir.Value, name: sympy.Symbol, node: ir.Node) -> bool:
    """Whether a size is an axis of its own that the operator treats alike at every position."""
    shape = graphs.dims_of(value)
    given = [graphs.dims_of(each) or () for each in node.inputs if each is not None]
    sized = [dim for dims in (shape or (), *given) for dim in dims if graphs.mentions(dim, str(name))]
    if shape is None or not sized:
        return shape is not None
    if node.op_type == "Reshape":
        return given[0][:1] == shape[:1] == (name,) and sized == [name, name]
    return node.op_type in REPEATING and all(dim == name for dim in sized)
