"""Folds constant factors of values into the weights and biases from which the values are computed.

Before:
    y = Mul(Add(MatMul(x, weights), bias), 0.5);  scores = Div(MatMul(q, keys), 8) with q of a product
After:
    y = Add(MatMul(x, weights * 0.5), bias * 0.5);  scores = MatMul(q, keys) with q of weights / 8

A factor goes through sums and joins (into every part), products (into one operand), and whatever only moves entries.
It is taken along only where everything on its way is read by nothing else, and ends in constants.

Requires: constant weights.
Ensures: nothing; one node fewer per factor.
Keeps: a factor of which a part ends in an input, or in something that others read; large constants that others read.
Numerics: exact for powers of two, short of overflow and of numbers too small to be normal; else weights are rounded.
Source: products and sums are linear.
"""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.traits import PICKING
from compiler.graph.stages import Array, Lowered, Outcome

MOVED = PICKING - {"Split"}
"""The factor of the result is that of the first operand."""

SHARED_BYTES = 1 << 14
"""Constants up to this size may have other readers, and are there twice then."""

Use = tuple[ir.Node, int]
"""A node and which of its operands."""


@dataclasses.dataclass(frozen=True)
class FoldFactors:
    """Constant factors inside weights."""

    name: ClassVar[str] = "fold_factors"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Fold constant factors into weights, in place."""
        counts = [_fold_all(model) for model in lowered.models]
        return Outcome(lowered, sum(matched for matched, _ in counts), sum(rewritten for _, rewritten in counts))


def _fold_all(model: ir.Model) -> tuple[int, int]:
    """Return the number of factors in one graph, and how many were folded into weights."""
    matched, rewritten = 0, 0
    graphs.infer_shapes(model)
    for node in graphs.nodes_of(model):
        found = _factor(node)
        if found is not None:
            matched += 1
            rewritten += _fold(model, node, *found)
    if rewritten:
        graphs.prune(model)
    return matched, rewritten


def _factor(node: ir.Node) -> tuple[ir.Value, float] | None:
    """Return the value that a node scales, and the constant factor; None for other nodes."""
    if not graphs.is_op(node, "Mul", "Div") or node.outputs[0].dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        return None
    for position, value in enumerate(node.inputs[: 1 if node.op_type == "Div" else 2]):
        array = graphs.array_of(node.inputs[1 - position])
        dims = None if value is None else graphs.dims_of(value)
        if value is None or array is None or array.size != 1 or dims is None or array.ndim > len(dims):
            continue
        number = float(array.reshape(()))
        if number == 0 or not np.isfinite(number) or graphs.array_of(value) is not None:
            continue
        return value, 1.0 / number if node.op_type == "Div" else number
    return None


def _fold(model: ir.Model, node: ir.Node, value: ir.Value, factor: float) -> bool:
    """Move a factor from a value into constants that it is computed from; return whether that was possible."""
    for constants_first in (True, False):
        way = _Way(factor, constants_first=constants_first)
        if way.scale(value) and way.is_closed(node):
            for (reader, position), array in way.scaled.items():
                old = reader.inputs[position]
                assert old is not None
                insert = graphs.Inserter(model, FoldFactors.name, before=reader)
                reader.replace_input_with(
                    position, insert.constant(array, f"{str(old.name).split('_scaled_')[0]}_scaled")
                )
            graphs.take_over(model, node.outputs[0], value)
            model.graph.remove(node, safe=True)  # it is no reader of the value any more
            return True
    return False


class _Way:
    """The way of a factor back from a value to constants.

    Attributes:
        values: that are to be multiplied.
        uses: operands through which a node gets the factor.
        scaled: constants multiplied, by their use.
    """

    def __init__(self, factor: float, *, constants_first: bool) -> None:
        self.factor, self.constants_first = factor, constants_first
        self.values: set[ir.Value] = set()
        self.uses: set[Use] = set()
        self.scaled: dict[Use, Array] = {}

    def scale(self, value: ir.Value) -> bool:
        """Record how a value is scaled by scaling its inputs; return whether that is possible."""
        if value in self.values:
            return True
        node = value.producer()
        if node is None or value.is_graph_output() or len(node.outputs) != 1:
            return False
        self.values.add(value)
        if graphs.is_op(node, "Add", "Sub", "Concat"):
            return all(self._through(node, position) for position in range(len(node.inputs)))
        if graphs.is_op(node, "Neg", *MOVED):
            return self._through(node, 0)
        if graphs.is_op(node, "Conv", "Gemm"):
            rest = range(2, len(node.inputs))
            return self._constant(node, 1) and all(
                self._constant(node, position) for position in rest if node.inputs[position]
            )
        if graphs.is_op(node, "Div"):
            return self._through(node, 0)
        return graphs.is_op(node, "MatMul", "Mul") and any(
            self._attempt(node, position) for position in self._operands(node)
        )

    def _operands(self, node: ir.Node) -> Iterator[int]:
        """Yield the operands of a product in the order to try them."""
        order = (0, 1) if node.inputs[0] is not node.inputs[1] else ()
        known = [at for at in order if node.inputs[at] in self.values]
        constants = [at for at in order if graphs.array_of(node.inputs[at]) is not None]
        yield from dict.fromkeys([*known, *(constants if self.constants_first else ()), *order])

    def _attempt(self, node: ir.Node, at: int) -> bool:
        kept = set(self.values), set(self.uses), dict(self.scaled)
        if self._through(node, at):
            return True
        self.values, self.uses, self.scaled = kept
        return False

    def _through(self, node: ir.Node, at: int) -> bool:
        """Scale an operand of a node, constant or computed; return whether that was possible."""
        value = node.inputs[at]
        if value is None:
            return False
        if graphs.array_of(value) is not None:
            return self._constant(node, at)
        self.uses.add((node, at))
        return self.scale(value)

    def _constant(self, node: ir.Node, at: int) -> bool:
        """Scale a constant operand of a node; return whether that was possible."""
        value = node.inputs[at]
        array = graphs.array_of(value)
        if value is None or array is None or not np.issubdtype(array.dtype, np.floating):
            return False
        if array.nbytes > SHARED_BYTES and len(value.uses()) > 1:
            return False
        with np.errstate(over="ignore", under="ignore"):
            scaled_array = (array.astype(np.float64) * self.factor).astype(array.dtype)
        tiny = np.finfo(array.dtype).tiny
        lost = (np.abs(scaled_array) < tiny) & (array != 0) & (np.abs(array) >= tiny)
        if np.any(lost) or not np.array_equal(np.isfinite(scaled_array), np.isfinite(array)):
            return False
        self.scaled[(node, at)] = scaled_array
        return True

    def is_closed(self, node: ir.Node) -> bool:
        """Whether only nodes on the way, and the node that it begins at, read the scaled values."""
        return all(
            use.node is node or (use.node, use.idx) in self.uses for value in self.values for use in value.uses()
        )
