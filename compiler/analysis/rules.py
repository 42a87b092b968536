"""The registry of op rules: a table (domain, op) -> rule over facts about padded axes; a missing entry is a refusal.

A rule looks at one node and the facts of its inputs and answers with a verdict, or refuses. Several analyses read the
same table: padding asks what a node needs, state selection and position projection ask whether it is pointwise along an
axis.

Rule identifiers (`EW`, `MM`, `SM`, `NM`, `MV`, `CC`, `SL`, `LK`, `LN`) appear in certificates.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
import sympy

from compiler.analysis.facts import (
    ANYTHING,
    FINITE,
    PLAIN,
    ZERO,
    Action,
    Fact,
    Fill,
    Kind,
    Segment,
    Segments,
    Verdict,
    joined,
    logical_length,
    physical_length,
    refuse,
)
from compiler.ir import END, Dim, array_of, dims_of, int_attribute, integers_of, ints_attribute

Rule = Callable[[ir.Node, Sequence[Fact]], Verdict]


def _rank(value: ir.Value | None) -> int:
    dims = None if value is None else dims_of(value)
    if dims is None:
        raise refuse(
            f"the rank of {value.name if value is not None else 'an absent input'!r} is unknown",
            "export the model with known ranks",
        )
    return len(dims)


def _the_padded(node: ir.Node, facts: Sequence[Fact]) -> tuple[int, Fact]:
    """Index and fact of the only padded input."""
    padded = [(index, fact) for index, fact in enumerate(facts) if fact.axis is not None]
    if len(padded) != 1:
        raise refuse(f"{node.op_type} has {len(padded)} padded inputs", "rewrite the model so that one input is padded")
    return padded[0]


# --- elementwise ------------------------------------------------------------------------------------------------------

UNARY: dict[str, Callable[[float], float]] = {
    "Relu": lambda x: max(x, 0.0),
    "Sigmoid": lambda x: 1.0 / (1.0 + math.exp(-x)) if x > -700 else 0.0,
    "Tanh": math.tanh,
    "Neg": lambda x: -x,
    "Abs": abs,
    "Erf": math.erf,
    "Identity": lambda x: x,
    "HardSwish": lambda x: x * max(0.0, min(1.0, x / 6 + 0.5)),
    "Gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "Softplus": lambda x: math.log1p(math.exp(-abs(x))) + max(x, 0.0),
}
"""Total functions of bounded growth: finite padding stays finite, zero padding becomes a known constant."""


def unary(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Elementwise function of one input."""
    fact = facts[0]
    fill = fact.fill
    if fill.kind is Kind.CONSTANT:
        value = UNARY[node.op_type](fill.value)
        fill = ZERO if value == 0.0 else FINITE
    return Verdict("EW1", Fact(fact.axis, fact.segments, fill), "elementwise", pointwise=True)


UNBOUNDED = frozenset({"Sqrt", "Exp", "Log", "Reciprocal", "Sin", "Cos", "Floor", "Ceil", "IsNaN"})
"""Elementwise functions that may leave the finite numbers, or whose result is not a number."""


def unbounded(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Elementwise function of one input that makes no promise about the padding."""
    return Verdict("EW5", Fact(facts[0].axis, facts[0].segments, ANYTHING), "elementwise", pointwise=True)


def nary(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Elementwise function of several broadcast inputs: the padded axis must meet itself, or size 1."""
    output_rank = max(_rank(value) for value in node.inputs)
    axis: int | None = None
    segments: Segments = ()
    for value, fact in zip(node.inputs, facts, strict=True):
        if fact.axis is None:
            continue
        moved = fact.axis + output_rank - _rank(value)
        if axis is not None and (moved, fact.segments) != (axis, segments):
            raise refuse(
                f"{node.op_type} joins differently padded axes: {fact} meets axis {axis} of other segments",
                "join the caches in the same order everywhere",
            )
        axis, segments = moved, fact.segments
    assert axis is not None
    for value, fact in zip(node.inputs, facts, strict=True):
        dims = dims_of(value) if value is not None else None
        if fact.axis is None and dims is not None:
            own = axis - (output_rank - len(dims))
            if own >= 0 and dims[own] != 1:
                raise refuse(
                    f"{node.op_type} joins the padded axis with {value.name if value else ''!r}, which has "
                    f"{dims[own]} unpadded entries there",
                    "look the table up by the joined length, or slice it to one entry",
                )
    return Verdict(
        "EW2", Fact(axis, segments, _nary_fill(node, facts)), "elementwise on equal segments", pointwise=True
    )


def _nary_fill(node: ir.Node, facts: Sequence[Fact]) -> Fill:
    contents = [_content(value, fact) for value, fact in zip(node.inputs, facts, strict=True)]
    zero = [fill.is_zero for fill in contents]
    finite = all(fill.is_finite for fill in contents)
    if node.op_type == "Mul":
        return ZERO if any(zero) and finite else (FINITE if finite else ANYTHING)
    if node.op_type == "Div":
        divisor = array_of(node.inputs[1])
        nonzero = divisor is not None and bool(np.all(divisor != 0)) and bool(np.all(np.isfinite(divisor)))
        if not nonzero or not contents[0].is_finite:
            return ANYTHING
        return ZERO if zero[0] else FINITE
    return ZERO if all(zero) else (FINITE if finite else ANYTHING)


def power(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Pow and Clip: elementwise; a finite base to a whole exponent above zero stays finite."""
    verdict = nary(node, facts)
    exponent = array_of(node.inputs[1])
    whole = exponent is not None and exponent.size == 1 and float(exponent.reshape(-1)[0]) in (1.0, 2.0, 3.0, 4.0)
    fill = (
        facts[0].fill
        if facts[0].axis is not None and facts[0].fill.is_zero and whole
        else (FINITE if facts[0].fill.is_finite and whole else ANYTHING)
    )
    return Verdict("EW2", Fact(verdict.fact.axis, verdict.fact.segments, fill), verdict.reason, pointwise=True)


def _content(value: ir.Value | None, fact: Fact) -> Fill:
    """What the op may meet at a padded place: the padding of a padded input, any entry of an unpadded one."""
    if fact.axis is not None:
        return fact.fill
    array = array_of(value)
    if array is None:
        return FINITE  # an activation at a valid place; the runtime refuses feeds that are not finite
    if not np.all(np.isfinite(array)):
        return ANYTHING
    return ZERO if not np.any(array) else FINITE


def cast(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Cast between floating-point types."""
    to = ir.DataType(int_attribute(node, "to", 0))
    source = node.inputs[0].dtype if node.inputs[0] is not None else None
    if source is None or not source.is_floating_point() or not to.is_floating_point():
        raise refuse(f"cast from {source} to {to} of a padded value", "keep padded values in floating point")
    narrowing = to.itemsize < source.itemsize
    fill = facts[0].fill if facts[0].fill.is_zero or not narrowing else ANYTHING
    return Verdict("EW3", Fact(facts[0].axis, facts[0].segments, fill), "elementwise", pointwise=True)


# --- contractions -----------------------------------------------------------------------------------------------------


def matmul(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """MatMul: the padded axis is a row or column of the result, or is contracted."""
    ranks = [_rank(value) for value in node.inputs]
    if min(ranks) < 2:
        raise refuse("MatMul of a vector", "use operands of rank 2 or more")
    contracted = [facts[0].axis == ranks[0] - 1, facts[1].axis == ranks[1] - 2]
    if any(contracted):
        return _contracted(node, facts, contracted)
    index, fact = _the_padded(node, facts)
    assert fact.axis is not None
    free = ranks[0] - 2 if index == 0 else ranks[1] - 1
    moved = fact.axis + max(ranks) - ranks[index]
    if fact.axis < ranks[index] - 2:
        raise refuse("the padded axis is a batch axis of MatMul", "move the cache axis next to the channels")
    assert fact.axis == free
    other = _content(node.inputs[1 - index], facts[1 - index])
    fill = (
        ZERO
        if fact.fill.is_zero and other.is_finite
        else (FINITE if fact.fill.is_finite and other.is_finite else ANYTHING)
    )
    return Verdict("MM1", Fact(moved, fact.segments, fill), "the padded axis is not contracted", pointwise=True)


def _contracted(node: ir.Node, facts: Sequence[Fact], contracted: Sequence[bool]) -> Verdict:
    if not all(contracted) or facts[0].segments != facts[1].segments:
        raise refuse(
            f"MatMul contracts a padded axis against other entries: {facts[0]} against {facts[1]}",
            "join keys and values in the same order",
        )
    zero = [fact.fill.is_zero for fact in facts]
    finite = [fact.fill.is_finite for fact in facts]
    if (zero[0] and finite[1]) or (zero[1] and finite[0]):
        return Verdict("MM2", PLAIN, "the contracted padding is zero on one side and finite on the other")
    operand = 1 if zero[0] else 0
    return Verdict("MM2", PLAIN, "0 times anything is not 0", Action.FILL_INPUT, operand)


# --- softmax and normalisation ----------------------------------------------------------------------------------------


def softmax(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Softmax: over the padded axis it needs the mask; over another axis it is left as it is."""
    rank = _rank(node.inputs[0])
    normalised = int_attribute(node, "axis", -1) % rank
    fact = facts[0]
    if fact.axis != normalised:
        kept = fact.fill if fact.fill.kind is Kind.ANYTHING else FINITE
        return Verdict("SM1", Fact(fact.axis, fact.segments, kept), "softmax over another axis", pointwise=True)
    if not any(segment.is_full and segment.slots > 0 for segment in fact.segments):
        raise refuse("softmax over a row that may hold no valid entry", "join at least one new frame to the cache")
    masked = Fact(fact.axis, fact.segments, ZERO)
    return Verdict("SM2", masked, "padded entries would take part in the sum", Action.MASK_SOFTMAX)


def layer_normalization(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """LayerNormalization over trailing axes that do not hold the padded one."""
    rank = _rank(node.inputs[0])
    first = int_attribute(node, "axis", -1) % rank
    fact = facts[0]
    if fact.axis is None or any(other.axis is not None for other in facts[1:]):
        raise refuse("LayerNormalization with padded parameters", "use constant parameters")
    if fact.axis >= first:
        raise refuse("LayerNormalization over the padded axis", "normalise over channels only")
    kept = FINITE if fact.fill.is_finite else ANYTHING  # a constant row is finite because epsilon is positive
    return Verdict("NM1", Fact(fact.axis, fact.segments, kept), "normalises over other axes", pointwise=True)


def reduce(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Reduction over other axes than the padded one."""
    fact = facts[0]
    rank = _rank(node.inputs[0])
    axes = integers_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if axes is None or fact.axis is None:
        raise refuse(f"{node.op_type} over all or unknown axes", "name the axes to reduce")
    reduced = {int(axis) % rank for axis in axes}
    if fact.axis in reduced:
        raise refuse(f"{node.op_type} over the padded axis", "reduce over channels only, or mask the mean yourself")
    kept = [axis for axis in range(rank) if axis not in reduced or int_attribute(node, "keepdims", 1)]
    return Verdict("RD1", Fact(kept.index(fact.axis), fact.segments, fact.fill), "reduces other axes", pointwise=True)


# --- movement ---------------------------------------------------------------------------------------------------------


def transpose(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Transpose carries the padded axis along."""
    rank = _rank(node.inputs[0])
    perm = ints_attribute(node, "perm") or tuple(reversed(range(rank)))
    fact = facts[0]
    assert fact.axis is not None
    moved = Fact(perm.index(fact.axis), fact.segments, fact.fill)
    return Verdict("MV1", moved, "movement", pointwise=True)


def reshape(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Reshape that leaves the padded axis alone in its factor group."""
    before, after = dims_of(node.inputs[0]) if node.inputs[0] else None, dims_of(node.outputs[0])
    fact = facts[0]
    if before is None or after is None or fact.axis is None:
        raise refuse("Reshape of unknown ranks", "export the model with known ranks")
    position = _alone(before, after, fact.axis)
    if position is None:
        raise refuse(
            f"Reshape merges or splits the padded axis: {_text(before)} to {_text(after)}",
            "keep the cache axis as an axis of its own",
        )
    return Verdict("MV2", Fact(position, fact.segments, fact.fill), "the axis stays whole", pointwise=True)


def _alone(before: Sequence[Dim], after: Sequence[Dim], axis: int) -> int | None:
    """Where the axis goes when it is a factor group of its own, else None."""
    leading = _product(before[:axis])
    size = before[axis]
    for position, dim in enumerate(after):
        if dim == size and _product(after[:position]) == leading:
            return position
    return None


def _product(dims: Sequence[Dim]) -> Dim:
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total


def _text(dims: Sequence[Dim]) -> str:
    return "[" + ", ".join(str(dim) for dim in dims) + "]"


def unsqueeze(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Unsqueeze shifts the padded axis by the axes inserted before it."""
    axes = integers_of(node.inputs[1])
    fact = facts[0]
    if axes is None or fact.axis is None or not all(isinstance(x, int) for x in axes):
        raise refuse("Unsqueeze with unknown axes", "use constant axes")
    rank = _rank(node.outputs[0])
    inserted = {int(x) % rank for x in axes}
    kept = [position for position in range(rank) if position not in inserted]
    return Verdict("MV3", Fact(kept[fact.axis], fact.segments, fact.fill), "movement", pointwise=True)


def squeeze(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Squeeze of other axes than the padded one."""
    axes = integers_of(node.inputs[1]) if len(node.inputs) > 1 else None
    fact = facts[0]
    rank = _rank(node.inputs[0])
    if axes is None or fact.axis is None:
        raise refuse("Squeeze with unknown axes", "name the axes to squeeze")
    removed = {int(x) % rank for x in axes}
    if fact.axis in removed:
        raise refuse("Squeeze of the padded axis", "keep the cache axis")
    kept = [position for position in range(rank) if position not in removed]
    return Verdict("MV4", Fact(kept.index(fact.axis), fact.segments, fact.fill), "movement", pointwise=True)


# --- joining and cutting ----------------------------------------------------------------------------------------------


def concat(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Concat along the padded axis appends segments; along another axis all inputs must be padded alike."""
    if any(fact.is_length for fact in facts):
        return Verdict("LN1", _length_fact(node, facts), "shape arithmetic")
    rank = _rank(node.inputs[0])
    axis = int_attribute(node, "axis", 0) % rank
    if all(fact.axis in (None, axis) for fact in facts):
        segments: Segments = ()
        fills = []
        for value, fact in zip(node.inputs, facts, strict=True):
            own = fact.segments or _full(value, axis)
            segments = joined(segments, own)
            if fact.axis is not None:
                fills.append(fact.fill)
        return Verdict("CC1", Fact(axis, segments, _same(fills)), "segments in logical order")
    if len({(fact.axis, fact.segments) for fact in facts}) != 1:
        raise refuse("Concat of differently padded inputs", "pad the inputs alike before joining them")
    return Verdict(
        "CC2", Fact(facts[0].axis, facts[0].segments, _same([fact.fill for fact in facts])), "joined along another axis"
    )


def _same(fills: Sequence[Fill]) -> Fill:
    if all(fill == fills[0] for fill in fills):
        return fills[0]
    return FINITE if all(fill.is_finite for fill in fills) else ANYTHING


def _full(value: ir.Value | None, axis: int) -> Segments:
    dims = dims_of(value) if value is not None else None
    size = None if dims is None else dims[axis]
    if not isinstance(size, int):
        raise refuse(
            f"{value.name if value else ''!r} joins the cache with {size} entries, a length that is not fixed",
            "fix the number of new frames per call in the recipe",
        )
    return (Segment(size, size),)


def slice_(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Slice of a padded axis at segment boundaries, or lookup of a table by a padded length."""
    bounds = _slice_bounds(node)
    if bounds is None:
        raise refuse("Slice with computed axes or several axes at once", "slice one axis at a time by constants")
    axis, start, end = bounds
    fact = facts[0]
    if fact.axis is None:
        return _lookup(node, axis, start, end)
    if fact.axis != axis:
        return Verdict("SL1", fact, "another axis is cut", pointwise=True)
    length = logical_length(fact.segments)
    first = _from_front(start, length)
    last = length if end == END else _from_front(end, length)
    kept = _cut(fact.segments, first, last)
    if kept is None and isinstance(start, int) and start < 0 and last == length:
        kept = _newest(fact.segments, -start)
    if kept is None:
        raise refuse(
            f"Slice [{start}:{'' if end == END else end}] cuts inside a padded segment of {fact}",
            "cut at the border between cached and new frames, or keep the newest frames",
        )
    segments, begin, stop = kept
    padded = any(not segment.is_full for segment in segments)
    result = Fact(axis, segments, fact.fill) if padded else PLAIN
    return Verdict("SL2", result, "cut at a segment boundary", Action.SPLIT_SLICE, bounds=(begin, stop))


def _from_front(bound: Dim, length: Dim) -> Dim:
    return length + bound if isinstance(bound, int) and bound < 0 else bound


def _cut(segments: Segments, first: Dim, last: Dim) -> tuple[Segments, int, int] | None:
    """Segments between two logical positions, with physical bounds; None when a bound falls inside padding."""
    begin = _physical(segments, first)
    stop = _physical(segments, last)
    if begin is None or stop is None or begin > stop:
        return None
    kept: list[Segment] = []
    offset = 0
    for segment in segments:
        low, high = max(begin, offset), min(stop, offset + segment.slots)
        if low < high:
            whole = high - low == segment.slots
            kept.append(segment if whole else Segment(high - low, high - low))
        offset += segment.slots
    return tuple(kept), begin, stop


def _newest(segments: Segments, frames: int) -> tuple[Segments, int, int] | None:
    """The last `frames` entries when only the first segment is padded: a static slice, for every true length."""
    total = physical_length(segments)
    if frames > total or not all(segment.is_full for segment in segments[1:]):
        return None
    full = total - segments[0].slots
    if frames <= full:
        return (Segment(frames, frames),), total - frames, total
    rest = frames - full
    cut = Segment(sympy.Min(segments[0].length, rest), rest)
    return (cut, *segments[1:]), total - frames, total


def _physical(segments: Segments, position: Dim) -> int | None:
    """The slot of a logical position that lies on a boundary or inside a full segment."""
    logical: Dim = 0
    offset = 0
    for segment in segments:
        distance = sympy.sympify(position - logical)
        if distance.is_Integer and (distance == 0 or (segment.is_full and 0 < distance <= segment.slots)):
            return offset + int(distance)
        logical, offset = logical + segment.length, offset + segment.slots
    return offset if position - logical == 0 else None


def _slice_bounds(node: ir.Node) -> tuple[int, Dim, Dim] | None:
    """(axis, start, end) of a Slice along one axis with step 1."""
    starts, ends = integers_of(node.inputs[1]), integers_of(node.inputs[2])
    axes = integers_of(node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] is not None else (0,)
    steps = integers_of(node.inputs[4]) if len(node.inputs) > 4 and node.inputs[4] is not None else (1,)
    if starts is None or ends is None or axes is None or len(starts) != 1 or steps != (1,):
        return None
    axis = axes[0]
    assert isinstance(axis, int)
    return axis % _rank(node.inputs[0]), starts[0], ends[0]


def _lookup(node: ir.Node, axis: int, start: Dim, end: Dim) -> Verdict:
    """A table sliced by a length of the padded axis: rows 0..L-1, or the last L rows."""
    dims = dims_of(node.inputs[0]) if node.inputs[0] is not None else None
    rows = None if dims is None else dims[axis]
    if not isinstance(rows, int):
        raise refuse("Slice of an unpadded axis by the length of the padded one", "use a table of fixed size")
    if start == 0 and not isinstance(end, int):
        return Verdict("LK1", Fact(axis, (), FINITE), "rows 0..L-1 of a table", Action.LOOK_UP_POSITIONS)
    last = end in (END, rows)
    if last and not isinstance(start, int):
        return Verdict("LK2", Fact(axis, (), FINITE), "the last L rows of a table", Action.SLICE_LAST_ROWS)
    raise refuse(
        f"table lookup [{start}:{end}] of {rows} rows is neither the first nor the last rows by the joined length",
        "look positions up as table[:length] or table[-length:]",
    )


def looked_up_length(node: ir.Node) -> Dim | None:
    """The length L by which a Slice looks rows of a table up (rules LK1 and LK2)."""
    bounds = _slice_bounds(node)
    if bounds is None:
        return None
    axis, start, end = bounds
    if start == 0:
        return end
    dims = dims_of(node.inputs[0]) if node.inputs[0] is not None else None
    if dims is None:
        return None
    rows = dims[axis]
    distance = rows - start
    return -start if getattr(start, "could_extract_minus_sign", lambda: False)() else distance


def split(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Split along another axis than the padded one."""
    fact = facts[0]
    rank = _rank(node.inputs[0])
    if fact.axis == int_attribute(node, "axis", 0) % rank:
        raise refuse("Split of the padded axis", "slice at the border between cached and new frames")
    return Verdict("MV5", fact, "another axis is split", pointwise=True)


def where(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Where with a condition that is not padded: elementwise."""
    verdict = nary(node, facts)
    finite = all(_content(value, fact).is_finite for value, fact in zip(node.inputs[1:], facts[1:], strict=True))
    fill = FINITE if finite else ANYTHING
    return Verdict("EW4", Fact(verdict.fact.axis, verdict.fact.segments, fill), "elementwise", pointwise=True)


# --- lengths ----------------------------------------------------------------------------------------------------------


def shape(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Shape of a padded value: an integer that carries the length, unless it reads other dimensions only."""
    return Verdict("LN2", _length_fact(node, facts), "shape arithmetic")


def _length_fact(node: ir.Node, facts: Sequence[Fact]) -> Fact:
    """A length with the segments it comes from, or PLAIN when the result mentions none of their lengths."""
    segments = next((fact.segments for fact in facts if fact.segments), ())
    symbols = {name for s in segments if not isinstance(s.length, int) for name in s.length.free_symbols}
    known = integers_of(node.outputs[0])
    if known is not None and not any(symbols & x.free_symbols for x in known if not isinstance(x, int)):
        return PLAIN
    return Fact(segments=segments, is_length=True)


def length_arithmetic(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """Integer arithmetic on lengths whose result is known symbolically."""
    if integers_of(node.outputs[0]) is None:
        raise refuse(
            f"{node.op_type} computes with the length of the padded axis as a number", "use it as a shape only"
        )
    return Verdict("LN1", _length_fact(node, facts), "shape arithmetic")


LENGTH_OPS = frozenset(
    {"Add", "Sub", "Mul", "Div", "Squeeze", "Unsqueeze", "Concat", "Gather", "Cast", "Reshape", "Identity", "Slice"}
)
"""Operators through which a length may pass and stay a shape."""

SHAPE_OPERANDS = {"Reshape": 1, "Expand": 1}
"""Operators that read a length as the target shape: operand index. The physical size is what they want."""

RULES: dict[tuple[str, str], Rule] = {
    **{("", op): unary for op in UNARY},
    **{("", op): nary for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")},
    **{("", op): unbounded for op in UNBOUNDED},
    **{("", op): reduce for op in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")},
    ("", "Pow"): power,
    ("", "Cast"): cast,
    ("", "MatMul"): matmul,
    ("", "Softmax"): softmax,
    ("", "LayerNormalization"): layer_normalization,
    ("", "Transpose"): transpose,
    ("", "Reshape"): reshape,
    ("", "Unsqueeze"): unsqueeze,
    ("", "Squeeze"): squeeze,
    ("", "Concat"): concat,
    ("", "Slice"): slice_,
    ("", "Split"): split,
    ("", "Where"): where,
    ("", "Shape"): shape,
}
"""The table. Whatever is not here is refused by name as soon as a padded axis reaches it."""


def judge(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    """The verdict on one node.

    Args:
        node: any node.
        facts: one fact per input, in order.

    Raises:
        Refused: no rule, or the rule does not hold; node, op and source line are left to the caller.
    """
    if all(fact == PLAIN for fact in facts):
        return Verdict("PL", PLAIN, "nothing padded reaches it")
    if any(fact.is_length for fact in facts):
        return _judge_length(node, facts)
    rule = RULES.get(("" if node.domain == "ai.onnx" else node.domain, node.op_type))
    if rule is None:
        raise refuse(
            f"no padding rule for operator {node.domain + '::' if node.domain else ''}{node.op_type}",
            "write the model with operators of the rule table, or add a rule to compiler/analysis/rules.py",
        )
    return rule(node, facts)


def _judge_length(node: ir.Node, facts: Sequence[Fact]) -> Verdict:
    operand = SHAPE_OPERANDS.get(node.op_type)
    lengths = [index for index, fact in enumerate(facts) if fact.is_length]
    if operand is not None and lengths == [operand] and not facts[0].is_length:
        if facts[0].axis is None:
            raise refuse(
                f"{node.op_type} makes a padded axis out of an unpadded value", "join the cache by concatenation"
            )
        return RULES["", node.op_type](node, facts)
    if node.op_type == "Slice" and 0 not in lengths:
        return slice_(node, facts)
    if node.op_type in LENGTH_OPS:
        return length_arithmetic(node, facts)
    raise refuse(
        f"{node.op_type} uses the length of the padded axis as data",
        "compute with positions inside the model's own joined tensors, not with their size",
    )


__all__ = ["RULES", "judge", "looked_up_length", "physical_length"]
