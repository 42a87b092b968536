"""merge_rows: products over rows, and what is done row by row with them."""

import pytest

from compiler.graph.stages import Lowered
from compiler.passes.merge_rows import MergeRows
from compiler.passes.simplify import Simplify
from tests.kit.contract import ContractBroken, verify_pass, verify_untouched
from tests.kit.graphs import copy_of, node_named, ops_of, parse, random_weights, streaming

SHAPES = {"w": (4, 8), "v": (8, 4), "bias": (8,), "wide": (1, 1, 8), "gain": (4,), "cube": (1, 4, 8), "rows": (6, 1)}

LAYER = """(float[batch,6,4] x, float[4,8] w, float[8] bias, float[8,4] v, float[4] gain) => (float[batch,6,4] y)
{
    m = MatMul(x, w)
    a = Add(m, bias)
    s = Sigmoid(a)
    g = Mul(a, s)
    p = MatMul(g, v)
    r = Add(x, p)
    y = LayerNormalization<axis = -1>(r, gain, gain)
}"""
ALMOST = 1e-6


def lowered_of(text: str) -> Lowered:
    return Lowered("tiny", parse(text, random_weights(SHAPES)), batch_axis="batch")


def body(lines: str, result: str = "float[batch,6,n] y") -> Lowered:
    inputs = ", ".join(f"float{list(shape)} {name}" for name, shape in SHAPES.items())
    return lowered_of(f"(float[batch,6,4] x, {inputs}) => ({result}) <int64[1] last = {{2}}> {{ {lines} }}")


def test_a_layer_is_computed_over_rows_from_end_to_end() -> None:
    outcome = verify_pass(MergeRows(), lowered_of(LAYER), tolerance=ALMOST, steps=2)
    model = outcome.lowered.model
    assert ops_of(model).count("Reshape") == 2
    norm = node_named(model, "y").inputs[0]
    assert norm is not None and norm.shape is not None and len(norm.shape) == 2
    assert (outcome.matched, outcome.rewritten) == (2, 2)


def test_heads_are_parted_from_rows_at_once() -> None:
    text = """(float[batch,6,4] x, float[4,8] w) => (float[batch,6,2,4] y)
    <int64[4] heads = {0, 0, 2, 4}> { m = MatMul(x, w)  y = Reshape(m, heads) }"""
    outcome = verify_pass(MergeRows(), lowered_of(text), tolerance=ALMOST, steps=2)
    assert ops_of(outcome.lowered.model) == ["Reshape", "MatMul", "Reshape"]


def test_what_is_shaped_for_a_product_goes_to_rows_at_once() -> None:
    text = """(float[batch,6,2,2] x, float[4,8] w) => (float[batch,6,8] y) <int64[3] merged = {0, 0, 4}>
    { r = Reshape(x, merged)  y = MatMul(r, w) }"""
    outcome = verify_pass(MergeRows(), lowered_of(text), tolerance=ALMOST, steps=2)
    assert ops_of(outcome.lowered.model) == ["Reshape", "MatMul", "Reshape"]


@pytest.mark.parametrize(
    "lines",
    [
        "m = MatMul(x, w)  a = Add(wide, m)  y = Relu(a)",
        "m = MatMul(x, w)  a, b = Split<axis = -1, num_outputs = 2>(m)  s = Sigmoid(b)  y = Mul(a, s)",
        "m = MatMul(x, w)  p = MatMul(m, v)  y = Concat<axis = 2>(m, p, x)",
        "m = MatMul(x, w)  y = Softmax<axis = 2>(m)",
        "m = MatMul(x, w)  n = Neg(x)  c = Concat<axis = -1>(n, x)  y = Where(t, m, c)",
    ],
    ids=["a constant of three axes", "a gate", "joined channels", "softmax of channels", "a selection"],
)
def test_what_is_done_row_by_row_is_done_over_rows(lines: str) -> None:
    if "Where" in lines:
        lines = lines.replace("y = Where", "t = Greater(m, c)  y = Where")
    outcome = verify_pass(MergeRows(), body(lines), tolerance=ALMOST, steps=2)
    assert ops_of(outcome.lowered.model)[-1] == "Reshape"


@pytest.mark.parametrize(
    "lines",
    [
        "m = MatMul(x, w)  y = Softmax<axis = 1>(m)",
        "m = MatMul(x, w)  y = Add(m, rows)",
        "m = MatMul(x, w)  y = Concat<axis = 1>(m, m)",
        "m = MatMul(x, w)  t = ReduceMean<keepdims = 1>(m, last)  y = Sub(m, t)",
    ],
    ids=["softmax of frames", "a constant per frame", "joined frames", "a value per frame"],
)
def test_what_is_not_done_row_by_row_stays_as_it_is(lines: str) -> None:
    outcome = verify_pass(MergeRows(), body(lines), tolerance=ALMOST, steps=2)
    assert ops_of(outcome.lowered.model)[-2] != "MatMul"
    assert ops_of(outcome.lowered.model)[-1] == lines.rsplit("y = ")[1].split("(")[0].split("<")[0]


QUANTISED = """(float[batch,6,2,2] x, float[8] bias) => (float[batch,6,n] y)
<int64[3] merged = {0, 0, 4}, float s = {0.1}, uint8 z = {128},
 float[8] each = {0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.1, 0.2}, int8[8] none = {0, 0, 0, 0, 0, 0, 0, 0},
 int8[4,8] codes = {LIST}>
{ q = QuantizeLinear(x, s, z)  r = Reshape(q, merged)  d = DequantizeLinear(r, s, z)
  w = DequantizeLinear<axis = 1>(codes, each, none)  m = MatMul(d, w)  a = Add(m, bias)
  k = QuantizeLinear(a, s, z)  b = DequantizeLinear(k, s, z)  y = Relu(b) }""".replace(
    "LIST", ", ".join(str(n * 7 % 11 - 5) for n in range(32))
)


def test_codes_are_rows_too_and_stay_next_to_their_product() -> None:
    lowered = lowered_of(QUANTISED)
    outcome = verify_pass(MergeRows(), lowered, tolerance=ALMOST, steps=2)
    before = ["QuantizeLinear", "Reshape", "DequantizeLinear", "DequantizeLinear", "MatMul", "Add"]
    assert ops_of(outcome.lowered.model) == [*before, "QuantizeLinear", "DequantizeLinear", "Relu", "Reshape"]


def test_codes_on_a_grid_per_channel_stay_as_they_are() -> None:
    text = QUANTISED.replace("QuantizeLinear(a, s, z)", "QuantizeLinear<axis = 2>(a, each, some)").replace(
        "DequantizeLinear(k, s, z)", "DequantizeLinear<axis = 2>(k, each, some)"
    )
    text = text.replace("int8[8] none", "uint8[8] some = {9, 9, 9, 9, 9, 9, 9, 9}, int8[8] none")
    outcome = verify_pass(MergeRows(), lowered_of(text), tolerance=ALMOST, steps=2)
    assert ops_of(outcome.lowered.model)[-4:] == ["Reshape", "QuantizeLinear", "DequantizeLinear", "Relu"]


@pytest.mark.parametrize(
    "lines",
    ["t = Transpose<perm = [0, 2, 1]>(x)  y = MatMul(x, t)", "y = MatMul(x, cube)", "y = Relu(x)"],
    ids=["two computed values", "a matrix per row", "no product"],
)
def test_others_stay(lines: str) -> None:
    assert verify_untouched(MergeRows(), body(lines)).matched == 0


def test_two_axes_without_a_number_stay() -> None:
    text = "(float[batch,time,4] x, float[4,8] w) => (float[batch,time,8] y) { y = MatMul(x, w) }"
    verify_untouched(MergeRows(), lowered_of(text))


def test_a_stream_is_computed_over_rows() -> None:
    lowered = Simplify().apply(copy_of(streaming())).lowered
    assert verify_pass(MergeRows(), lowered, tolerance=ALMOST).rewritten > 0


def test_frames_that_change_places_break_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.passes.merge_rows.axis_of", lambda _, rank: rank - 1)
    with pytest.raises(ContractBroken):
        verify_pass(MergeRows(), body("m = MatMul(x, w)  y = Softmax<axis = 1>(m)"), tolerance=ALMOST, steps=2)
