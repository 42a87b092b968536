"""Rules CC, SL: the padded axis is joined and cut at segment boundaries."""

import pytest

from tests.kit.verdicts import Accepts, check_accepted, check_refused

ACCEPTED = [
    Accepts("out = Concat<axis = 1>(past, x)", "CC1"),
    Accepts("out = Concat<axis = -2>(j, x)", "CC1"),
    Accepts("out = Concat<axis = 1>(past, past)", "CC1"),
    Accepts("out = Concat<axis = 2>(j, j)", "CC2"),
    Accepts("k = Sigmoid(j)  out = Concat<axis = 2>(j, k)", "CC2", fills="finite finite any"),
    Accepts("out = Slice(j, newest, end, one)", "SL2", axis=None, action="move the slice to segment boundaries"),
    Accepts("out = Slice(j, third, end, one)", "SL2", action="move the slice to segment boundaries"),
    Accepts("out = Slice(j, zero, newest, one)", "SL2", action="move the slice to segment boundaries"),
    Accepts("out = Slice(j, zero, end, one)", "SL2", action="move the slice to segment boundaries"),
    Accepts("out = Slice(j, zero, two, two)", "SL1"),
]

REFUSED = [
    ("k = Concat<axis = 1>(x, past)  out = Concat<axis = 2>(j, k)", "differently padded"),
    ("out = Slice(j, zero, three, one)", "cuts inside"),
    ("out = Slice(j, one, end, one)", "cuts inside"),
    ("out = Slice(j, zero, third, one)", "cuts inside"),
    ("out = Slice(j, zero, end, one, two)", "several axes at once"),
    ("out = Slice(j, ids, ids, ids)", "several axes at once"),
]


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.line)
def test_accepted(case: Accepts) -> None:
    check_accepted(case)


@pytest.mark.parametrize(("line", "message"), REFUSED)
def test_refused(line: str, message: str) -> None:
    check_refused(line, message)
