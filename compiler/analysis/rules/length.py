"""Rules LN: integers computed from the length of the padded axis."""

from collections.abc import Sequence

import onnx_ir as ir
import sympy

from compiler.analysis.facts import (
    ANYTHING,
    FINITE,
    PLAIN,
    Fact,
    Segments,
    Verdict,
    length_symbols,
    logical_length,
    refuse,
)
from compiler.analysis.rules.lookup import matching_segments
from compiler.analysis.rules.operands import content_of, rank_of
from compiler.ir import dims_of, integers_of


def shape(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Shape of a padded value: an integer that carries the length, unless it reads other dimensions only."""
    return Verdict("LN2", length_fact(node, facts), "shape arithmetic")


def length_fact(node: ir.Node, facts: Sequence[Fact]) -> Fact:
    """A length with the segments it comes from, or PLAIN when the result mentions none of their lengths."""
    segments = next((fact.segments for fact in facts if fact.segments), ())
    symbols = length_symbols(segments)
    known = integers_of(node.outputs[0])
    if known is not None and not any(symbols & x.free_symbols for x in known if not isinstance(x, int)):
        return PLAIN
    return Fact(segments=segments, is_length=True)


def created(node: ir.Node, seen: Sequence[Segments]) -> Verdict:
    """Expand that makes a padded axis out of one value, as masks do."""
    value = node.inputs[0]
    dims = dims_of(node.outputs[0]) or ()
    symbols = {name for segments in seen for name in length_symbols(segments)}
    axes = [axis for axis, dim in enumerate(dims) if not isinstance(dim, int) and symbols & dim.free_symbols]
    before = dims_of(value) if value is not None else None
    if len(axes) != 1 or before is None:
        raise refuse(f"{node.op_type} makes {len(axes)} padded axes", "make one axis of the joined length")
    axis = axes[0]
    own = axis - len(dims) + len(before)
    if own >= 0 and before[own] != 1:
        raise refuse(f"{node.op_type} changes a padded axis", "expand from size 1")
    fact = Fact(axis, matching_segments(dims[axis], seen), content_of(value, PLAIN))
    return Verdict("LN3", fact, "one value at every place")


def trilu(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Trilu over [new frames, joined axis] whose diagonal is counted from the end: right-aligned slots keep it."""
    fact = facts[0]
    diagonal = integers_of(node.inputs[1]) if len(node.inputs) > 1 else (0,)
    if fact.axis is None or fact.axis != rank_of(node.inputs[0]) - 1 or diagonal is None:
        raise refuse("Trilu with the padded axis in rows", "build the mask as [new frames, joined length]")
    distance = sympy.sympify(logical_length(fact.segments) - diagonal[0])
    if not distance.is_Integer or not all(segment.is_full for segment in fact.segments[1:]):
        raise refuse(
            f"Trilu keeps diagonal {diagonal[0]} of a padded axis of length {logical_length(fact.segments)}",
            "count the diagonal from the end: length minus the number of new frames",
        )
    kept = FINITE if fact.fill.is_finite else ANYTHING
    return Verdict("LN4", Fact(fact.axis, fact.segments, kept), "the diagonal is counted from the newest frame")


def length_arithmetic(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Integer arithmetic on lengths whose result is known symbolically."""
    if integers_of(node.outputs[0]) is None:
        raise refuse(
            f"{node.op_type} computes with the length of the padded axis as a number", "use it as a shape only"
        )
    return Verdict("LN1", length_fact(node, facts), "shape arithmetic")
