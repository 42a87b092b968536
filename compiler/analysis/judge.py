"""The one entry to the rule table: a node and the facts of its inputs in, a verdict or a refusal out."""

from collections.abc import Sequence

import onnx_ir as ir

from compiler.analysis.facts import PLAIN, Fact, Segments, Verdict, refuse
from compiler.analysis.rules import RULES
from compiler.analysis.rules.joining import slice_
from compiler.analysis.rules.length import created, length_arithmetic, trilu
from compiler.analysis.rules.lookup import look_up, slice_bounds
from compiler.analysis.rules.movement import reshape

LENGTH_OPS = frozenset(
    {
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Squeeze",
        "Unsqueeze",
        "Concat",
        "Gather",
        "Cast",
        "Reshape",
        "Identity",
        "Slice",
        "Neg",
    }
)
"""Operators through which a length may pass and stay a shape."""


def judge(node: ir.Node, facts: Sequence[Fact], seen: Sequence[Segments] = ()) -> Verdict:
    """The verdict on one node.

    Args:
        node: any node.
        facts: one fact per input, in order.
        seen: segments of all padded axes of the graph known so far, for lookups by length.

    Raises:
        Refused: no rule, or the rule does not hold; node, op and source line are left to the caller.
        UnknownLength: a length belongs to an axis that is not among `seen`.
    """
    if all(fact == PLAIN for fact in facts):
        return Verdict("PL", PLAIN, "nothing padded reaches it")
    if any(fact.is_length for fact in facts):
        return _judge_length(node, facts, seen)
    rule = RULES.get(("" if node.domain == "ai.onnx" else node.domain, node.op_type))
    if rule is None:
        raise refuse(
            f"no padding rule for operator {node.domain + '::' if node.domain else ''}{node.op_type}",
            "write the model with operators of the rule table, or add a rule under compiler/analysis/rules",
        )
    return rule(node, facts)


def _judge_length(node: ir.Node, facts: Sequence[Fact], seen: Sequence[Segments]) -> Verdict:
    """A node that reads the length of the padded axis, as a shape, a bound or a diagonal."""
    lengths = [index for index, fact in enumerate(facts) if fact.is_length]
    data_is_length = 0 in lengths
    if node.op_type == "Reshape" and not data_is_length and facts[0].axis is not None:
        return reshape(node, facts)
    if node.op_type == "Expand" and not data_is_length and facts[0].axis is None:
        return created(node, seen)
    if node.op_type == "Slice" and not data_is_length:
        bounds = slice_bounds(node)
        if facts[0].axis is None and bounds is not None:
            return look_up(node, *bounds, seen)
        return slice_(node, facts)
    if node.op_type == "Trilu" and not data_is_length:
        return trilu(node, facts)
    if node.op_type in LENGTH_OPS:
        return length_arithmetic(node, facts)
    raise refuse(
        f"{node.op_type} uses the length of the padded axis as data",
        "compute with positions inside the model's own joined tensors, not with their size",
    )
