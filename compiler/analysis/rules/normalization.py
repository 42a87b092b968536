"""Rules SM, NM and RD: softmax, normalisation and reductions."""

from collections.abc import Sequence

import onnx_ir as ir

from compiler.analysis.facts import ANYTHING, FINITE, ZERO, Action, Fact, Kind, Verdict, refuse
from compiler.analysis.rules.operands import rank_of
from compiler.ir import attribute, int_attribute, integers_of


def softmax(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Softmax: over the padded axis it needs the mask; over another axis it is left as it is."""
    rank = rank_of(node.inputs[0])
    normalised = int_attribute(node, "axis", -1) % rank
    fact = facts[0]
    if fact.axis != normalised:
        kept = fact.fill if fact.fill.kind is Kind.ANYTHING else FINITE
        return Verdict("SM1", Fact(fact.axis, fact.segments, kept), "softmax over another axis", pointwise=True)
    if not any(segment.is_full and segment.slots > 0 for segment in fact.segments):
        raise refuse("softmax over a row that may hold no valid entry", "join at least one new frame to the cache")
    masked = Fact(fact.axis, fact.segments, ZERO)
    return Verdict("SM2", masked, "padded entries would take part in the sum", Action.MASK_SOFTMAX)


def layer_normalization(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """LayerNormalization over trailing axes that do not hold the padded one."""
    rank = rank_of(node.inputs[0])
    first = int_attribute(node, "axis", -1) % rank
    fact = facts[0]
    if fact.axis is None or any(other.axis is not None for other in facts[1:]):
        raise refuse("LayerNormalization with padded parameters", "use constant parameters")
    if fact.axis >= first:
        raise refuse("LayerNormalization over the padded axis", "normalise over channels only")
    if any(output.uses() or output.is_graph_output() for output in node.outputs[1:]):
        raise refuse("LayerNormalization whose mean or deviation is read", "compute them with reductions")
    epsilon = attribute(node, "epsilon", 1e-5)
    positive = isinstance(epsilon, float) and epsilon > 0  # then a constant row is finite
    kept = FINITE if fact.fill.is_finite and positive else ANYTHING
    return Verdict("NM1", Fact(fact.axis, fact.segments, kept), "normalises over other axes", pointwise=True)


def reduce(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Reduction over other axes than the padded one."""
    fact = facts[0]
    rank = rank_of(node.inputs[0])
    axes = integers_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if not axes or fact.axis is None:
        raise refuse(f"{node.op_type} over all or unknown axes", "name the axes to reduce")
    reduced = {int(axis) % rank for axis in axes}
    if fact.axis in reduced:
        raise refuse(f"{node.op_type} over the padded axis", "reduce over channels only, or mask the mean yourself")
    kept = [axis for axis in range(rank) if axis not in reduced or int_attribute(node, "keepdims", 1)]
    return Verdict("RD1", Fact(kept.index(fact.axis), fact.segments, fact.fill), "reduces other axes", pointwise=True)
