"""Rules EW: elementwise operators, where each place meets the same place of every operand.

Rule ids: EW1 one operand, EW2 several, EW3 casts, EW4 selection, EW5 comparison and logic.
"""

import dataclasses
import math
from collections.abc import Callable

import onnx_ir as ir

from compiler.analysis import interval as iv
from compiler.analysis.case import Case, broadcast, read
from compiler.analysis.facts import Fact, Index, Region, Verdict, refuse
from compiler.analysis.interval import ANYTHING, ONE, TRUTH, ZERO, Interval
from compiler.analysis.layout import Axis, Frames
from compiler.analysis.registry import Table
from compiler.ir import Dim


def _monotone(function: Callable[[float], float]) -> Callable[[Interval], Interval]:
    """The image of an interval under a rising function that is total on finite and infinite numbers."""
    return lambda x: ANYTHING if x.nan else Interval(function(x.low), function(x.high))


def _within(low: float, high: float, at_zero: float | None = None) -> Callable[[Interval], Interval]:
    """The range of a bounded function; NaN goes through."""

    def image(x: Interval) -> Interval:
        if x.is_zero and at_zero is not None:
            return iv.constant(at_zero)
        return ANYTHING if x.nan else Interval(low, high)

    return image


def _only_zero(x: Interval) -> Interval:
    return ZERO if x.is_zero else ANYTHING


def _bump(x: Interval) -> Interval:
    """Gelu, Swish, Mish and their like: between -1 and the larger of 0 and x; minus infinity gives NaN in some forms."""
    if x.is_zero:
        return ZERO
    return Interval(max(-1.0, min(x.low, 0.0)), max(x.high, 0.0)) if x.is_finite else ANYTHING


def _even(x: Interval) -> Interval:
    """Absolute value."""
    low = 0.0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high))
    return Interval(low, max(abs(x.low), abs(x.high)), x.nan)


def _finite_odd(scale: float) -> Callable[[Interval], Interval]:
    """|f(x)| <= scale * |x|, f(0) = 0; only finite numbers are promised."""
    return lambda x: ZERO if x.is_zero else iv.bounded(scale * x.magnitude) if x.is_finite else ANYTHING


def _exp(x: Interval) -> Interval:
    if x.nan:
        return ANYTHING
    return Interval(0.0, math.exp(x.high) if x.high < 85 else math.inf)


def _log(x: Interval) -> Interval:
    return Interval(math.log(x.low), math.log(x.high)) if x.is_finite and x.low > 1e-37 else ANYTHING


def _sqrt(x: Interval) -> Interval:
    return Interval(math.sqrt(x.low), math.sqrt(x.high)) if not x.nan and x.low >= 0 else ANYTHING


def _wave(x: Interval) -> Interval:
    return Interval(-1.0, 1.0) if x.is_finite else ANYTHING


def _softplus(x: Interval) -> Interval:
    return Interval(0.0, max(x.high, 0.0) + 1.0) if x.is_finite else ANYTHING


UNARY: dict[str, Callable[[Interval], Interval]] = {
    "Abs": _even,
    "Acos": lambda x: ANYTHING,
    "Acosh": lambda x: ANYTHING,
    "Asin": _only_zero,
    "Asinh": _finite_odd(1.0),
    "Atan": _within(-1.58, 1.58, 0.0),
    "Atanh": _only_zero,
    "BitwiseNot": lambda x: iv.bounded(x.magnitude + 1),
    "Ceil": _monotone(lambda x: x if math.isinf(x) else math.ceil(x)),
    "Celu": lambda x: _only_zero(x) if x.is_zero else ANYTHING,
    "Cos": _wave,
    "Cosh": lambda x: Interval(1.0, math.cosh(x.magnitude)) if x.magnitude < 80 else ANYTHING,
    "Erf": _within(-1.0, 1.0, 0.0),
    "Exp": _exp,
    "Floor": _monotone(lambda x: x if math.isinf(x) else math.floor(x)),
    "Gelu": _bump,
    "HardSigmoid": _within(0.0, 1.0),
    "HardSwish": _bump,
    "Identity": lambda x: x,
    "IsInf": lambda x: ZERO if math.isfinite(x.low) and math.isfinite(x.high) else TRUTH,
    "IsNaN": lambda x: TRUTH if x.nan else ZERO,
    "Log": _log,
    "Mish": _bump,
    "Neg": iv.negate,
    "Not": lambda x: Interval(1.0 - x.high, 1.0 - x.low),
    "Reciprocal": iv.reciprocal,
    "Relu": _monotone(lambda x: max(x, 0.0)),
    "Round": _monotone(lambda x: x if math.isinf(x) else float(round(x))),
    "Sigmoid": _within(0.0, 1.0),
    "Sign": _within(-1.0, 1.0, 0.0),
    "Sin": lambda x: ZERO if x.is_zero else _wave(x),
    "Sinh": _only_zero,
    "Softplus": _softplus,
    "Softsign": _finite_odd(1.0),
    "Sqrt": _sqrt,
    "Swish": _bump,
    "Tan": _only_zero,
    "Tanh": _within(-1.0, 1.0, 0.0),
}
"""Functions of one operand: the image of an interval. Whatever makes no promise gives ANYTHING."""


def unary(case: Case) -> Verdict:
    """Elementwise function of one input."""
    transfer = UNARY[case.op]
    return _mapped(case, "EW1", transfer, keeps_index=case.op == "Identity")


def _mapped(case: Case, rule: str, transfer: Callable[[Interval], Interval], keeps_index: bool = False) -> Verdict:
    fact = case.fact()
    if fact.is_number:
        raise refuse(f"{case.op} of an axis length", "use the length as a shape only")
    index = fact.index if keeps_index else None
    out = case.output(fact.tracked, lambda region: transfer(fact.content(region)), index)
    return case.verdict(rule, "elementwise", out, pointwise=True)


def leaky(case: Case) -> Verdict:
    """LeakyRelu, Elu, Selu, ThresholdedRelu, Shrink: zero stays zero, finite stays finite."""
    slope = max(1.0, abs(_number(case, "alpha", 0.01)) * abs(_number(case, "gamma", 1.0)), 2.0)
    if case.op == "Shrink" and _number(case, "bias", 0.0) != 0:
        return _mapped(case, "EW1", lambda x: iv.bounded(x.magnitude + abs(_number(case, "bias", 0.0))))
    return _mapped(case, "EW1", _finite_odd(slope))


def _number(case: Case, name: str, default: float) -> float:
    value = case.attribute(name, default)
    return float(value) if isinstance(value, int | float) else default


def cast(case: Case) -> Verdict:
    """Cast: exact between floating-point types within range; anything may come of what no integer holds."""
    to = ir.DataType(case.int_attribute("to", 1))
    fact = case.fact()
    if fact.is_number:
        raise refuse("Cast of an axis length", "use the length as a shape only")

    def transfer(x: Interval) -> Interval:
        if to == ir.DataType.BOOL:
            return ZERO if x.is_zero else ONE if not x.nan and (x.low > 0 or x.high < 0) else TRUTH
        if not to.is_floating_point():
            low, high = case_limits(to)
            inside = x.is_finite and low <= x.low and x.high <= high
            if inside and case.dtype().is_floating_point():
                return Interval(math.trunc(x.low), math.trunc(x.high))
            return x if inside else Interval(low, high)
        top = 65504.0 if to == ir.DataType.FLOAT16 else 3.0e38 if to.itemsize >= 2 else 400.0
        return x if x.magnitude < top else ANYTHING

    out = case.output(fact.tracked, lambda region: transfer(fact.content(region)), fact.index)
    return case.verdict("EW3", "elementwise", out, pointwise=True)


def case_limits(dtype: ir.DataType) -> tuple[float, float]:
    """The range of an integer type."""
    if dtype in (ir.DataType.INT4, ir.DataType.UINT4):
        return (-8.0, 7.0) if dtype == ir.DataType.INT4 else (0.0, 15.0)
    bits = dtype.itemsize * 8
    unsigned = dtype.name.startswith("UINT")
    return (0.0, 2.0**bits - 1) if unsigned else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1)


Binary = Callable[[Interval, Interval], Interval]


def _divide(a: Interval, b: Interval) -> Interval:
    return iv.multiply(a, iv.reciprocal(b))


def _power(a: Interval, b: Interval) -> Interval:
    if not b.is_constant or not a.is_finite or b.low not in (1.0, 2.0, 3.0, 4.0):
        if (
            a.is_finite
            and b.is_finite
            and a.low > 0
            and max(abs(math.log(a.low)), abs(math.log(a.high))) * b.magnitude < 80
        ):
            return Interval(*sorted((min(a.low**b.low, a.high**b.low, a.low**b.high, a.high**b.high),
                                     max(a.low**b.low, a.high**b.low, a.low**b.high, a.high**b.high))))  # fmt: skip
        return ANYTHING
    exponent = int(b.low)
    top = a.magnitude**exponent if a.magnitude < 1e9 else math.inf
    if exponent % 2 == 0:
        return Interval(0.0, top) if math.isfinite(top) else Interval(0.0, math.inf)
    return Interval(-top, top)


def _modulo(a: Interval, b: Interval) -> Interval:
    if not a.is_finite or not b.is_finite or b.low <= 0:
        return ANYTHING
    return Interval(0.0 if a.low >= 0 else -b.high, min(b.high, a.high) if a.low >= 0 else b.high)


BINARY: dict[str, Binary] = {
    "Add": iv.add,
    "Sub": lambda a, b: iv.add(a, iv.negate(b)),
    "Mul": iv.multiply,
    "Div": _divide,
    "Pow": _power,
    "Mod": _modulo,
    "Max": iv.maximum,
    "Min": iv.minimum,
    "Sum": iv.add,
    "Mean": lambda a, b: iv.hull(iv.add(a, b), a, b) if a.is_finite and b.is_finite else ANYTHING,
    "PRelu": lambda a, b: iv.hull(iv.multiply(a, b), a) if a.is_finite and b.is_finite else ANYTHING,
    "BitwiseAnd": lambda a, b: iv.bounded(max(a.magnitude, b.magnitude) * 2 + 1),
    "BitwiseOr": lambda a, b: iv.bounded(max(a.magnitude, b.magnitude) * 2 + 1),
    "BitwiseXor": lambda a, b: iv.bounded(max(a.magnitude, b.magnitude) * 2 + 1),
    "BitShift": lambda a, b: Interval(0.0, 2.0**64),
}
"""Functions of two operands: the image of two intervals."""


def nary(case: Case) -> Verdict:
    """Elementwise function of several broadcast inputs: a padded axis meets itself, or size 1."""
    _numbers_to_rows(case)
    if case.op in ("Div", "Mod") and case.dtype(1).is_integer():
        divisor = case.fact(1)
        for axis in divisor.padded:
            if divisor.padding(axis).low <= 0 <= divisor.padding(axis).high:
                case.fill(1, axis, 1.0)  # integer division by zero ends the run
    rank = len(case.out_dims())
    operands = case.present
    axes = broadcast(case, operands, rank)
    transfer = BINARY[case.op]
    if case.op == "Div" and case.dtype().is_integer():
        transfer = _whole_quotient

    def content(region: Region) -> Interval:
        result = read(case, operands[0], region, rank)
        for operand in operands[1:]:
            result = transfer(result, read(case, operand, region, rank))
        return result

    out = case.output(axes, content, _shifted_index(case, rank))
    return case.verdict("EW2", "elementwise on equal layouts", out, pointwise=True)


def _whole_quotient(a: Interval, b: Interval) -> Interval:
    if not a.is_finite or b.low <= 0 <= b.high:
        return ANYTHING
    return iv.bounded(a.magnitude)


def _numbers_to_rows(case: Case) -> None:
    """Replace operands that are axis lengths by the true length of each row.

    Raises:
        Refused: no operand has a batch axis to hold one number per row.
    """
    numbers = [operand for operand in case.present if case.fact(operand).is_number]
    if not numbers:
        return
    rank = len(case.out_dims())
    for operand in numbers:
        if any(dim != 1 for dim in case.dims(operand)):
            raise refuse(f"{case.op} uses several axis lengths as data", "use one length at a time")
        known = case.integers(operand)
        if known is not None and any(case.batch in {str(s) for s in getattr(k, "free_symbols", ())} for k in known):
            raise refuse(f"{case.op} computes with the batch size: rows of one batch would mix", "leave it out")
        if case.batch is not None and not any(case.fact(o).rows_axis is not None for o in case.present):
            raise refuse(
                f"{case.op} uses an axis length as data where all rows share the value",
                "compute it on a value that has the batch axis",
            )
        case.rewrite("number", operand)
        case.facts[operand] = Fact()
    assert rank >= 0


def _shifted_index(case: Case, rank: int) -> Index | None:
    """Positions plus or minus a constant are positions."""
    if case.op not in ("Add", "Sub") or len(case.facts) != 2:
        return None
    first, second = case.fact(0), case.fact(1)
    shift: Dim | None = None
    if first.index is not None and not second.axes and second.valid.is_constant:
        shift = int(second.valid.low) if second.valid.low == int(second.valid.low) else None
        index, own = first.index, case.rank(0)
        if shift is not None:
            offset = index.offset + shift if case.op == "Add" else index.offset - shift
            return Index(index.axis + rank - own, offset)
    if case.op == "Add" and second.index is not None and not first.axes and first.valid.is_constant:
        if first.valid.low == int(first.valid.low):
            return Index(second.index.axis + rank - case.rank(1), second.index.offset + int(first.valid.low))
    return None


def clip(case: Case) -> Verdict:
    """Clip by constants."""
    bounds = []
    for operand, default in ((1, -math.inf), (2, math.inf)):
        array = case.array(operand) if case.has(operand) else None
        if case.has(operand) and (array is None or array.size != 1):
            raise refuse("Clip with computed bounds", "give constant bounds")
        bounds.append(default if array is None else float(array.reshape(-1)[0]))
    low, high = bounds

    def transfer(x: Interval) -> Interval:
        return Interval(min(max(x.low, low), high), min(max(x.high, low), high), x.nan)

    return _mapped(case, "EW1", transfer)


COMPARISONS: dict[str, Callable[[Interval, Interval], tuple[bool, bool]]] = {
    "Less": lambda a, b: (a.high < b.low, a.low >= b.high),
    "LessOrEqual": lambda a, b: (a.high <= b.low, a.low > b.high),
    "Greater": lambda a, b: (a.low > b.high, a.high <= b.low),
    "GreaterOrEqual": lambda a, b: (a.low >= b.high, a.high < b.low),
    "Equal": lambda a, b: (a.is_constant and a == b, a.high < b.low or b.high < a.low),
}
"""(surely true, surely false) for two intervals."""

SWAPPED = {
    "Less": "Greater",
    "Greater": "Less",
    "LessOrEqual": "GreaterOrEqual",
    "GreaterOrEqual": "LessOrEqual",
    "Equal": "Equal",
}


def comparison(case: Case) -> Verdict:
    """Comparison of broadcast inputs; positions against positions or lengths are decided by region."""
    rank = len(case.out_dims())
    decided = _against_length(case, rank)
    if decided is None:
        _numbers_to_rows(case)
    axes = broadcast(case, [0, 1], rank) if decided is None else _index_axes(case, rank)

    def content(region: Region) -> Interval:
        if decided is not None:
            return decided if not region else TRUTH
        by_position = _by_position(case, region, rank, axes)
        if by_position is not None:
            return by_position
        a, b = read(case, 0, region, rank), read(case, 1, region, rank)
        if a.nan or b.nan:
            return TRUTH
        true, false = COMPARISONS[case.op](a, b)
        return ONE if true else ZERO if false else TRUTH

    out = case.output(axes, content)
    return case.verdict("EW5", "elementwise on equal layouts", out, pointwise=True)


def _index_axes(case: Case, rank: int) -> dict[int, Axis]:
    operand = 0 if case.fact(0).index is not None else 1
    shift = rank - case.rank(operand)
    return {at + shift: axis for at, axis in case.fact(operand).axes}


def _against_length(case: Case, rank: int) -> Interval | None:
    """Positions compared with the length of their own axis: known at every valid place, whatever the padding holds."""
    for first, second in ((0, 1), (1, 0)):
        index, known = case.fact(first).index, case.integers(second)
        if index is None or not case.fact(second).is_number or known is None or len(known) != 1:
            continue
        axis = case.fact(first).axis(index.axis)
        if axis is None or not isinstance(axis[0], Frames):
            continue
        op = case.op if first == 0 else SWAPPED[case.op]
        last = axis[0].size - 1 + index.offset  # the largest position
        above = known[0] - last
        below = known[0] - index.offset
        if _sign(above) is not None and _sign(above) >= 1:  # every position < length
            return {"Less": ONE, "LessOrEqual": ONE, "Greater": ZERO, "GreaterOrEqual": ZERO, "Equal": ZERO}[op]
        if _sign(below) is not None and _sign(below) <= -1:
            return {"Less": ZERO, "LessOrEqual": ZERO, "Greater": ONE, "GreaterOrEqual": ONE, "Equal": ZERO}[op]
    return None


def _sign(difference: Dim) -> int | None:
    """An integer difference, or None when it depends on lengths."""
    if isinstance(difference, int):
        return difference
    return int(difference) if difference.is_Integer else None


def _by_position(case: Case, region: Region, rank: int, axes: dict[int, Axis]) -> Interval | None:
    """Two positions along axes of one layout, of which exactly one lies in the padding, and the padding comes last.

    With key >= L > query: key - query >= 1, and the offsets decide the rest.
    """
    first, second = case.fact(0).index, case.fact(1).index
    if first is None or second is None:
        return None
    a, b = first.axis + rank - case.rank(0), second.axis + rank - case.rank(1)
    if a == b or axes.get(a) != axes.get(b) or (a in region) == (b in region):
        return None
    frames = axes[a][0]
    if not isinstance(frames, Frames) or not frames.is_suffix_padded or len(frames.segments) != 1:
        return None
    shift = _sign(first.offset - second.offset)
    if shift is None:
        return None
    least = 1 + shift if a in region else None  # value a - value b is at least this
    most = -1 + shift if b in region else None  # or at most this
    op = case.op
    if least is not None:
        if op in ("Greater", "Less", "LessOrEqual") and least >= 1:
            return ONE if op == "Greater" else ZERO
        if op == "GreaterOrEqual" and least >= 0:
            return ONE
        if op == "Less" and least >= 0:
            return ZERO
        if op == "Equal" and least >= 1:
            return ZERO
    if most is not None:
        if op in ("Less", "Greater", "GreaterOrEqual") and most <= -1:
            return ONE if op == "Less" else ZERO
        if op == "LessOrEqual" and most <= 0:
            return ONE
        if op == "Greater" and most <= 0:
            return ZERO
        if op == "Equal" and most <= -1:
            return ZERO
    return None


def logic(case: Case) -> Verdict:
    """And, Or, Xor."""
    rank = len(case.out_dims())
    if any(case.fact(operand).is_number for operand in case.present):
        raise refuse(f"{case.op} uses a condition on axis lengths as data", "decide it outside the model")
    axes = broadcast(case, [0, 1], rank)

    def content(region: Region) -> Interval:
        a, b = read(case, 0, region, rank), read(case, 1, region, rank)
        if case.op == "And":
            return ZERO if a.is_zero or b.is_zero else Interval(min(a.low, b.low), min(a.high, b.high))
        if case.op == "Or":
            return ONE if ONE in (a, b) else Interval(max(a.low, b.low), max(a.high, b.high))
        return TRUTH if not (a.is_constant and b.is_constant) else iv.constant(float(a.low != b.low))

    return case.verdict("EW5", "elementwise on equal layouts", case.output(axes, content), pointwise=True)


def where(case: Case) -> Verdict:
    """Where: selection place by place. A known condition hands out the content of the side it takes."""
    if any(case.fact(operand).is_number for operand in case.present):
        _numbers_to_rows(case)
    rank = len(case.out_dims())
    axes = broadcast(case, [0, 1, 2], rank)

    def content(region: Region) -> Interval:
        condition = read(case, 0, region, rank)
        if condition == ONE:
            return read(case, 1, region, rank)
        if condition.is_zero:
            return read(case, 2, region, rank)
        guard = _nan_guard(case)
        other = read(case, 2, region, rank)
        if guard:  # Where(IsNaN(x), c, x)
            other = dataclasses.replace(other, nan=False) if other.nan else other
        return iv.hull(read(case, 1, region, rank), other)

    return case.verdict("EW4", "selection place by place", case.output(axes, content), pointwise=True)


def _nan_guard(case: Case) -> bool:
    """Whether the condition is IsNaN of the third operand, as attention exports write it for rows without keys."""
    condition = case.node.inputs[0]
    producer = None if condition is None else condition.producer()
    return producer is not None and producer.op_type == "IsNaN" and producer.inputs[0] is case.node.inputs[2]


TABLE: Table = {
    **{("", op): unary for op in UNARY},
    **{("", op): nary for op in BINARY},
    **{("", op): comparison for op in COMPARISONS},
    **{("", op): logic for op in ("And", "Or", "Xor")},
    **{("", op): leaky for op in ("LeakyRelu", "Elu", "Selu", "ThresholdedRelu", "Shrink")},
    ("", "Cast"): cast,
    ("", "CastLike"): lambda case: _mapped(case, "EW3", lambda x: x if x.is_finite and x.magnitude < 6e4 else ANYTHING),
    ("", "Clip"): clip,
    ("", "Where"): where,
    ("", "Dropout"): lambda case: _dropout(case),
}


def _dropout(case: Case) -> Verdict:
    """Dropout at inference is the identity."""
    training = case.array(2) if case.has(2) else None
    if case.has(2) and (training is None or bool(training.reshape(-1)[0])):
        raise refuse("Dropout in training mode", "export the model in evaluation mode")
    fact = case.fact()
    return case.verdict("EW1", "the identity at inference", fact, make_mask(fact), pointwise=True)


def make_mask(fact: Fact) -> Fact:
    """The fact of Dropout's mask: the same layout, all true."""
    return Fact(fact.axes, tuple((region, ONE) for region in fact.regions))
