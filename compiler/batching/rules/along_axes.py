"""Operators that act along named axes: reductions, normalisations, searches and sums so far."""

import numpy as np
import onnx_ir as ir

from compiler import ir as house
from compiler.analysis.facts import refuse
from compiler.batching.form import INSERTED, Form, in_place
from compiler.batching.lifter import Site

AXES_AS_INPUT = 18
"""Since this opset all reductions take their axes as an input; ReduceSum did before."""


def along_axis(site: Site) -> None:
    """The op acts along one axis and keeps it: Softmax, TopK and their like."""
    site.require_shared(*site.present[1:], what="its settings")
    axis, place = site.axis(_DEFAULT_AXES.get(site.op, -1)), site.place()
    form = INSERTED if place is None or place == axis else in_place(place)
    site.read(0, form)
    if form == INSERTED:
        site.set("axis", axis + 1)
    site.keep(form)


_DEFAULT_AXES = {"Hardmax": -1}


def normalization(site: Site) -> None:
    """LayerNormalization and its like: over all axes from one on."""
    site.require_shared(*site.present[1:], what="its scale")
    axis, place = site.axis(-1), site.place()
    form = INSERTED if place is None or place >= axis else in_place(place)
    site.read(0, form)
    if form == INSERTED:
        site.set("axis", axis + 1)
    site.keep(form)


def cumulative_sum(site: Site) -> None:
    """The axis is an input."""
    (axis,) = site.constants(1, "axis")
    axis, place = axis % site.rank(), site.place()
    form = INSERTED if place is None or place == axis else in_place(place)
    site.read(0, form)
    if form == INSERTED:
        kind = site.value(1).dtype
        assert kind is not None
        site.node.replace_input_with(1, site.insert.constant(np.array(axis + 1, kind.numpy()), "axis"))
    site.keep(form)


def reduction(site: Site) -> None:
    """The axes of each row are reduced, never the batch: a sum over an axis of size 1 stays a sum over that axis."""
    rank, keeps = site.rank(), bool(house.int_attribute(site.node, "keepdims", 1))
    axes = _reduced_axes(site, rank)
    form = _form(site, axes)
    site.read(0, form)
    if form == INSERTED:
        _write_axes(site, tuple(axis + 1 for axis in axes))
    site.keep(_after(form, axes, keeps))


def search(site: Site) -> None:
    """ArgMax and ArgMin."""
    axis, keeps = site.axis(0), bool(house.int_attribute(site.node, "keepdims", 1))
    form = _form(site, (axis,))
    site.read(0, form)
    if form == INSERTED:
        site.set("axis", axis + 1)
    site.keep(_after(form, (axis,), keeps))


def _form(site: Site, axes: tuple[int, ...]) -> Form:
    place = site.place()
    return INSERTED if place is None or place in axes else in_place(place)


def _after(form: Form, axes: tuple[int, ...], keeps: bool) -> Form:
    if keeps or form == INSERTED:
        return form
    return in_place(form.at - sum(axis < form.at for axis in axes))


def _reduced_axes(site: Site, rank: int) -> tuple[int, ...]:
    """The axes in the original, counted from the front."""
    axes = site.constants(1, "axes") if site.has(1) else house.ints_attribute(site.node, "axes")
    if not axes and not house.int_attribute(site.node, "noop_with_empty_axes", 0):
        return tuple(range(rank))
    return tuple(axis % rank for axis in axes)


def _write_axes(site: Site, axes: tuple[int, ...]) -> None:
    opset = site.lifter.model.graph.opset_imports.get("", AXES_AS_INPUT)
    if not axes:
        return
    if site.op == "ReduceSum" or opset >= AXES_AS_INPUT:
        site.give(1, np.array(axes, np.int64))
    else:
        site.set("axes", axes)


def one_hot(site: Site) -> None:
    """A new axis, last by default."""
    site.require_shared(1, 2, what="its depth and values")
    axis = house.int_attribute(site.node, "axis", -1)
    site.read(0, INSERTED)
    if axis >= 0:
        site.set("axis", axis + 1)
    site.keep(INSERTED)


def triangle(site: Site) -> None:
    """Trilu works on the last two axes."""
    site.require_shared(1, what="its diagonal")
    place = site.place()
    form = INSERTED if place is None or place >= site.rank() - 2 else in_place(place)
    site.read(0, form)
    site.keep(form)


def sequences(site: Site) -> None:
    """LSTM, GRU and RNN: the batch is axis 1 of the frames and of the states."""
    if house.int_attribute(site.node, "layout", 0):
        raise refuse(f"{site.op} with layout = 1", "export it with the frames in front")
    site.require_shared(1, 2, 3, 7, what="its weights")
    if site.dims(0)[1] != 1:
        raise refuse(
            f"{site.op} over {site.dims(0)[1]} sequences in a model written for one row",
            "give the recurrence one sequence per row",
        )
    for operand, axis in ((0, 1), (4, 0), (5, 1), (6, 1)):
        if site.has(operand):
            site.read(operand, in_place(axis))
    site.keep(in_place(2), in_place(1), in_place(1))


def resize(site: Site) -> None:
    """Other sizes of the axes of each row; the batch is none of them."""
    site.require_shared(1, 2, 3, what="its scales")
    scales = house.array_of(site.value(2)) if site.has(2) else None
    if scales is None or site.has(1) or "axes" in site.node.attributes:
        raise refuse("Resize to sizes, of some axes, or of a part", "resize all axes by constant scales")
    place = site.place()
    if place is not None and scales[place] == 1:
        site.read(0, in_place(place))
        site.keep(in_place(place))
        return
    site.read(0, INSERTED)
    site.give(2, np.concatenate([np.ones(1, scales.dtype), scales]))
    site.keep(INSERTED)


def along_first(site: Site) -> None:
    """Convolutions, pools and normalisations over channels: each entry of the first axis by itself."""
    site.require_shared(*site.present[1:], what="its weights")
    if len(site.node.outputs) > 1:
        raise refuse(f"{site.op} with {len(site.node.outputs)} outputs", "read its first output only")
    if house.int_attribute(site.node, "training_mode", 0):
        raise refuse(f"{site.op} in training mode", "export the model in evaluation mode")
    if site.dims()[0] == 1:
        site.read(0, in_place(0))
        site.keep(in_place(0))
        return
    _merged(site)


def _merged(site: Site) -> None:
    """[batch, n, ...] -> [batch * n, ...], the op, and back."""
    tensor, insert = site.tensor(0, INSERTED), site.insert
    (output,) = site.node.outputs
    tail = insert.op("Shape", [tensor], {"start": 2}, name="tail", dtype=ir.DataType.INT64)
    merged = insert.op("Reshape", [tensor, site.lifter.joined(insert, [-1, tail])], name=f"{tensor.name}_merged")
    site.node.replace_input_with(0, merged)
    lifter = site.lifter
    after = house.Inserter(lifter.model, lifter.stamp, after=site.node)
    front = after.op("Shape", [tensor], {"end": 2}, name="front", dtype=ir.DataType.INT64)
    back = after.op("Shape", [output], {"start": 1}, name="back", dtype=ir.DataType.INT64)
    site.become(
        after.op("Reshape", [output, lifter.joined(after, [front, back])], name=f"{output.name}_split"), INSERTED
    )
