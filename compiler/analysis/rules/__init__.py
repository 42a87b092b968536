"""The registry of op rules: a table (domain, op) -> rule over facts about padded axes; a missing entry is a refusal.

A rule looks at one node and the facts of its inputs and answers with a verdict, or refuses. Several analyses read the
same table: padding asks what a node needs, state selection and position projection ask whether it is pointwise along an
axis.

Rule identifiers (`EW`, `MM`, `SM`, `NM`, `MV`, `CC`, `SL`, `LK`, `LN`) appear in certificates.
"""

from collections.abc import Callable, Sequence

import onnx_ir as ir

from compiler.analysis.facts import PLAIN, Fact, Segments, Verdict, refuse
from compiler.analysis.rules.contraction import einsum, matmul
from compiler.analysis.rules.elementwise import (
    COMPARISONS,
    UNARY,
    UNBOUNDED,
    cast,
    comparison,
    nary,
    negation,
    power,
    unary,
    unbounded,
    where,
)
from compiler.analysis.rules.joining import concat, slice_
from compiler.analysis.rules.length import created, length_arithmetic, shape, trilu
from compiler.analysis.rules.lookup import look_up, slice_bounds
from compiler.analysis.rules.movement import gather, reshape, split, squeeze, transpose, unsqueeze
from compiler.analysis.rules.normalization import layer_normalization, reduce, softmax

Rule = Callable[[ir.Node, Sequence[Fact]], Verdict]

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

CREATORS = frozenset({"Expand", "ConstantOfShape"})
"""Operators that make an axis of a given length; the physical size is what their shape operand wants."""

RULES: dict[tuple[str, str], Rule] = {
    **{("", op): unary for op in UNARY},
    **{("", op): nary for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")},
    **{("", op): unbounded for op in UNBOUNDED},
    **{("", op): reduce for op in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")},
    ("", "Pow"): power,
    ("", "Cast"): cast,
    ("", "MatMul"): matmul,
    ("", "Einsum"): einsum,
    ("", "Softmax"): softmax,
    ("", "LayerNormalization"): layer_normalization,
    ("", "Transpose"): transpose,
    ("", "Reshape"): reshape,
    ("", "Unsqueeze"): unsqueeze,
    ("", "Squeeze"): squeeze,
    ("", "Concat"): concat,
    ("", "Slice"): slice_,
    ("", "Split"): split,
    ("", "Gather"): gather,
    ("", "Not"): negation,
    **{("", op): comparison for op in COMPARISONS},
    ("", "Where"): where,
    ("", "Trilu"): trilu,
    ("", "Shape"): shape,
}
"""The table. Whatever is not here is refused by name as soon as a padded axis reaches it."""


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
    data_is_length = 0 in lengths and node.op_type != "ConstantOfShape"
    if node.op_type == "Reshape" and not data_is_length and facts[0].axis is not None:
        return reshape(node, facts)
    if node.op_type in CREATORS and not data_is_length and facts[0].axis is None:
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
