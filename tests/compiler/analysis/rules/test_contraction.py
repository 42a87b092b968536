"""Rules MM: matrix products, where the padded axis is kept or summed over."""

import pytest

from tests.kit.verdicts import Accepts, check_accepted, check_refused

ACCEPTED = [
    Accepts("out = MatMul(j, w)", "MM1"),
    Accepts("t = Transpose<perm = [0, 2, 1]>(j)  out = MatMul(x, t)", "MM1", axis=2),
    Accepts("c = Mul(w, infinite)  out = MatMul(j, w)", "MM1"),
    Accepts("a = Unsqueeze(j, two)  out = MatMul(a, w)", "MM1"),
    Accepts('out = Einsum<equation = "bld,de->ble">(j, w)', "MM3"),
    Accepts('out = Einsum<equation = "bqd,bld->bql">(x, j)', "MM3", axis=2),
]

REFUSED = [
    ("out = MatMul(j, row)", "MatMul of a vector"),
    ("t = Transpose<perm = [0, 2, 1]>(j)  out = MatMul(j, t)", "2 padded inputs"),
    (
        "t = Transpose<perm = [0, 2, 1]>(j)  k = Concat<axis = 1>(x, past)  out = MatMul(t, k)",
        "contracts a padded axis",
    ),
    ("t = Transpose<perm = [0, 2, 1]>(j)  out = MatMul(t, tall)", "contracts a padded axis"),
    ('out = Einsum<equation = "...d,de->...e">(j, w)', "Einsum with equation"),
    ('t = Transpose<perm = [0, 2, 1]>(j)  out = Einsum<equation = "bld,bdm->blm">(j, t)', "several labels"),
    ('out = Einsum<equation = "bld,ld->bd">(j, tall)', "unpadded or twice"),
]


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.line)
def test_accepted(case: Accepts) -> None:
    check_accepted(case)


@pytest.mark.parametrize(("line", "message"), REFUSED)
def test_refused(line: str, message: str) -> None:
    check_refused(line, message)
