"""Values that can be computed again for every row, and those that cannot, with what stands in the way."""

import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.graph.model import symbol
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import NUMBER, Fact
from compiler.proof.facts.layout import Side
from compiler.proof.rules.row_values import check_row_values, sizes_held
from tests.kit.graphs import node_named, parse

CONSTANTS = """<int64[1] zero = {0}, int64[1] one = {1}, int64[1] last = {-1}, int64 first = {0}, int64 step = {1},
 int64[2] square = {2, -1}>"""
LENGTH = "s = Shape<start = 1, end = 2>(x)  n = Squeeze(s)  i = Range(first, n, step)"
BATCH = "b = Shape<start = 0, end = 1>(x)  m = Squeeze(b)"


def model_of(body: str) -> ir.Model:
    """A graph that ends in `y = Gather(x, j)`."""
    return parse(
        f"(float[batch,time,4] x, float[3] w) => (float[q] y) {CONSTANTS} {{ {body}  y = Gather<axis = 1>(x, j) }}"
    )


def case_of(body: str) -> Case:
    """The Case of `y`."""
    return Case(node_named(model_of(body), "y"), [Fact(), NUMBER], "batch", {"time": Side.LEFT})


@pytest.mark.parametrize(
    "body",
    [
        f"{LENGTH}  top = Sub(n, step)  j = Sub(top, i)",
        f"{LENGTH}  column = Unsqueeze(i, one)  j = Transpose(column)",
        f"{LENGTH}  f = Cast<to = 1>(i)  g = Sqrt(f)  h = Floor(g)  j = Cast<to = 7>(h)",
        "s = Shape(x)  j = Gather<axis = 0>(s, one)",
        f"{LENGTH}  b = BitwiseAnd(i, n)  j = BitwiseXor(b, step)",
        f"{LENGTH}  f = Cast<to = 1>(i)  g = Erf(f)  h = CastLike(g, n)  j = Identity(h)",
    ],
)
def test_what_counts_and_computes_entry_by_entry_can_be_computed_again(body: str) -> None:
    check_row_values(case_of(body), 1)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (f"{LENGTH}  c = CumSum(i, first)  j = Identity(c)", "goes through CumSum"),
        (f"{LENGTH}  j = Concat<axis = 0>(i, i)", "is joined along an axis that grows"),
        (f"{LENGTH}  j = Gather<axis = 0>(i, i)", "is looked up in"),
        (f"{BATCH}  j = Sub(m, step)", "computes with the batch size"),
        ("f = Slice(w, zero, one, zero)  j = Cast<to = 7>(f)", "goes through Slice"),
        ("j = Cast<to = 7>(w)", "depends on data"),
        ("j = Cast<to = 7>(x)", "computes with the batch size"),
    ],
)
def test_what_cannot_is_refused(body: str, told: str) -> None:
    with pytest.raises(Refused, match=told):
        check_row_values(case_of(body), 1)


def test_sizes_are_told_from_what_is_computed_of_them() -> None:
    model = model_of(f"{LENGTH}  v = Unsqueeze(n, zero)  j = Sub(v, one)")
    assert sizes_held(node_named(model, "v").outputs[0]) == (symbol("time"),)
    assert sizes_held(node_named(model, "j").outputs[0]) is None
