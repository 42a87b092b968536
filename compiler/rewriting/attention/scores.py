"""Reads the nodes between the two MatMuls of attention: scale factors, added terms, masks and the Softmax.

scores = MatMul(queries, keys) -> Mul, Div by a number | Add of a term | Where(seen, scores, a number that masks)
       -> Softmax along the last axis -> Where(seen, weights, 0), or nothing -> MatMul(weights, values)
"""

import dataclasses
import math
from collections.abc import Sequence

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of

HIDES = -1e9
"""The largest number that hides: as a score it gives a weight of 0 where another score of the row lies above -1e8."""

BEHIND = ("Where", "QuantizeLinear", "DequantizeLinear", "Cast", "Identity", "Slice", "Split")
"""A list of its own: what may lie between weights and the product with values."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One operator between scores and softmax.

    Attributes:
        node: a Mul, Div, Add or Where.
        at: which of its operands the scores are.
    """

    node: ir.Node
    at: int

    @property
    def other(self) -> ir.Value:
        """Return the operand that is a factor, a term, or a mask's condition."""
        value = self.node.inputs[1 - self.at]
        assert value is not None
        return value

    @property
    def number(self) -> float:
        """Return the number that a factor multiplies by, or that a mask writes."""
        array = graphs.array_of(self.node.inputs[2] if self.is_mask else self.other)
        assert array is not None
        number = float(array.reshape(()))
        return 1.0 / number if self.node.op_type == "Div" else number

    @property
    def is_mask(self) -> bool:
        """Whether the step masks scores."""
        return self.node.op_type == "Where"

    @property
    def is_factor(self) -> bool:
        """Whether the step multiplies by a constant."""
        return self.node.op_type in ("Mul", "Div")


@dataclasses.dataclass(frozen=True)
class Scores:
    """One attention, from its first product to its second.

    Attributes:
        product: of queries and keys.
        steps: from the product to the softmax.
        softmax: its node.
        clears: the selection that gives rows in which nothing is seen weights of 0, by the same condition as the only
            mask; or None.
        context: the product with the values.
    """

    product: ir.Node
    steps: tuple[Step, ...]
    softmax: ir.Node
    clears: ir.Node | None
    context: ir.Node

    @property
    def masks(self) -> tuple[Step, ...]:
        """Return the steps that mask scores."""
        return tuple(step for step in self.steps if step.is_mask)

    @property
    def scale(self) -> float:
        """Return the factor that scales the product."""
        return self.factor_from(0)

    @property
    def fills(self) -> tuple[float, ...]:
        """Return the score of masked positions at the softmax, for each mask."""
        return tuple(step.number * self.factor_from(at) for at, step in enumerate(self.steps) if step.is_mask)

    def factor_from(self, place: int) -> float:
        """Return the product of the factors applied between a step's operand and the softmax."""
        return math.prod((step.number for step in self.steps[place:] if step.is_factor), start=1.0)


def weights_for_values(softmax: ir.Node) -> ir.Node | None:
    """Return the product of a softmax's weights, possibly moved, with values; None where there is none."""
    waiting, seen = [softmax], {softmax}
    while waiting:
        node = waiting.pop()
        for reader in (each for value in node.outputs for each in graphs.consumers_of(value)):
            if graphs.is_op(reader, "MatMul") and reader.inputs[0] in node.outputs:
                return None if graphs.array_of(reader.inputs[1]) is not None else reader
            if graphs.is_op(reader, *BEHIND) and reader not in seen:
                seen.add(reader)
                waiting.append(reader)
    return None


def read_scores(softmax: ir.Node) -> Scores | str:
    """Return the structure of the scores around a softmax, or why it is no such attention."""
    weights = softmax.outputs[0]
    rank = len(graphs.dims_of(weights) or ())
    if not rank or axis_of(softmax, rank) != rank - 1:
        return "expected a softmax along the last axis"
    steps_or_reason = _steps(softmax.inputs[0])
    if isinstance(steps_or_reason, str):
        return steps_or_reason
    product, steps = steps_or_reason
    if weights.dtype != ir.DataType.FLOAT:
        return f"expected float32, got {weights.dtype}"
    clears = next((node for node in graphs.consumers_of(weights) if _clears(node, weights, steps)), None)
    if clears is not None and len(graphs.consumers_of(weights)) == 1:
        weights = clears.outputs[0]
    context = graphs.only_reader(weights)
    if context is None or not graphs.is_op(context, "MatMul") or context.inputs[0] is not weights:
        readers = ", ".join(node.op_type for node in graphs.consumers_of(weights)) or "the caller"
        return f"expected weights to be read by the product with values alone, got {readers}"
    return _unquantised(Scores(product, tuple(steps), softmax, clears, context))


def _steps(value: ir.Value | None) -> tuple[ir.Node, list[Step]] | str:
    """Return the product that scores come from, and the steps after it up to a value; or why there is none."""
    node = None if value is None else value.producer()
    if value is None or node is None:
        return "expected a product of queries and keys, got none"
    if graphs.only_reader(value) is None:
        return f"{value.name} is read by more than the softmax"
    if graphs.is_op(node, "MatMul"):
        constant = any(graphs.array_of(operand) is not None for operand in node.inputs)
        return "expected a product of queries and keys, got one with a constant" if constant else (node, [])
    reason = f"{node.op_type} lies between scores and softmax"
    for step in _read(node):
        steps_or_reason = _steps(node.inputs[step.at])
        if not isinstance(steps_or_reason, str):
            return steps_or_reason[0], [*steps_or_reason[1], step]
        reason = steps_or_reason
    return reason


def _read(node: ir.Node) -> list[Step]:
    """Return every interpretation of a node as a step."""
    if graphs.is_op(node, "Add"):
        return [Step(node, at) for at in (0, 1)]
    if graphs.is_op(node, "Div"):
        return [Step(node, 0)] if _is_number(node.inputs[1]) else []
    if graphs.is_op(node, "Mul"):
        return [Step(node, at) for at in (0, 1) if _is_number(node.inputs[1 - at])]
    return [Step(node, 1)] if graphs.is_op(node, "Where") and _is_number(node.inputs[2]) else []


def _is_number(value: ir.Value | None) -> bool:
    array = graphs.array_of(value)
    return array is not None and array.size == 1 and array.ndim <= 1


def _clears(node: ir.Node, weights: ir.Value, steps: Sequence[Step]) -> bool:
    """Whether a node zeroes the weights of fully masked rows, by the condition of the only mask."""
    if not graphs.is_op(node, "Where") or node.inputs[1] is not weights or not _is_number(node.inputs[2]):
        return False
    seen = [step.other for step in steps if step.is_mask]
    return Step(node, 1).number == 0.0 and len(seen) == 1 and seen[0] is node.inputs[0]


def _unquantised(scores: Scores) -> Scores | str:
    operands = [*scores.product.inputs, scores.context.inputs[1]]
    makers = [value.producer() for value in operands if value is not None]
    return (
        "a product of dequantised values" if any(graphs.is_op(node, "DequantizeLinear") for node in makers) else scores
    )
