"""Merges batch and time into one axis, [batch * time, channels], where a graph computes each frame by itself.

Before:
    y = MatMul(x [batch, 16, 256], weights [256, 512]);  z = Add(y, bias [512]);  n = LayerNormalization(z)
After:
    r = Reshape(x, [-1, 256]);  y = MatMul(r, weights);  z = Add(y, bias);  n = LayerNormalization(z)
    then Reshape(n, [-1, 16, 512]) where something reads it that is not done row by row; the same for dequantised codes

Backends have fused kernels (MatMul and bias, MatMul and activation) for matrices only, and fuse an addition with the
normalisation behind it into a slower kernel where there are three axes.

Requires: symbolic shapes with at most one size that is no number.
Ensures: no product with a constant matrix has more than two axes, where its shape allows it.
Keeps: products of two computed values; operators of which an operand is spread along other axes than the last.
Numerics: order of summation (a backend may add the bias first).
Source: rows of a product are independent of one another.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.operators.axes import axis_of
from compiler.graph.operators.traits import OF_ALIKE_SHAPES
from compiler.graph.stages import Lowered, Outcome
from compiler.numerics.quantization.one_grid import has_one_grid

ALONG_THE_LAST = frozenset({"Concat", "LayerNormalization", "LogSoftmax", "Softmax", "Split"})
"""A list of its own: work along an axis that they name, so row by row where it is the last one."""


@dataclasses.dataclass(frozen=True)
class MergeRows:
    """Two axes wherever rows are computed one by one."""

    name: ClassVar[str] = "merge_rows"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Compute row by row on [batch * time, channels] instead of [batch, time, channels], in place."""
        graphs.infer_shapes(lowered.model)
        work = _Merging(lowered.model)
        products = [node for node in graphs.nodes_of(lowered.model) if _is_product(node)]
        for node in graphs.nodes_of(lowered.model) if products else ():
            work.visit(node)
        if work.merged:
            graphs.prune(lowered.model)
            graphs.infer_shapes(lowered.model)
        return Outcome(lowered, len(products), work.merged)


class _Merging:
    """The nodes and values that have been merged so far.

    Attributes:
        rows: value -> the same value with its leading axes merged, for values that a Reshape splits.
        merged: number of merged products.
    """

    def __init__(self, model: ir.Model) -> None:
        self.model = model
        self.rows: dict[ir.Value, ir.Value] = {}
        self.merged = 0

    def visit(self, node: ir.Node) -> None:
        """Rewrite a node to compute on merged rows, where possible."""
        if _is_product(node):
            operand = self._undone(node)
            self._replace(node, [self._rows_of(node, operand), node.inputs[1]])
            self.merged += 1
        elif graphs.is_op(node, "Reshape"):
            self._reshape(node)
        elif any(value in self.rows for value in node.inputs):
            operands = self._operands(node)
            if operands is not None:
                self._replace(node, operands)

    def _undone(self, product: ir.Node) -> ir.Value:
        """Return the operand of a product; a dequantization in front of it is rewritten first."""
        operand = product.inputs[0]
        maker = None if operand is None else operand.producer()
        rows = self._operands(maker) if maker is not None and has_one_grid(maker) else None
        if maker is not None and rows is not None:
            self._replace(maker, rows)
        operand = product.inputs[0]
        assert operand is not None
        return operand

    def _rows_of(self, node: ir.Node, value: ir.Value) -> ir.Value:
        """Return a value with its leading axes merged, in front of a node that reads it."""
        if value not in self.rows:
            maker = value.producer()
            source = maker.inputs[0] if maker is not None and graphs.is_op(maker, "Reshape") else value
            dims = graphs.dims_of(value)
            assert dims is not None and isinstance(dims[-1], int)
            insert = graphs.Inserter(self.model, MergeRows.name, before=node)
            self.rows[value] = insert.op(
                "Reshape", [source, insert.int64s(-1, dims[-1])], name=f"{value.name}_rows", dtype=value.dtype
            )
        return self.rows[value]

    def _operands(self, node: ir.Node) -> list[ir.Value | None] | None:
        """Return a node's operands on merged rows; None where it does not work row by row."""
        shapes = [_mergeable(value) for value in node.outputs]
        if not shapes or any(dims is None for dims in shapes):
            return None
        dims = shapes[0]
        assert dims is not None
        if graphs.is_op(node, *ALONG_THE_LAST):
            if axis_of(node, len(dims)) != len(dims) - 1:
                return None
            data = len(node.inputs) if node.op_type == "Concat" else 1
            read = [self._over_rows(node, value, dims[:-1]) for value in node.inputs[:data]]
            return None if any(value is None for value in read) else [*read, *node.inputs[data:]]
        if has_one_grid(node):
            rows = self._over_rows(node, node.inputs[0], dims[:-1])
            return None if rows is None else [rows, *node.inputs[1:]]
        if not graphs.is_op(node, *OF_ALIKE_SHAPES):
            return None
        read = [value if value is None else self._entries(node, value, dims) for value in node.inputs]
        return None if any(a is None and b is not None for a, b in zip(read, node.inputs, strict=True)) else read

    def _over_rows(self, node: ir.Node, value: ir.Value | None, leading: tuple[Dim, ...]) -> ir.Value | None:
        """Return a value with merged leading axes, if it has exactly these; else None."""
        dims = None if value is None else _mergeable(value)
        return self._rows_of(node, value) if value is not None and dims and dims[:-1] == leading else None

    def _entries(self, node: ir.Node, value: ir.Value, dims: tuple[Dim, ...]) -> ir.Value | None:
        """Return an operand on merged rows, if it has the result's shape or broadcasts along rows; else None."""
        if graphs.dims_of(value) == dims:
            return self._rows_of(node, value)
        array = graphs.array_of(value)
        if array is None or array.size != (array.shape or (1,))[-1] or array.ndim > len(dims):
            return None
        if array.ndim < 2:
            return value
        return graphs.Inserter(self.model, MergeRows.name, before=node).constant(array.reshape(-1), "spread")

    def _replace(self, node: ir.Node, operands: Sequence[ir.Value | None]) -> None:
        """Replace a node by the same operator on merged rows, with results reshaped for other readers."""
        insert = graphs.Inserter(self.model, MergeRows.name, before=node)
        outputs = [
            ir.Value(name=graphs.fresh_name(self.model.graph, f"{old.name}_merged"), type=old.type)
            for old in node.outputs
        ]
        attributes = {name: value for name, value in node.attributes.items() if name != "axis"}
        if graphs.is_op(node, *ALONG_THE_LAST):
            attributes["axis"] = ir.AttrInt64("axis", -1)
        merged_node = ir.Node(
            "", node.op_type, operands, list(attributes.values()), outputs=outputs, name=f"{outputs[0].name}_node"
        )
        insert.place(merged_node)
        for old, new in zip(node.outputs, outputs, strict=True):
            target = _target(graphs.dims_of(old) or ())
            assert target is not None
            back = insert.op("Reshape", [new, insert.int64s(*target)], name=f"{old.name}_parted", dtype=old.dtype)
            back.shape = old.shape
            self.rows[back] = new
            graphs.take_over(self.model, old, back)

    def _reshape(self, node: ir.Node) -> None:
        """Make a Reshape read merged rows, where its operand has them."""
        value = node.inputs[0]
        target = _target(graphs.dims_of(node.outputs[0]) or ())
        if value in self.rows and value is not None and target is not None:
            node.replace_input_with(0, self.rows[value])
            node.replace_input_with(1, graphs.Inserter(self.model, MergeRows.name, before=node).int64s(*target))
            node.attributes.pop("allowzero", None)


def _is_product(node: ir.Node) -> bool:
    """Whether a node multiplies a value of more than two axes by a constant matrix."""
    if not graphs.is_op(node, "MatMul") or node.inputs[0] is None or _mergeable(node.inputs[0]) is None:
        return False
    return _is_matrix(node.inputs[1]) and _mergeable(node.outputs[0]) is not None


def _is_matrix(value: ir.Value | None) -> bool:
    """Whether a value is a constant matrix, of floats or of dequantized codes."""
    maker = None if value is None else value.producer()
    if maker is not None and graphs.is_op(maker, "DequantizeLinear"):
        value = maker.inputs[0]
    array = graphs.array_of(value)
    return array is not None and array.ndim == 2


def _mergeable(value: ir.Value) -> tuple[Dim, ...] | None:
    """Return the sizes of a value of more than two axes that a Reshape can restore; None for other values."""
    dims = graphs.dims_of(value)
    if dims is None or len(dims) < 3 or _target(dims) is None or not isinstance(dims[-1], int):
        return None
    return dims


def _target(dims: Sequence[Dim]) -> tuple[int, ...] | None:
    """Return a target shape for Reshape, with -1 for the size that is not fixed; None where there is no such shape."""
    sizes = tuple(dim if isinstance(dim, int) else -1 for dim in dims)
    return sizes if sizes.count(-1) <= 1 and 0 not in sizes and sizes else None
