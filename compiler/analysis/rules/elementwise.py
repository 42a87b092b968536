"""Rules EW: elementwise operators, where padded places meet padded places."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from compiler.analysis.facts import ANYTHING, FINITE, ZERO, Fact, Fill, Kind, Segments, Verdict, refuse
from compiler.analysis.rules.operands import content_of, rank_of
from compiler.ir import array_of, dims_of, int_attribute

UNARY: dict[str, Callable[[float], float]] = {
    "Relu": lambda x: max(x, 0.0),
    "Sigmoid": lambda x: 1.0 / (1.0 + math.exp(-x)) if x > -700 else 0.0,
    "Tanh": math.tanh,
    "Neg": lambda x: -x,
    "Abs": abs,
    "Erf": math.erf,
    "Identity": lambda x: x,
    "HardSwish": lambda x: x * max(0.0, min(1.0, x / 6 + 0.5)),
    "Gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "Softplus": lambda x: math.log1p(math.exp(-abs(x))) + max(x, 0.0),
}
"""Total functions of bounded growth: finite padding stays finite, zero padding becomes a known constant."""

UNBOUNDED = frozenset({"Sqrt", "Exp", "Log", "Reciprocal", "Sin", "Cos", "Floor", "Ceil", "IsNaN"})
"""Elementwise functions that may leave the finite numbers, or whose result is not a number."""


def unary(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Elementwise function of one input."""
    fact = facts[0]
    fill = fact.fill
    if fill.kind is Kind.CONSTANT:
        value = UNARY[node.op_type](fill.value)
        fill = ZERO if value == 0.0 else FINITE
    return Verdict("EW1", Fact(fact.axis, fact.segments, fill), "elementwise", pointwise=True)


def unbounded(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Elementwise function of one input that makes no promise about the padding."""
    return Verdict("EW5", Fact(facts[0].axis, facts[0].segments, ANYTHING), "elementwise", pointwise=True)


def nary(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Elementwise function of several broadcast inputs: the padded axis must meet itself, or size 1."""
    output_rank = max(rank_of(value) for value in node.inputs)
    axis: int | None = None
    segments: Segments = ()
    for value, fact in zip(node.inputs, facts, strict=True):
        if fact.axis is None:
            continue
        moved = fact.axis + output_rank - rank_of(value)
        if axis is not None and (moved, fact.segments) != (axis, segments):
            raise refuse(
                f"{node.op_type} joins differently padded axes: {fact} meets axis {axis} of other segments",
                "join the caches in the same order everywhere",
            )
        axis, segments = moved, fact.segments
    assert axis is not None
    for value, fact in zip(node.inputs, facts, strict=True):
        dims = dims_of(value) if value is not None else None
        if fact.axis is None and dims is not None:
            own = axis - (output_rank - len(dims))
            if own >= 0 and dims[own] != 1:
                raise refuse(
                    f"{node.op_type} joins the padded axis with {value.name if value else ''!r}, which has "
                    f"{dims[own]} unpadded entries there",
                    "look the table up by the joined length, or slice it to one entry",
                )
    return Verdict(
        "EW2", Fact(axis, segments, _nary_fill(node, facts)), "elementwise on equal segments", pointwise=True
    )


COMPARISONS = frozenset({"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor"})
"""Elementwise operators with a truth value, which is finite whatever the padding holds."""


def comparison(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Comparison or logic on broadcast inputs."""
    fact = nary(node, facts).fact
    return Verdict("EW6", Fact(fact.axis, fact.segments, FINITE), "elementwise on equal segments", pointwise=True)


def negation(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Not."""
    return Verdict("EW6", Fact(facts[0].axis, facts[0].segments, FINITE), "elementwise", pointwise=True)


def _nary_fill(node: ir.Node, facts: Sequence[Fact]) -> Fill:
    contents = [content_of(value, fact) for value, fact in zip(node.inputs, facts, strict=True)]
    zero = [fill.is_zero for fill in contents]
    finite = all(fill.is_finite for fill in contents)
    if node.op_type == "Mul":
        return ZERO if any(zero) and finite else (FINITE if finite else ANYTHING)
    if node.op_type == "Div":
        dtype = node.inputs[1].dtype if node.inputs[1] is not None else None
        if facts[1].axis is not None and dtype is not None and dtype.is_integer():
            raise refuse("Div of integers by padded places, where 0 ends the run", "divide in floating point")
        divisor = array_of(node.inputs[1])
        nonzero = divisor is not None and bool(np.all(divisor != 0)) and bool(np.all(np.isfinite(divisor)))
        if not nonzero or not contents[0].is_finite:
            return ANYTHING
        return ZERO if zero[0] else FINITE
    return ZERO if all(zero) else (FINITE if finite else ANYTHING)


def power(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Pow and Clip: elementwise; a finite base to a whole exponent above zero stays finite."""
    verdict = nary(node, facts)
    exponent = array_of(node.inputs[1])
    whole = exponent is not None and exponent.size == 1 and float(exponent.reshape(-1)[0]) in (1.0, 2.0, 3.0, 4.0)
    fill = (
        facts[0].fill
        if facts[0].axis is not None and facts[0].fill.is_zero and whole
        else (FINITE if facts[0].fill.is_finite and whole else ANYTHING)
    )
    return Verdict("EW2", Fact(verdict.fact.axis, verdict.fact.segments, fill), verdict.reason, pointwise=True)


def cast(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Cast between floating-point types."""
    to = ir.DataType(int_attribute(node, "to", 0))
    source = node.inputs[0].dtype if node.inputs[0] is not None else None
    if source is None or not source.is_floating_point() or not to.is_floating_point():
        raise refuse(f"cast from {source} to {to} of a padded value", "keep padded values in floating point")
    widening = to.itemsize > source.itemsize or to == source
    fill = facts[0].fill if facts[0].fill.is_zero or widening else ANYTHING
    return Verdict("EW3", Fact(facts[0].axis, facts[0].segments, fill), "elementwise", pointwise=True)


def where(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Where with a condition that is not padded: elementwise."""
    verdict = nary(node, facts)
    finite = all(content_of(value, fact).is_finite for value, fact in zip(node.inputs[1:], facts[1:], strict=True))
    fill = FINITE if finite else ANYTHING
    return Verdict("EW4", Fact(verdict.fact.axis, verdict.fact.segments, fill), "elementwise", pointwise=True)
