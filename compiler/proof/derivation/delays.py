"""Rewrites delays of frames, written with Concat, Slice or Pad, as one Pad or as the pads of a convolution.

Before:
    Concat(0, Slice(x, 0, -c)),  Slice(Pad(x, (c, 0)), 0, T),  Slice(Transpose(Concat(0, x)), 0, -c)
    Slice(Relu(Conv(x, pads (c, c))), 0, -c),  Conv(Pad(x, (c, 0)), pads (0, 0))
    Slice(ConvTranspose(x, pads (0, 0)), a, -b),  CumSum<exclusive>(x)
After:
    Pad(x, (c, -c)): frame t is frame t - c of x, and zeros before the first
    Conv(x, pads (c, 0))
    ConvTranspose(x, pads (a, b)),  Pad(CumSum(x), (1, -1))

Entries that are added in front of the frames, and those that are cut off behind them, are counted from a value back to
the value with the frames; operators that compute every frame by itself may lie between. Where the first frames are not
zeros, they are selected by their places. An axis may hold several entries of every frame.

Source: a cut at the end commutes with operators that work frame by frame, and zeros in front commute with movements.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir
import sympy

from compiler.graph import model as graphs
from compiler.graph.axis_map import NotMapped, axis_map_of, dims
from compiler.graph.lengths.symbolic_values import symbolic_values_of
from compiler.graph.model import Dim
from compiler.graph.operators.axes import axis_of
from compiler.graph.operators.slices import slice_of
from compiler.graph.operators.traits import VIEWS
from compiler.graph.operators.windows import window_of, with_pads
from compiler.proof.derivation.prefixes import before_frames, start_of
from compiler.proof.derivation.reading import pads_of
from compiler.proof.derivation.regrouping import regrouped
from compiler.proof.derivation.written_sizes import STAMP
from compiler.proof.facts.executed_index_map import pad_value, uniform

MOVED = frozenset({"Concat", "Pad", "Slice"})
"""A list of its own: operators that add entries in front of frames, or cut some off."""

CONVOLUTIONS = ("Conv", "ConvTranspose")
"""A list of its own: operators with pads that may take up what is cut off of them."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Delay:
    """A value that equals another one with entries added in front and entries removed at the end.

    Attributes:
        value: the other value, which has the frames.
        axis: the axis of its frames.
        front: the number of entries added in front, and their content: one number for each, or a value that holds them
            all.
        removed: the number of entries removed behind the last frame; below 0, the number of zeros added there.
        between: nodes that compute every frame by itself, the outermost first, each with the operand that has the
            frames.
        is_moved_alone: whether all of `between` are movements, which keep zeros.
    """

    value: ir.Value
    axis: int
    front: tuple[tuple[int, float | ir.Value], ...] = ()
    removed: int = 0
    between: tuple[tuple[ir.Node, int], ...] = ()
    is_moved_alone: bool = True

    @property
    def count(self) -> int:
        """Return the number of entries in front of the frames."""
        return sum(count for count, _ in self.front)

    @property
    def is_of_zeros(self) -> bool:
        """Whether every entry in front of the frames is zero."""
        return all(not isinstance(each, ir.Value) and each == 0 for _, each in self.front)


def write_delays(model: ir.Model, frames: sympy.Symbol) -> int:
    """Rewrite every delay as a Pad, or as the pads of a convolution.

    Args:
        model: a stateless graph with inferred shapes; changed.
        frames: the number of frames.

    Returns:
        The number of values rewritten.
    """
    count = 0
    for node in list(model.graph):
        written = next(
            (written_delay for written_delay in _written(model, node, frames) if written_delay is not None), None
        )
        if written is not None:
            written.shape = node.outputs[0].shape  # later nodes look through it
            graphs.take_over(model, node.outputs[0], written)
            count += 1
    if count:
        graphs.prune(model)
        graphs.forget_shapes(model)
        graphs.infer_shapes(model)
    return count


def _written(model: ir.Model, node: ir.Node, frames: sympy.Symbol) -> Iterator[ir.Value | None]:
    """Yield replacements for a node's output: for the delay that it ends, or for a convolution over a delay."""
    insert = graphs.Inserter(model, STAMP, before=node)
    try:
        if node.op_type in MOVED:
            yield from (_as_pad(insert, node, axis, delay, frames) for axis, delay in _ending_in(node, frames))
            sizes = dims(node.outputs[0])
            yield from (_trimmed(insert, node, axis) for axis, size in enumerate(sizes) if _is_of(size, frames))
        elif graphs.is_op(node, "CumSum"):
            yield _inclusive(insert, node, frames)
        elif graphs.is_op(node, "Conv") and node.inputs[0] is not None:
            shape = dims(node.inputs[0])
            yield from (_in_pads(insert, node, axis) for axis in range(2, len(shape)) if _is_of(shape[axis], frames))
    except NotMapped:
        return


def _ending_in(node: ir.Node, frames: sympy.Symbol) -> Iterator[tuple[int, _Delay]]:
    """Yield the delays whose last movement is this node, with their axes of frames."""
    value = node.outputs[0]
    for axis, dim in enumerate(dims(value)):
        if _is_of(dim, frames) and (step := _moved(_Delay(value, axis))) is not None:
            yield axis, _seen_through(step)


def _is_of(size: Dim, frames: sympy.Symbol) -> bool:
    """Whether a size is the number of frames, or a multiple, plus a constant number of entries."""
    if isinstance(size, int) or before_frames(size, frames) is not None:
        return not isinstance(size, int)
    rate = sympy.expand(size).coeff(frames)
    rest = graphs.normal_form(size - rate * frames)
    return bool(rate.is_Integer) and rate > 0 and isinstance(rest, int) and rest >= 0


def _seen_through(delay: _Delay, *, has_all: bool = False) -> _Delay:
    """Follow a delay back through movements and framewise nodes; return the furthest that ends in a movement.

    Args:
        delay: from where to follow it.
        has_all: whether to return the furthest of those that lack no frame at the end.
    """
    reached = current = delay
    while True:
        node = current.value.producer()
        if node is None:
            return reached
        moved = _moved(current) if node.op_type in MOVED else None
        if moved is not None:
            current = moved
            reached = reached if has_all and moved.removed > 0 else moved
            continue
        further = _by_frame(node, current)
        if further is None:
            return current if graphs.is_op(node, *CONVOLUTIONS) and not has_all else reached
        current = further


def _moved(delay: _Delay) -> _Delay | None:
    """Return the delay of the operand of a Slice, Pad or Concat; None where the node does something else."""
    node = delay.value.producer()
    rule = {"Slice": _sliced, "Pad": _padded, "Concat": _joined}.get("" if node is None else node.op_type)
    if node is None or rule is None or (node.op_type != "Slice" and not delay.is_moved_alone):
        return None
    return rule(node, delay)


def _sliced(node: ir.Node, delay: _Delay) -> _Delay | None:
    axis, view = delay.axis, slice_of(node)
    sliced = None if view is None else view.only_axis_slice(symbolic_values_of)
    if view is None or sliced is None or (sliced.axis, sliced.step) != (axis, 1) or start_of(node, axis) != 0:
        return None
    gone = _difference(dims(view.data)[axis], dims(delay.value)[axis])
    if gone is None or gone < 0 or (gone and delay.removed < 0):
        return None  # of frames that are gone there is no zero instead
    return dataclasses.replace(delay, value=view.data, removed=delay.removed + gone)


def _padded(node: ir.Node, delay: _Delay) -> _Delay | None:
    pads, operand = pads_of(node), node.inputs[0]
    value = pad_value(node)
    if pads is None or operand is None or value is None:
        return None
    front, behind = pads.pop(delay.axis, (0, 0))
    if any(each != (0, 0) for each in pads.values()) or front < 0:
        return None
    if behind > max(delay.removed, 0) and value != 0:
        return None  # a convolution adds zeros behind the last frame, and nothing else
    added = ((front, value),) if front else ()
    return dataclasses.replace(delay, value=operand, front=(*delay.front, *added), removed=delay.removed - behind)


def _joined(node: ir.Node, delay: _Delay) -> _Delay | None:
    axis = delay.axis
    *front, last = node.inputs
    if axis_of(node, len(dims(delay.value))) != axis or last is None or not front:
        return None
    added: list[tuple[int, float | ir.Value]] = []
    for each in front:
        count, number = (0 if each is None else dims(each)[axis]), uniform(each)
        if each is None or not isinstance(count, int) or (number is None and count != 1):
            return None
        added.append((count, each if number is None else number))
    return dataclasses.replace(delay, value=last, front=(*delay.front, *added))


def _by_frame(node: ir.Node, delay: _Delay) -> _Delay | None:
    """Return the delay of a node's operand where the node treats every frame alike; None elsewhere."""
    is_view = node.op_type in VIEWS
    if len(node.outputs) != 1 or node.op_type in (*CONVOLUTIONS, *MOVED):
        return None
    try:
        source = _view_of(node, delay.axis) if is_view else _linked(node, delay.axis)
    except NotMapped:
        return None
    if source is None:
        return None
    operand, axis = source
    value = node.inputs[operand]
    is_moved = is_view or graphs.is_op(node, "Transpose")
    if value is None or (delay.front and not is_moved):
        return None
    between = (*delay.between, (node, operand))
    return dataclasses.replace(
        delay, value=value, axis=axis, between=between, is_moved_alone=delay.is_moved_alone and is_moved
    )


def _linked(node: ir.Node, axis: int) -> tuple[int, int] | None:
    axis_map = axis_map_of(node)
    size = dims(node.outputs[0])[axis]
    here = {
        operand: own for operand, own in axis_map.axes.get(axis, {}).items() if dims(node.inputs[operand])[own] == size
    }
    if len(here) != 1 or axis_map.axes.get(axis) != here:
        return None
    ((operand, own),) = here.items()
    return None if any(each.get(operand) == own for each in axis_map.mixed) else (operand, own)


def _view_of(node: ir.Node, axis: int) -> tuple[int, int] | None:
    before, after = dims(node.inputs[0]), dims(node.outputs[0])
    size = after[axis]
    if before.count(size) != 1 or after.count(size) != 1:
        return None
    own = before.index(size)
    places = regrouped([(dim,) for dim in before], after, sympy.sympify(size).free_symbols.pop())
    return (0, own) if places.get(own) == (axis, (size,)) else None


def _difference(first: Dim, second: Dim) -> int | None:
    apart = graphs.normal_form(sympy.sympify(first) - sympy.sympify(second))
    return apart if isinstance(apart, int) else None


def _as_pad(insert: graphs.Inserter, node: ir.Node, axis: int, delay: _Delay, frames: sympy.Symbol) -> ir.Value | None:
    """Return a Pad that writes a delay of frames, or a convolution that pads fewer zeros behind the last frame."""
    maker, count = delay.value.producer(), delay.count
    if not count and delay.removed > 0 and maker is not None and graphs.is_op(maker, *CONVOLUTIONS):
        shorter = _with_pads(insert, maker, delay.axis, maker.inputs[0], 0, -delay.removed)
        return None if shorter is None else _rebuilt(insert, delay, shorter)
    is_written_so = delay.value is node.inputs[0] and graphs.is_op(node, "Pad") and delay.is_of_zeros
    if not 0 < count == delay.removed or is_written_so or not _is_of(dims(delay.value)[delay.axis], frames):
        return None
    first = delay.front[0][1]
    is_of_one = all(front is first for _, front in delay.front) or all(front == first for _, front in delay.front)
    if not is_of_one or (isinstance(first, ir.Value) and (count > 1 or delay.between)):
        return None
    if not delay.is_of_zeros and delay.value.dtype == ir.DataType.BOOL:
        return None  # runtimes have no Where of truths
    pads = [0] * 2 * len(dims(delay.value))
    pads[delay.axis], pads[delay.axis + len(pads) // 2] = count, -count
    back = insert.op("Pad", [delay.value, insert.int64s(*pads)], name="moved_back", shape=delay.value.shape)
    delayed = _rebuilt(insert, delay, back)
    return delayed if delay.is_of_zeros else _started(insert, axis, delay, delayed, first)


def _trimmed(insert: graphs.Inserter, node: ir.Node, axis: int) -> ir.Value | None:
    """Return a ConvTranspose that cuts off itself what a node cuts off in front of its result, and behind."""
    operand, pads = node.inputs[0], pads_of(node) if graphs.is_op(node, "Pad") else None
    if operand is None or graphs.is_op(node, "Concat"):
        return None
    delay: _Delay | None = _Delay(operand, axis)
    while delay is not None and (maker := delay.value.producer()) is not None:
        if graphs.is_op(maker, "ConvTranspose"):
            break
        delay = _by_frame(maker, delay)
    else:
        return None
    gone = _difference(dims(operand)[axis], dims(node.outputs[0])[axis])
    if pads is not None:
        front = -pads.pop(axis, (0, 0))[0] if not any(pair != (0, 0) for at, pair in pads.items() if at != axis) else 0
    else:
        view = slice_of(node)
        sliced = None if view is None else view.only_axis_slice(symbolic_values_of)
        start = sliced.start if sliced is not None and (sliced.axis, sliced.step) == (axis, 1) else None
        front = start if isinstance(start, int) else 0
    if gone is None or not 0 < front <= gone:
        return None
    shorter = _with_pads(insert, maker, delay.axis, maker.inputs[0], -front, front - gone)
    return None if shorter is None else _rebuilt(insert, delay, shorter)


def _inclusive(insert: graphs.Inserter, node: ir.Node, frames: sympy.Symbol) -> ir.Value | None:
    """Return a running sum without its own entry as one with it, moved back; None for other sums."""
    axes, value = graphs.integers_of(node.inputs[1]), node.outputs[0]
    if not graphs.int_attribute(node, "exclusive", 0) or axes is None or not isinstance(axes[0], int):
        return None
    axis = axes[0] % len(dims(value))
    if graphs.int_attribute(node, "reverse", 0) or not _is_of(dims(value)[axis], frames):
        return None
    sums = _copied(insert, node, node.inputs, [])
    sums.shape = value.shape
    pads = [0] * 2 * len(dims(value))
    pads[axis], pads[axis + len(pads) // 2] = 1, -1
    return insert.op("Pad", [sums, insert.int64s(*pads)], name="moved_back", shape=value.shape, dtype=value.dtype)


def _started(insert: graphs.Inserter, axis: int, delay: _Delay, value: ir.Value, first: float | ir.Value) -> ir.Value:
    """Return delayed frames whose first entries are not zero: both are selected by their positions."""
    assert value.dtype is not None
    zero, one = (insert.constant(np.array(number, np.int64), "number") for number in (0, 1))
    bounds = {"start": delay.axis, "end": delay.axis + 1}
    count = insert.op("Shape", [delay.value], bounds, name="frames", dtype=ir.DataType.INT64)
    length = insert.op("Squeeze", [count], name="length")
    places = insert.op("Range", [zero, length, one], name="places")
    limit = insert.constant(np.array(delay.count, np.int64), "number")
    in_front = insert.op("Less", [places, limit], name="in_front", dtype=ir.DataType.BOOL)
    if behind := list(range(1, len(dims(delay.value)) - axis)):
        in_front = insert.op("Unsqueeze", [in_front, insert.int64s(*behind)], name="in_front_along")
    if not isinstance(first, ir.Value):
        first = insert.constant(np.array(first, value.dtype.numpy()), "first")
    return insert.op("Where", [in_front, first, value], name="started", dtype=value.dtype)


def _in_pads(insert: graphs.Inserter, node: ir.Node, axis: int) -> ir.Value | None:
    """Return a convolution that pads the zeros which a delay puts in front of its frames; None where it cannot.

    Behind frames that are cut off, a convolution reads zeros, and no convolution over all frames does.
    """
    assert node.inputs[0] is not None
    delay = _seen_through(_Delay(node.inputs[0], axis), has_all=True)
    if not delay.is_of_zeros or not delay.is_moved_alone or not (delay.front or delay.removed):
        return None
    return _with_pads(insert, node, axis, delay, delay.count, -delay.removed)


def _with_pads(
    insert: graphs.Inserter, node: ir.Node, axis: int, operand: "ir.Value | _Delay | None", front: int, behind: int
) -> ir.Value | None:
    """Return a convolution with more zeros in front of an axis or fewer behind; None where a pad would be negative.

    A ConvTranspose cuts its pads off: one with fewer entries behind has a larger pad there.
    """
    window = window_of(node, len(dims(node.outputs[0])))
    if window is None or window.pads is None or "output_shape" in node.attributes or axis < 2:
        return None  # rows and channels have no pads
    pads, sign = list(window.pads), -1 if graphs.is_op(node, "ConvTranspose") else 1
    pads[axis - 2] = (pads[axis - 2][0] + sign * front, pads[axis - 2][1] + sign * behind)
    if min(pads[axis - 2]) < 0:
        return None
    data = _rebuilt(insert, operand, operand.value) if isinstance(operand, _Delay) else operand
    return _copied(insert, node, [data, *node.inputs[1:]], with_pads(node, pads))


def _rebuilt(insert: graphs.Inserter, delay: _Delay, value: ir.Value) -> ir.Value:
    """Apply the framewise nodes of a delay to another value."""
    for node, operand in reversed(delay.between):
        operands = [value if at == operand else each for at, each in enumerate(node.inputs)]
        value = _copied(insert, node, operands, list(node.attributes.values()))
    return value


def _copied(
    insert: graphs.Inserter, node: ir.Node, operands: Sequence[ir.Value | None], attributes: Sequence[ir.Attr]
) -> ir.Value:
    kind, name = node.outputs[0].type, graphs.fresh_name(insert.graph, f"{node.outputs[0].name}_moved")
    output = ir.Value(name=name, type=kind)
    copy = ir.Node(node.domain, node.op_type, operands, attributes, outputs=[output], name=f"{name}_node",
                   version=node.version)  # fmt: skip
    insert.place(copy)
    copy.metadata_props.update(node.metadata_props)
    return output
