"""Rules SM, NM, RD: softmax, normalisation and reductions."""

import pytest

from tests.kit.verdicts import Accepts, check_accepted, check_refused

ACCEPTED = [
    Accepts("out = Softmax<axis = 1>(j)", "SM2", fills="zero zero zero", action="mask softmax"),
    Accepts("out = Softmax<axis = -1>(j)", "SM1", fills="finite finite any"),
    Accepts("out = LayerNormalization<axis = -1>(j, row)", "NM1", fills="finite finite any"),
    Accepts("out = LayerNormalization<axis = -1, epsilon = 0.0>(j, row)", "NM1", fills="any any any"),
    Accepts("out = ReduceMean<keepdims = 0>(j, two)", "RD1"),
    Accepts("out = ReduceSum<keepdims = 0>(j, two)", "RD1"),
    Accepts("out = ReduceMax<keepdims = 0>(j, two)", "RD1"),
    Accepts("out = ReduceMin<keepdims = 0>(j, two)", "RD1"),
    Accepts("t = Transpose<perm = [2, 0, 1]>(j)  out = ReduceSum<keepdims = 0>(t, zero)", "RD1", axis=1),
]

REFUSED = [
    ("out = Softmax<axis = 1>(past)", "no valid entry"),
    ("out = LayerNormalization<axis = 1>(j, tall)", "over the padded axis"),
    ("out = LayerNormalization<axis = -1>(j, past)", "padded parameters"),
    ("out, mean = LayerNormalization<axis = -1>(j, row)  used = Relu(mean)", "mean or deviation"),
    ("out = ReduceMean(j, one)", "over the padded axis"),
    ("out = ReduceSum(j, one)", "over the padded axis"),
    ("out = ReduceMax(j, one)", "over the padded axis"),
    ("out = ReduceMin(j, one)", "over the padded axis"),
    ("out = ReduceMean(j, none)", "all or unknown axes"),
    ("out = ReduceSum(j, none)", "all or unknown axes"),
    ("out = ReduceMax(j, none)", "all or unknown axes"),
    ("out = ReduceMin(j, none)", "all or unknown axes"),
    ("out = ReduceSum(j)", "all or unknown axes"),
]


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.line)
def test_accepted(case: Accepts) -> None:
    check_accepted(case)


@pytest.mark.parametrize(("line", "message"), REFUSED)
def test_refused(line: str, message: str) -> None:
    check_refused(line, message)
