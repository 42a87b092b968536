"""Axis lengths that meet data: a number computed of slots is computed again per row, of true lengths.

A number that meets nothing but constants and positions, which all rows share, gives such a number again: it may shape
values, and whatever uses it as data meets it here.
"""

import onnx_ir as ir

from compiler.analysis.case import Case
from compiler.analysis.facts import NUMBER, Fact, Verdict, make_fact, refuse
from compiler.analysis.growth import never_falls
from compiler.analysis.interval import ANYTHING, LONGEST, TRUTH, Interval
from compiler.analysis.known_sizes import at_length, numbers_of
from compiler.analysis.layout import Axis, symbols_of
from compiler.analysis.transfer import stored
from compiler.ir import Dim, dims_of, is_op

COPYING = ("Cast", "Expand", "Identity", "Reshape", "Squeeze", "Unsqueeze")
"""Operators that copy entries, or change each alike."""


def lengths_alone(case: Case) -> Verdict | None:
    """The verdict on a node that computes numbers out of numbers and values that all rows share; else None.

    Raises:
        Refused: numbers meet data of a model without a batch axis.
    """
    numbers = [operand for operand in case.present if case.fact(operand).is_number]
    others = [case.fact(operand) for operand in case.present if operand not in numbers]
    if not numbers or any(fact.rows_axis is not None for fact in others):
        return None
    if case.batch is None and any(fact.axes and fact.index is None for fact in others):
        raise refuse(f"{case.op} uses an axis length as data, which is one per row", "give the model a batch axis")
    return case.verdict("LN1", "computed from axis lengths", NUMBER)


def per_row(case: Case) -> None:
    """Replace operands that are axis lengths by the true length of each row.

    Raises:
        Refused: an operand holds several lengths, or the size of the batch.
    """
    for operand in case.present:
        if not case.fact(operand).is_number:
            continue
        if any(dim != 1 for dim in case.dims(operand)) and not _is_spread(case, operand):
            raise refuse(f"{case.op} uses several axis lengths as data", "use one length at a time")
        source = uniform_source(case.node.inputs[operand])
        known = numbers_of(case.node.inputs[operand] if source is None else source)
        if known is not None and any(case.batch in {str(name) for name in symbols_of(size)} for size in known):
            raise refuse(f"{case.op} computes with the batch size: rows of one batch would mix", "leave it out")
        case.rewrite("number", operand)
        content = _content(None if known is None else known[0])
        case.facts[operand] = _spread(case, operand, TRUTH if case.dtype(operand).name == "BOOL" else content)


def _spread(case: Case, operand: int, content: Interval) -> Fact:
    """The fact of a number per row, laid out as the operands with which it shares axes."""
    axes: dict[int, Axis] = {}
    for at, dim in enumerate(reversed(case.dims(operand)), start=1):
        for other in case.present if dim != 1 else ():
            found = case.fact(other).axis(case.rank(other) - at)
            if other != operand and found is not None:
                axes[case.rank(operand) - at] = found
    return make_fact(axes, lambda region: content)


def uniform_source(value: ir.Value | None) -> ir.Value | None:
    """The one number of which a value holds copies, or None when its entries may differ."""
    dims = None if value is None else dims_of(value)
    if value is None or dims is None or all(dim == 1 for dim in dims):
        return value if dims is not None else None
    node = value.producer()
    return uniform_source(node.inputs[0]) if is_op(node, *COPYING) and node is not None else None


def _is_spread(case: Case, operand: int) -> bool:
    """Whether an operand holds copies of one number, where another operand has as many entries."""
    dims = case.dims(operand)
    others = [case.dims(other) for other in case.present if other != operand and not case.fact(other).is_number]
    return uniform_source(case.node.inputs[operand]) is not None and all(
        dim == 1 or any(len(other) >= at and other[-at] == dim for other in others)
        for at, dim in enumerate(reversed(dims), start=1)
    )


def _content(size: Dim | None) -> Interval:
    """What a number computed of true lengths may be: between its values of no and of most entries."""
    if size is None or not (never_falls(size) or never_falls(-size)):
        return ANYTHING
    ends = [at_length(size, length) for length in (0, int(LONGEST))]
    if None in ends:
        return ANYTHING
    low, high = sorted(float(end) for end in ends if end is not None)
    return stored(Interval(low, high), ir.DataType.FLOAT)
