"""Takes channels of an inner axis out of a graph, in place: out of every constant that has a part for each of them."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.rewriting.least_squares import Array
from compiler.rewriting.pruning.inner_axes import InnerAxis


def cut(model: ir.Model, axis: InnerAxis, kept: npt.NDArray[np.int64], stamp: str) -> None:
    """Take channels out of a graph; what reads them computes what it would with these channels at 0.

    Shapes of the channels are forgotten, not inferred.

    Args:
        model: the graph.
        axis: its channels.
        kept: indices of those that stay, ascending.
        stamp: the pass, which the product names from then on.
    """
    for value, along in axis.constants:
        array = graphs.array_of(value)
        assert array is not None
        part = np.ascontiguousarray(np.take(array, kept, axis=along))
        graphs.take_over(model, value, graphs.Inserter(model, stamp).constant(part, f"{value.name}_cut"))
    axis.product.metadata_props[graphs.PASS_KEY] = stamp
    for value in axis.values:
        value.shape = None
    graphs.prune(model)


def stamped(model: ir.Model, stamp: str) -> bool:
    """Whether the weights of some product are a pass's work."""
    return any(node.metadata_props.get(graphs.PASS_KEY) == stamp for node in model.graph)


def set_weights(model: ir.Model, product: ir.Node, weights: Array, stamp: str) -> None:
    """Give a product other weights, in place.

    Args:
        model: the graph.
        product: a MatMul with constant weights.
        weights: [channels, results], and a row for the bias behind where there is one.
        stamp: the pass.
    """
    insert, behind = graphs.Inserter(model, stamp, before=product), graphs.bias_behind(product)
    rows: Sequence[Array] = (weights,) if behind is None else (weights[:-1], weights[-1])
    product.replace_input_with(1, insert.constant(rows[0].astype(np.float32), f"{product.name}_refit"))
    if behind is not None:
        add, operand = behind
        old = graphs.array_of(add.inputs[operand])
        assert old is not None
        bias = rows[1].reshape(old.shape).astype(np.float32)
        add.replace_input_with(operand, insert.constant(bias, f"{product.name}_refit_bias"))
    graphs.prune(model)


def affine_weights(axis: InnerAxis) -> Array:
    """Return the weights of a product, and the bias behind it as one more row; float64 [channels (and 1), results]."""
    rows = [axis.weights] if axis.bias is None else [axis.weights, axis.bias[np.newaxis]]
    return np.concatenate(rows).astype(np.float64)
