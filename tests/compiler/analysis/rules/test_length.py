"""Rules LN: integers computed from the length of the padded axis, and axes made of them."""

import pytest

from tests.kit.verdicts import Accepts, check_accepted, check_refused

ACCEPTED = [
    Accepts("out = Shape(j)", "LN2", axis=None),
    Accepts("out = Add(length, two)", "LN1", axis=None),
    Accepts("out = Neg(length)", "LN1", axis=None),
    Accepts("out = Concat<axis = 0>(length, two)", "LN1", axis=None),
    Accepts("s = Concat<axis = 0>(two, length, two)  out = Expand(one_value, s)", "LN3", fills="finite finite finite"),
    Accepts(
        "s = Concat<axis = 0>(two, length)  e = Expand(one_value, s)  d = Sub(length, one)  "
        "d0 = Squeeze(d)  out = Trilu<upper = 0>(e, d0)",
        "LN4",
        fills="finite finite finite",
    ),
]

REFUSED = [
    ("f = Cast<to = 1>(length)  out = Mul(x, f)", "length of the padded axis"),
    ("out = Expand(j, length)", "length of the padded axis as data"),
    (
        "n = Squeeze(length)  z = Squeeze(zero)  o = Squeeze(one)  out = Range(z, n, o)",
        "length of the padded axis as data",
    ),
    ("s = Concat<axis = 0>(length, length)  out = Expand(one_value, s)", "makes 2 padded axes"),
    (
        "s = Concat<axis = 0>(two, length)  out = ConstantOfShape(s)",
        "ConstantOfShape uses the length of the padded axis as data",
    ),
    (
        "s = Concat<axis = 0>(length, two)  e = Expand(one_value, s)  z = Squeeze(zero)  out = Trilu(e, z)",
        "padded axis in rows",
    ),
    (
        "s = Concat<axis = 0>(two, length)  e = Expand(one_value, s)  z = Squeeze(zero)  out = Trilu(e, z)",
        "keeps diagonal",
    ),
    ("out = Reshape(x, length)", "length of the padded axis"),
]


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.line)
def test_accepted(case: Accepts) -> None:
    check_accepted(case)


@pytest.mark.parametrize(("line", "message"), REFUSED)
def test_refused(line: str, message: str) -> None:
    check_refused(line, message)
