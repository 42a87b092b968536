"""Decomposes ai.onnx Attention into MatMul, Mul, Add, Where and Softmax nodes.

Before:
    y = Attention<is_causal = 1>(q [batch, heads, time, 16], k, v, mask [batch, 1, time, time])
After:
    scores = MatMul(q * sqrt(scale), Transpose(k * sqrt(scale)))
    visible = And(column <= row, mask)
    weights = Where(visible, Softmax(Where(visible, scores, lowest)), 0)
    y = MatMul(weights, v)

A row of scores that is masked completely gets weights of 0, and so a result of 0, as the specification demands. Values
that are added to the scores mask them when they are the lowest of their type or -infinity in ONNX Runtime's kernel; in
the specification only -infinity masks. Without a mask every row attends to its first column, and no Where follows the
Softmax.

Requires: symbolic shapes; opset 23.
Ensures: no Attention but those it keeps.
Keeps: nodes with a cache, with the scores as an output, with a softmax in another type than the operands have, with
    operands of other types than float16, float32 and float64, or without known heads; the rule of the operator refuses
    them by name.
Numerics: rounding of products and sums in another order.
Source: the function body of Attention in the ONNX operator specification, and ONNX Runtime's kernel for rows that are
    hidden whole.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.errors import Location
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Outcome, Refusal

OPSET = 23
TYPES = (ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE)
BESIDES = ("present_key", "present_value", "qk_matmul_output")
"""The outputs behind the result."""


@dataclasses.dataclass(frozen=True)
class CanonicalizeAttention:
    """Single operators for attention."""

    name: ClassVar[str] = "canonicalize_attention"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Write out Attention operators of the graph and the first-call graph by simpler ones."""
        matched = rewritten = 0
        refused: list[Refusal] = []
        for model in lowered.models:
            count = 0
            for node in graphs.nodes_of(model):
                if not graphs.is_op(node, "Attention"):
                    continue
                matched += 1
                graphs.infer_shapes(model)  # what the ones in front have become has shapes only now
                form = _form(model, node)
                if isinstance(form, str):
                    place = Location(node=str(node.name), op="Attention", source=graphs.source_of(node))
                    refused.append(Refusal(form, place))
                else:
                    _Writer(model, node, form).write()
                    count += 1
            if count:
                graphs.prune(model)
                graphs.infer_shapes(model)
            rewritten += count
        return Outcome(lowered, matched, rewritten, tuple(refused))


@dataclasses.dataclass(frozen=True)
class _Form:
    """What of an Attention node is known.

    Attributes:
        heads: of queries, and of keys and values.
        wide: whether the heads lie side by side in the last of three axes.
        scale: what both queries and keys are multiplied with.
        dtype: of all operands.
    """

    heads: tuple[int, int]
    wide: bool
    scale: float
    dtype: ir.DataType


def _form(model: ir.Model, node: ir.Node) -> _Form | str:
    """Return how a node can be written out, or why it cannot."""
    if model.opset_imports.get("") != OPSET:
        return f"expected opset {OPSET}, got {model.opset_imports.get('')}"
    operands = [*node.inputs, *[None] * 6][:6]
    query, key, value, mask = operands[:4]
    used = [name for name, out in zip(BESIDES, node.outputs[1:], strict=False) if out.uses() or out.is_graph_output()]
    if used or operands[4] is not None or operands[5] is not None:
        return f"a cache or the scores are taken in or given out: {', '.join(used) or 'past_key'}"
    if query is None or key is None or value is None:
        return "expected queries, keys and values"
    dtype = query.dtype
    if dtype not in TYPES or {key.dtype, value.dtype} != {dtype}:
        return f"expected one type of {[type_.name for type_ in TYPES]}, got {query.dtype}, {key.dtype}, {value.dtype}"
    if graphs.int_attribute(node, "softmax_precision", dtype.value) != dtype.value:
        return "its softmax has another type than its operands"
    if mask is not None and (mask.dtype not in (ir.DataType.BOOL, dtype) or mask.shape is None):
        return f"expected a mask of bool or {dtype.name} with known axes, got {mask.dtype}"
    return _heads(node, query, key, value, dtype)


def _heads(node: ir.Node, query: ir.Value, key: ir.Value, value: ir.Value, dtype: ir.DataType) -> _Form | str:
    dims = [graphs.dims_of(operand) or () for operand in (query, key, value)]
    wide = len(dims[0]) == 3
    if any(len(shape) != (3 if wide else 4) for shape in dims):
        return "expected operands of 3 or of 4 axes"
    if wide:
        heads = [graphs.int_attribute(node, name, 0) for name in ("q_num_heads", "kv_num_heads")]
    else:
        heads = [shape[1] if isinstance(shape[1], int) else 0 for shape in dims[:2]]
    width = dims[0][-1]
    if min(heads) < 1 or heads[0] % heads[1] or not isinstance(width, int):
        return f"expected known heads of one size, got {heads} heads of {width}"
    size = width // heads[0] if wide else width
    scale = graphs.attribute(node, "scale", 1.0 / math.sqrt(size))
    if not isinstance(scale, float) or not scale > 0:
        return f"expected a scale above 0, got {scale}"
    return _Form((heads[0], heads[1]), wide, math.sqrt(scale), dtype)


class _Writer:
    """Writes one node out."""

    def __init__(self, model: ir.Model, node: ir.Node, form: _Form) -> None:
        self.model = model
        self.node = node
        self.form = form
        self.insert = graphs.Inserter(model, CanonicalizeAttention.name, before=node)

    def op(
        self,
        op: str,
        inputs: Sequence[ir.Value],
        attributes: Mapping[str, int | Sequence[int]] | None = None,
        dtype: ir.DataType | None = None,
    ) -> ir.Value:
        """Return the output of a new node, named after its operator."""
        name = f"{self.node.outputs[0].name}_{op.lower()}"
        return self.insert.op(op, inputs, attributes, name=name, dtype=dtype or self.form.dtype)

    def number(self, number: float) -> ir.Value:
        """Return a scalar of the operands' type."""
        return self.insert.constant(np.array(number, self.form.dtype.numpy()), "number")

    def write(self) -> None:
        """Write the node out by simpler operators, and replace it."""
        node, form = self.node, self.form
        query, key, value = (
            self.parted(operand, heads)
            for operand, heads in zip(node.inputs[:3], (form.heads[0], form.heads[1], form.heads[1]), strict=True)
        )
        scale = self.number(form.scale)
        transposed = self.op("Transpose", [self.op("Mul", [self.repeated(key), scale])], {"perm": (0, 1, 3, 2)})
        scores = self.op("MatMul", [self.op("Mul", [query, scale]), transposed])
        result = self.op("MatMul", [self.weights(self.capped(scores), query, key), self.repeated(value)])
        if form.wide:
            merged = self.op("Transpose", [result], {"perm": (0, 2, 1, 3)})
            result = self.op("Reshape", [merged, self.insert.int64s(0, 0, -1)])
        graphs.take_over(self.model, node.outputs[0], result)

    def parted(self, operand: ir.Value | None, heads: int) -> ir.Value:
        """Return [batch, time, heads * size] as [batch, heads, time, size]; an operand of 4 axes as it is."""
        assert operand is not None
        if not self.form.wide:
            return operand
        apart = self.op("Reshape", [operand, self.insert.int64s(0, 0, heads, -1)])
        return self.op("Transpose", [apart], {"perm": (0, 2, 1, 3)})

    def repeated(self, operand: ir.Value) -> ir.Value:
        """Repeat every head of keys or values for the queries that share it."""
        heads, shared = self.form.heads
        if heads == shared:
            return operand
        order = self.insert.int64s(*(head // (heads // shared) for head in range(heads)))
        return self.op("Gather", [operand, order], {"axis": 1})

    def capped(self, scores: ir.Value) -> ir.Value:
        """Return scores limited to between -softcap and softcap."""
        cap = graphs.attribute(self.node, "softcap", 0.0)
        assert isinstance(cap, float)
        if not cap:
            return scores
        limit = self.number(cap)
        return self.op("Mul", [self.op("Tanh", [self.op("Div", [scores, limit])]), limit])

    def weights(self, scores: ir.Value, query: ir.Value, key: ir.Value) -> ir.Value:
        """Return the softmax over the scores that masks leave visible."""
        mask = self.node.inputs[3] if len(self.node.inputs) > 3 else None
        seen = []
        if graphs.int_attribute(self.node, "is_causal", 0):
            seen.append(self.op("LessOrEqual", [self.slots(key, 0), self.slots(query, 1)], dtype=ir.DataType.BOOL))
        lowest = self.number(float(np.finfo(self.form.dtype.numpy()).min))
        hides = False
        if mask is not None and mask.dtype == ir.DataType.BOOL:
            seen.append(mask)
            hides = True
        elif mask is not None:
            scores = self.op("Add", [scores, mask])
            hides = _may_hide(mask)
            if hides:
                seen.append(self.op("Greater", [mask, lowest], dtype=ir.DataType.BOOL))
        if not seen:
            return self.op("Softmax", [scores], {"axis": -1})
        visible = seen[0] if len(seen) == 1 else self.op("And", seen, dtype=ir.DataType.BOOL)
        weights = self.op("Softmax", [self.op("Where", [visible, scores, lowest])], {"axis": -1})
        return self.op("Where", [visible, weights, self.number(0.0)]) if hides else weights

    def slots(self, operand: ir.Value, axis: int) -> ir.Value:
        """Return 0, 1, 2, ... along the time axis of an operand, with an axis of size 1 inserted."""
        length = self.op("Shape", [operand], {"start": 2, "end": 3}, ir.DataType.INT64)
        scalar = self.op("Squeeze", [length, self.insert.int64s(0)], dtype=ir.DataType.INT64)
        ends = [self.insert.constant(np.array(number, np.int64), "int64") for number in (0, 1)]
        slots = self.op("Range", [ends[0], scalar, ends[1]], dtype=ir.DataType.INT64)
        return self.op("Unsqueeze", [slots, self.insert.int64s(axis)], dtype=ir.DataType.INT64)


def _may_hide(mask: ir.Value) -> bool:
    """Whether numbers that are added to scores may be the lowest of their type."""
    array = graphs.array_of(mask)
    return array is None or not np.all(array > np.finfo(array.dtype).min)
