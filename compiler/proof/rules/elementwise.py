"""Proves how padding and batching act on elementwise operators with broadcast operands (rules EW).

Rule ids: EW1 one operand, EW2 several, EW3 casts, EW4 selection, EW5 booleans (`comparison`).
"""

import dataclasses
import functools
import math

import onnx_ir as ir

from compiler.proof.facts import interval as iv
from compiler.proof.facts import transfer
from compiler.proof.facts.case import Case, broadcast, read
from compiler.proof.facts.facts import Fact, Index, Region, Verdict, refuse
from compiler.proof.facts.interval import ANYTHING, ONE, ZERO, Interval
from compiler.proof.facts.length_data import lengths_alone, per_row
from compiler.proof.facts.positions import difference
from compiler.proof.facts.registry import Table
from compiler.proof.facts.transfer import BINARY, EXACT, ROUNDED, Binary, Unary, stored
from compiler.proof.rules.comparison import COMPARISONS

PARAMETRIC = ("Celu", "Elu", "HardSigmoid", "LeakyRelu", "Selu", "Shrink", "Swish", "ThresholdedRelu")

HELD = {"BitwiseAnd", "BitwiseOr", "BitwiseXor", "Max", "Min"}
"""Functions of several operands whose results need no rounding."""


def out_dtype(case: Case) -> ir.DataType:
    """Return the element type of the first output; that of the first input where it is unknown."""
    found = case.node.outputs[0].dtype
    return case.dtype() if found is None else found


# One operand


def mapped(case: Case, rule: str, transferred: Unary, index: Index | None = None) -> Verdict:
    """Return the verdict on an elementwise function of the first operand."""
    alone = lengths_alone(case)
    if alone is not None:
        return alone
    fact = case.fact()
    out = case.output(fact.tracked, lambda region: transferred(fact.content(region)), index)
    return case.verdict(rule, "elementwise", out, pointwise=True)


def unary(case: Case) -> Verdict:
    """Judge an elementwise function of one input."""
    dtype = out_dtype(case)
    exact = EXACT.get(case.op)
    if exact is not None and case.op == "Sign" and dtype == ir.DataType.INT64:
        return mapped(case, "EW1", lambda x: transfer.ordered(exact(x), dtype, (x,), iv.bounded(1.0)))
    if exact is not None and (dtype.is_floating_point() or case.op not in ("Abs", "BitwiseNot", "Neg")):
        return mapped(case, "EW1", exact)
    function = exact or transfer.approximated(ROUNDED[case.op])
    return mapped(case, "EW1", lambda x: stored(function(x), dtype))


def number_attribute(case: Case, name: str, default: float) -> float:
    """Return a number that an attribute states.

    Raises:
        Refused: it is not a number.
    """
    value = case.attribute(name, default)
    if not isinstance(value, int | float):
        raise refuse(f"{case.op} with {name} {value!r}", "state a number")
    return float(value)


def parametric(case: Case) -> Verdict:
    """Judge activations with parameters."""
    function, dtype = transfer.approximated(_activation(case)), out_dtype(case)
    return mapped(case, "EW1", lambda x: stored(function(x), dtype))


def _activation(case: Case) -> Unary:
    defaults = {"LeakyRelu": 0.01, "HardSigmoid": 0.2, "Selu": 1.67326319217681884765625}
    alpha = number_attribute(case, "alpha", defaults.get(case.op, 1.0))
    match case.op:
        case "LeakyRelu":
            return lambda x: transfer.sloped(x, iv.constant(alpha))
        case "Elu" | "Celu" | "Selu":
            gamma = number_attribute(case, "gamma", 1.0507009873554804934) if case.op == "Selu" else 1.0
            return functools.partial(_saturating, alpha=alpha, gamma=gamma, scaled=case.op == "Celu")
        case "HardSigmoid":
            beta = number_attribute(case, "beta", 0.5)
            return functools.partial(_hard_sigmoid, alpha=alpha, beta=beta)
        case "ThresholdedRelu":
            return lambda x: x if x.low > alpha and not x.nan else ZERO if x.high <= alpha else iv.hull(x, ZERO)
        case "Swish":
            return transfer.gated(-0.279 / alpha if alpha > 0 else -math.inf)
    bias, edge = number_attribute(case, "bias", 0.0), number_attribute(case, "lambd", 0.5)
    return functools.partial(_shrunk, bias=bias, edge=edge)


def _saturating(x: Interval, alpha: float, gamma: float, scaled: bool) -> Interval:
    """Return the image of gamma * x above 0, and gamma * alpha * (exp(x) - 1) below, with x / alpha when scaled."""
    if x.nan or alpha <= 0:
        return ZERO if x.is_zero else ANYTHING

    def image(end: float) -> float:
        return end if end > 0 else alpha * math.expm1(end / alpha if scaled else end)

    return iv.multiply(iv.constant(gamma), Interval(image(x.low), image(x.high)))


def _hard_sigmoid(x: Interval, alpha: float, beta: float) -> Interval:
    if not x.is_finite:
        return Interval(0.0, 1.0, True)
    low, high = sorted(min(max(alpha * end + beta, 0.0), 1.0) for end in (x.low, x.high))
    return Interval(low, high)


def _shrunk(x: Interval, bias: float, edge: float) -> Interval:
    if x.is_zero and edge >= 0:
        return ZERO
    shift = Interval(-abs(bias), abs(bias))
    return iv.hull(iv.add(x, shift), ZERO) if not x.nan else ANYTHING


def cast(case: Case) -> Verdict:
    """Judge Cast and CastLike: positions stay positions where the type holds them."""
    to = case.dtype(1) if case.op == "CastLike" else ir.DataType(case.int_attribute("to", 1))
    if to == ir.DataType.STRING:
        raise refuse("Cast to text", "keep numbers")
    source = case.dtype()
    wide = (ir.DataType.INT32, ir.DataType.INT64, ir.DataType.FLOAT, ir.DataType.DOUBLE)
    index = case.fact().index if to in wide and source != ir.DataType.BOOL else None
    return mapped(case, "EW3", lambda x: transfer.cast(x, source, to), index)


def clip(case: Case) -> Verdict:
    """Judge Clip between scalars, which may be computed."""
    alone = lengths_alone(case)
    if alone is not None:
        return alone
    low, high = (
        _limit(case, operand, name, end) for operand, name, end in ((1, "min", -math.inf), (2, "max", math.inf))
    )
    bounds = [case.fact(operand).valid for operand in (1, 2) if case.has(operand)]

    def clipped(x: Interval) -> Interval:
        result = transfer.minimum(transfer.maximum(x, low), high)
        return transfer.ordered(result, case.dtype(), (x, *bounds), iv.hull(x, *bounds))

    return mapped(case, "EW1", clipped)


def _limit(case: Case, operand: int, name: str, end: float) -> Interval:
    """Return the interval of one limit of a Clip; where it is not given, of the largest finite number."""
    if case.has(operand):
        if not case.fact(operand).is_plain:
            raise refuse(f"Clip with a {name} of its own for each row", "use Max and Min")
        return case.fact(operand).valid
    if case.attribute(name) is not None:
        return iv.constant(number_attribute(case, name, end))
    return Interval(end, case.lowest()) if end < 0 else Interval(case.highest(), end)


def identity(case: Case) -> Verdict:
    """Judge Identity: the operand itself."""
    return case.verdict("EW1", "the operand itself", case.fact(), pointwise=True)


# Several operands


def nary(case: Case) -> Verdict:
    """Judge an elementwise function of several broadcast inputs: a padded axis meets itself, or size 1."""
    alone = lengths_alone(case)
    if alone is not None:
        return alone
    numbers = [operand for operand in case.present if case.fact(operand).is_number]
    per_row(case)
    rank, dtype = len(case.out_dims()), out_dtype(case)
    axes = broadcast(case, case.present, rank)
    if case.op in ("Div", "Mod") and dtype.is_integer():
        _divisible(case, rank, is_number=1 in numbers)
    image = _image(case, dtype)
    same = case.op == "Mul" and len(set(case.node.inputs)) == 1

    def content(region: Region) -> Interval:
        operands = [_within(read(case, operand, region, rank), dtype) for operand in case.present]
        if case.op == "Sub" and (apart := difference(case, region, rank)) is not None:
            by_content = transfer.subtract(*operands)
            return stored(Interval(max(apart.low, by_content.low), min(apart.high, by_content.high)), dtype)
        if same:
            return stored(transfer.power(operands[0], iv.constant(2.0)), dtype)
        result = functools.reduce(image, operands)
        return stored(iv.multiply(result, iv.constant(1 / len(operands))), dtype) if case.op == "Mean" else result

    out = case.output(axes, content, _shifted_index(case, rank))
    return case.verdict("EW2", "elementwise on equal layouts", out, pointwise=True)


def _image(case: Case, dtype: ir.DataType) -> Binary:
    """Return the function from the operands' intervals to the result's."""
    image = BINARY[case.op]
    if case.op in ("Max", "Min"):
        return lambda a, b: transfer.ordered(image(a, b), dtype, (a, b), iv.hull(a, b))
    if case.op in HELD:
        return image
    if dtype.is_integer():
        whole = {"Div": transfer.whole_quotient, "Pow": transfer.whole_power}
        if not case.int_attribute("fmod", 0):
            whole["Mod"] = transfer.remainder
        image = whole.get(case.op, image)
    return lambda a, b: stored(image(a, b), dtype)


def _within(x: Interval, dtype: ir.DataType) -> Interval:
    """Return an interval without the numbers that an integer type cannot hold."""
    limits = transfer.limits_of(dtype)
    return x if limits is None else Interval(max(x.low, limits.low), min(x.high, limits.high))


def _divisible(case: Case, rank: int, *, is_number: bool) -> None:
    """Fill padding that would end the run: integer division by 0, and of the lowest number by -1.

    Numbers of axis lengths are written without zeros.
    """
    for axis in case.fact(1).padded if not is_number else ():
        padding = case.fact(1).padding(axis)
        if padding.low <= 0 <= padding.high or padding.low <= -1 <= padding.high:
            case.fill(1, axis, 1.0)
    shift = rank - case.rank(0)
    for axis in case.fact(0).padded:
        divisors = [read(case, 1, frozenset({axis + shift, *others}), rank) for others in _regions_without(case, axis)]
        risky = any(divisor.low <= -1 <= divisor.high for divisor in divisors)
        if risky and case.fact(0).padding(axis).low <= case.lowest():
            case.fill(0, axis, 0.0)


def _regions_without(case: Case, axis: int) -> list[Region]:
    shift = len(case.out_dims()) - case.rank(0)
    return [frozenset(at + shift for at in region) for region in case.fact(0).regions if axis in region]


def _shifted_index(case: Case, rank: int) -> Index | None:
    """Return the positions that a constant added to or subtracted from positions gives; None for other operands."""
    if case.op not in ("Add", "Sub") or len(case.facts) != 2:
        return None
    for operand in (0, 1) if case.op == "Add" else (0,):
        index, other = case.fact(operand).index, case.fact(1 - operand)
        if index is None or other.axes or not other.valid.is_constant or not math.isfinite(other.valid.low):
            continue
        shift = int(other.valid.low)
        axis = index.axis + rank - case.rank(operand)
        if shift == other.valid.low and abs(shift) < 2**24 and _is_one(case, 1 - operand, axis - rank):
            return Index(axis, index.offset + shift if case.op == "Add" else index.offset - shift)
    return None


def _is_one(case: Case, operand: int, axis: int) -> bool:
    """Whether an operand has size 1 along an axis, counted from the back, or lacks it."""
    dims = case.dims(operand)
    return len(dims) < -axis or dims[axis] == 1


def where(case: Case) -> Verdict:
    """Judge Where; a condition that is known in a region gives the content of the operand it selects."""
    alone = lengths_alone(case)
    if alone is not None:
        return alone
    per_row(case)
    rank = len(case.out_dims())
    axes = broadcast(case, case.present, rank)

    def content(region: Region) -> Interval:
        condition, chosen, other = (read(case, operand, region, rank) for operand in range(3))
        if condition == ONE:
            return chosen
        if condition.is_zero:
            return other
        if _asks_nan(case) is case.node.inputs[2]:  # Where(IsNaN(x), c, x)
            other = dataclasses.replace(other, nan=False)
        return iv.hull(chosen, other)

    return case.verdict("EW4", "selection place by place", case.output(axes, content), pointwise=True)


def _asks_nan(case: Case) -> ir.Value | None:
    """Return the value that the condition tests for NaN, as attention exports do for rows without keys; else None."""
    condition = case.node.inputs[0]
    producer = None if condition is None else condition.producer()
    return producer.inputs[0] if producer is not None and producer.op_type == "IsNaN" else None


def dropout(case: Case) -> Verdict:
    """Judge Dropout, which is the identity at inference."""
    training = case.array(2) if case.has(2) else None
    if case.has(2) and (training is None or bool(training.reshape(-1)[0])):
        raise refuse("Dropout in training mode", "export the model in evaluation mode")
    fact = case.fact()
    mask = Fact(fact.axes, tuple((region, ONE) for region in fact.regions))
    return case.verdict("EW1", "the identity at inference", fact, mask, pointwise=True)


TABLE: Table = {
    **COMPARISONS,
    **{("", op): unary for op in (*EXACT, *ROUNDED)},
    **{("", op): parametric for op in PARAMETRIC},
    **{("", op): nary for op in BINARY},
    ("", "Cast"): cast,
    ("", "CastLike"): cast,
    ("", "Clip"): clip,
    ("", "Dropout"): dropout,
    ("", "Identity"): identity,
    ("", "Where"): where,
}
