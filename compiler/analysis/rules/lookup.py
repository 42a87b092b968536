"""Rules LK: tables looked up by the length of the padded axis."""

from collections.abc import Sequence

import onnx_ir as ir
import sympy

from compiler.analysis.facts import (
    FINITE,
    PLAIN,
    Action,
    Fact,
    Segments,
    Verdict,
    logical_length,
    physical_length,
    refuse,
)
from compiler.analysis.rules.operands import rank_of
from compiler.ir import END, Dim, dims_of, integers_of

INT32_END = 2**31 - 1
"""Exporters with 32-bit indices write this for "to the end of the axis"; no axis is that long."""


def slice_bounds(node: ir.Node) -> tuple[int, Dim, Dim] | None:
    """(axis, start, end) of a Slice along one axis with step 1."""
    starts, ends = integers_of(node.inputs[1]), integers_of(node.inputs[2])
    axes = integers_of(node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] is not None else (0,)
    steps = integers_of(node.inputs[4]) if len(node.inputs) > 4 and node.inputs[4] is not None else (1,)
    if starts is None or ends is None or axes is None or len(starts) != 1 or steps != (1,):
        return None
    axis = axes[0]
    assert isinstance(axis, int)
    to_the_end = isinstance(ends[0], int) and ends[0] >= INT32_END
    return axis % rank_of(node.inputs[0]), starts[0], END if to_the_end else ends[0]


def look_up(node: ir.Node, axis: int, start: Dim, end: Dim, seen: Sequence[Segments]) -> Verdict:
    """A table sliced by the length of a padded axis.

    Rows 0..L-1 (LK1) and the last L rows (LK2) of an axis of length L, or the rows of the new frames, C..C+n-1 after
    C cached ones (LK3). The facts of LK1 and LK2 carry the segments of the axis whose length is L.

    Args:
        node: the Slice.
        axis: axis that it cuts.
        start: first row.
        end: row after the last.
        seen: segments of all padded axes known so far.

    Raises:
        UnknownLength: no axis of that length is known yet.
        Refused: the lookup is of another kind.
    """
    dims = dims_of(node.inputs[0]) if node.inputs[0] is not None else None
    rows = None if dims is None else dims[axis]
    if not isinstance(rows, int):
        raise refuse("Slice of an unpadded axis by the length of the padded one", "use a table of fixed size")
    if start == 0 and not isinstance(end, int):
        fact = Fact(axis, matching_segments(end, seen), FINITE)
        return Verdict("LK1", fact, "rows 0..L-1 of a table", Action.LOOK_UP_POSITIONS)
    if end in (END, rows) and not isinstance(start, int):
        fact = Fact(axis, matching_segments(_rows_from_end(start, rows), seen), FINITE)
        return Verdict("LK2", fact, "the last L rows of a table", Action.SLICE_LAST_ROWS)
    count = sympy.sympify(end - start)
    if count.is_Integer and count > 0:
        cached = matching_segments(start, seen)
        bounds = (physical_length(cached), int(count))
        return Verdict("LK3", PLAIN, "rows of the new frames", Action.LOOK_UP_NEW_ROWS, bounds=bounds)
    raise refuse(
        f"table lookup [{start}:{end}] of {rows} rows is not rows 0..L-1, the last L, or those of the new frames",
        "look positions up as table[:length], table[-length:] or table[cached:cached + new]",
    )


def _rows_from_end(start: Dim, rows: int) -> Dim:
    """L for a start of -L or rows - L; which one shows at length 0."""
    expression = sympy.sympify(start)
    at_zero = expression.subs(dict.fromkeys(expression.free_symbols, 0))
    return -start if at_zero < 0 else rows - start


class UnknownLength(Exception):
    """A table is looked up by the length of an axis that has not been seen yet."""


def matching_segments(length: Dim, seen: Sequence[Segments]) -> Segments:
    """The segments whose logical length is the one by which a table is looked up."""
    matching = [segments for segments in seen if logical_length(segments) == length]
    if not matching:
        raise UnknownLength(str(length))
    if len(matching) > 1:
        raise refuse(
            f"a table is looked up by length {length}, which {len(matching)} differently joined axes have",
            "look positions up by the length of the tensor they are added to",
        )
    return matching[0]
