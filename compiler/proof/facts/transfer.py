"""Computes the interval of an elementwise operator's result from the intervals of its operands.

A function of intervals here is sound for every content, NaN and infinities included, as ONNX Runtime computes it in
floating point; `stored` then accounts for the type that holds the result.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from compiler.proof.facts import interval as iv
from compiler.proof.facts.interval import ANYTHING, ONE, TRUTH, ZERO, Interval

Unary: TypeAlias = Callable[[Interval], Interval]
Binary: TypeAlias = Callable[[Interval, Interval], Interval]

SMALLEST = 1e-37
"""Positive bounds below this count as 0: smaller numbers may be flushed to zero."""

OVERFLOW = 700.0
"""The exponential of this is no float32 any more, but still a number."""

ERROR = 1e-6
"""Largest absolute error of functions that runtimes approximate."""


# Types


def limits_of(dtype: ir.DataType) -> Interval | None:
    """Return the range of an integer or boolean type; None for floating-point types."""
    if dtype == ir.DataType.BOOL:
        return TRUTH
    if dtype.is_floating_point() or not dtype.is_integer():
        return None
    bits = dtype.bitwidth
    return (
        Interval(0.0, 2.0**bits - 1) if not dtype.is_signed() else Interval(-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1)
    )


def whole_range(dtype: ir.DataType | None) -> Interval:
    """Return the interval of everything that a type holds, including infinities and NaN for floats."""
    limits = None if dtype is None else limits_of(dtype)
    return ANYTHING if limits is None else limits


_STEPS = {ir.DataType.FLOAT: 2e-6, ir.DataType.DOUBLE: 2e-6, ir.DataType.FLOAT16: 4e-3, ir.DataType.BFLOAT16: 3e-2}
_OTHER_STEP = 0.25


def stored(x: Interval, dtype: ir.DataType) -> Interval:
    """Return bounds of arithmetic results as stored in a type: integers wrap, floats overflow, underflow and round.

    A constant stays one only where the type holds that very number.
    """
    limits = limits_of(dtype)
    if limits is not None:
        below = x.high < limits.high if dtype.bitwidth > 32 else x.high <= limits.high  # 2^63 - 1 is no float
        return x if not x.nan and limits.low <= x.low and below else limits
    half = dtype == ir.DataType.FLOAT16
    if x.is_constant and (math.isinf(x.low) or _is_held(x.low, dtype)):
        return x
    step = _STEPS.get(dtype, _OTHER_STEP)
    return Interval(0.0 - _wider(-x.low, step, half), _wider(x.high, step, half), x.nan)


def _is_held(number: float, dtype: ir.DataType) -> bool:
    with np.errstate(over="ignore"):
        return float(np.array(number).astype(dtype.numpy())) == number


def _wider(high: float, step: float, half: bool) -> float:
    """Return an upper bound after a few roundings."""
    if math.isinf(high):
        return high
    high += step * abs(high)
    least = 1e-3 if half else SMALLEST  # numbers below have no full precision
    if -least < high < 0:
        return 0.0
    return least if 0 < high < least else math.inf if half and high > 6.0e4 else high


def approximated(function: Unary) -> Unary:
    """Widen a function's bounds by an absolute error, except at 0 and at infinities; the sign is kept."""

    def image(x: Interval) -> Interval:
        y = function(x)
        if y.is_constant and (x.low == 0 or math.isinf(x.low)):
            return y
        low, high = y.low - ERROR, y.high + ERROR
        return Interval(max(low, 0.0) if y.low >= 0 else low, min(high, 0.0) if y.high <= 0 else high, y.nan)

    return image


def cast(x: Interval, source: ir.DataType, to: ir.DataType) -> Interval:
    """Return the interval after a conversion; numbers that an integer type cannot hold become any of its numbers."""
    if to == ir.DataType.BOOL:
        return ZERO if x.is_zero else ONE if x.low > 0 or x.high < 0 else TRUTH
    limits = limits_of(to)
    if limits is not None:
        if source.is_floating_point() and not x.is_constant:
            x = stored(x, source)
        whole = x
        if x.is_finite:
            whole = Interval(float(math.trunc(x.low)), float(math.trunc(x.high)))
        return whole if x.is_finite and limits.low <= whole.low and whole.high < limits.high + 1 else limits
    if to in (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.BFLOAT16, ir.DataType.FLOAT16):
        same = source == to or (source == ir.DataType.FLOAT and to == ir.DataType.DOUBLE)
        return x if same or (limits_of(source) is not None and x.magnitude <= 256) else stored(x, to)
    return stored(x, to) if x.magnitude < 200 else ANYTHING  # below 240, the largest number of the narrowest type


# Functions of one operand


def rising(function: Callable[[float], float], low: float = -math.inf, high: float = math.inf) -> Unary:
    """Return the interval function of a non-decreasing function with these limits; NaN gives any of them, or NaN."""

    def image(x: Interval) -> Interval:
        if x.nan:
            return Interval(low, high, True)
        start, end = (
            low if each == -math.inf else high if each == math.inf else function(each) for each in (x.low, x.high)
        )
        return Interval(start, end)

    return image


def on(low: float, high: float, function: Unary, otherwise: Interval = ANYTHING) -> Unary:
    """Return an interval function that is valid within bounds, with another result outside of them."""
    return lambda x: function(x) if low <= x.low and x.high <= high and not x.nan else otherwise


def gated(least: float) -> Unary:
    """Return the interval function of x times a gate between 0 and 1, with a minimum; -infinity may give NaN."""

    def image(x: Interval) -> Interval:
        if not x.is_finite:
            return ANYTHING
        return Interval(max(least, min(x.low, 0.0)), max(x.high, 0.0))

    return image


def absolute(x: Interval) -> Interval:
    """Return bounds of |x|."""
    low = 0.0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high))
    return Interval(low, max(abs(x.low), abs(x.high)), x.nan)


def _exp(end: float) -> float:
    return math.exp(min(end, OVERFLOW))


def _softplus(end: float) -> float:
    return max(end, 0.0) + math.log1p(math.exp(-abs(end)))


def _sigmoid(end: float) -> float:
    return 1 / (1 + math.exp(-end)) if end > -80 else 0.0


def _whole(function: Callable[[float], float]) -> Unary:
    return rising(lambda end: float(function(end)))


def _wave(x: Interval) -> Interval:
    return Interval(-1.0, 1.0, not x.is_finite)


def _sine(x: Interval) -> Interval:
    return ZERO if x.is_zero else rising(math.sin)(x) if x.magnitude < 1.57 else _wave(x)


def _cosine(x: Interval) -> Interval:
    near = absolute(x)
    return Interval(math.cos(near.high), math.cos(near.low)) if near.high < 3.14 and not x.nan else _wave(x)


def _log(x: Interval) -> Interval:
    if x.nan or x.low < 0:
        return ANYTHING
    ends = (math.log(end) if SMALLEST < end < math.inf else end if end > 1 else -math.inf for end in (x.low, x.high))
    low, high = ends
    return Interval(low, max(high, math.log(SMALLEST)))


def _square_root(x: Interval) -> Interval:
    if x.nan or x.low < 0:
        return Interval(0.0, math.inf, True) if x.high >= 0 else ANYTHING
    return Interval(math.sqrt(x.low), math.sqrt(x.high))


def reciprocal(x: Interval) -> Interval:
    """Return bounds of 1 / x: infinite where x may be 0, NaN only for NaN."""
    if x.nan or x.low <= 0 <= x.high:
        return Interval(-math.inf, math.inf, x.nan)
    return Interval(1 / x.high, 1 / x.low)


def _not(x: Interval) -> Interval:
    return Interval(1.0 - x.high, 1.0 - x.low)


def _sign(x: Interval) -> Interval:
    return Interval(-1.0, 1.0, True) if x.nan else rising(lambda end: float(np.sign(end)), -1.0, 1.0)(x)


def _is_inf(x: Interval) -> Interval:
    return ZERO if math.isfinite(x.low) and math.isfinite(x.high) else TRUTH


_HALF_PI = math.pi / 2

EXACT: dict[str, Unary] = {
    "Abs": absolute,
    "BitwiseNot": lambda x: Interval(-math.inf, math.inf),
    "Ceil": _whole(lambda end: end if abs(end) > 2**53 else math.ceil(end)),
    "Floor": _whole(lambda end: end if abs(end) > 2**53 else math.floor(end)),
    "IsInf": _is_inf,
    "IsNaN": lambda x: TRUTH if x.nan else ZERO,
    "Neg": iv.negate,
    "Not": _not,
    "Relu": rising(lambda end: max(end, 0.0), low=0.0),
    "Round": _whole(lambda end: end if abs(end) > 2**53 else round(end)),
    "Sign": _sign,
}
"""Functions that round nothing: a constant is the very number."""

ROUNDED: dict[str, Unary] = {
    "Acos": on(-1.0, 1.0, lambda x: Interval(math.acos(x.high), math.acos(x.low)), Interval(0.0, 3.15, True)),
    "Acosh": on(1.0, math.inf, rising(math.acosh), Interval(0.0, math.inf, True)),
    "Asin": on(-1.0, 1.0, rising(math.asin), Interval(-_HALF_PI, _HALF_PI, True)),
    "Asinh": rising(math.asinh),
    "Atan": rising(math.atan, -_HALF_PI, _HALF_PI),
    "Atanh": on(-1.0, 1.0, rising(lambda end: math.atanh(end) if abs(end) < 1 else end * math.inf)),
    "Cos": _cosine,
    "Cosh": lambda x: rising(lambda end: math.cosh(min(end, OVERFLOW)))(absolute(x)),
    "Erf": rising(math.erf, -1.0, 1.0),
    "Exp": rising(_exp, low=0.0),
    "Gelu": gated(-0.171),
    "HardSwish": gated(-0.376),
    "Log": _log,
    "Mish": gated(-0.31),
    "Reciprocal": reciprocal,
    "Sigmoid": rising(_sigmoid, 0.0, 1.0),
    "Sin": _sine,
    "Sinh": rising(lambda end: math.sinh(max(min(end, OVERFLOW), -OVERFLOW))),
    "Softplus": rising(_softplus, low=0.0),
    "Softsign": lambda x: rising(lambda end: end / (1 + abs(end)))(x) if x.is_finite else Interval(-1.0, 1.0, True),
    "Sqrt": _square_root,
    "Tan": lambda x: rising(math.tan)(x) if x.magnitude < 1.57 else Interval(-math.inf, math.inf, not x.is_finite),
    "Tanh": rising(math.tanh, -1.0, 1.0),
}
"""Functions whose results are rounded."""


# Functions of several operands


def ordered(result: Interval, dtype: ir.DataType, operands: Sequence[Interval], otherwise: Interval) -> Interval:
    """Return a comparison's result, joined with `otherwise` where int64 kernels are known to compare wrongly.

    Eigen's vectorised comparison of int64 takes 2^31 .. 2^32 - 1 for negative on x86 (libeigen merge request 2831), and
    with it Min, Max, Clip and Sign of ONNX Runtime up to 1.31 at least.
    """
    narrow = np.iinfo(np.int32)
    if dtype != ir.DataType.INT64 or all(narrow.min <= each.low and each.high <= narrow.max for each in operands):
        return result
    return iv.hull(result, otherwise)


def maximum(a: Interval, b: Interval) -> Interval:
    """Return bounds of the larger number; beside NaN, the result is NaN or the other number."""
    nan = a.nan or b.nan
    return Interval(min(a.low, b.low) if nan else max(a.low, b.low), max(a.high, b.high), nan)


def minimum(a: Interval, b: Interval) -> Interval:
    """Return bounds of the smaller number; beside NaN, the result is NaN or the other number."""
    nan = a.nan or b.nan
    return Interval(min(a.low, b.low), max(a.high, b.high) if nan else min(a.high, b.high), nan)


def subtract(a: Interval, b: Interval) -> Interval:
    """Return bounds of a - b."""
    return iv.add(a, iv.negate(b))


def divide(a: Interval, b: Interval) -> Interval:
    """Return bounds of a / b in floating point."""
    if a.is_constant and b.is_constant and b.low != 0 and math.isfinite(a.low) and math.isfinite(b.low):
        return iv.constant(a.low / b.low)
    return iv.multiply(a, reciprocal(b))


def whole_quotient(a: Interval, b: Interval) -> Interval:
    """Return bounds of the integer quotient a / b, truncated towards zero; b is not 0."""
    if b.low > 0:
        corners = [x / y for x in (a.low, a.high) for y in (b.low, b.high)]
        return Interval(float(math.trunc(min(corners))), float(math.trunc(max(corners))))
    return iv.bounded(a.magnitude)


def remainder(a: Interval, b: Interval) -> Interval:
    """Return bounds of the integer remainder a mod b, with the sign of b; b is not 0."""
    if b.low > 0:
        high = min(b.high - 1, a.high) if a.low >= 0 else b.high - 1
        return a if a.low >= 0 and a.high < b.low else Interval(0.0, high)
    return Interval(min(b.low + 1, 0.0), max(b.high - 1, 0.0))


def rest(a: Interval, b: Interval) -> Interval:
    """Return bounds of the remainder of a / b with the sign of a, as in C."""
    if not a.is_finite or b.nan or b.low <= 0 <= b.high:
        return ANYTHING
    return Interval(-min(max(-a.low, 0.0), b.magnitude), min(max(a.high, 0.0), b.magnitude))


def power(a: Interval, b: Interval) -> Interval:
    """Return bounds of a ** b in floating point."""
    if b.is_constant and a.is_finite and 0 <= b.low <= 64 and b.low == int(b.low):
        return _whole_power(a, int(b.low))
    if a.nan or b.nan or a.low < 0:
        return ANYTHING
    if a.low > SMALLEST and a.is_finite and b.is_finite:
        corners = [x * math.log(y) for x in (b.low, b.high) for y in (a.low, a.high)]
        return Interval(_exp(min(corners)), _exp(max(corners)))
    if b.low >= 0 and a.is_finite and b.is_finite:
        return Interval(0.0, _exp(b.high * math.log(a.high)) if a.high > 1 else 1.0)
    return Interval(0.0, math.inf)


def whole_power(a: Interval, b: Interval) -> Interval:
    """Return bounds of a ** b for integers, rounded either way."""
    x = power(a, b)
    low, high = (math.floor(x.low), math.ceil(x.high)) if x.is_finite else (-math.inf, math.inf)
    return Interval(float(low), float(high))


def _whole_power(a: Interval, exponent: int) -> Interval:
    def raised(end: float) -> float:
        size = abs(end) ** exponent if exponent * math.log(max(abs(end), 1.0)) < OVERFLOW else math.exp(OVERFLOW)
        return size if end >= 0 or exponent % 2 == 0 else -size

    base = absolute(a) if exponent % 2 == 0 else a
    return Interval(raised(base.low), raised(base.high))


def sloped(a: Interval, slope: Interval) -> Interval:
    """Return bounds of a where it is positive, slope * a elsewhere."""
    if a.nan or not slope.is_finite:
        return ANYTHING
    if a.low >= 0:
        return a
    below = iv.multiply(Interval(a.low, min(a.high, 0.0)), slope)
    return below if a.high <= 0 else iv.hull(below, Interval(0.0, a.high))


def bits(a: Interval, b: Interval) -> Interval:
    """Return bounds of a bitwise function: below the next power of two for non-negative integers, else unbounded."""
    if a.low < 0 or b.low < 0 or not a.is_finite or not b.is_finite:
        return Interval(-math.inf, math.inf)
    return Interval(0.0, 2.0 ** math.ceil(math.log2(max(a.high, b.high) + 1)) - 1)


BINARY: dict[str, Binary] = {
    "Add": iv.add,
    "BitShift": lambda a, b: Interval(-math.inf, math.inf),
    "BitwiseAnd": bits,
    "BitwiseOr": bits,
    "BitwiseXor": bits,
    "Div": divide,
    "Max": maximum,
    "Mean": iv.add,
    "Min": minimum,
    "Mod": rest,
    "Mul": iv.multiply,
    "Pow": power,
    "PRelu": sloped,
    "Sub": subtract,
    "Sum": iv.add,
}
"""Functions of two operands, or folded over several."""
