"""What is left of a difference of sums, and what is no sum."""

import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.rewriting.simplification.sums import Sum, sum_of
from tests.kit.graphs import parse

TEXT = """(int64 offset, int64[1] cached, int64[3] many, int16 short, float x) => (int64 y)
    <int64 four = {4}, int64[1] one = {1}, int64 none = {0}, int16 little = {1}> {
        front = Reshape(offset, one)
        next = Add(front, four)
        from_cached = Sub(offset, cached)
        in_list = Reshape(next, one)
        picked = Gather(in_list, none)
        smaller = Cast<to = 6>(picked)
        back = Cast<to = 7>(smaller)
        of_many = Gather(many, none)
        twice = Add(of_many, of_many)
        wide = Add(many, four)
        short_next = Add(short, little)
        of_short = Cast<to = 7>(short_next)
        of_float = Cast<to = 7>(x)
        y = Identity(offset)
    }"""


@pytest.fixture
def values() -> dict[str, ir.Value]:
    model = parse(TEXT, {})
    graphs.infer_shapes(model)
    found = {str(value.name): value for value in model.graph.inputs}
    return found | {str(out.name): out for node in model.graph for out in node.outputs}


def test_what_two_sums_have_in_common_falls_away(values: dict[str, ir.Value]) -> None:
    assert sum_of(values["back"]) == Sum({values["offset"]: 1}, 4)
    assert sum_of(values["back"]).minus(sum_of(values["offset"])) == Sum({}, 4)
    left = sum_of(values["back"]).minus(sum_of(values["from_cached"]))
    assert left == Sum({values["cached"]: 1}, 4)


def test_what_is_no_sum_is_its_own_term(values: dict[str, ir.Value]) -> None:
    assert sum_of(values["twice"]) == Sum({values["of_many"]: 2}, 0), "one of three is what it is"
    assert sum_of(values["wide"]) == Sum({values["wide"]: 1}, 0), "three numbers at once"
    assert sum_of(values["of_short"]) == Sum({values["of_short"]: 1}, 0), "16 bits wrap round"
    assert sum_of(values["of_float"]) == Sum({values["of_float"]: 1}, 0)
