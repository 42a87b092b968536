"""Batches Gather and Scatter operators, and replaces Shape and Size by the shape and size in the graph for one row."""

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.proof.batching.form import INSERTED, RowLayout, in_place, moved
from compiler.proof.batching.lifter import LiftedNode
from compiler.proof.facts.facts import refuse


def gather(lifted: LiftedNode) -> None:
    """Lift Gather; data and indices may each differ from row to row."""
    axis, data, indices = lifted.axis(), 0 in lifted.rows, 1 in lifted.rows
    if data and indices:
        _gather_both(lifted, axis)
    elif data:
        _gather_from_rows(lifted, axis)
    else:
        _gather_for_rows(lifted, axis)


def _gather_from_rows(lifted: LiftedNode, axis: int) -> None:
    place, count = lifted.place(), lifted.rank(1)
    if place == axis and count == 0 and lifted.dims()[axis] == 1:
        lifted.become(lifted.tensor(0, in_place(axis)), RowLayout(axis, None))  # the only entry
        return
    if place is not None and place != axis:
        lifted.read(0, in_place(place))
        lifted.keep(in_place(place if place < axis else place + count - 1))
        return
    lifted.read(0, INSERTED)
    lifted.set("axis", axis + 1)
    lifted.keep(INSERTED)


def _gather_for_rows(lifted: LiftedNode, axis: int) -> None:
    place = lifted.place(1)
    layout = INSERTED if place is None else in_place(place)
    lifted.read(1, layout)
    lifted.set("axis", axis)
    lifted.keep(RowLayout(layout.at + axis, None) if place is None else in_place(place + axis))


def _gather_both(lifted: LiftedNode, axis: int) -> None:
    data, indices = lifted.tensor(0, INSERTED), lifted.tensor(1, INSERTED)
    insert, rank = lifted.insert, lifted.rank() + 1
    if axis:
        data = insert.op("Transpose", [data], {"perm": moved(rank, axis + 1, 1)}, name=f"{data.name}_turned")
    last = insert.int64s(-1)
    indices = insert.op("Unsqueeze", [indices, last], name=f"{indices.name}_tuples")
    gathered = insert.op(
        "GatherND", [data, indices], {"batch_dims": 1}, name=f"{lifted.node.outputs[0].name}_found", dtype=data.dtype
    )
    if axis:
        count = lifted.rank(1)  # [batch, indices, axes in front, axes behind] -> [batch, front, indices, behind]
        inner = list(range(1, count + 1))
        front = list(range(count + 1, count + 1 + axis))
        behind = list(range(count + 1 + axis, count + lifted.rank()))
        order = [0, *front, *inner, *behind]
        gathered = insert.op("Transpose", [gathered], {"perm": order}, name=f"{gathered.name}_turned")
    lifted.become(gathered, INSERTED)


def gather_elements(lifted: LiftedNode) -> None:
    """Lift GatherElements and ScatterElements, whose operands have the same axes."""
    axis = lifted.axis()
    places = {lifted.place(operand) for operand in lifted.rows}
    place = places.pop() if len(places) == 1 else None
    same = place is not None and place != axis and all(lifted.dims(each)[place] == 1 for each in lifted.present)
    layout = in_place(place) if same and place is not None else INSERTED
    for operand in lifted.present:
        lifted.read(operand, layout)
    if layout == INSERTED:
        lifted.set("axis", axis + 1)
    lifted.keep(layout)


def gather_tuples(lifted: LiftedNode) -> None:
    """Lift GatherND: the batch becomes one more of the axes that data and indices share."""
    for operand in (0, 1):
        lifted.read(operand, INSERTED)
    lifted.set("batch_dims", graphs.int_attribute(lifted.node, "batch_dims", 0) + 1)
    lifted.keep(INSERTED)


def shape(lifted: LiftedNode) -> None:
    """Replace a Shape by the shape in the original, where the batch counts as the 1 it replaces."""
    value, rank = lifted.value(0), lifted.rank()
    axes = graphs.dims_read(lifted.node, rank)
    layout = lifted.lifter.layout_of(value)
    original_axes = [axis for axis in range(rank) if axis != layout.dropped]
    original_axes.insert(layout.at, -1)
    parts: list[int | ir.Value] = []
    for axis in axes:
        size = lifted.dims()[axis]
        if isinstance(size, int):
            parts.append(size)  # 1 for the axis that the batch has taken the place of
        else:
            position = original_axes.index(axis)
            parts.append(
                lifted.insert.op(
                    "Shape", [lifted.tensor(0, layout)], {"start": position, "end": position + 1},
                    name=f"{value.name}_size_{axis}", shape=[1], dtype=ir.DataType.INT64,
                )
            )  # fmt: skip
    joined = (
        lifted.lifter.joined(lifted.insert, parts) if parts else lifted.insert.constant(np.zeros(0, np.int64), "int64s")
    )
    _replace_shared(lifted, joined)


def size(lifted: LiftedNode) -> None:
    """Replace a Size by the number of entries in the original."""
    known = lifted.dims()
    if any(not isinstance(each, int) for each in known):
        raise refuse("Size of a value of unknown size", "multiply the sizes that Shape gives")
    _replace_shared(lifted, lifted.insert.constant(np.array(np.prod([int(n) for n in known]), np.int64), "size"))


def _replace_shared(lifted: LiftedNode, value: ir.Value) -> None:
    """Replace an output by a value that all rows share, with the recorded shape and contents."""
    (output,) = lifted.node.outputs
    if output.is_graph_output():
        value = lifted.insert.op("Identity", [value], name=f"{output.name}_copy")
    if value.producer() is not None:
        noted = output.metadata_props.get(graphs.SYM_DATA)
        if noted is not None:
            value.metadata_props[graphs.SYM_DATA] = noted
        value.shape = output.shape
    lifted.lifter.dims[value] = lifted.lifter.dims[output]
    graphs.take_over(lifted.lifter.model, output, value)


def scatter_tuples(lifted: LiftedNode) -> None:
    """Lift ScatterND: with indices shared by all rows, the batch becomes the last axis, which moves as a whole.

    Indices that differ from row to row are prefixed with the number of the row.
    """
    if 1 in lifted.rows:
        _scatter_in_rows(lifted)
        return
    for operand in (0, 2):
        lifted.read(operand, RowLayout(lifted.rank(operand), None))
    lifted.keep(RowLayout(lifted.rank(), None))


def _scatter_in_rows(lifted: LiftedNode) -> None:
    for operand in (0, 2):
        lifted.read(operand, INSERTED)
    insert, places = lifted.insert, lifted.tensor(1, INSERTED)
    rank, kind = lifted.rank(1) + 1, ir.DataType.INT64
    bounds = [insert.constant(np.array(number, np.int64), "bound") for number in (0, 1)]
    rows = insert.op("Squeeze", [lifted.lifter.count()], name="rows", dtype=kind, shape=[])
    numbers = insert.op("Range", [bounds[0], rows, bounds[1]], name="row_numbers", dtype=kind)
    numbers = insert.op("Unsqueeze", [numbers, insert.int64s(*range(1, rank))], name="row_numbers", dtype=kind)
    parts: list[int | ir.Value] = [insert.op("Shape", [places], {"end": rank - 1}, name="places", dtype=kind), 1]
    numbers = insert.op("Expand", [numbers, lifted.lifter.joined(insert, parts)], name="row_numbers", dtype=kind)
    whole = insert.op("Concat", [numbers, places], {"axis": rank - 1}, name=f"{places.name}_in_rows", dtype=kind)
    lifted.node.replace_input_with(1, whole)
    lifted.keep(INSERTED)
