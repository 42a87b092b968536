"""Images of intervals: what types hold, what functions make of constants, bounds, infinities and NaN."""

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph.stages import Array
from compiler.proof.facts import transfer
from compiler.proof.facts.interval import ANYTHING, ONE, TRUTH, ZERO, Interval, constant
from compiler.proof.facts.transfer import BINARY, EXACT, ROUNDED, approximated, cast, stored

FLOAT, HALF, INT8, INT64, BOOL = (getattr(ir.DataType, name) for name in ("FLOAT", "FLOAT16", "INT8", "INT64", "BOOL"))
LOWEST = float(np.finfo(np.float32).min)


@pytest.mark.parametrize(
    ("given", "dtype", "expected"),
    [
        (constant(0.5), FLOAT, constant(0.5)),
        (constant(LOWEST), FLOAT, constant(LOWEST)),
        (constant(-math.inf), FLOAT, constant(-math.inf)),
        (Interval(0.0, 1e-45), FLOAT, Interval(0.0, transfer.SMALLEST)),
        (Interval(1e-40, 1.0), FLOAT, Interval(0.0, 1.000002)),
        (Interval(-5.0, 7e4), HALF, Interval(-5.02, math.inf)),
        (Interval(0.0, 128.0), INT8, Interval(-128.0, 127.0)),
        (Interval(-3.0, 127.0), INT8, Interval(-3.0, 127.0)),
        (Interval(0.0, 2.0**63), INT64, Interval(-(2.0**63), 2.0**63)),
        (ANYTHING, INT8, Interval(-128.0, 127.0)),
    ],
)
def test_a_type_holds_what_it_can(given: Interval, dtype: ir.DataType, expected: Interval) -> None:
    held = stored(given, dtype)
    assert (held.low, held.high, held.nan) == pytest.approx((expected.low, expected.high, expected.nan))


def test_a_constant_that_no_float_is_does_not_stay_one() -> None:
    tenth = stored(constant(0.1), FLOAT)
    assert tenth.low < np.float32(0.1) < tenth.high


@pytest.mark.parametrize(
    ("given", "source", "to", "expected"),
    [
        (Interval(-0.9, 2.9), FLOAT, INT64, Interval(0.0, 2.0)),
        (Interval(0.0, 1.0 - 1e-8), FLOAT, INT64, Interval(0.0, 1.0)),
        (Interval(-1.0, math.inf), FLOAT, INT8, Interval(-128.0, 127.0)),
        (Interval(0.5, 3.0), FLOAT, BOOL, ONE),
        (ZERO, FLOAT, BOOL, ZERO),
        (ANYTHING, FLOAT, BOOL, TRUTH),
        (TRUTH, BOOL, FLOAT, TRUTH),
        (Interval(0.0, 300.0), INT64, INT8, Interval(-128.0, 127.0)),
        (constant(LOWEST), FLOAT, HALF, constant(-math.inf)),
    ],
)
def test_casts(given: Interval, source: ir.DataType, to: ir.DataType, expected: Interval) -> None:
    made = cast(given, source, to)
    assert made.low <= expected.low and expected.high <= made.high and made.nan == expected.nan
    if to != HALF:
        assert made == expected


@pytest.mark.parametrize("name", ["Abs", "Ceil", "Erf", "Floor", "Gelu", "Neg", "Relu", "Round", "Sin", "Sqrt", "Tanh"])
def test_zero_stays_zero(name: str) -> None:
    assert (EXACT.get(name) or approximated(ROUNDED[name]))(ZERO).is_zero


SAMPLED: dict[str, Callable[[Array], Array]] = {
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "Erf": np.vectorize(math.erf),
    "Reciprocal": lambda x: 1 / x,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Softplus": lambda x: np.logaddexp(0, x),
    "Softsign": lambda x: x / (1 + abs(x)),
}
"""Those that numpy calls otherwise."""


@pytest.mark.parametrize("name", [name for name in ROUNDED if name not in ("Gelu", "HardSwish", "Mish")])
def test_rounded_functions_cover_their_samples(name: str) -> None:
    """Against numpy in float64, at random points of random intervals."""
    function = SAMPLED.get(name) or getattr(np, name.lower())
    random = np.random.default_rng(0)
    for _ in range(300):
        low, high = sorted(random.standard_normal(2) * random.choice([0.1, 1.0, 5.0, 60.0]))
        image = approximated(ROUNDED[name])(Interval(float(low), float(high)))
        with np.errstate(all="ignore"):
            results = function(random.uniform(low, high, 20))
        assert image.nan or not np.isnan(results).any()
        real = results[~np.isnan(results)]
        assert np.all((image.low <= real) & (real <= image.high)), (name, low, high, image)


def test_next_to_nan_the_larger_may_be_the_other() -> None:
    assert transfer.maximum(ANYTHING, ONE) == ANYTHING
    assert transfer.minimum(Interval(3.0, 4.0, True), Interval(5.0, 6.0)) == Interval(3.0, 6.0, True)


@pytest.mark.parametrize(
    ("function", "a", "b", "expected"),
    [
        (transfer.divide, Interval(1.0, 2.0), Interval(-1.0, 1.0), Interval(-math.inf, math.inf)),
        (transfer.divide, Interval(-1.0, 2.0), Interval(-1.0, 1.0), ANYTHING),
        (transfer.divide, ANYTHING, Interval(1.0, math.inf), ANYTHING),
        (transfer.whole_quotient, Interval(-7.0, 7.0), Interval(2.0, 3.0), Interval(-3.0, 3.0)),
        (transfer.remainder, Interval(-7.0, 7.0), constant(4.0), Interval(0.0, 3.0)),
        (transfer.remainder, Interval(0.0, 2.0), constant(4.0), Interval(0.0, 2.0)),
        (transfer.remainder, Interval(-7.0, 7.0), constant(-4.0), Interval(-3.0, 0.0)),
        (transfer.rest, Interval(-7.0, 2.0), constant(4.0), Interval(-4.0, 2.0)),
        (transfer.power, Interval(-3.0, 2.0), constant(2.0), Interval(0.0, 9.0)),
        (transfer.power, Interval(-3.0, 2.0), constant(3.0), Interval(-27.0, 8.0)),
        (transfer.power, Interval(-3.0, 2.0), constant(0.5), ANYTHING),
        (transfer.power, ZERO, constant(-1.0), Interval(0.0, math.inf)),
        (transfer.whole_power, Interval(2.0, 4.0), constant(-1.0), Interval(0.0, 1.0)),
        (transfer.sloped, Interval(-4.0, 3.0), constant(0.5), Interval(-2.0, 3.0)),
        (transfer.sloped, Interval(-math.inf, 3.0), ZERO, ANYTHING),
        (transfer.bits, Interval(0.0, 5.0), Interval(0.0, 2.0), Interval(0.0, 7.0)),
        (BINARY["Mul"], ZERO, ANYTHING, ANYTHING),
        (BINARY["Add"], ONE, constant(-math.inf), constant(-math.inf)),
    ],
)
def test_functions_of_two(function: transfer.Binary, a: Interval, b: Interval, expected: Interval) -> None:
    assert function(a, b) == expected


def test_a_function_holds_where_it_is_defined() -> None:
    assert ROUNDED["Log"](Interval(-1.0, 1.0)) == ANYTHING
    assert ROUNDED["Log"](Interval(0.0, 1.0)) == Interval(-math.inf, 0.0)
    assert ROUNDED["Acos"](Interval(-2.0, 0.0)).nan
