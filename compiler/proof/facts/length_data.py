"""Replaces operands computed from axis lengths by values per row, from true lengths, if a node reads them as data.

A number that meets nothing but constants and positions, which all rows share, gives such a number again: it may shape
values, and whatever uses it as data meets it here.
"""

import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

from compiler.errors import Refused
from compiler.graph.lengths.symbolic_values import at_length, symbolic_values_of
from compiler.graph.model import Dim, dims_of, is_op, symbol
from compiler.graph.operators.traits import VIEWS
from compiler.graph.sizes.growth import never_falls
from compiler.graph.sizes.held_numbers import holds_lengths
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import NUMBER, Fact, Rewrite, Verdict, make_fact, refuse
from compiler.proof.facts.interval import ANYTHING, LONGEST, TRUTH, Interval
from compiler.proof.facts.layout import Axis, Rows, Side, has_rows, size_of, suffix, symbols_of
from compiler.proof.facts.row_value_plans import NO_AXIS, Layouts, Planner, RowValueLayout
from compiler.proof.facts.transfer import limits_of, stored

COPYING = VIEWS | {"Cast", "Expand"}
"""Operators that give of one number everywhere one number everywhere."""


def lengths_alone(case: Case) -> Verdict | None:
    """Return the verdict on a node that computes from lengths and values shared by all rows; None for other nodes.

    Raises:
        Refused: lengths meet data in a model without a batch axis.
    """
    numbers = [operand for operand in case.present if case.fact(operand).is_number]
    others = [case.fact(operand) for operand in case.present if operand not in numbers]
    if not numbers or any(case.is_of_rows(operand) for operand in case.present):
        return None
    if case.batch is None and any(fact.axes and fact.index is None for fact in others):
        raise refuse(
            f"{case.op} uses an axis length as data, which is one per row",
            "give the inputs a batch axis in front, and say with original: in the recipe that the model has none",
        )
    return case.verdict("LN1", "computed from axis lengths", NUMBER)


def per_row(case: Case) -> None:
    """Replace operands that depend on axis lengths by their values per row, in the layout of the other operands.

    Raises:
        Refused: an operand cannot be computed per row, or depends on the size of the batch.
    """
    rank = len(case.out_dims())
    for operand in case.present:
        if _lies_otherwise(case, operand):
            case.facts[operand] = NUMBER
    for operand in case.present:
        if case.fact(operand).is_number:
            other = next(
                operand_of_rows
                for operand_of_rows in case.present
                if operand_of_rows != operand and case.is_of_rows(operand_of_rows)
            )
            rows_axis = case.fact(other).rows_axis
            rows_at = NO_AXIS if rows_axis is None else rows_axis + rank - case.rank(other)
            take_per_row(case, operand, _row_value_layout(case, operand, rank, rows_at))


def take_per_row(case: Case, operand: int, place: RowValueLayout) -> None:
    """Replace one operand by its value per row, in the layout of `place`.

    Raises:
        Refused: the operand cannot be computed per row.
    """
    value = case.node.inputs[operand]
    Planner(case.batch).plan(value, place.layouts)
    case.rewrite("number", operand, place)
    case.facts[operand] = fact_at(case.dtype(operand), value, place)


def fact_at(dtype: ir.DataType, value: ir.Value | None, place: RowValueLayout) -> Fact:
    """Return the fact of a value per row; its padding is computed from lengths, too, and may hold anything."""
    alike = uniform_source(value)
    known = symbolic_values_of(value if alike is None else alike)
    if dtype == ir.DataType.BOOL:
        inside = outside = TRUTH
    elif not any(place.layouts):
        inside = outside = _content(known[0] if known is not None and len(known) == 1 else None)
    else:
        inside = outside = limits_of(dtype) or ANYTHING
    return make_fact(place.axes, lambda region: outside if region else inside)


def spread_per_row(case: Case) -> None:
    """Replace operands that depend on axis lengths and have an axis of the batch by their values per row."""
    for operand in case.present:
        place = row_value_layout(case, case.node.inputs[operand]) if case.fact(operand).is_number else None
        if place is not None:
            take_per_row(case, operand, place)


def _row_value_layout(case: Case, operand: int, rank: int, rows_at: int) -> RowValueLayout:
    """Return the layout of an operand computed from lengths that is broadcast with operands of rows.

    Raises:
        Refused: its batch axis is another one, or it cannot have a value per row.
    """
    rows = next(
        (
            axis
            for other in case.present
            if (axis := _axis_of(case, other, rows_at - rank)) is not None and has_rows(axis)
        ),
        (),
    )
    dims = case.dims(operand)
    layouts: list[Axis | None] = []
    for axis_number, dim in enumerate(dims):
        back = axis_number - len(dims)
        others = [
            axis for other in case.present if other != operand and (axis := _axis_of(case, other, back)) is not None
        ]
        is_rows = back == rows_at - rank
        if dim != 1 and (case.batch is not None and symbol(case.batch) in symbols_of(dim)) != is_rows:
            raise refuse(
                f"{case.op} joins rows of the batch with a number of {dim} entries per row", "keep the batch one axis"
            )
        layouts.append(None if dim == 1 or is_rows else others[0] if others else _own(case, dim))
    inside = rows_at - rank + len(dims)
    is_in_order = inside == 0 and isinstance(rows[0], Rows) and dims[0] == size_of(rows)
    if len(rows) > 1 and inside >= 0 and dims[inside] != 1 and not is_in_order:
        raise refuse(
            f"{case.op} uses several numbers per row where the batch is merged with other axes", "keep the batch apart"
        )
    return RowValueLayout(rank, rows_at, rows, tuple(layouts))


def _lies_otherwise(case: Case, operand: int) -> bool:
    """Whether the padding of an operand of positions lies on another side than that of the operands with rows."""
    fact, rank = case.fact(operand), case.rank(operand)
    rows = [row_operand for row_operand in case.present if case.is_of_rows(row_operand)]
    if fact.is_number or case.is_of_rows(operand) or not fact.axes or not rows:
        return False
    dims = case.dims(operand)
    meets = [
        (axis, _axis_of(case, row_operand, position - rank) or _along_window(case, dims[position]))
        for position, axis in fact.axes
        for row_operand in rows
    ]
    if all(other is None or axis == other for axis, other in meets):
        return False
    layouts = [
        None if dim == 1 else _axis_of(case, rows[0], position - rank) or _along_window(case, dim)
        for position, dim in enumerate(dims)
    ]
    try:
        Planner(case.batch).plan(case.node.inputs[operand], layouts)
    except Refused:
        return False
    return True


def unlike_window(case: Case) -> bool:
    """Whether a node repeats values computed from lengths for every row in another layout than the cache's.

    Those values begin with the first position, cached ones end with the last: a node that joins the two computes them
    again for each row.
    """
    fact, dims = case.fact(), case.dims()
    if case.batch is None or fact.rows_axis is not None:
        return False
    if all(_with_cached(case, dims[at]) in (None, axis) for at, axis in fact.axes):
        return False
    return follows_from_lengths(case)


def follows_from_lengths(case: Case) -> bool:
    """Whether a node's first output can be computed per row from true lengths."""
    try:
        Planner(case.batch).plan(case.node.outputs[0], own_layouts(case, case.out_dims()))
    except Refused:
        return False
    return True


def _axis_of(case: Case, operand: int, back: int) -> Axis | None:
    """Return the layout of an operand's axis, counted from the back; None where it has none."""
    fact, at = case.fact(operand), case.rank(operand) + back
    return None if fact.is_number or at < 0 else fact.axis(at)


def _own(case: Case, dim: Dim) -> Axis | None:
    """Return the layout of an axis of values computed from lengths: valid ones come first.

    An axis as long as the cache takes the cache's layout, as the two are to meet.
    """
    return None if isinstance(dim, int) else _with_cached(case, dim) or suffix(dim)


def _with_cached(case: Case, dim: Dim) -> Axis | None:
    """Return the layout of an axis as long as the cache, alone or joined to new frames; None for others."""
    return case.seen.get(dim) or _along_window(case, dim)


def _along_window(case: Case, dim: Dim) -> Axis | None:
    """Return the layout of an axis as long as a window, or a window and more; None for others."""
    sides = {case.sides.get(str(name)) for name in symbols_of(dim)}
    return case.layout(dim) if sides == {Side.RIGHT} else None


def row_value_layout(case: Case, value: ir.Value | None) -> RowValueLayout | None:
    """Return the layout of a value computed from lengths with one axis of the batch; None with none or several."""
    dims = () if value is None else dims_of(value) or ()
    rows = [at for at, dim in enumerate(dims) if case.batch is not None and dim == symbol(case.batch)]
    if len(rows) != 1:
        return None
    return RowValueLayout(len(dims), rows[0], (Rows(symbol(str(case.batch))),), own_layouts(case, dims), whole=True)


def own_layouts(case: Case, dims: Sequence[Dim]) -> Layouts:
    """Return the layouts of the axes of a value computed from lengths, where no other operand defines them."""
    rows = None if case.batch is None else symbol(case.batch)
    return tuple(None if dim == rows else _own(case, dim) for dim in dims)


def returned_per_row(case: Case, verdict: Verdict) -> Verdict:
    """Return the verdict with outputs that depend on lengths and have an axis of the batch computed per row."""
    outputs, needs = list(verdict.outputs), list(verdict.needs)
    for at, value in enumerate(case.node.outputs):
        place = row_value_layout(case, value) if value.is_graph_output() and outputs[at].is_number else None
        if place is not None and value.dtype is not None:
            Planner(case.batch).plan(value, place.layouts)
            outputs[at] = fact_at(value.dtype, value, place)
            needs.append(Rewrite("row_output", (at, place)))
    return dataclasses.replace(verdict, outputs=tuple(outputs), needs=tuple(needs))


def uniform_source(value: ir.Value | None) -> ir.Value | None:
    """Return the value of one element of which a value holds copies; None where its entries may differ."""
    dims = None if value is None else dims_of(value)
    if value is None or dims is None or all(dim == 1 for dim in dims):
        return value if dims is not None else None
    node = value.producer()
    if node is None or not is_op(node, *COPYING) or (value.dtype is not None and not holds_lengths(value.dtype)):
        return None
    return uniform_source(node.inputs[0])


def _content(size: Dim | None) -> Interval:
    """Return the interval of a number computed from true lengths: between its values at no and at most entries."""
    if size is None or not (never_falls(size) or never_falls(-size)):
        return ANYTHING
    ends = [at_length(size, length) for length in (0, int(LONGEST))]
    if None in ends:
        return ANYTHING
    low, high = sorted(float(end) for end in ends if end is not None)
    return stored(Interval(low, high), ir.DataType.FLOAT)
