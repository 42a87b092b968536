"""Rules MV: operators that only move entries."""

from collections.abc import Sequence

import onnx_ir as ir

from compiler.analysis.facts import Fact, Verdict, refuse
from compiler.analysis.rules.operands import rank_of
from compiler.ir import Dim, dims_of, int_attribute, integers_of, ints_attribute


def transpose(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Transpose carries the padded axis along."""
    rank = rank_of(node.inputs[0])
    perm = ints_attribute(node, "perm") or tuple(reversed(range(rank)))
    fact = facts[0]
    assert fact.axis is not None
    moved = Fact(perm.index(fact.axis), fact.segments, fact.fill)
    return Verdict("MV1", moved, "movement", pointwise=True)


def reshape(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Reshape that leaves the padded axis alone in its factor group."""
    before, after = dims_of(node.inputs[0]) if node.inputs[0] else None, dims_of(node.outputs[0])
    fact = facts[0]
    if before is None or after is None or fact.axis is None:
        raise refuse("Reshape of unknown ranks", "export the model with known ranks")
    position = _alone(before, after, fact.axis)
    if position is None:
        raise refuse(
            f"Reshape merges or splits the padded axis: {_text(before)} to {_text(after)}",
            "keep the cache axis as an axis of its own",
        )
    return Verdict("MV2", Fact(position, fact.segments, fact.fill), "the axis stays whole", pointwise=True)


def _alone(before: Sequence[Dim], after: Sequence[Dim], axis: int) -> int | None:
    """Where the axis goes when it is a factor group of its own, else None."""
    leading = _product(before[:axis])
    size = before[axis]
    for position, dim in enumerate(after):
        if dim == size and _product(after[:position]) == leading:
            return position
    return None


def _product(dims: Sequence[Dim]) -> Dim:
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total


def _text(dims: Sequence[Dim]) -> str:
    return "[" + ", ".join(str(dim) for dim in dims) + "]"


def unsqueeze(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Unsqueeze shifts the padded axis by the axes inserted before it."""
    axes = integers_of(node.inputs[1])
    fact = facts[0]
    if axes is None or fact.axis is None or not all(isinstance(x, int) for x in axes):
        raise refuse("Unsqueeze with unknown axes", "use constant axes")
    rank = rank_of(node.outputs[0])
    inserted = {int(x) % rank for x in axes}
    kept = [position for position in range(rank) if position not in inserted]
    return Verdict("MV3", Fact(kept[fact.axis], fact.segments, fact.fill), "movement", pointwise=True)


def squeeze(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Squeeze of other axes than the padded one."""
    axes = integers_of(node.inputs[1]) if len(node.inputs) > 1 else None
    fact = facts[0]
    rank = rank_of(node.inputs[0])
    if not axes or fact.axis is None:
        raise refuse("Squeeze with unknown axes", "name the axes to squeeze")
    removed = {int(x) % rank for x in axes}
    if fact.axis in removed:
        raise refuse("Squeeze of the padded axis", "keep the cache axis")
    kept = [position for position in range(rank) if position not in removed]
    return Verdict("MV4", Fact(kept.index(fact.axis), fact.segments, fact.fill), "movement", pointwise=True)


def split(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Split along another axis than the padded one."""
    fact = facts[0]
    rank = rank_of(node.inputs[0])
    if fact.axis == int_attribute(node, "axis", 0) % rank:
        raise refuse("Split of the padded axis", "slice at the border between cached and new frames")
    return Verdict("MV5", fact, "another axis is split", pointwise=True)


def gather(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Gather by unpadded indices along another axis than the padded one."""
    fact = facts[0]
    rank, index_rank = rank_of(node.inputs[0]), rank_of(node.inputs[1])
    axis = int_attribute(node, "axis", 0) % rank
    if fact.axis is None or facts[1].axis is not None:
        raise refuse("Gather by padded indices", "look positions up by slicing a table")
    if fact.axis == axis:
        raise refuse("Gather along the padded axis", "slice the newest frames instead")
    moved = fact.axis if fact.axis < axis else fact.axis + index_rank - 1
    return Verdict("MV6", Fact(moved, fact.segments, fact.fill), "entries of another axis", pointwise=True)
