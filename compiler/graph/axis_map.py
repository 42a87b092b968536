"""Maps the axes of an operator's operands to those of its result, and lists the axes along which it mixes entries.

MatMul(x [batch, time, 8], w [8, 4]):   axes {0: {0: 0}, 1: {0: 1}, 2: {1: 1}}, mixed ({0: 2, 1: 0},)
Transpose<perm = [0, 2, 1]>(x):         axes {0: {0: 0}, 1: {0: 2}, 2: {0: 1}}
Reshape(x [batch, time, 8]) to [batch, time, 2, 4]:   axes {0: {0: 0}, 1: {0: 1}}, mixed ({0: 2},)

An axis is mapped only if entry k along it is computed of entry k along the operand's, and of no other.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.operators.axes import axis_of, axis_operand, changed_axes, perm_of
from compiler.graph.operators.pads import pad_of
from compiler.graph.operators.reductions import reduction_of
from compiler.graph.operators.slices import slice_of
from compiler.graph.operators.traits import ENTRYWISE, REDUCTIONS
from compiler.graph.operators.windows import window_of


class NotMapped(Exception):
    """An operator has no axis map, or its use along an axis has none; the text names it."""


@dataclasses.dataclass(frozen=True)
class AxisMap:
    """Where the axes of an operator's operands lie in its result.

    Attributes:
        data: operands that are data; others are sizes, positions or parameters.
        axes: by axis of the result, the axis of each data operand that lies there; axes of one entry that broadcasting
            repeats are left out.
        mixed: axes over which every entry of the result is computed; one mapping of operands to axes for each. A
            running sum both keeps and mixes its axis.
    """

    data: tuple[int, ...]
    axes: Mapping[int, Mapping[int, int]]
    mixed: tuple[Mapping[int, int], ...] = ()

    def mixes(self, operand: int, axis: int) -> bool:
        """Whether entries along an operand's axis mix."""
        return any(group.get(operand) == axis for group in self.mixed)

    def sources(self, axis: int) -> dict[int, int]:
        """Return, for an axis of the result, the unmixed axes that lie there, by operand."""
        return {at: own for at, own in self.axes.get(axis, {}).items() if not self.mixes(at, own)}

    def after(self, operand: int, axis: int) -> int | None:
        """Return the axis of the result along which an operand's axis lies; None where it mixes or is not there."""
        return next((at for at in self.axes if self.sources(at).get(operand) == axis), None)


Rule: TypeAlias = Callable[[ir.Node], AxisMap]


def dims(value: ir.Value | None) -> tuple[Dim, ...]:
    """Return the shape of a value.

    Raises:
        NotMapped: its rank is not known.
    """
    found = None if value is None else graphs.dims_of(value)
    if found is None:
        raise NotMapped("a value has no known rank")
    return found


def axis_map_of(node: ir.Node) -> AxisMap:
    """Return how the axes of a node's operands relate to those of its result; the ranks of its values are known.

    Raises:
        NotMapped: there is no rule for it.
    """
    rule = RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if rule is None:
        raise NotMapped(f"no rule says what {node.op_type} does along time")
    return rule(node)


def _present(node: ir.Node) -> tuple[int, ...]:
    return tuple(at for at, value in enumerate(node.inputs) if value is not None)


def _broadcast(node: ir.Node, operands: Sequence[int], rank: int) -> dict[int, dict[int, int]]:
    """Map the axes of broadcast operands to those of the result; axes of size 1 are left out."""
    axes: dict[int, dict[int, int]] = {at: {} for at in range(rank)}
    for operand in operands:
        own = dims(node.inputs[operand])
        for at, dim in enumerate(own):
            if dim != 1:
                axes[at + rank - len(own)][operand] = at
    return axes


def _entrywise(node: ir.Node) -> AxisMap:
    data = _present(node)
    return AxisMap(data, _broadcast(node, data, len(dims(node.outputs[0]))))


def _spread(node: ir.Node) -> AxisMap:
    return AxisMap((0,), _broadcast(node, (0,), len(dims(node.outputs[0]))))


def _product(node: ir.Node) -> AxisMap:
    left, right = len(dims(node.inputs[0])), len(dims(node.inputs[1]))
    if min(left, right) < 2:
        raise NotMapped("a product with a vector")
    rank = max(left, right)
    axes = {at: pairs for at, pairs in _broadcast(node, (0, 1), rank).items() if at < rank - 2}
    axes |= {rank - 2: {0: left - 2}, rank - 1: {1: right - 1}}
    return AxisMap((0, 1), axes, ({0: left - 1, 1: right - 2},))


def _gemm(node: ir.Node) -> AxisMap:
    transposed = [graphs.int_attribute(node, name, 0) for name in ("transA", "transB")]
    axes = {0: {0: transposed[0]}, 1: {1: 1 - transposed[1]}}
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        for at, pairs in _broadcast(node, (2,), 2).items():
            axes[at] |= pairs
    return AxisMap(_present(node), axes, ({0: 1 - transposed[0], 1: transposed[1]},))


def _einsum(node: ir.Node) -> AxisMap:
    equation = str(graphs.attribute(node, "equation", "")).replace(" ", "")
    if "..." in equation or "->" not in equation:
        raise NotMapped(f"an Einsum of {equation!r}")
    before, after = equation.split("->")
    terms = before.split(",")
    if any(len(set(term)) < len(term) for term in terms):
        raise NotMapped(f"an Einsum of {equation!r}")
    found = {letter: {at: term.index(letter) for at, term in enumerate(terms) if letter in term} for letter in before}
    found.pop(",", None)
    axes = {at: found[letter] for at, letter in enumerate(after)}
    return AxisMap(tuple(range(len(terms))), axes, tuple(each for letter, each in found.items() if letter not in after))


def _same(node: ir.Node, mixed: Sequence[int] = ()) -> AxisMap:
    """Return a map that keeps every axis and mixes entries along some."""
    rank = len(dims(node.inputs[0]))
    return AxisMap((0,), {at: {0: at} for at in range(rank)}, tuple({0: at % rank} for at in mixed))


def _running(node: ir.Node) -> AxisMap:
    """Return the map of a CumSum, whose axis both stays and is mixed."""
    axis = graphs.integers_of(axis_operand(node))
    if axis is None or not isinstance(axis[0], int):
        raise NotMapped("an axis is computed")
    return _same(node, [axis_of(node, len(dims(node.inputs[0])), axis[0])])


def _along_axis(node: ir.Node) -> AxisMap:
    return _same(node, [axis_of(node, len(dims(node.inputs[0])))])


def _layer_norm(node: ir.Node) -> AxisMap:
    rank = len(dims(node.inputs[0]))
    return _same(node, range(axis_of(node, rank), rank))


def _with_known_statistics(node: ir.Node) -> AxisMap:
    """Return the map of a BatchNormalization with trained statistics, which scales entries by channel."""
    if graphs.int_attribute(node, "training_mode", 0):
        raise NotMapped("BatchNormalization measures what it is given")
    return _same(node)


def _from_third_axis(node: ir.Node) -> AxisMap:
    """Return the map of a normalisation over every axis but that of rows."""
    return _same(node, range(1, len(dims(node.inputs[0]))))


def _reduced(node: ir.Node) -> AxisMap:
    view = reduction_of(node, graphs.integers_of)
    if view is None:
        raise NotMapped("axes are computed")
    return AxisMap((0,), {new: {0: old} for new, old in view.kept.items()}, tuple({0: at} for at in view.axes))


def _transposed(node: ir.Node) -> AxisMap:
    perm = perm_of(node, len(dims(node.inputs[0])))
    return AxisMap((0,), {new: {0: old} for new, old in enumerate(perm)})


def _changed(node: ir.Node) -> AxisMap:
    """Return the map of a Squeeze or Unsqueeze, whose axes of one entry come or go."""
    axes = changed_axes(node, graphs.integers_of)
    if axes is None:
        raise NotMapped("axes are computed")
    rank = max(len(dims(node.inputs[0])), len(dims(node.outputs[0])))
    pairs = enumerate(axis for axis in range(rank) if axis not in axes)
    if node.op_type == "Squeeze":
        return AxisMap((0,), {new: {0: old} for new, old in pairs})
    return AxisMap((0,), {axis: {} for axis in axes} | {new: {0: old} for old, new in pairs})


def _reshaped(node: ir.Node) -> AxisMap:
    """Return the map of a Reshape or Flatten: axes of equal size with equally many entries in front of them stay."""
    before, after = _in_row(dims(node.inputs[0])), _in_row(dims(node.outputs[0]))
    axes: dict[int, dict[int, int]] = {at: {0: before[key]} if key in before else {} for key, at in after.items()}
    return AxisMap((0,), axes, tuple({0: at} for key, at in before.items() if key not in after))


def reshaped_groups(before: Sequence[Dim], after: Sequence[Dim]) -> list[tuple[range, range]]:
    """Return which axes of a reshaped value lie where: axes in a row that hold the same entries, as few as can be.

    [batch, 4, 36] to [batch, 144]: ((0), (0)), ((1, 2), (1)).   Axes of one entry may stand alone on their side.

    Args:
        before: the shape in front of the Reshape.
        after: the shape behind it.
    """
    counts = [
        [graphs.normal_form(math.prod(sizes[:end])) for end in range(len(sizes) + 1)] for sizes in (before, after)
    ]
    groups, old, new = list[tuple[range, range]](), 0, 0
    for end in range(1, len(before) + 1):
        met = next((at for at in range(new, len(after) + 1) if counts[1][at] == counts[0][end]), None)
        if met is not None:
            groups.append((range(old, end), range(new, met)))
            old, new = end, met
    return [*groups, (range(old, len(before)), range(new, len(after)))]


def _in_row(sizes: Sequence[Dim]) -> dict[tuple[Dim, Dim, int], int]:
    """Map every axis's entries in front of it, its size, and the axes of one entry among those to its index."""
    found: dict[tuple[Dim, Dim, int], int] = {}
    for axis, size in enumerate(sizes):
        front = graphs.normal_form(math.prod(sizes[:axis]))
        alike = sum(key[:2] == (front, size) for key in found)
        found[front, size, alike] = axis
    return found


def _looked_up(node: ir.Node) -> AxisMap:
    axis = axis_of(node, len(dims(node.inputs[0])))
    count = len(dims(node.inputs[1]))
    axes: dict[int, dict[int, int]] = {at: {0: at} for at in range(axis)}
    axes |= {axis + at: {1: at} for at in range(count)}
    axes |= {at + count - 1: {0: at} for at in range(axis + 1, len(dims(node.inputs[0])))}
    return AxisMap((0, 1), axes, ({0: axis},))


def _looked_up_each(node: ir.Node) -> AxisMap:
    """Return the map of a GatherElements, whose result has an index per entry."""
    rank = len(dims(node.inputs[0]))
    axis = axis_of(node, rank)
    others = [at for at in range(rank) if at != axis]
    if any(dims(node.inputs[0])[at] != dims(node.inputs[1])[at] for at in others):
        raise NotMapped("GatherElements leaves entries out")
    return AxisMap((0, 1), {axis: {1: axis}, **{at: {0: at, 1: at} for at in others}}, ({0: axis},))


def _picked(node: ir.Node) -> AxisMap:
    """Return the map of a GatherND with constant indices into the first axes; later axes stay."""
    picks = graphs.array_of(node.inputs[1])
    if picks is None or graphs.int_attribute(node, "batch_dims", 0):
        raise NotMapped("no rule says what GatherND does along time")
    gone, before = picks.shape[-1], picks.ndim - 1
    axes = {before + at - gone: {0: at} for at in range(gone, len(dims(node.inputs[0])))}
    return AxisMap((0,), {**{at: {} for at in range(before)}, **axes}, tuple({0: at} for at in range(gone)))


def _joined(node: ir.Node) -> AxisMap:
    rank = len(dims(node.inputs[0]))
    axis = axis_of(node, rank)
    data = _present(node)
    axes = {at: dict.fromkeys(data, at) for at in range(rank) if at != axis}
    return AxisMap(data, axes, tuple({operand: axis} for operand in data))


def _parted(node: ir.Node) -> AxisMap:
    rank = len(dims(node.inputs[0]))
    axis = axis_of(node, rank)
    return AxisMap((0,), {at: {0: at} for at in range(rank) if at != axis}, ({0: axis},))


def _unequal(node: ir.Node) -> AxisMap:
    """Return the map of a Slice, Pad or Tile: axes that keep their size keep their entries, others are mixed."""
    before, after = dims(node.inputs[0]), dims(node.outputs[0])
    kept = [at for at in range(len(before)) if before[at] == after[at] and not _is_reversed(node, at)]
    return AxisMap((0,), {at: {0: at} for at in kept}, tuple({0: at} for at in range(len(before)) if at not in kept))


def _is_reversed(node: ir.Node, axis: int) -> bool:
    """Whether a Slice or Pad may move entries along an axis although its size stays."""
    if graphs.is_op(node, "Pad"):
        pad = pad_of(node, graphs.integers_of)
        return pad is None or pad.added.get(axis, (0, 0)) != (0, 0)
    view = slice_of(node)
    axis_slices = () if view is None else view.axis_slices(graphs.integers_of)
    return axis_slices is None or any(sliced.axis == axis and sliced.step != 1 for sliced in axis_slices)


def _windowed(node: ir.Node) -> AxisMap:
    """Return the map of a convolution or pooling: channels mix; spatial axes of which windows hold one entry stay."""
    rank = len(dims(node.inputs[0]))
    window = window_of(node, rank)
    if window is None:
        raise NotMapped(f"no rule says what {node.op_type} does along time")
    kept = [0, *(axis for axis in range(2, rank) if window.keeps(axis - 2))]
    axes = {axis: {0: axis} if axis in kept else {} for axis in range(rank)}
    return AxisMap((0,), axes, tuple({0: axis} for axis in range(1, rank) if axis not in kept))


def _made(node: ir.Node) -> AxisMap:
    return AxisMap((), {at: {} for at in range(len(dims(node.outputs[0])))})


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(ENTRYWISE - {"Clip", "CastLike"}, _entrywise),
    **dict.fromkeys(("Clip", "CastLike", "Expand"), _spread),
    **dict.fromkeys(REDUCTIONS, _reduced),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _along_axis),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _layer_norm),
    **dict.fromkeys(("InstanceNormalization", "GroupNormalization"), _from_third_axis),
    **dict.fromkeys(("ArgMax", "ArgMin"), _reduced),
    **dict.fromkeys(("Slice", "Pad", "Tile"), _unequal),
    **dict.fromkeys(("Range", "ConstantOfShape"), _made),
    **dict.fromkeys(("AveragePool", "Conv", "LpPool", "MaxPool"), _windowed),
    "BatchNormalization": _with_known_statistics,
    "LpNormalization": _along_axis,
    "CumSum": _running,
    "GatherElements": _looked_up_each,
    "GatherND": _picked,
    "Trilu": _same,
    "MatMul": _product,
    "Gemm": _gemm,
    "Einsum": _einsum,
    **dict.fromkeys(("Squeeze", "Unsqueeze"), _changed),
    **dict.fromkeys(("Flatten", "Reshape"), _reshaped),
    "Transpose": _transposed,
    "Gather": _looked_up,
    "Concat": _joined,
    "Split": _parted,
}
