"""Writes values computed from axis lengths once per row, from the true lengths (lowerings "number" and "row_output").

Before:
    y = Div(total, Cast(Shape(x)[1]));  z = Add(x, Range(0, Shape(x)[1]) / Shape(x)[1])      # count slots
After:
    y = Div(total, Cast(time_length[:, None]))                                            # count what is valid
    z = Add(x, Unsqueeze(slots[None, :] / time_length[:, None], -1))                      # in each row
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.operators.axes import axis_of, perm_of
from compiler.graph.operators.slices import slice_of
from compiler.graph.operators.traits import OF_POSITIONS
from compiler.proof.facts.layout import Segment, Side
from compiler.proof.facts.row_value_plans import (
    NO_AXIS,
    Apply,
    Counted,
    Fixed,
    Plan,
    Planner,
    RowNumber,
    RowValueLayout,
    Sizes,
)
from compiler.proof.padding.lowerings.row_layout import spread_rows
from compiler.proof.padding.lowerings.site import NodeLowering, Site


def number(site: Site) -> None:
    """Replace one operand by its value per row; details: its index and its layout."""
    operand, place = site.details
    value = site.node.inputs[operand]
    assert value is not None
    found = per_row(site, value, place)
    if operand == 1 and graphs.is_op(site.node, "Div", "Mod") and found.dtype is not None and found.dtype.is_integer():
        found = Writer(site).divisor(found)
    if found.shape is None and place.rank == len(place.layouts):
        found.shape = value.shape  # a mask may be laid over it
    site.node.replace_input_with(operand, found)


def row_output(site: Site) -> None:
    """Replace an output by its value per row; details: its index and its layout."""
    output, place = site.details
    site.replace(output, per_row(site, site.node.outputs[output], place))


def per_row(site: Site, value: ir.Value, place: RowValueLayout) -> ir.Value:
    """Return a value computed from axis lengths for each row, in the layout of `place`."""
    rows = site.valid_slots.batch if isinstance(site.valid_slots.batch, str) else None
    plan = Planner(rows).plan(value, place.layouts)
    return placed(site, Writer(site).write(plan), value, place)


def placed(site: Site, lifted: ir.Value, value: ir.Value, place: RowValueLayout) -> ir.Value:
    """Move the axis of rows from the front of [batch, ...] to its position in the operand."""
    insert, own_rank = site.insert, len(place.layouts)
    name, dtype = f"{value.name}_per_row", value.dtype
    if place.rows_at == NO_AXIS:
        return insert.op("Squeeze", [lifted, insert.int64s(0)], name=name, dtype=dtype)
    front = place.rank - own_rank
    inside = place.rows_at - front
    if len(place.rows) > 1:
        dims = graphs.dims_of(value) or ()
        if inside == 0 and dims[0] != 1:
            return Writer(site).merged(lifted, Planner(str(site.valid_slots.batch)).slots(dims, place.layouts))
        lifted = spread_rows(site, Writer(site).of_all_rows(lifted, own_rank), own_rank + 1, place.rows)
    if inside >= 0:  # the value has an axis of one entry there
        lifted = insert.op("Squeeze", [lifted, insert.int64s(inside + 1)], name=name, dtype=dtype)
        order = [*range(1, inside + 1), 0, *range(inside + 1, own_rank)]
        if order != sorted(order):
            lifted = insert.op("Transpose", [lifted], {"perm": order}, name=name, dtype=dtype)
        added = list(range(front))
    else:
        added = [axis for axis in range(front) if axis != place.rows_at]
    if added:
        lifted = insert.op("Unsqueeze", [lifted, insert.int64s(*added)], name=name, dtype=dtype)
    if place.whole:
        lifted = insert.op("Expand", [lifted, _whole(site, value, place)], name=name, dtype=dtype)
    return lifted


def _whole(site: Site, value: ir.Value, place: RowValueLayout) -> ir.Value:
    """Return the shape of a value with all its entries, including rows."""
    dims = graphs.dims_of(value)
    assert dims is not None
    planner = Planner(str(site.valid_slots.batch))
    sizes: list[Dim] = [1] * (place.rank - len(dims)) + list(planner.slots(dims, place.layouts))
    return Writer(site).shape(sizes, rows_at=place.rows_at)


class Writer:
    """Writes plans: every value gets an axis of rows in front, of one entry where all rows are alike.

    Args:
        site: where.
    """

    def __init__(self, site: Site) -> None:
        self.insert, self.valid_slots = site.insert, site.valid_slots

    def write(self, plan: Plan) -> ir.Value:
        """Return the value of a plan, [rows or 1, ...]."""
        match plan:
            case Fixed():
                value = self.insert.constant(plan.array[None], "number")
                return self._spread(value, plan.sizes) if plan.sizes else value
            case Sizes():
                return self._sizes(plan)
            case Counted():
                return self._counted(plan)
            case RowNumber():
                return self._row_numbers(plan)
            case Apply():
                return self._applied(plan)

    def shape(self, sizes: Sequence[Dim], rows_at: int | None = None) -> ir.Value:
        """Return the numbers of slots of axes as a shape; the axis of rows gets the number of rows."""
        parts = []
        for at, size in enumerate(sizes):
            if at == rows_at:
                parts.append(self._rows())
            elif isinstance(size, int):
                parts.append(self.insert.int64s(size))
            else:
                parts.append(self._op("Reshape", [self.valid_slots.slot_count(size), self.insert.int64s(1)]))
        return self._op("Concat", parts, {"axis": 0}) if len(parts) > 1 else parts[0]

    def _rows(self) -> ir.Value:
        """Return the number of rows, int64 [1]."""
        if isinstance(self.valid_slots.batch, int):
            return self.insert.int64s(self.valid_slots.batch)
        any_length = next(iter(self.valid_slots.lengths.values())).value
        return self._op("Shape", [any_length])

    def _op(
        self, op: str, inputs: Sequence[ir.Value | None],
        attributes: dict[str, int | float | str | Sequence[int]] | None = None,
        dtype: ir.DataType | None = None,
    ) -> ir.Value:  # fmt: skip
        kind = ir.DataType.INT64 if op == "Shape" else dtype
        return self.insert.op(op, inputs, attributes or {}, name="per_row", dtype=kind)

    def _spread(self, value: ir.Value, sizes: Sequence[Dim], rows_at: int | None = None) -> ir.Value:
        """Return a value expanded to all its entries."""
        return self._op("Expand", [value, self.shape([1, *sizes], rows_at)], dtype=value.dtype)

    def of_all_rows(self, value: ir.Value, rank: int) -> ir.Value:
        """Return a value with a number of axes behind the rows, expanded so that every row has its own entry."""
        return self._op("Expand", [value, self.shape([1] * (rank + 1), rows_at=0)], dtype=value.dtype)

    def merged(self, value: ir.Value, sizes: Sequence[Dim]) -> ir.Value:
        """Return a value of every row with its first axis merged into the axis of rows."""
        whole = self._spread(value, sizes, rows_at=0)
        behind = [self.shape(sizes[1:])] if sizes[1:] else []
        target = (
            self._op("Concat", [self.insert.int64s(-1), *behind], {"axis": 0}) if behind else self.insert.int64s(-1)
        )
        return self._op("Reshape", [whole, target], dtype=value.dtype)

    def _sizes(self, plan: Sizes) -> ir.Value:
        counts = [self.valid_slots.count(size, 1, 0, plan.dtype) for size in plan.sizes]
        if len(counts) == 1:
            return self._op("Reshape", [counts[0], self.insert.int64s(-1, *plan.dims)], dtype=plan.dtype)
        apart = [self._op("Reshape", [each, self.insert.int64s(-1, 1)], dtype=plan.dtype) for each in counts]
        apart = [self._spread(each, (1,), rows_at=0) for each in apart]
        whole = self._op("Concat", apart, {"axis": 1}, plan.dtype)
        return self._op("Reshape", [whole, self.insert.int64s(-1, *plan.dims)], dtype=plan.dtype)

    def _counted(self, plan: Counted) -> ir.Value:
        """Return start plus step times the position of every slot."""
        positions = self._positions(plan.frames.segments)
        if plan.dtype != ir.DataType.INT64:
            positions = self._op("Cast", [positions], {"to": plan.dtype}, plan.dtype)
        start, step = (
            self._op("Unsqueeze", [self.write(each), self.insert.int64s(1)], dtype=plan.dtype)
            for each in (plan.start, plan.step)
        )
        return self._op("Add", [start, self._op("Mul", [positions, step], dtype=plan.dtype)], dtype=plan.dtype)

    def _positions(self, segments: Sequence[Segment]) -> ir.Value:
        """Return how many valid entries lie before every slot of an axis, int64 [rows or 1, slots]."""
        parts, before = [], 0
        for segment in segments:
            slots = self._op("Unsqueeze", [self.valid_slots.iota(segment.size), self.insert.int64s(0)])
            if segment.side is Side.RIGHT and not segment.is_full:
                padded = self._op(
                    "Sub", [self.valid_slots.slot_count(segment.size), self.valid_slots.count(segment.size, 2)]
                )
                slots = self._op("Sub", [slots, padded])
            parts.append(slots if before == 0 else self._op("Add", [slots, self.valid_slots.count(before, 2)]))
            before = before + segment.size
        if len(parts) == 1:
            return parts[0]
        none = self._op("Mul", [self.valid_slots.count(before, 2), self.insert.int64s(0)])
        return self._op("Concat", [self._op("Add", [part, none]) for part in parts], {"axis": 1})

    def _row_numbers(self, plan: RowNumber) -> ir.Value:
        """Return 0, 1, ... over the rows, [rows, 1]."""
        zero, one = (self.insert.constant(np.array(number, np.int64), "bound") for number in (0, 1))
        scalar = self.insert.constant(np.zeros(0, np.int64), "scalar")
        count = self._op("Reshape", [self._rows(), scalar])
        numbers = self._op("Unsqueeze", [self._op("Range", [zero, count, one]), self.insert.int64s(1)])
        return (
            numbers if plan.dtype == ir.DataType.INT64 else self._op("Cast", [numbers], {"to": plan.dtype}, plan.dtype)
        )

    def _applied(self, plan: Apply) -> ir.Value:
        node, dtype = plan.node, plan.node.outputs[0].dtype
        values = [self.write(operand_plan) for operand_plan in plan.operands]
        rank = len(plan.sizes)
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        match node.op_type:
            case "CastLike":
                assert dtype is not None
                return self._op("Cast", values, {"to": dtype}, dtype)
            case "Clip":
                return self._op("Clip", [*values, *node.inputs[1:]], attributes, dtype)
            case op if op in OF_POSITIONS:
                aligned = [
                    self._aligned(operand, own_rank, rank) for operand, own_rank in zip(values, plan.ranks, strict=True)
                ]
                if op in ("Div", "Mod") and dtype is not None and dtype.is_integer():
                    aligned[1] = self.divisor(aligned[1])
                return self._op(op, aligned, attributes, dtype)
            case "Flatten" | "Reshape" | "Squeeze" | "Unsqueeze":
                return self._reshaped(values[0], plan, dtype)
            case "Expand" | "Tile":
                return self._spread(self._aligned(values[0], plan.ranks[0], rank), plan.sizes)
            case "Transpose":
                return self._op("Transpose", values, {"perm": [0, *(axis + 1 for axis in perm_of(node, rank))]}, dtype)
            case "Concat":
                rows = [self.of_all_rows(operand, rank) for operand in values]
                return self._op("Concat", rows, {"axis": axis_of(node, rank) + 1}, dtype)
            case "Slice":
                return self._sliced(node, values[0])
            case "GatherND":
                return self._op("GatherND", [node.inputs[0], self._legal(values[0], node)], dtype=dtype)
            case "Gather":
                return self._op("Gather", [node.inputs[0], self._legal(values[0], node)], {"axis": 0}, dtype)
            case "ReduceMax" | "ReduceMean" | "ReduceMin":
                return self._reshaped(values[0], plan, dtype)
        return self._product(node, values[0])

    def _reshaped(self, value: ir.Value, plan: Apply, dtype: ir.DataType | None) -> ir.Value:
        """Reshape a value to the plan's sizes for each row; a scalar per row becomes an axis of rows alone."""
        rows = self._op("Shape", [value], {"start": 0, "end": 1}) if plan.sizes else None
        target = (
            self.insert.int64s(-1) if rows is None else self._op("Concat", [rows, self.shape(plan.sizes)], {"axis": 0})
        )
        return self._op("Reshape", [value, target], dtype=dtype)

    def _aligned(self, value: ir.Value, rank: int, wanted: int) -> ir.Value:
        """Return a value with axes of size 1 behind the rows, as broadcasting needs."""
        if rank == wanted:
            return value
        return self._op("Unsqueeze", [value, self.insert.int64s(*range(1, 1 + wanted - rank))], dtype=value.dtype)

    def divisor(self, value: ir.Value) -> ir.Value:
        """Return integer divisors with 0 replaced by 1: a 0, which would end the run, occurs in the padding alone."""
        assert value.dtype is not None
        zero, one = (self.insert.constant(np.array(number, value.dtype.numpy()), "divisor") for number in (0, 1))
        none = self._op("Equal", [value, zero], dtype=ir.DataType.BOOL)
        return self._op("Where", [none, one, value], dtype=value.dtype)

    def _sliced(self, node: ir.Node, value: ir.Value) -> ir.Value:
        view = slice_of(node)
        axes = None if view is None else view.sliced_axes(graphs.integers_of)
        assert view is not None and axes is not None, "the plan of a Slice knows its axes"
        behind_rows = self.insert.integers(view.kind, (at + 1 for at in axes))
        return self._op("Slice", view.along(value, behind_rows), dtype=value.dtype)

    def _legal(self, index: ir.Value, node: ir.Node) -> ir.Value:
        """Return indices of table rows that are legal everywhere: legal ones, negative too, select the same row."""
        table = node.inputs[0]
        dims = None if table is None else graphs.dims_of(table)
        assert dims is not None and isinstance(dims[0], int) and index.dtype is not None
        count = self.insert.constant(np.array(dims[0], index.dtype.numpy()), "legal_index")
        return self._op("Mod", [index, count], dtype=index.dtype)

    def _product(self, node: ir.Node, value: ir.Value) -> ir.Value:
        """Write a MatMul or Gemm with constant weights."""
        dtype, weights = node.outputs[0].dtype, node.inputs[1]
        if node.op_type == "MatMul":
            return self._op("MatMul", [value, weights], dtype=dtype)
        array, bias = graphs.array_of(weights), graphs.array_of(node.inputs[2]) if len(node.inputs) > 2 else None
        assert array is not None
        alpha, beta = (float(str(graphs.attribute(node, name, 1.0))) for name in ("alpha", "beta"))
        array = (array.T if graphs.int_attribute(node, "transB", 0) else array) * np.array(alpha, array.dtype)
        product = self._op("MatMul", [value, self.insert.constant(np.ascontiguousarray(array), "weights")], dtype=dtype)
        if bias is None:
            return product
        return self._op("Add", [product, self.insert.constant(bias * np.array(beta, bias.dtype), "bias")], dtype=dtype)


NODE_LOWERINGS: dict[str, NodeLowering] = {"number": number, "row_output": row_output}
