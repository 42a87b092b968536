"""Perturbs every rounding of a graph at random, to find which results depend on rounding.

    x -> MatMul -> LayerNormalization -> y    x -> MatMul -> (1 + e) -> LayerNormalization -> (1 + e) -> y

At the edges of its range a model may be ill-conditioned: of a constant signal x - mean(x) is nothing but rounding, and
x / std(x) is 0 / 0 in one order of summation and noise / noise in another. Running the graph beside its perturbed copy
shows which numbers those are (Monte Carlo arithmetic). What is exact stays so: zeros, selections, masks that come from
whole numbers, and sizes.
"""

import dataclasses

import numpy as np
import onnx_ir as ir

from compiler.build.verify.explained_rounding import Rounding
from compiler.calib.deciding_numbers import SIZE_OF
from compiler.calib.rounding_noise import rounding_nodes
from compiler.graph import model as graphs
from compiler.graph.operators.axes import perm_of
from compiler.graph.stages import Lowered

STAMP = "perturbed"

SIZE = "slipway.perturbed_by"
"""The input that says by how much, relative to each result."""

FINE = Rounding.FLOAT32.value
"""About one rounding, with slack for sums in another order."""

COARSE = 2.0**-12
"""Strength of rounding at which every result changes; it shows whether rounding decides that a number is finite."""


def perturbed(lowered: Lowered) -> Lowered:
    """Return a copy in which every rounded result is perturbed randomly in every call, by up to the input `SIZE`."""
    first = None if lowered.first_call is None else _perturbed(lowered.first_call)
    return dataclasses.replace(lowered, model=_perturbed(lowered.model), first_call=first)


def _perturbed(model: ir.Model) -> ir.Model:
    copy = graphs.clone(model)
    _turn_weights(copy)
    computed = _computed(copy)
    size = ir.val(SIZE, ir.DataType.FLOAT, [])
    copy.graph.inputs.append(size)
    rounding = [node for node in rounding_nodes(copy) if node in computed]
    for index, node in enumerate(rounding):
        insert = graphs.Inserter(copy, STAMP, after=node)
        for output in node.outputs:
            is_array = isinstance(output.type, ir.TensorType) and output.dtype == ir.DataType.FLOAT  # or a sequence
            if is_array and (output.uses() or output.is_graph_output()):
                _perturb(copy, insert, output, size, number=index + 1)
    return copy


def _turn_weights(model: ir.Model) -> None:
    """Replace transposes of weights in every call, which take as long as products, by transposed weights."""
    for node in [node for node in model.graph if graphs.is_op(node, "Transpose")]:
        (weights,), transposed = node.inputs, node.outputs[0]
        array = None if weights is None or weights.is_graph_input() else graphs.array_of(weights)
        if array is not None and not transposed.is_graph_output():
            axes = perm_of(node, array.ndim)
            insert = graphs.Inserter(model, STAMP, before=node)
            graphs.take_over(model, transposed, insert.constant(np.ascontiguousarray(array.transpose(axes)), "turned"))
    graphs.prune(model)


def _computed(model: ir.Model) -> set[ir.Node]:
    """Return the nodes whose results depend on the contents of inputs, not on their sizes alone."""
    known, found = set(model.graph.inputs), set[ir.Node]()
    for node in model.graph:
        if not graphs.is_op(node, *SIZE_OF) and known.intersection(node.inputs):
            found.add(node)
            known.update(node.outputs)
    return found


def _perturb(model: ir.Model, insert: graphs.Inserter, value: ir.Value, size: ir.Value, number: int) -> None:
    kind = value.dtype
    draw = {"low": -1.0, "high": 1.0, "seed": float(number)}
    share = insert.op("RandomUniformLike", [value], draw, name=f"share_{number}", dtype=kind)
    off = insert.op("Mul", [share, size], name=f"off_{number}", dtype=kind)
    one = insert.constant(np.array(1.0, np.float32), "exact")
    scale = insert.op("Add", [off, one], name=f"scale_{number}", dtype=kind)
    moved = insert.op("Mul", [value, scale], name=f"perturbed_{number}", shape=value.shape, dtype=kind)
    new = [node for each in (share, moved) if (node := each.producer()) is not None]
    graphs.take_over(model, value, moved, except_in=new)
