"""Batches operators that act along given axes, such as reductions, Softmax, normalizations, ArgMax, CumSum and LSTM."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.operators.axes import DFT_AXIS_AS_OPERAND, axis_of, moment_axes
from compiler.graph.operators.reductions import Reduction, reduction_of
from compiler.proof.batching.form import INSERTED, RowLayout, in_place
from compiler.proof.batching.lifter import LiftedNode
from compiler.proof.facts.facts import refuse

AXES_AS_INPUT = 18
"""Since this opset all reductions take their axes as an input; ReduceSum did before."""


def along_axis(lifted: LiftedNode) -> None:
    """Lift an operator that acts along one axis and keeps it, such as Softmax or TopK."""
    lifted.require_shared(*lifted.present[1:], what="its settings")
    axis, place = lifted.axis(), lifted.place()
    layout = INSERTED if place is None or place == axis else in_place(place)
    lifted.read(0, layout)
    if layout == INSERTED:
        lifted.set("axis", axis + 1)
    lifted.keep(layout)


def normalization(lifted: LiftedNode) -> None:
    """Lift LayerNormalization and its like, over all axes from one on."""
    lifted.require_shared(*lifted.present[1:], what="its scale")
    axis, place = lifted.axis(), lifted.place()
    layout = INSERTED if place is None or place >= axis else in_place(place)
    lifted.read(0, layout)
    if layout == INSERTED:
        lifted.set("axis", axis + 1)
    lifted.keep(layout)


def cumulative_sum(lifted: LiftedNode) -> None:
    """Lift CumSum, whose axis is an input."""
    axis, place = lifted.axis(), lifted.place()
    layout = INSERTED if place is None or place == axis else in_place(place)
    lifted.read(0, layout)
    if layout == INSERTED:
        kind = lifted.value(1).dtype
        assert kind is not None
        lifted.node.replace_input_with(1, lifted.insert.constant(np.array(axis + 1, kind.numpy()), "axis"))
    lifted.keep(layout)


def reduction(lifted: LiftedNode) -> None:
    """Lift a reduction, over the axes of each row and never over the batch."""
    view = _view(lifted)
    layout = _layout(lifted, view.axes)
    lifted.read(0, layout)
    if layout == INSERTED:
        _write_axes(lifted, tuple(axis + 1 for axis in view.axes))
    lifted.keep(_after(layout, view))


def search(lifted: LiftedNode) -> None:
    """Lift ArgMax and ArgMin."""
    view = _view(lifted)
    layout = _layout(lifted, view.axes)
    lifted.read(0, layout)
    if layout == INSERTED:
        lifted.set("axis", view.axes[0] + 1)
    lifted.keep(_after(layout, view))


def _view(lifted: LiftedNode) -> Reduction:
    """Return the axes that the original reduces.

    Raises:
        Refused: the axes are computed.
    """
    view = reduction_of(lifted.node, lambda value: lifted.constants(1, "axes"), lifted.rank())
    assert view is not None
    return view


def _layout(lifted: LiftedNode, axes: tuple[int, ...]) -> RowLayout:
    place = lifted.place()
    return INSERTED if place is None or place in axes else in_place(place)


def _after(layout: RowLayout, view: Reduction) -> RowLayout:
    return layout if layout == INSERTED else in_place(next(new for new, old in view.kept.items() if old == layout.at))


def _write_axes(lifted: LiftedNode, axes: tuple[int, ...]) -> None:
    opset = lifted.lifter.model.graph.opset_imports.get("", AXES_AS_INPUT)
    if not axes:
        return
    if lifted.op == "ReduceSum" or opset >= AXES_AS_INPUT:
        lifted.give(1, np.array(axes, np.int64))
    else:
        lifted.set("axes", axes)


def fourier(lifted: LiftedNode) -> None:
    """Lift DFT: the axis is an attribute, or from opset 20 an input; the last axis holds complex parts."""
    lifted.require_shared(1, 2, what="its settings")
    rank, place = lifted.rank(), lifted.place()
    by_input = lifted.lifter.model.graph.opset_imports.get("", AXES_AS_INPUT) >= DFT_AXIS_AS_OPERAND
    axis = lifted.axis()
    layout = INSERTED if place is None or place in (axis, rank - 1) else in_place(place)
    lifted.read(0, layout)
    if layout == INSERTED and by_input:
        lifted.give(2, np.array(axis + 1, np.int64))
    elif layout == INSERTED:
        lifted.set("axis", axis + 1)
    lifted.keep(layout)


def central_moments(lifted: LiftedNode) -> None:
    """Lift MeanVarianceNormalization, over axes of each row, which may include the one that the batch replaces."""
    axes = moment_axes(lifted.node, lifted.rank())
    layout = _layout(lifted, axes)
    lifted.read(0, layout)
    if layout == INSERTED:
        lifted.set("axes", [axis + 1 for axis in axes])
    lifted.keep(layout)


def rotary(lifted: LiftedNode) -> None:
    """Lift RotaryEmbedding: frames, positions and angles per row have the batch first; tables are shared.

    Raises:
        Refused: the original has several rows, or tables that differ from row to row.
    """
    if lifted.dims()[0] != 1:
        raise refuse(f"{lifted.op} of {lifted.dims()[0]} rows in a model written for one", "rotate one row")
    by_position = lifted.has(3)
    if by_position:
        lifted.require_shared(1, 2, what="its tables")
    for operand in (0, 3) if by_position else (0, 1, 2):
        lifted.read(operand, in_place(0))
    lifted.keep(in_place(0))


def turned_sequences(lifted: LiftedNode) -> None:
    """Lift ReverseSequence, whose axis of sequences becomes the batch.

    Raises:
        Refused: the original has several sequences.
    """
    axis = graphs.int_attribute(lifted.node, "batch_axis", 1)
    if lifted.dims()[axis] != 1:
        told = f"{lifted.op} of {lifted.dims()[axis]} sequences in a model written for one row"
        raise refuse(told, "turn each of them by Gather")
    lifted.read(0, in_place(axis))
    lifted.read(1, in_place(0))
    lifted.keep(in_place(axis))


def grid_sample(lifted: LiftedNode) -> None:
    """Lift GridSample: images and grids have the batch first.

    Raises:
        Refused: the original has several images.
    """
    if lifted.dims()[0] != 1:
        raise refuse(f"{lifted.op} of {lifted.dims()[0]} pictures in a model written for one row", "sample one")
    for operand in (0, 1):
        lifted.read(operand, in_place(0))
    lifted.keep(in_place(0))


def one_scale(lifted: LiftedNode) -> None:
    """Refuse DynamicQuantizeLinear, which takes one scale from all rows.

    Raises:
        Refused: always.
    """
    raise refuse(
        f"{lifted.op} takes one scale from all it sees, in a batch from all rows",
        "quantise with constant scales, or export the model in floating point and list quantize_dynamic",
    )


def one_hot(lifted: LiftedNode) -> None:
    """Lift OneHot, which adds an axis, the last by default."""
    lifted.require_shared(1, 2, what="its depth and values")
    lifted.set("axis", axis_of(lifted.node, lifted.rank() + 1) + 1)
    lifted.read(0, INSERTED)
    lifted.keep(INSERTED)


def triangle(lifted: LiftedNode) -> None:
    """Lift Trilu, which works on the last two axes."""
    lifted.require_shared(1, what="its diagonal")
    place = lifted.place()
    layout = INSERTED if place is None or place >= lifted.rank() - 2 else in_place(place)
    lifted.read(0, layout)
    lifted.keep(layout)


_SEQUENCES = {0: 1, 4: 0, 5: 1, 6: 1}
"""Of every operand of a recurrence, the axis of its sequences: frames, their number, and the states."""


def sequences(lifted: LiftedNode) -> None:
    """Lift LSTM, GRU and RNN: axis 1 of frames and states becomes the batch, or is merged with it."""
    if graphs.int_attribute(lifted.node, "layout", 0):
        raise refuse(f"{lifted.op} with layout = 1", "export it with the frames in front")
    lifted.require_shared(1, 2, 3, 7, what="its weights")
    count = lifted.dims(0)[1]
    if count != 1:
        _sequences_of_rows(lifted, count)
        return
    for operand, axis in _SEQUENCES.items():
        if lifted.has(operand):
            lifted.read(operand, in_place(axis))
    lifted.keep(in_place(2), in_place(1), in_place(1))


def _sequences_of_rows(lifted: LiftedNode, count: Dim) -> None:
    """Lift a recurrence by [time, batch, n, size] -> [time, batch * n, size] and back: rows are more sequences."""
    lifter = lifted.lifter
    for operand, axis in _SEQUENCES.items():
        if lifted.has(operand):
            tensor, rest = lifted.tensor(operand, RowLayout(axis, None)), lifted.dims(operand)[axis + 1 :]
            shape = _constants(lifted, (*[0] * axis, -1, *rest))
            merged = lifted.insert.op("Reshape", [tensor, shape], name=f"{tensor.name}_merged")
            lifted.node.replace_input_with(operand, merged)
    after = graphs.Inserter(lifter.model, lifter.stamp, after=lifted.node)
    hidden = graphs.int_attribute(lifted.node, "hidden_size", 0)
    for output, axis in zip(lifted.node.outputs, (2, 1, 1), strict=False):
        shape = _constants(lifted, (*[0] * axis, -1, count, hidden))
        split = after.op("Reshape", [output, shape], name=f"{output.name}_split")
        lifter.layouts[output] = {RowLayout(axis, None): split}


def _constants(lifted: LiftedNode, shape: Sequence[Dim]) -> ir.Value:
    numbers = [size for size in shape if isinstance(size, int)]
    if len(numbers) < len(shape):
        raise refuse(
            f"{lifted.op} over {lifted.dims(0)[1]} sequences in a model written for one row",
            "give the recurrence a fixed number of sequences per row",
        )
    return lifted.insert.int64s(*numbers)


def resize(lifted: LiftedNode) -> None:
    """Lift Resize of other axes than the batch."""
    lifted.require_shared(1, 2, 3, what="its scales")
    scales = graphs.array_of(lifted.value(2)) if lifted.has(2) else None
    if scales is None or lifted.has(1) or "axes" in lifted.node.attributes:
        raise refuse("Resize to sizes, of some axes, or of a part", "resize all axes by constant scales")
    place = lifted.place()
    if place is not None and scales[place] == 1:
        lifted.read(0, in_place(place))
        lifted.keep(in_place(place))
        return
    lifted.read(0, INSERTED)
    lifted.give(2, np.concatenate([np.ones(1, scales.dtype), scales]))
    lifted.keep(INSERTED)


def along_first(lifted: LiftedNode) -> None:
    """Lift convolutions, poolings and normalizations over channels, which treat each entry of the first axis alone."""
    lifted.require_shared(*lifted.present[1:], what="its weights")
    if len(lifted.node.outputs) > 1:
        raise refuse(f"{lifted.op} with {len(lifted.node.outputs)} outputs", "read its first output only")
    if graphs.int_attribute(lifted.node, "training_mode", 0):
        raise refuse(f"{lifted.op} in training mode", "export the model in evaluation mode")
    if lifted.dims()[0] == 1:
        lifted.read(0, in_place(0))
        lifted.keep(in_place(0))
        return
    _merged(lifted)


def _merged(lifted: LiftedNode) -> None:
    """Lift an operator by [batch, n, ...] -> [batch * n, ...] and back."""
    tensor, insert = lifted.tensor(0, INSERTED), lifted.insert
    (output,) = lifted.node.outputs
    tail = insert.op("Shape", [tensor], {"start": 2}, name="tail", dtype=ir.DataType.INT64)
    merged = insert.op("Reshape", [tensor, lifted.lifter.joined(insert, [-1, tail])], name=f"{tensor.name}_merged")
    lifted.node.replace_input_with(0, merged)
    lifter = lifted.lifter
    after = graphs.Inserter(lifter.model, lifter.stamp, after=lifted.node)
    front = after.op("Shape", [tensor], {"end": 2}, name="front", dtype=ir.DataType.INT64)
    back = after.op("Shape", [output], {"start": 1}, name="back", dtype=ir.DataType.INT64)
    lifted.become(
        after.op("Reshape", [output, lifter.joined(after, [front, back])], name=f"{output.name}_split"), INSERTED
    )
