"""Plans how values that depend on axis lengths alone are recomputed for every row from its true length.

    p = Div(Cast(Range(0, T, 1)), Cast(T))     [time], the same for all rows: T counts slots
    plan: Apply(Div, Apply(Cast, Counted over [time, left]), Apply(Cast, Sizes(time)))
    per row: [batch, time], entry k of a row is k / its own length

A plan has the shape of the value with an axis of rows in front; axes of the value that hold the batch have one entry.
`compiler.proof.padding.lowerings.number` writes it.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir
import sympy

from compiler.graph.axis_map import NotMapped, axis_map_of
from compiler.graph.lengths.symbolic_values import is_placeholder, quotient, same, symbolic_values_of
from compiler.graph.model import Dim, array_of, dims_of, int_attribute, integers_of, is_op, symbol
from compiler.graph.operators.axes import axis_of, perm_of
from compiler.graph.operators.reductions import reduction_of
from compiler.graph.operators.repeats import tile_of
from compiler.graph.operators.slices import AxisSlice, slice_of
from compiler.graph.operators.traits import CASTS, OF_POSITIONS, VIEWS
from compiler.graph.sizes.expressions import normal_form
from compiler.graph.sizes.growth import never_negative
from compiler.proof.facts.executed_index_map import uniform
from compiler.proof.facts.facts import refuse
from compiler.proof.facts.interval import LONGEST
from compiler.proof.facts.layout import Axis, Frames, Segment, size_of, suffix, symbols_of

Layouts: TypeAlias = tuple[Axis | None, ...]
"""The layout of every axis of a value; None where both programs have as many entries, and for axes of the batch."""

CURE = "compute it of lengths and positions elementwise, or expand the length to the batch and compute on that"


BATCH_CURE = "use the batch size and arange(batch) for shapes, and to choose row i for row i, and nowhere else"


@dataclasses.dataclass(frozen=True, eq=False)
class Fixed:
    """A constant; `sizes` where it is spread over axes, without the axis of rows in front."""

    array: np.ndarray
    sizes: tuple[Dim, ...] = ()


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of axes, in a value of static dimensions."""

    sizes: tuple[Dim, ...]
    dims: tuple[int, ...]
    dtype: ir.DataType


@dataclasses.dataclass(frozen=True)
class Counted:
    """The numbers of a Range, one at every slot of an axis."""

    start: "Plan"
    step: "Plan"
    frames: Frames
    dtype: ir.DataType


@dataclasses.dataclass(frozen=True)
class RowNumber:
    """The number of the row, in a value of one axis."""

    dtype: ir.DataType


@dataclasses.dataclass(frozen=True)
class Apply:
    """A node over operands per row.

    Attributes:
        node: the node as it is in the graph.
        operands: of its inputs that are computed per row; others are constants of the node.
        ranks: of those inputs.
        sizes: of the result's axes in slots, without the axis of rows in front.
    """

    node: ir.Node
    operands: tuple["Plan", ...]
    ranks: tuple[int, ...]
    sizes: tuple[Dim, ...]


Plan: TypeAlias = Fixed | Sizes | Counted | RowNumber | Apply


@dataclasses.dataclass(frozen=True)
class Planner:
    """Plans values.

    Attributes:
        batch: the batch axis.
        numbered: whether rows may know their number, as indices that choose the row itself do.
    """

    batch: str | None
    numbered: bool = False

    def plan(self, value: ir.Value | None, layouts: Sequence[Axis | None]) -> Plan:
        """Return how a value is computed per row from true lengths.

        Args:
            value: a value computed from axis lengths alone.
            layouts: the layouts of its axes.

        Raises:
            Refused: a part of it cannot be computed per row.
        """
        dims = None if value is None else dims_of(value)
        if value is None or dims is None:
            raise refuse("a number of unknown rank is computed from axis lengths and used as data", CURE)
        array = array_of(value)
        if array is not None:
            return Fixed(array)
        sizes = self._sizes(value, dims)
        if sizes is not None:
            return sizes
        alike = uniform(value)
        if alike is not None and value.dtype is not None:
            return Fixed(np.full([1] * len(dims), alike, value.dtype.numpy()), self.slots(dims, layouts))
        node = value.producer()
        rule = None if node is None or node.domain not in ("", "ai.onnx") else RULES.get(node.op_type)
        if node is None or rule is None:
            what = f"{value.name!r}" if node is None else node.op_type
            raise refuse(f"{what} of axis lengths is used as data, and lengths differ from row to row", CURE)
        return rule(self, node, tuple(layouts), dims)

    def slots(self, dims: Sequence[Dim], layouts: Sequence[Axis | None]) -> tuple[Dim, ...]:
        """Return the sizes of a value's axes in slots; 1 for the batch.

        Raises:
            Refused: a size is not known.
        """
        sizes: list[Dim] = []
        for dim, layout in zip(dims, layouts, strict=True):
            of_row = self.of_row(dim)
            if of_row != dim and isinstance(of_row, int):
                sizes.append(of_row)
            elif layout is None and not isinstance(dim, int):
                raise refuse(f"an axis of {dim} entries, computed from axis lengths, is used as data", CURE)
            else:
                sizes.append(dim if layout is None else size_of(layout))
        return tuple(sizes)

    def of_row(self, dim: Dim) -> Dim:
        """Return the number of entries per row along an axis: 1 for the batch, 4 for four consecutive ones."""
        share = None if self.batch is None else quotient(dim, symbol(self.batch))
        return dim if share is None else share

    def in_front(self, dims: Sequence[Dim]) -> Dim:
        """Return how many entries each row has in axes in front of the batch; 1 where no axis holds it."""
        at = next((at for at, dim in enumerate(dims) if self.of_row(dim) != dim), 0)
        return normal_form(math.prod(dims[:at]))

    def _sizes(self, value: ir.Value, dims: Sequence[Dim]) -> Sizes | None:
        """Return the plan of known sizes; None where they are unknown, or rounded differently from sizes."""
        whole = value.dtype is not None and value.dtype.is_integer()
        known = symbolic_values_of(value) if whole else integers_of(value)
        static = tuple(dim for dim in dims if isinstance(dim, int))
        if known is None or len(static) != len(dims) or math.prod(static) != len(known) or value.dtype is None:
            return None
        if any(is_placeholder(name) for size in known for name in symbols_of(size)):
            return None
        if self.batch is not None and any(symbol(self.batch) in symbols_of(size) for size in known):
            raise refuse("computes with the batch size: rows of one batch would mix", BATCH_CURE)
        if _computes(value.producer()) and not all(_is_size(size) for size in known):
            return None
        return Sizes(known, static, value.dtype)


def _computes(node: ir.Node | None) -> bool:
    """Whether a node computes a number from others by arithmetic."""
    return is_op(node, "Add", "Sub", "Mul", "Div", "Mod", "Neg", "Max", "Min", "Abs", "Cast", "Concat", "Gather")


def _is_size(number: Dim) -> bool:
    """Whether a number and every dividend in it are at least 0 at all lengths, as those of sizes are."""
    parts = [] if isinstance(number, int) else [each.args[0] for each in number.atoms(sympy.floor, sympy.Mod)]
    tops = (sympy.fraction(sympy.together(each))[0] for each in parts)
    return all(never_negative(each) for each in (number, *tops))


Rule: TypeAlias = Callable[[Planner, ir.Node, Layouts, Sequence[Dim]], Plan]
"""Plans a node: the planner, the node, the layouts of its output, and the output's dimensions."""


def _applied(
    planner: Planner, node: ir.Node, layouts: Layouts, dims: Sequence[Dim], operands: Sequence[tuple[int, Layouts]]
) -> Apply:
    """Return the plan that applies a node to the plans of its operands, each with its layouts."""
    plans = tuple(planner.plan(node.inputs[at], each) for at, each in operands)
    return Apply(node, plans, tuple(len(each) for _, each in operands), planner.slots(dims, layouts))


def _elementwise(planner: Planner, node: ir.Node, layouts: Layouts, dims: Sequence[Dim]) -> Plan:
    count = 1 if is_op(node, *CASTS, "Clip") else len(node.inputs)
    if is_op(node, "Clip") and any(array_of(each) is None for each in node.inputs[1:] if each is not None):
        raise refuse("Clip of axis lengths between computed numbers is used as data", "use Max and Min")
    operands = []
    for at in range(count):
        own = _dims(node, at)
        kept = layouts[len(layouts) - len(own) :]
        operands.append((at, tuple(None if dim == 1 else axis for dim, axis in zip(own, kept, strict=True))))
    return _applied(planner, node, layouts, dims, operands)


def _reshaped(planner: Planner, node: ir.Node, layouts: Layouts, dims: Sequence[Dim]) -> Plan:
    """Return the plan of a Reshape: axes that depend on lengths stay whole; those between may be split and merged."""
    whole = _dims(node, 0)
    if planner.in_front(whole) != planner.in_front(dims):
        raise refuse(f"{node.op_type} of axis lengths mixes rows of the batch with others, and is used as data", CURE)
    own_dims, dims_of_node, dims = [planner.of_row(dim) for dim in whole], dims, [planner.of_row(dim) for dim in dims]
    layouts_before: list[Axis | None] = [None] * len(own_dims)
    before = [axis for axis, dim in enumerate(own_dims) if dim != 1]
    after = [axis for axis, dim in enumerate(dims) if dim != 1]
    while before and after:
        if same(own_dims[before[0]], dims[after[0]]):
            layouts_before[before.pop(0)] = layouts[after.pop(0)]
            continue
        left, right = own_dims[before.pop(0)], dims[after.pop(0)]
        while (
            left != right and isinstance(left, int) and isinstance(right, int) and (before if left < right else after)
        ):
            more, size = (before, own_dims) if left < right else (after, dims)
            factor = size[more.pop(0)]
            if not isinstance(factor, int):
                break
            left, right = (left * factor, right) if left < right else (left, right * factor)
        if left != right:
            break
    if before or after:
        raise refuse(f"{node.op_type} of axis lengths merges or cuts axes of unknown size, and is used as data", CURE)
    return _applied(planner, node, layouts, dims_of_node, [(0, tuple(layouts_before))])


def _transposed(planner: Planner, node: ir.Node, layouts: Layouts, dims: Sequence[Dim]) -> Plan:
    order = perm_of(node, len(dims))
    return _applied(planner, node, layouts, dims, [(0, tuple(layouts[order.index(at)] for at in range(len(dims))))])


def _expanded(planner: Planner, node: ir.Node, layouts: Layouts, dims: Sequence[Dim]) -> Plan:
    own = _dims(node, 0)
    kept = layouts[len(layouts) - len(own) :]
    return _applied(
        planner, node, layouts, dims, [(0, tuple(None if d == 1 else axis for d, axis in zip(own, kept, strict=True)))]
    )


def _repeated(planner: Planner, node: ir.Node, layouts: Layouts, dims: Sequence[Dim]) -> Plan:
    """Return the plan of a Tile along axes with one entry per row."""
    view, own = tile_of(node, symbolic_values_of), _dims(node, 0)
    times = None if view is None else view.known
    repeats = [planner.of_row(count) for count in times or ()]
    if repeats == [1] * len(own):
        return planner.plan(node.inputs[0], layouts)
    fits = times is not None and all(by == 1 or planner.of_row(dim) == 1 for by, dim in zip(repeats, own, strict=True))
    if not fits or planner.numbered:  # rows that are numbered would come in the order of the repetitions
        raise refuse(
            "Tile of axis lengths is used as data", "repeat axes of one entry or of the batch alone, or Expand"
        )
    return _expanded(planner, node, layouts, dims)


def _joined(planner: Planner, node: ir.Node, layouts: Layouts, dims: Sequence[Dim]) -> Plan:
    at, count = axis_of(node, len(dims)), len(node.inputs)
    layout = layouts[at]
    if layout is None and isinstance(dims[at], int):
        own: list[Axis | None] | None = [None] * count
    else:
        own = None if layout is None else parted(layout, [_dims(node, each)[at] for each in range(count)])
    if own is None:
        raise refuse("Concat of axis lengths along an axis of unknown size is used as data", CURE)
    operands = [(each, (*layouts[:at], axis, *layouts[at + 1 :])) for each, axis in enumerate(own)]
    return _applied(planner, node, layouts, dims, operands)


def parted(layout: Axis, sizes: Sequence[Dim]) -> list[Axis | None] | None:
    """Return the layouts of consecutive pieces of an axis; None where a segment would be split."""
    frames = layout[0] if len(layout) == 1 else None
    segments = list(frames.segments) if isinstance(frames, Frames) else []
    layouts: list[Axis | None] = []
    for size in sizes:
        taken: list[Segment] = []
        while segments and not (taken and same(size, Frames(tuple(taken)).size)):
            taken.append(segments.pop(0))
        if not taken or not same(size, Frames(tuple(taken)).size):
            return None
        layouts.append((Frames(tuple(taken)),))
    return None if segments else layouts


def _sliced(planner: Planner, node: ir.Node, layouts: Layouts, dims: Sequence[Dim]) -> Plan:
    view = slice_of(node)
    axis_slices = None if view is None else view.axis_slices(integers_of)
    if axis_slices is not None and len(axis_slices) == 1 and _is_turn(axis_slices[0]):
        return _reversed(planner.plan(node.inputs[0], layouts), axis_slices[0].axis)
    run = _run(node, dims)
    if run is not None:
        axis, first, stride = run
        layout = layouts[axis] or (Frames((Segment(dims[axis]),)),)
        source = [*layouts[:axis], suffix(_dims(node, 0)[axis]), *layouts[axis + 1 :]]
        return _kept(planner.plan(node.inputs[0], source), axis, first, stride, layout)
    if axis_slices is None or any(
        sliced.as_slice is None or layouts[sliced.axis] is not None for sliced in axis_slices
    ):
        raise refuse("Slice of what follows from axis lengths is used as data", CURE)
    return _applied(planner, node, layouts, dims, [(0, layouts)])


def _is_turn(sliced: AxisSlice) -> bool:
    """Whether a Slice reverses one whole axis."""
    return (sliced.start, sliced.step) == (-1, -1) and isinstance(sliced.end, int) and sliced.end < -LONGEST


def _run(node: ir.Node, dims: Sequence[Dim]) -> tuple[int, Dim, int] | None:
    """Return axis, start and step of a Slice whose bounds depend on lengths; None for other slices."""
    view = slice_of(node)
    sliced = None if view is None else view.only_axis_slice(symbolic_values_of)
    if (
        sliced is None
        or sliced.start is None
        or sliced.end is None
        or not isinstance(sliced.step, int)
        or sliced.step < 1
    ):
        return None
    axis = sliced.axis
    size = _dims(node, 0)[axis]
    first, last = (_from_front(bound, size) for bound in (sliced.start, sliced.end))
    inside = all(never_negative(bound) for bound in (first, normal_form(size - last)))
    count = normal_form(-sympy.floor(-sympy.sympify(last - first) / sliced.step))
    moves = not isinstance(size, int) and same(count, dims[axis])
    return (axis, first, sliced.step) if inside and moves else None


def _from_front(bound: Dim, size: Dim) -> Dim:
    """Return a slice bound counted from the front; one beyond the end is the end."""
    if isinstance(bound, int) and bound < 0:
        return normal_form(size + bound)
    return size if isinstance(bound, int) and bound >= LONGEST else bound


def _kept(plan: Plan, axis: int, first: Dim, stride: int, layout: Axis) -> Plan:
    """Return the plan of every `stride`-th entry along an axis from `first` on, in a new layout.

    Raises:
        Refused: the plan is not arithmetic on positions.
    """
    frames = layout[0] if len(layout) == 1 else None
    match plan:
        case Fixed(sizes=()) | Sizes():
            return plan
        case Fixed(array=array, sizes=sizes):
            return Fixed(array, _resized(sizes, axis, layout))
        case Counted(start=start, step=step) if isinstance(frames, Frames):
            begin, by = _number(start), _number(step)
            if begin is not None and isinstance(by, int):
                later = Sizes((normal_form(begin + first * by),), (), plan.dtype)
                return Counted(
                    later, step if stride == 1 else Sizes((by * stride,), (), plan.dtype), frames, plan.dtype
                )
        case Apply(node=node, operands=operands):
            places = [_place_in(node, number, axis) for number in range(len(operands))]
            if None not in places:
                moved = tuple(
                    operand_plan if operand_axis < 0 else _kept(operand_plan, operand_axis, first, stride, layout)
                    for operand_plan, operand_axis in zip(
                        operands, (place for place in places if place is not None), strict=True
                    )
                )
                return dataclasses.replace(plan, operands=moved, sizes=_resized(plan.sizes, axis, layout))
    raise refuse(
        "a part of what follows from axis lengths is used as data", "cut positions before they are computed on"
    )


def _resized(sizes: Sequence[Dim], axis: int, layout: Axis) -> tuple[Dim, ...]:
    return (*sizes[:axis], size_of(layout), *sizes[axis + 1 :])


def _place_in(node: ir.Node, operand: int, axis: int) -> int | None:
    """Return the operand's axis behind a result's axis: -1 where it has size 1 or none, None where unknown."""
    if not is_op(node, *OF_POSITIONS, "Concat", "Expand", "Transpose", "Unsqueeze"):
        return None
    try:
        axis_map = axis_map_of(node)
    except NotMapped:
        return None
    return axis_map.sources(axis).get(operand, -1) if axis in axis_map.axes else None


def _reversed(plan: Plan, axis: int) -> Plan:
    """Return the plan of the same entries along an axis in reverse order.

    Raises:
        Refused: the plan is not arithmetic on positions.
    """
    match plan:
        case Fixed() | Sizes() | RowNumber():
            return plan
        case Counted(start=start, step=step, frames=frames):
            first, by = _number(start), _number(step)
            if first is not None and isinstance(by, int):
                last = normal_form(first + (frames.size - 1) * by)
                return Counted(
                    Sizes((last,), (), plan.dtype), Fixed(np.array(-by, plan.dtype.numpy())), frames, plan.dtype
                )
        case Apply(node=node) if is_op(node, *OF_POSITIONS):
            shifts = [axis - len(plan.sizes) + rank for rank in plan.ranks]
            operands = [
                _reversed(operand_plan, operand_axis) if operand_axis >= 0 else operand_plan
                for operand_plan, operand_axis in zip(plan.operands, shifts, strict=True)
            ]
            return dataclasses.replace(plan, operands=tuple(operands))
    raise refuse(
        "what follows from axis lengths is turned round and used as data", "count positions from the last down"
    )


def _number(plan: Plan) -> Dim | None:
    """Return the integer, or size, that a plan consists of; None for other plans."""
    if isinstance(plan, Sizes) and len(plan.sizes) == 1:
        return plan.sizes[0]
    if isinstance(plan, Fixed) and plan.array.size == 1 and plan.array.dtype.kind == "i":
        return int(plan.array.item())
    return None


def _looked_up(planner: Planner, node: ir.Node, layouts: Layouts, dims: Sequence[Dim]) -> Plan:
    """Return the plan of a Gather of rows of a constant table."""
    by_rows = axis_of(node, len(_dims(node, 0))) == 0
    if is_op(node, "GatherND"):
        by_rows = _dims(node, 1)[-1] == 1 and not int_attribute(node, "batch_dims", 0)
    if array_of(node.inputs[0]) is None or not by_rows:
        raise refuse(f"{node.op_type} by axis lengths is used as data", "look up rows (axis 0) of a constant table")
    if is_op(node, "GatherND"):
        return _applied(planner, node, layouts, dims, [(1, (*layouts[: len(_dims(node, 1)) - 1], None))])
    return _applied(planner, node, layouts, dims, [(1, layouts[: len(_dims(node, 1))])])


def _multiplied(planner: Planner, node: ir.Node, layouts: Layouts, dims: Sequence[Dim]) -> Plan:
    """Return the plan of a product with constant weights."""
    constants = [array_of(each) for each in node.inputs[1:] if each is not None]
    fits = all(each is not None for each in constants) and len(_dims(node, 1)) == 2 and len(_dims(node, 0)) >= 2
    if not fits or layouts[-1] is not None or int_attribute(node, "transA", 0):
        raise refuse(f"{node.op_type} of axis lengths is used as data", "multiply by constant weights")
    return _applied(planner, node, layouts, dims, [(0, (*layouts[:-1], None))])


def _over_rows(planner: Planner, node: ir.Node, layouts: Layouts, dims: Sequence[Dim]) -> Plan:
    """Return the plan of a reduction over the batch, whose rows hold equal numbers: any row's number."""
    own, view = _dims(node, 0), reduction_of(node, integers_of)
    if view is None or any(own[at] != 1 and own[at] != symbol(str(planner.batch)) for at in view.axes):
        raise refuse(f"{node.op_type} of axis lengths is used as data", CURE)
    rest = iter(layouts)
    found = [None if at in view.axes and not view.keeps else next(rest) for at in range(len(own))]
    return _applied(planner, node, layouts, dims, [(0, tuple(found))])


def _range(planner: Planner, node: ir.Node, layouts: Layouts, dims: Sequence[Dim]) -> Plan:
    dtype = node.outputs[0].dtype or ir.DataType.INT64
    if planner.batch is not None and dims[0] == symbol(planner.batch):
        if (
            not planner.numbered
            or symbolic_values_of(node.inputs[0]) != (0,)
            or symbolic_values_of(node.inputs[2]) != (1,)
        ):
            raise refuse("numbers of rows are used as data: rows of one batch would mix", BATCH_CURE)
        return RowNumber(dtype)
    layout = layouts[0]
    frames = layout[0] if layout is not None and len(layout) == 1 and isinstance(layout[0], Frames) else None
    if frames is None or not same(frames.size, dims[0]):
        raise refuse(f"a Range of {dims[0]} numbers of axis lengths is used as data", "count from 0 to a length")
    return Counted(planner.plan(node.inputs[0], ()), planner.plan(node.inputs[2], ()), frames, dtype)


def _dims(node: ir.Node, at: int) -> tuple[Dim, ...]:
    value = node.inputs[at]
    dims = None if value is None else dims_of(value)
    if dims is None:
        raise refuse(f"{node.op_type} of numbers of unknown rank is used as data", CURE)
    return dims


REDUCED = ("ReduceMax", "ReduceMean", "ReduceMin")
"""A list of its own: reductions that may be computed of numbers row by row."""

RULES: dict[str, Rule] = {
    **dict.fromkeys(OF_POSITIONS, _elementwise),
    **dict.fromkeys(VIEWS - {"Identity"}, _reshaped),
    **dict.fromkeys(REDUCED, _over_rows),
    **dict.fromkeys(("Gemm", "MatMul"), _multiplied),
    "Concat": _joined,
    "Expand": _expanded,
    "Gather": _looked_up,
    "GatherND": _looked_up,
    "Range": _range,
    "Slice": _sliced,
    "Tile": _repeated,
    "Transpose": _transposed,
}
"""How every operator is computed per row; what is not here is refused."""


NO_AXIS = -1
"""Where rows lie without a batch axis: a call is one row then."""


@dataclasses.dataclass(frozen=True)
class RowValueLayout:
    """Where a value per row lies in what reads it.

    Attributes:
        rank: of the operand as it is read, broadcasting included.
        rows_at: the axis of rows then, or `NO_AXIS`.
        rows: the layout of that axis; other factors repeat the row's value.
        layouts: of the value's own axes.
        whole: whether every axis has all its entries, with nothing left to broadcasting.
    """

    rank: int
    rows_at: int
    rows: Axis
    layouts: Layouts
    whole: bool = False

    def __str__(self) -> str:
        own = ", ".join("-" if axis is None else " * ".join(map(str, axis)) for axis in self.layouts)
        return f"rows at {self.rows_at} of {self.rank}; {own}"

    @property
    def axes(self) -> dict[int, Axis]:
        """Return the layouts of the value's own axes as they are read, including that of rows."""
        own = {at: axis for at, axis in enumerate(self.layouts) if axis is not None}
        inside = self.rows_at - self.rank + len(self.layouts)
        return own | ({inside: self.rows} if inside >= 0 else {})
