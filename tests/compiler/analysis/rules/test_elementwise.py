"""Rules EW: elementwise operators keep the axis, and know what they make of the padding."""

import pytest

from tests.kit.verdicts import Accepts, check_accepted, check_refused

ACCEPTED = [
    Accepts("out = Relu(j)", "EW1"),
    Accepts("out = Tanh(j)", "EW1"),
    Accepts("out = Neg(j)", "EW1"),
    Accepts("out = Abs(j)", "EW1"),
    Accepts("out = Erf(j)", "EW1"),
    Accepts("out = Identity(j)", "EW1"),
    Accepts("out = HardSwish(j)", "EW1"),
    Accepts("out = Gelu(j)", "EW1"),
    Accepts("out = Sigmoid(j)", "EW1", fills="finite finite any"),
    Accepts("out = Softplus(j)", "EW1", fills="finite finite any"),
    Accepts("out = Sqrt(j)", "EW5", fills="any any any"),
    Accepts("out = Exp(j)", "EW5", fills="any any any"),
    Accepts("out = Log(j)", "EW5", fills="any any any"),
    Accepts("out = Reciprocal(j)", "EW5", fills="any any any"),
    Accepts("out = Sin(j)", "EW5", fills="any any any"),
    Accepts("out = Cos(j)", "EW5", fills="any any any"),
    Accepts("out = Floor(j)", "EW5", fills="any any any"),
    Accepts("out = Ceil(j)", "EW5", fills="any any any"),
    Accepts("out = IsNaN(j)", "EW5", fills="any any any"),
    Accepts("out = Add(j, row)", "EW2", fills="finite finite any"),
    Accepts("out = Sub(j, row)", "EW2", fills="finite finite any"),
    Accepts("out = Max(j, row)", "EW2", fills="finite finite any"),
    Accepts("out = Min(j, row)", "EW2", fills="finite finite any"),
    Accepts("out = Add(j, zeros)", "EW2"),
    Accepts("out = Add(j, spread)", "EW2", fills="finite finite any"),
    Accepts("out = Add(j, infinite)", "EW2", fills="any any any"),
    Accepts("out = Mul(j, row)", "EW2"),
    Accepts("out = Mul(j, zeros)", "EW2", fills="zero zero any"),
    Accepts("out = Mul(j, infinite)", "EW2", fills="any any any"),
    Accepts("out = Div(j, row)", "EW2"),
    Accepts("out = Div(j, zeros)", "EW2", fills="any any any"),
    Accepts("out = Div(row, j)", "EW2", fills="any any any"),
    Accepts("out = Div(j, spread)", "EW2", fills="any any any"),
    Accepts("out = Pow(j, scalar)", "EW2"),
    Accepts("out = Pow(scalar, j)", "EW2", fills="any any any"),
    Accepts("out = Cast<to = 11>(j)", "EW3"),
    Accepts("out = Cast<to = 10>(j)", "EW3", fills="zero any any"),
    Accepts("out = Cast<to = 1>(j)", "EW3"),
    Accepts("out = Where(chosen, j, row)", "EW4", fills="finite finite any"),
    Accepts("out = Where(chosen, j, infinite)", "EW4", fills="any any any"),
    Accepts("out = Equal(j, scalar)", "EW6", fills="finite finite finite"),
    Accepts("out = Less(j, scalar)", "EW6", fills="finite finite finite"),
    Accepts("out = LessOrEqual(j, scalar)", "EW6", fills="finite finite finite"),
    Accepts("out = Greater(j, scalar)", "EW6", fills="finite finite finite"),
    Accepts("out = GreaterOrEqual(j, scalar)", "EW6", fills="finite finite finite"),
    Accepts("m = IsNaN(j)  out = And(m, kinds)", "EW6", fills="finite finite finite"),
    Accepts("m = IsNaN(j)  out = Or(m, kinds)", "EW6", fills="finite finite finite"),
    Accepts("m = IsNaN(j)  out = Xor(m, kinds)", "EW6", fills="finite finite finite"),
    Accepts("m = IsNaN(j)  out = Not(m)", "EW6", fills="finite finite finite"),
]

REFUSED = [
    ("out = Add(j, tall)", "unpadded entries there"),
    ("out = Sub(j, tall)", "unpadded entries there"),
    ("out = Mul(j, tall)", "unpadded entries there"),
    ("out = Div(j, tall)", "unpadded entries there"),
    ("out = Max(j, tall)", "unpadded entries there"),
    ("out = Min(j, tall)", "unpadded entries there"),
    ("out = Pow(j, tall)", "unpadded entries there"),
    ("out = Equal(j, tall)", "unpadded entries there"),
    ("out = Less(j, tall)", "unpadded entries there"),
    ("out = LessOrEqual(j, tall)", "unpadded entries there"),
    ("out = Greater(j, tall)", "unpadded entries there"),
    ("out = GreaterOrEqual(j, tall)", "unpadded entries there"),
    ("m = IsNaN(j)  n = IsNaN(tall)  out = And(m, n)", "unpadded entries there"),
    ("m = IsNaN(j)  n = IsNaN(tall)  out = Or(m, n)", "unpadded entries there"),
    ("m = IsNaN(j)  n = IsNaN(tall)  out = Xor(m, n)", "unpadded entries there"),
    ("k = Concat<axis = 1>(x, past)  out = Add(j, k)", "differently padded axes"),
    ("out = Cast<to = 7>(j)", "cast from"),
    ("out = Where(chosen, j, tall)", "unpadded entries there"),
    ("k = Concat<axis = 1>(whole, whole)  out = Div(whole, whole)", "Div of integers"),
]


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.line)
def test_accepted(case: Accepts) -> None:
    check_accepted(case)


@pytest.mark.parametrize(("line", "message"), REFUSED)
def test_refused(line: str, message: str) -> None:
    check_refused(line, message)
