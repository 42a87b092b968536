"""Lookups, and what shapes say."""

import numpy as np
import onnx_ir as ir

from compiler import ir as house
from compiler.analysis.facts import refuse
from compiler.batching.form import INSERTED, Form, in_place, moved
from compiler.batching.lifter import Site


def gather(site: Site) -> None:
    """Entries of an axis; data and indices may differ from row to row, also both."""
    axis, data, indices = site.axis(0), 0 in site.rows, 1 in site.rows
    if data and indices:
        _gather_both(site, axis)
    elif data:
        _gather_from_rows(site, axis)
    else:
        _gather_for_rows(site, axis)


def _gather_from_rows(site: Site, axis: int) -> None:
    place, count = site.place(), site.rank(1)
    if place == axis and count == 0 and site.dims()[axis] == 1:
        site.become(site.tensor(0, in_place(axis)), Form(axis, None))  # the only entry
        return
    if place is not None and place != axis:
        site.read(0, in_place(place))
        site.keep(in_place(place if place < axis else place + count - 1))
        return
    site.read(0, INSERTED)
    site.set("axis", axis + 1)
    site.keep(INSERTED)


def _gather_for_rows(site: Site, axis: int) -> None:
    place = site.place(1)
    form = INSERTED if place is None else in_place(place)
    site.read(1, form)
    site.set("axis", axis)
    site.keep(Form(form.at + axis, None) if place is None else in_place(place + axis))


def _gather_both(site: Site, axis: int) -> None:
    data, indices = site.tensor(0, INSERTED), site.tensor(1, INSERTED)
    insert, rank = site.insert, site.rank() + 1
    if axis:
        data = insert.op("Transpose", [data], {"perm": moved(rank, axis + 1, 1)}, name=f"{data.name}_turned")
    last = insert.int64s(-1)
    indices = insert.op("Unsqueeze", [indices, last], name=f"{indices.name}_tuples")
    found = insert.op(
        "GatherND", [data, indices], {"batch_dims": 1}, name=f"{site.node.outputs[0].name}_found", dtype=data.dtype
    )
    if axis:
        count = site.rank(1)  # [batch, indices, axes in front, axes behind] -> [batch, front, indices, behind]
        inner = list(range(1, count + 1))
        front = list(range(count + 1, count + 1 + axis))
        behind = list(range(count + 1 + axis, count + site.rank()))
        order = [0, *front, *inner, *behind]
        found = insert.op("Transpose", [found], {"perm": order}, name=f"{found.name}_turned")
    site.become(found, INSERTED)


def gather_elements(site: Site) -> None:
    """GatherElements and ScatterElements: all operands have the same axes."""
    axis = site.axis(0)
    places = {site.place(operand) for operand in site.rows}
    place = places.pop() if len(places) == 1 else None
    same = place is not None and place != axis and all(site.dims(each)[place] == 1 for each in site.present)
    form = in_place(place) if same and place is not None else INSERTED
    for operand in site.present:
        site.read(operand, form)
    if form == INSERTED:
        site.set("axis", axis + 1)
    site.keep(form)


def gather_tuples(site: Site) -> None:
    """GatherND: the batch joins the axes that data and indices have in common."""
    for operand in (0, 1):
        site.read(operand, INSERTED)
    site.set("batch_dims", house.int_attribute(site.node, "batch_dims", 0) + 1)
    site.keep(INSERTED)


def shape(site: Site) -> None:
    """The shape in the original: the batch counts as the 1 that it stands for."""
    value, rank = site.value(0), site.rank()
    axes = house.dims_read(site.node, rank)
    form = site.lifter.form_of(value)
    kept = [axis for axis in range(rank) if axis != form.dropped]
    kept.insert(form.at, -1)
    parts: list[int | ir.Value] = []
    for axis in axes:
        size = site.dims()[axis]
        if isinstance(size, int):
            parts.append(size)  # 1 for the axis that the batch has taken the place of
        else:
            at = kept.index(axis)
            parts.append(
                site.insert.op(
                    "Shape", [site.tensor(0, form)], {"start": at, "end": at + 1},
                    name=f"{value.name}_size_{axis}", shape=[1], dtype=ir.DataType.INT64,
                )
            )  # fmt: skip
    joined = site.lifter.joined(site.insert, parts) if parts else site.insert.constant(np.zeros(0, np.int64), "int64s")
    _replace_shared(site, joined)


def size(site: Site) -> None:
    """The number of entries in the original."""
    known = site.dims()
    if any(not isinstance(each, int) for each in known):
        raise refuse("Size of a value of unknown size", "multiply the sizes that Shape gives")
    _replace_shared(site, site.insert.constant(np.array(np.prod([int(n) for n in known]), np.int64), "size"))


def _replace_shared(site: Site, value: ir.Value) -> None:
    """Everything reads a new value that all rows share; what was known of the old one holds for it."""
    (output,) = site.node.outputs
    if output.is_graph_output():
        value = site.insert.op("Identity", [value], name=f"{output.name}_copy")
    if value.producer() is not None:
        noted = output.metadata_props.get(house.SYM_DATA)
        if noted is not None:
            value.metadata_props[house.SYM_DATA] = noted
        value.shape = output.shape
    site.lifter.dims[value] = site.lifter.dims[output]
    house.take_over(site.lifter.model, output, value)


def scatter_tuples(site: Site) -> None:
    """ScatterND at places that all rows share: the batch goes behind all axes, where entries move as one."""
    site.require_shared(1, what="its places")
    for operand in (0, 2):
        site.read(operand, Form(site.rank(operand), None))
    site.keep(Form(site.rank(), None))
