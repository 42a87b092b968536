"""Rules MM: matrix products, where the padded axis is a row, a column, or summed over."""

from collections.abc import Sequence

import onnx_ir as ir

from compiler.analysis.facts import ANYTHING, FINITE, PLAIN, ZERO, Action, Fact, Verdict, refuse
from compiler.analysis.rules.operands import content_of, rank_of, the_padded
from compiler.ir import attribute, dims_of


def matmul(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """MatMul: the padded axis is a row or column of the result, or is contracted."""
    ranks = [rank_of(value) for value in node.inputs]
    if min(ranks) < 2:
        raise refuse("MatMul of a vector", "use operands of rank 2 or more")
    contracted = [facts[0].axis == ranks[0] - 1, facts[1].axis == ranks[1] - 2]
    if any(contracted):
        return _contracted(node, facts, contracted)
    index, fact = the_padded(node, facts)
    assert fact.axis is not None
    free = ranks[0] - 2 if index == 0 else ranks[1] - 1
    moved = fact.axis + max(ranks) - ranks[index]
    if fact.axis < ranks[index] - 2 and not _absent(node.inputs[1 - index], moved - max(ranks)):
        raise refuse("the padded axis is a batch axis of both operands", "move the cache axis next to the channels")
    assert fact.axis <= free
    other = content_of(node.inputs[1 - index], facts[1 - index])
    fill = (
        ZERO
        if fact.fill.is_zero and other.is_finite
        else (FINITE if fact.fill.is_finite and other.is_finite else ANYTHING)
    )
    return Verdict("MM1", Fact(moved, fact.segments, fill), "the padded axis is not contracted", pointwise=True)


def _absent(value: ir.Value | None, axis_from_end: int) -> bool:
    """Whether a value has no such axis, or one of size 1 that broadcasts."""
    dims = dims_of(value) if value is not None else None
    return dims is not None and (len(dims) < -axis_from_end or dims[axis_from_end] == 1)


def _contracted(node: ir.Node, facts: Sequence[Fact], contracted: Sequence[bool]) -> Verdict:
    if not all(contracted) or facts[0].segments != facts[1].segments:
        raise refuse(
            f"MatMul contracts a padded axis against other entries: {facts[0]} against {facts[1]}",
            "join keys and values in the same order",
        )
    zero = [fact.fill.is_zero for fact in facts]
    finite = [fact.fill.is_finite for fact in facts]
    if (zero[0] and finite[1]) or (zero[1] and finite[0]):
        return Verdict("MM2", PLAIN, "the contracted padding is zero on one side and finite on the other")
    if not any(finite):
        raise refuse("MatMul contracts padding that is not finite on both sides", "bound one of the operands first")
    operand = 0 if zero[1] or not finite[0] else 1 if zero[0] or not finite[1] else 0
    return Verdict("MM2", PLAIN, "0 times anything is not 0", Action.FILL_INPUT, operand)


def einsum(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Einsum without ellipsis: the label of the padded axis is kept, or summed over, in every operand that has it."""
    equation = str(attribute(node, "equation", "")).replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if not arrow or "." in equation or len(terms) != len(facts):
        raise refuse(f"Einsum with equation {equation!r}", "write the equation with an explicit result and no ellipsis")
    labels = {term[fact.axis] for term, fact in zip(terms, facts, strict=True) if fact.axis is not None}
    if len(labels) != 1:
        raise refuse(f"Einsum pads several labels of {equation!r}", "join the caches along one label")
    (label,) = labels
    holders = [fact for term, fact in zip(terms, facts, strict=True) if label in term]
    repeated = any(term.count(label) > 1 for term in terms)
    if repeated or len({(fact.segments, fact.axis is None) for fact in holders}) != 1:
        raise refuse(
            f"Einsum meets the padded label {label!r} unpadded or twice", "join keys and values in the same order"
        )
    segments = holders[0].segments
    contents = [content_of(value, fact) for value, fact in zip(node.inputs, facts, strict=True)]
    finite = all(fill.is_finite for fill in contents)
    zero = any(fact.fill.is_zero for fact in holders)
    if label in right:
        fill = ZERO if zero and finite else FINITE if finite else ANYTHING
        return Verdict("MM3", Fact(right.index(label), segments, fill), "the padded label is kept", pointwise=True)
    if zero and finite:
        return Verdict("MM4", PLAIN, "the summed padding is zero in one operand and finite in the others")
    unclean = [index for index, term in enumerate(terms) if label in term and not facts[index].fill.is_zero]
    if not unclean:
        raise refuse("Einsum sums zeros times numbers that may be infinite", "keep constants and masks finite")
    if sum(not facts[index].fill.is_finite for index in unclean) > 1:
        raise refuse("Einsum sums over padding that is not finite in two operands", "use two matrix products")
    operand = next((index for index in unclean if not facts[index].fill.is_finite), unclean[0])
    return Verdict("MM4", PLAIN, "0 times anything is not 0", Action.FILL_INPUT, operand)
