"""Rules LN: axis lengths, and what is made from them."""

from collections.abc import Callable

from compiler.analysis import interval as iv
from compiler.analysis.case import Case
from compiler.analysis.facts import NUMBER, Fact, Index, Region, Verdict, refuse
from compiler.analysis.interval import ONE, ZERO, Interval
from compiler.analysis.layout import Axis, Frames, Rows, Segment, Side, joined
from compiler.analysis.registry import Table, named_refusal
from compiler.ir import Dim, dims_read


def shape(case: Case) -> Verdict:
    """Shape, Size: numbers, unless only fixed dimensions are read."""
    dims = case.dims()
    read = range(len(dims)) if case.op == "Size" else dims_read(case.node, len(dims))
    depends = any(case.depends(dims[at]) for at in read)
    return case.verdict("LN2", "an axis length", NUMBER if depends else Fact())


def range_(case: Case) -> Verdict:
    """Range: positions along an axis whose size follows from lengths."""
    bounds = [case.integers(operand) for operand in range(3)]
    if any(bound is None for bound in bounds):
        raise refuse("Range with bounds computed from data", "count by sizes")
    (start,), (limit,), (delta,) = (bound for bound in bounds if bound is not None)
    size = case.out_dims()[0]
    if not case.depends(size) and not any(case.depends(bound) for bound in (start, limit, delta)):
        return case.verdict("LN5", "constant positions", Fact())
    if delta != 1:
        raise refuse(f"Range in steps of {delta}", "count in steps of 1")
    if isinstance(start, int):
        layout = case.layout(size)
        if layout is None:
            raise refuse("Range of positions that lengths shift", "count from 0")
        if isinstance(layout[0], Rows):
            raise refuse("Range over the batch: row numbers differ between alone and batched", "index rows by reshaping")
        if isinstance(layout[0], Frames) and layout[0].segments[0].side is Side.RIGHT:
            case.rewrite("positions", start)
            rows = {0: layout}
            return case.verdict("LN5", "positions per row", case.output(rows, lambda region: iv.bounded(2.0**31)))
        index = Index(0, start)
        return case.verdict("LN5", "positions", case.output({0: layout}, _positions(start), index))
    at_zero = start.subs(dict.fromkeys(start.free_symbols, 0))
    before = at_zero - start
    if not at_zero.is_Integer or before.could_extract_minus_sign():
        raise refuse(f"Range from {start} to {limit}", "count from 0")
    sides = {case.sides.get(str(name)) for name in start.free_symbols}
    if sides != {Side.LEFT}:
        raise refuse(f"Range from {start} to {limit} along a cache", "count from 0")
    centered = joined([Segment(before, Side.RIGHT), Segment(limit - at_zero, Side.LEFT)])
    content = iv.bounded(2.0**31)
    return case.verdict("LN5", "positions around a fixed one", case.output({0: centered}, lambda region: content))


def _positions(start: int) -> Callable[[Region], Interval]:
    return lambda region: Interval(float(start), 2.0**31)


def constant_of_shape(case: Case) -> Verdict:
    """ConstantOfShape: one constant along new axes."""
    value = case.attribute("value")
    array = getattr(value, "numpy", lambda: None)()
    content = ZERO if array is None else iv.of_array(array)
    axes: dict[int, Axis] = {}
    for at, size in enumerate(case.out_dims()):
        made = case.layout(size)
        if made is not None:
            axes[at] = made
    return case.verdict("LN3", "one value at every place", case.output(axes, lambda region: content), pointwise=True)


def trilu(case: Case) -> Verdict:
    """Trilu: the diagonal is counted from the front of suffix-padded axes, or from the back of right-aligned ones."""
    rank = case.rank()
    fact = case.fact()
    diagonal: Dim = 0
    if case.has(1):
        known = case.integers(1)
        if known is None:
            raise refuse("Trilu with a computed diagonal", "give the diagonal as a constant or a size")
        (diagonal,) = known
    rows, columns = fact.axis(rank - 2), fact.axis(rank - 1)
    for axis in (rank - 2, rank - 1):
        case.refuse_rows(0, axis, "masks along")
    front = all(
        axis is None or (len(axis) == 1 and isinstance(axis[0], Frames) and axis[0].is_suffix_padded)
        for axis in (rows, columns)
    )
    if not (front and isinstance(diagonal, int)):
        _require_from_back(case, rows, columns, diagonal)
    upper = bool(case.int_attribute("upper", 1))

    def content(region: Region) -> Interval:
        here = fact.content(region)
        if front and isinstance(diagonal, int) and rows == columns and rows is not None:
            kept = _kept(region, rank, upper, diagonal)
            if kept is not None:
                return here if kept else ZERO
        return iv.hull(here, ZERO)

    return case.verdict("IX17", "the diagonal is counted from the valid end", case.output(fact.tracked, content))


def _kept(region: Region, rank: int, upper: bool, diagonal: int) -> bool | None:
    """Whether the places of a region are kept; None when that differs within the region.

    Columns in the padding and valid rows: column - row >= 1. The other way round: column - row <= -1.
    """
    row, column = rank - 2 in region, rank - 1 in region
    if row == column:
        return None
    if column:
        if upper:
            return True if diagonal <= 1 else None
        return False if diagonal <= 0 else None
    if upper:
        return False if diagonal >= 0 else None
    return True if diagonal >= -1 else None


def _require_from_back(case: Case, rows: Axis | None, columns: Axis | None, diagonal: Dim) -> None:
    frames = columns[0] if columns is not None and len(columns) == 1 else None
    if rows is None and isinstance(frames, Frames) and frames.is_prefix_padded:
        distance = frames.size - diagonal
        if isinstance(distance, int) or distance.is_Integer:
            return
    raise refuse(
        f"Trilu keeps diagonal {diagonal} of axes {rows} and {columns}",
        "count the diagonal from the end: length minus the number of new frames",
    )


def reverse_sequence(case: Case) -> Verdict:
    """ReverseSequence by true lengths: padding stays in place."""
    raise refuse("ReverseSequence of padded frames", "run the network forward, or reverse outside the model")


DATA_DEPENDENT = ("gives a result whose size depends on data", "compute a mask of fixed size instead")
RANDOM = ("draws random numbers, which depend on the padded shape", "pass the noise as an input")

TABLE: Table = {
    ("", "Shape"): shape,
    ("", "Size"): shape,
    ("", "Range"): range_,
    ("", "ConstantOfShape"): constant_of_shape,
    ("", "Trilu"): trilu,
    ("", "ReverseSequence"): reverse_sequence,
    **{("", op): named_refusal(*DATA_DEPENDENT) for op in ("NonZero", "Compress", "Unique", "NonMaxSuppression")},
    **{
        ("", op): named_refusal(*RANDOM)
        for op in ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")
    },
}
