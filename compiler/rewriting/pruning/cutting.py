"""Removes channels of an inner axis from a graph in place, by slicing every constant that has entries for them."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.rewriting.least_squares import Array
from compiler.rewriting.pruning.inner_axes import InnerAxis


def cut(model: ir.Model, axis: InnerAxis, kept: npt.NDArray[np.int64], stamp: str) -> None:
    """Take entries out of a graph; what reads them computes what it would with these entries at 0.

    Shapes of what is computed are forgotten, not inferred.

    Args:
        model: the graph.
        axis: its entries.
        kept: indices of those that stay, ascending.
        stamp: the pass, which the product names from then on.
    """
    for value, along in axis.constants:
        array = graphs.array_of(value)
        assert array is not None
        part = np.ascontiguousarray(np.take(array, axis.indices(kept, array.shape[along]), axis=along))
        graphs.take_over(model, value, graphs.Inserter(model, stamp).constant(part, f"{value.name}_cut"))
    axis.product.metadata_props[graphs.PASS_KEY] = stamp
    for value, along in axis.computed:
        _resize(model, value, along, axis, kept, stamp)
        value.shape = None
    for value, along in axis.carried:
        sizes: list[int | str | None] = [dim if isinstance(dim, int) else dim.value for dim in value.shape or ()]
        sizes[along] = len(axis.indices(kept, int(str(sizes[along]))))
        value.shape = ir.Shape(sizes)
    graphs.prune(model)


def _resize(
    model: ir.Model, value: ir.Value, along: int, axis: InnerAxis, kept: npt.NDArray[np.int64], stamp: str
) -> None:
    """Write the number of entries anew where the node that makes a value states it."""
    node = value.producer()
    if node is not None and graphs.is_op(node, "Conv") and along == 1 and graphs.int_attribute(node, "group", 1) > 1:
        groups = graphs.int_attribute(node, "group", 1)
        node.attributes["group"] = ir.AttrInt64("group", len(axis.indices(kept, groups)))
    if node is None or not graphs.is_op(node, "Reshape"):
        return
    target = graphs.array_of(node.inputs[1])
    assert target is not None
    if target[along] > 0:
        changed = target.copy()
        changed[along] = len(axis.indices(kept, int(target[along])))
        insert = graphs.Inserter(model, stamp, before=node)
        node.replace_input_with(1, insert.constant(changed, f"{node.name}_sizes"))


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
