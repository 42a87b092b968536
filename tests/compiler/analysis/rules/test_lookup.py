"""Rules LK: tables looked up by the length of the padded axis."""

import pytest

from tests.kit.verdicts import Accepts, check_accepted, check_refused

ACCEPTED = [
    Accepts(
        "out = Slice(table, zero, length, one)",
        "LK1",
        fills="finite finite finite",
        action="look up positions per segment",
    ),
    Accepts(
        "back = Neg(length)  out = Slice(table, back, end, one)",
        "LK2",
        fills="finite finite finite",
        action="slice the last rows of a table",
    ),
    Accepts(
        "old = Shape<start = 1, end = 2>(past)  out = Slice(table, old, length, one)",
        "LK3",
        axis=None,
        action="look up positions of the new frames",
    ),
]

REFUSED = [
    ("later = Add(length, two)  out = Slice(table, zero, later, one)", "no joined axis has"),
    ("out = Slice(table, length, end, one)", "no joined axis has"),
    ("k = Concat<axis = 1>(x, past)  u = Relu(k)  out = Slice(table, zero, length, one)", "differently joined axes"),
    ("back = Neg(length)  out = Slice(table, back, newest, one)", "is not rows 0..L-1"),
    ("out = Slice(spread, zero, length, zero)", "Slice of an unpadded axis"),
]


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.line)
def test_accepted(case: Accepts) -> None:
    check_accepted(case)


@pytest.mark.parametrize(("line", "message"), REFUSED)
def test_refused(line: str, message: str) -> None:
    check_refused(line, message)
