"""Proves how padding and batching act on axis lengths and on values made from them: Shape, Range, Trilu (rules LN).

Rule ids: LN2 lengths read, LN3 one value at every place, LN4 positions, LN5 triangles, LN6 reversal within a length.
"""

import math

import onnx_ir as ir
import sympy

from compiler.graph.lengths.symbolic_values import at_zero, count_of, is_placeholder, quotient, symbolic_values_of
from compiler.graph.model import Dim, dims_of, dims_read, symbol
from compiler.graph.sizes.expressions import normal_form
from compiler.graph.sizes.growth import never_falls
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import NUMBER, VALID, Fact, Index, Region, Verdict, make_fact, refuse
from compiler.proof.facts.interval import LONGEST, TRUTH, ZERO, Interval, constant, hull, of_array
from compiler.proof.facts.layout import Axis, Frames, Plain, Rows, Segment, Side, joined, symbols_of
from compiler.proof.facts.length_data import spread_per_row
from compiler.proof.facts.registry import Table, named_refusal

WHOLE_SIZES = (
    "compute sizes in whole numbers from the shapes of the inputs, such as 3 * n // 2; in torch, interpolate to a "
    "size= instead of by a scale_factor="
)
"""What to do about sizes that are rounded from floating point."""


def is_known(case: Case, size: Dim) -> bool:
    """Whether a size depends on axis names that the graph's inputs declare, and on no others."""
    names = {str(name) for name in symbols_of(size)} - set(case.sides) - {case.batch}
    return not names or names <= declared(case.node.graph)


def declared(graph: ir.Graph | ir.Function | None) -> set[str]:
    """Return the axis names in the shapes of a graph's inputs."""
    inputs = () if graph is None else graph.inputs
    return {str(name) for value in inputs for dim in dims_of(value) or () for name in symbols_of(dim)}


def created(case: Case, stated: Dim, computed: Dim | None = None) -> tuple[Dim, Axis | None]:
    """Return the size and the layout of an axis that a node creates.

    Args:
        case: the node.
        stated: the size that shape inference states.
        computed: the size that the node's operands give, where they are known.

    Raises:
        Refused: the size does not follow from declared axes.
    """
    size = stated if computed is None or is_known(case, stated) else computed
    if not is_known(case, size):
        unknown = any(is_placeholder(name) for name in symbols_of(stated))
        stated_size = "a size" if unknown else f"size {stated}"
        raise refuse(
            f"{case.op} makes an axis of {stated_size} that does not follow from the declared axes", WHOLE_SIZES
        )
    if case.batch is not None and symbol(case.batch) in symbols_of(size):
        return size, _with_batch(case, size)
    return size, case.layout(size)


def _with_batch(case: Case, size: Dim) -> Axis:
    """Return the layout of K equal entries per row, with the batch as the outer factor."""
    assert case.batch is not None
    rows = symbol(case.batch)
    others = quotient(size, rows)
    if others is None or case.depends(others):
        raise refuse(f"{case.op} makes an axis of {size} entries", "keep the batch an axis of its own")
    return (Rows(rows),) if others == 1 else (Rows(rows), Plain(others))


def shape(case: Case) -> Verdict:
    """Judge Shape or Size: integers that count slots, unless only fixed dimensions are read."""
    dims = case.dims()
    read = range(len(dims)) if case.op == "Size" else dims_read(case.node, len(dims))
    if any(case.depends(dims[at]) or not is_known(case, dims[at]) or case.fact().axis(at) is not None for at in read):
        return case.verdict("LN2", "lengths of axes", NUMBER)
    sizes = [size for at in read if isinstance(size := dims[at], int)]
    numbers = [math.prod(sizes)] if case.op == "Size" else sizes
    fixed = len(sizes) == len(read) > 0
    content = hull(*(constant(float(number)) for number in numbers)) if fixed else Interval(0.0, math.inf)
    return case.verdict("LN2", "sizes that are the same in both programs", Fact(contents=((VALID, content),)))


def filled_shape(case: Case) -> Verdict:
    """Judge ConstantOfShape: one value everywhere, along the axes that its shape names."""
    given = case.attribute("value")
    content = ZERO if not isinstance(given, ir.TensorProtocol) else of_array(given.numpy())
    numbers = symbolic_values_of(case.node.inputs[0])
    axes: dict[int, Axis] = {}
    for at, stated in enumerate(case.out_dims()):
        _, layout = created(case, stated, numbers[at] if numbers is not None and at < len(numbers) else None)
        if layout is not None:
            axes[at] = layout
    return case.verdict("LN3", "one value at every place", make_fact(axes, lambda region: content), pointwise=not axes)


def range_(case: Case) -> Verdict:
    """Judge Range: positions counted from a fixed start are left-aligned, up to a fixed end right-aligned."""
    bounds = [symbolic_values_of(value) for value in case.node.inputs]
    (stated,) = case.out_dims()
    start, limit, step = (bound[0] if bound else None for bound in bounds)
    if start is None or not isinstance(step, int) or step == 0:
        return _opaque_range(case, stated)
    computed = None if limit is None else normal_form(count_of(start, limit, step))
    if isinstance(stated, int) or (not case.depends(stated) and is_known(case, stated)):
        if isinstance(start, int):
            return case.verdict("LN4", "fixed positions", _fixed_range(start, stated, step))
        return case.verdict("LN4", "positions counted from a length", NUMBER)
    size, layout = created(case, stated, computed)
    if layout is not None and any(isinstance(factor, Rows) for factor in layout):
        return case.verdict("LN4", "numbers of rows, which tell a row its place in the batch", NUMBER)
    axis = counted(case, start, size, step)
    low, high = _reach(start, step)
    fact = make_fact({0: axis}, lambda region: Interval(low, high), Index(0, start) if step == 1 else None)
    return case.verdict("LN4", "positions", fact, at_least_one=(*_whole(size), *not_negative(axis)))


def _whole(size: Dim) -> tuple[Dim, ...]:
    """Return sizes computed with integer division, which are right only from 1 on."""
    return (size,) if not isinstance(size, int) and size.has(sympy.floor) else ()


def _opaque_range(case: Case, stated: Dim) -> Verdict:
    """Judge a Range with unknown bounds, of which only the shape may be used."""
    if not case.tracked:
        raise refuse("Range of unknown bounds", "count from a constant in constant steps")
    if case.depends(stated) or not is_known(case, stated):
        raise refuse(f"Range makes {stated} positions from bounds that are not known", "count from a constant")
    return case.verdict("LN4", "positions counted from a length", NUMBER)


def _fixed_range(start: int, size: Dim, step: int) -> Fact:
    if not isinstance(size, int):
        return Fact(contents=((VALID, _span(float(start), start + step * LONGEST)),))
    ends = (float(start), float(start + step * max(size - 1, 0)))
    content = _span(*ends) if size else ZERO
    return Fact(contents=((VALID, content),), index=Index(0, start) if step == 1 else None)


def _span(first: float, last: float) -> Interval:
    return Interval(min(first, last), max(first, last))


def counted(case: Case, start: Dim, size: Dim, step: int = 1) -> Axis:
    """Return the layout of positions from `start` on: right-aligned up to a fixed one, left-aligned after it.

    Raises:
        Refused: the start moves in the wrong direction, or not in whole steps.
    """
    fixed = at_zero(start)
    before = quotient(normal_form(fixed - start), step) if fixed is not None else None
    if before is None or not never_falls(before) or not never_falls(normal_form(size - before)):
        raise refuse(
            f"{case.op} counts {size} positions from {start} in steps of {step}",
            "count from a constant, or through one, as arange(length), arange(-length + 1, length)",
        )
    return joined([Segment(before, Side.RIGHT), Segment(_difference(size, before), Side.LEFT)])


def not_negative(axis: Axis) -> tuple[Dim, ...]:
    """Return the sizes that must be at least 1 for every segment of counted positions to have a valid size."""
    sizes = [part.size for factor in axis if isinstance(factor, Frames) for part in factor.segments]
    return tuple(size + 1 for size in sizes if not isinstance(size, int) and (at_zero(size) or 0) < 0)


def _difference(size: Dim, before: Dim) -> Dim:
    return size if before == 0 else normal_form(size - before)


def _reach(start: Dim, step: int) -> tuple[float, float]:
    """Return bounds of counted positions, as no axis has more than `LONGEST` slots."""
    far = step * LONGEST
    if isinstance(start, int):
        return min(start, start + far), max(start, start + far)
    return -abs(far), abs(far)


Band = tuple[float, float]
"""Bounds of (column position - row position)."""


def trilu(case: Case) -> Verdict:
    """Judge Trilu; slots and positions must differ alike along rows and columns."""
    rank = case.rank()
    row, column = rank - 2, rank - 1
    diagonal = _diagonal(case)
    fact = case.fact()
    if fact.is_number:
        raise refuse("Trilu of numbers computed from lengths", "build the triangle of constants")
    shift = normal_form(diagonal - _lead(case, column) + _lead(case, row))
    if not isinstance(shift, int):
        raise refuse(
            f"Trilu keeps diagonal {diagonal} of axes laid out {_shown(case, row)} and {_shown(case, column)}",
            "count the diagonal from where rows and columns are aligned",
        )
    upper = bool(case.int_attribute("upper", 1))

    def content(region: Region) -> Interval:
        data_content = fact.content(region)
        low, high = _band(fact, row, column, region)
        if (high < shift) if upper else (low > shift):
            return ZERO
        if (low >= shift) if upper else (high <= shift):
            return data_content
        return hull(data_content, ZERO)

    axes = fact.tracked
    return case.verdict("LN5", "positions along rows and columns differ as slots do", make_fact(axes, content))


def _diagonal(case: Case) -> Dim:
    if not case.has(1):
        return 0
    found = symbolic_values_of(case.node.inputs[1])
    if found is None or len(found) != 1:
        raise refuse(f"{case.op} with an unknown diagonal", "give k as a constant or a length")
    return found[0]


def _lead(case: Case, axis: int) -> Dim:
    """Return, up to a constant, how many slots an entry lies behind its position.

    Raises:
        Refused: the distance differs between entries of the axis.
    """
    frames = case.simple_frames(0, axis)
    if frames is None or frames.is_suffix_padded:
        return 0
    if frames.is_prefix_padded:
        return frames.size
    raise refuse(f"{case.op} over {frames}", "cut or join the axis behind it")


def _shown(case: Case, axis: int) -> str:
    return str(case.fact().frames(axis) or f"[{case.dims()[axis]}]")


def _band(fact: Fact, row: int, column: int, region: Region) -> Band:
    """Return bounds of (column position - row position) in a region where one of the two is padding."""
    rows, columns = fact.frames(row), fact.frames(column)
    if (row in region) == (column in region):
        return -math.inf, math.inf
    if rows is not None and columns is not None:
        if rows != columns or not rows.is_suffix_padded:
            return -math.inf, math.inf
        return (1.0, math.inf) if column in region else (-math.inf, -1.0)
    if column in region and rows is None and columns is not None and columns.is_prefix_padded:
        return -math.inf, -1.0  # padding of a right-aligned axis lies before position 0
    return -math.inf, math.inf


def eye(case: Case) -> Verdict:
    """Judge EyeLike: ones on the diagonal of two axes with equal layouts."""
    fact = case.fact()
    if fact.frames(0) != fact.frames(1) or case.int_attribute("k", 0) != 0 or fact.is_number:
        raise refuse("EyeLike of differently laid out axes, or off the main diagonal", "compare positions instead")
    for axis in (0, 1):
        _lead(case, axis)

    def content(region: Region) -> Interval:
        return ZERO if len(region) == 1 else TRUTH

    return case.verdict("LN5", "the diagonal of equal axes", make_fact(fact.tracked, content))


def reverse_sequence(case: Case) -> Verdict:
    """Judge ReverseSequence, which reverses entries up to lengths that stay within the valid ones."""
    time, rows = case.int_attribute("time_axis", 0), case.int_attribute("batch_axis", 1)
    if case.fact(1).is_number:
        spread_per_row(case)
    fact, lengths = case.fact(0), case.fact(1)
    if fact.is_number or lengths.is_number:
        raise refuse("ReverseSequence of or by numbers that all rows share", "expand them to the batch")
    case.refuse_rows(0, time, "turns")
    frames = case.simple_frames(0, time)
    if lengths.axis(0) != fact.axis(rows) or (frames is not None and not frames.is_suffix_padded):
        raise refuse(f"ReverseSequence over {frames} by lengths laid out otherwise", "count the lengths from its start")
    return case.verdict("LN6", "entries up to a length trade places", make_fact(fact.tracked, fact.content))


SIZE_OF_RESULT = "gives a number of entries that depends on data"

TABLE: Table = {
    ("", "Shape"): shape,
    ("", "Size"): shape,
    ("", "ConstantOfShape"): filled_shape,
    ("", "Range"): range_,
    ("", "Trilu"): trilu,
    ("", "EyeLike"): eye,
    ("", "ReverseSequence"): reverse_sequence,
    ("", "NonZero"): named_refusal(SIZE_OF_RESULT, "select with Where, which keeps every place"),
    ("", "Compress"): named_refusal(SIZE_OF_RESULT, "select with Where, or gather fixed places"),
    ("", "Unique"): named_refusal(
        SIZE_OF_RESULT, "return the values as they are, and let the caller count distinct ones"
    ),
}
