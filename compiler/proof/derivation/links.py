"""Maps the axes of an operator's operands to those of its result, and says along which of them entries mix."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import onnx_ir as ir
import sympy

from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.operators.axes import axis_of, axis_operand, perm_of
from compiler.graph.operators.pads import pad_of
from compiler.graph.operators.reductions import reduction_of
from compiler.graph.operators.slices import slice_of
from compiler.graph.operators.traits import ENTRYWISE, REDUCTIONS

RULE_CURE = (
    "write that part with operators of which one frame is computed of one frame, or as attention under a mask; or "
    "export the model with its caches as inputs"
)


class NotLinked(Exception):
    """An operator has no rule, or it does something along time that has none; the text says what."""


@dataclasses.dataclass(frozen=True)
class Links:
    """One operator.

    Attributes:
        data: operands that are data; others are sizes, places or parameters.
        axes: by axis of the result, the axis of each data operand that lies there.
        mixed: axes over which every entry of the result is computed; one mapping of operands to axes for each.
    """

    data: tuple[int, ...]
    axes: Mapping[int, Mapping[int, int]]
    mixed: tuple[Mapping[int, int], ...] = ()


Rule: TypeAlias = Callable[[ir.Node], Links]


def dims(value: ir.Value | None) -> tuple[Dim, ...]:
    """Return the shape of a value.

    Raises:
        NotLinked: its rank is not known.
    """
    found = None if value is None else graphs.dims_of(value)
    if found is None:
        raise NotLinked("a value has no known rank")
    return found


def links_of(node: ir.Node) -> Links:
    """Return how the axes of a node's operands relate to those of its result.

    Raises:
        NotLinked: there is no rule for it.
    """
    rule = RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if rule is None:
        raise NotLinked(f"no rule says what {node.op_type} does along time")
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


def _entrywise(node: ir.Node) -> Links:
    data = _present(node)
    return Links(data, _broadcast(node, data, len(dims(node.outputs[0]))))


def _spread(node: ir.Node) -> Links:
    return Links((0,), _broadcast(node, (0,), len(dims(node.outputs[0]))))


def _product(node: ir.Node) -> Links:
    left, right = len(dims(node.inputs[0])), len(dims(node.inputs[1]))
    if min(left, right) < 2:
        raise NotLinked("a product with a vector")
    rank = max(left, right)
    axes = {at: pairs for at, pairs in _broadcast(node, (0, 1), rank).items() if at < rank - 2}
    axes |= {rank - 2: {0: left - 2}, rank - 1: {1: right - 1}}
    return Links((0, 1), axes, ({0: left - 1, 1: right - 2},))


def _gemm(node: ir.Node) -> Links:
    transposed = [graphs.int_attribute(node, name, 0) for name in ("transA", "transB")]
    axes = {0: {0: transposed[0]}, 1: {1: 1 - transposed[1]}}
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        for at, pairs in _broadcast(node, (2,), 2).items():
            axes[at] |= pairs
    return Links(_present(node), axes, ({0: 1 - transposed[0], 1: transposed[1]},))


def _einsum(node: ir.Node) -> Links:
    equation = str(graphs.attribute(node, "equation", "")).replace(" ", "")
    if "..." in equation or "->" not in equation:
        raise NotLinked(f"an Einsum of {equation!r}")
    before, after = equation.split("->")
    terms = before.split(",")
    if any(len(set(term)) < len(term) for term in terms):
        raise NotLinked(f"an Einsum of {equation!r}")
    found = {letter: {at: term.index(letter) for at, term in enumerate(terms) if letter in term} for letter in before}
    found.pop(",", None)
    axes = {at: found[letter] for at, letter in enumerate(after)}
    return Links(tuple(range(len(terms))), axes, tuple(each for letter, each in found.items() if letter not in after))


def _same(node: ir.Node, mixed: Sequence[int] = ()) -> Links:
    """Return links that keep every axis and mix entries along some."""
    rank = len(dims(node.inputs[0]))
    return Links((0,), {at: {0: at} for at in range(rank)}, tuple({0: at % rank} for at in mixed))


def _running(node: ir.Node) -> Links:
    """Return links of a CumSum, whose axis both stays and is mixed."""
    axis = graphs.integers_of(axis_operand(node))
    if axis is None or not isinstance(axis[0], int):
        raise NotLinked("an axis is computed")
    return _same(node, [axis_of(node, len(dims(node.inputs[0])), axis[0])])


def _along_axis(node: ir.Node) -> Links:
    return _same(node, [axis_of(node, len(dims(node.inputs[0])))])


def _layer_norm(node: ir.Node) -> Links:
    rank = len(dims(node.inputs[0]))
    return _same(node, range(axis_of(node, rank), rank))


def _with_known_statistics(node: ir.Node) -> Links:
    """Return links of a BatchNormalization with trained statistics, which scales entries by channel."""
    if graphs.int_attribute(node, "training_mode", 0):
        raise NotLinked("BatchNormalization measures what it is given")
    return _same(node)


def _from_third_axis(node: ir.Node) -> Links:
    """Return links of a normalisation over every axis but that of rows."""
    return _same(node, range(1, len(dims(node.inputs[0]))))


def _reduced(node: ir.Node) -> Links:
    view = reduction_of(node, graphs.integers_of)
    if view is None:
        raise NotLinked("axes are computed")
    return Links((0,), {new: {0: old} for new, old in view.kept.items()}, tuple({0: at} for at in view.axes))


def _transposed(node: ir.Node) -> Links:
    perm = perm_of(node, len(dims(node.inputs[0])))
    return Links((0,), {new: {0: old} for new, old in enumerate(perm)})


def _looked_up(node: ir.Node) -> Links:
    axis = axis_of(node, len(dims(node.inputs[0])))
    count = len(dims(node.inputs[1]))
    axes: dict[int, dict[int, int]] = {at: {0: at} for at in range(axis)}
    axes |= {axis + at: {1: at} for at in range(count)}
    axes |= {at + count - 1: {0: at} for at in range(axis + 1, len(dims(node.inputs[0])))}
    return Links((0, 1), axes, ({0: axis},))


def _looked_up_each(node: ir.Node) -> Links:
    """Return links of a GatherElements, whose result has an index per entry."""
    rank = len(dims(node.inputs[0]))
    axis = axis_of(node, rank)
    others = [at for at in range(rank) if at != axis]
    if any(dims(node.inputs[0])[at] != dims(node.inputs[1])[at] for at in others):
        raise NotLinked("GatherElements leaves entries out")
    return Links((0, 1), {axis: {1: axis}, **{at: {0: at, 1: at} for at in others}}, ({0: axis},))


def _picked(node: ir.Node) -> Links:
    """Return links of a GatherND with constant indices into the first axes; later axes stay."""
    picks = graphs.array_of(node.inputs[1])
    if picks is None or graphs.int_attribute(node, "batch_dims", 0):
        raise NotLinked("no rule says what GatherND does along time")
    gone, before = picks.shape[-1], picks.ndim - 1
    axes = {before + at - gone: {0: at} for at in range(gone, len(dims(node.inputs[0])))}
    return Links((0,), {**{at: {} for at in range(before)}, **axes}, tuple({0: at} for at in range(gone)))


def _joined(node: ir.Node) -> Links:
    rank = len(dims(node.inputs[0]))
    axis = axis_of(node, rank)
    data = _present(node)
    axes = {at: dict.fromkeys(data, at) for at in range(rank) if at != axis}
    return Links(data, axes, tuple({operand: axis} for operand in data))


def _parted(node: ir.Node) -> Links:
    rank = len(dims(node.inputs[0]))
    axis = axis_of(node, rank)
    return Links((0,), {at: {0: at} for at in range(rank) if at != axis}, ({0: axis},))


def _unequal(node: ir.Node) -> Links:
    """Return links of a Slice, Pad or Tile: axes that keep their size keep their entries, others are mixed."""
    before, after = dims(node.inputs[0]), dims(node.outputs[0])
    kept = [at for at in range(len(before)) if before[at] == after[at] and not _is_reversed(node, at)]
    return Links((0,), {at: {0: at} for at in kept}, tuple({0: at} for at in range(len(before)) if at not in kept))


def _is_reversed(node: ir.Node, axis: int) -> bool:
    """Whether a Slice or Pad may move entries along an axis although its size stays."""
    if graphs.is_op(node, "Pad"):
        pad = pad_of(node, graphs.integers_of)
        return pad is None or pad.added.get(axis, (0, 0)) != (0, 0)
    view = slice_of(node)
    axis_slices = () if view is None else view.axis_slices(graphs.integers_of)
    return axis_slices is None or any(sliced.axis == axis and sliced.step != 1 for sliced in axis_slices)


def _windowed(node: ir.Node) -> Links:
    """Return links of a convolution or pooling: channels mix; a spatial axis stays where the kernel has size 1."""
    shape = dims(node.inputs[0])
    if graphs.is_op(node, "Conv"):
        kernel: Sequence[Dim] = dims(node.inputs[1])[2:]
    else:
        kernel = graphs.ints_attribute(node, "kernel_shape")
    kept = [at for at in range(2, len(shape)) if kernel[at - 2] == 1 and shape[at] == dims(node.outputs[0])[at]]
    axes = {at: {0: at} if at in kept or at == 0 else {} for at in range(len(shape))}
    return Links((0,), axes, tuple({0: at} for at in range(1, len(shape)) if at not in kept))


def _made(node: ir.Node) -> Links:
    return Links((), {at: {} for at in range(len(dims(node.outputs[0])))})


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
    "Transpose": _transposed,
    "Gather": _looked_up,
    "Concat": _joined,
    "Split": _parted,
}
"""Reshape, Squeeze and the like are followed by the sizes of their axes: `regrouped`."""


def regrouped(
    before: Sequence[tuple[Dim, ...]], after: Sequence[Dim], frames: Dim
) -> dict[int, tuple[int, tuple[Dim, ...]]]:
    """Map each time axis of a Reshape's operand to an axis of the result, with the factors counted there.

    Args:
        before: for every axis of the operand, the factors of its size, the outermost first.
        after: the shape of the result.
        frames: the number of frames.

    Raises:
        NotLinked: frames would be split, or merged in another order.
    """
    found: dict[int, tuple[int, tuple[Dim, ...]]] = {}
    at = to = 0
    while at < len(before) or to < len(after):
        here, there = [at] if at < len(before) else [], [to] if to < len(after) else []
        while True:
            entries = sympy.sympify(sympy.prod([size for each in here for size in before[each]]))
            ratio = sympy.cancel(entries / sympy.sympify(sympy.prod([after[axis] for axis in there])))
            if ratio == 1:
                break
            is_more = ratio.is_polynomial() and sympy.denom(ratio) == 1
            if (is_more or at + len(here) >= len(before)) and to + len(there) < len(after):
                there.append(to + len(there))
            elif at + len(here) < len(before):
                here.append(at + len(here))
            else:
                raise NotLinked(f"a Reshape of {[*before]} to {[*after]}")
        times = [each for each in here if any(_counts(size, frames) for size in before[each])]
        if times:
            found |= _group(before, here, after, there, times, frames)
        at, to = at + len(here), to + len(there)
    return found


def _group(
    before: Sequence[tuple[Dim, ...]],
    here: Sequence[int],
    after: Sequence[Dim],
    there: Sequence[int],
    times: Sequence[int],
    frames: Dim,
) -> dict[int, tuple[int, tuple[Dim, ...]]]:
    """Map one group of axes that holds equally many entries before and after; factors keep their order.

    A factor that counts no frames, such as rows times heads, may be split.
    """
    factors = [(size, each) for each in here for size in before[each] if size != 1]
    found: dict[int, tuple[int, tuple[Dim, ...]]] = {}
    for axis in there:
        taken: list[tuple[Dim, int]] = []
        while (missing := _times(after[axis], [size for size, _ in taken])) not in (1, None) and factors:
            assert missing is not None
            size, each = factors.pop(0)
            inner = None if _counts(size, frames) or _times(missing, [size]) is not None else _times(size, [missing])
            taken.append((size if inner is None else missing, each))
            factors[:0] = [] if inner is None else [(inner, each)]
        if missing != 1:
            raise NotLinked(f"a Reshape that parts or merges time into an axis of {after[axis]} entries")
        held = [each for size, each in taken if _counts(size, frames)]
        if len(held) > 1:
            raise NotLinked("a Reshape that merges two time axes")
        if held:
            found[held[0]] = axis, tuple(size for size, _ in taken)
    if len(found) != len(times):
        raise NotLinked("a Reshape that merges two time axes")
    return found


def _times(size: Dim, of: Sequence[Dim]) -> Dim | None:
    """Return the factor by which a size is a multiple of a product of sizes; None where it is no integer polynomial."""
    ratio = sympy.cancel(sympy.sympify(size) / sympy.sympify(sympy.prod(of)))
    terms = (term.as_coeff_Mul() for term in sympy.Add.make_args(sympy.expand(ratio)))
    is_whole = all(number.is_Integer and rest.is_polynomial() for number, rest in terms)
    return graphs.normal_form(ratio) if is_whole else None


def _counts(size: Dim, frames: Dim) -> bool:
    """Whether a size depends on the number of frames."""
    return graphs.mentions(size, str(frames))
