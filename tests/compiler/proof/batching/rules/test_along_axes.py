"""Reductions, normalisations, recurrences and convolutions: never over the batch, wherever it lies."""

import itertools

import numpy as np
import pytest

from compiler.errors import Refused
from compiler.graph.stages import Array
from compiler.passes.add_batch_axis import AddBatchAxis
from tests.kit.graphs import ops_of, random_weights
from tests.kit.one_row import check_rows, one_row

SHAPES = [("1,t,4", 0), ("t,1,4", 1), ("3,t,4", None)]
"""A value of the original and the place of the batch in it."""


@pytest.mark.parametrize(("dims", "place"), SHAPES)
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "LpNormalization"])
def test_along_one_axis(op: str, axis: int, dims: str, place: int | None) -> None:
    text = f"(float[{dims}] x) => (float[o] y) {{ y = {op}<axis = {axis}>(x) }}"
    check_rows(one_row(text, {"x": place, "y": place}))


def test_softmax_over_the_place_of_the_batch_is_over_one_entry() -> None:
    outcome = check_rows(one_row("(float[1,4] x) => (float[1,4] y) { y = Softmax<axis = 0>(x) }", {"x": 0, "y": 0}))
    assert ops_of(outcome.lowered.model) == ["Unsqueeze", "Softmax", "Squeeze"]


@pytest.mark.parametrize(("dims", "place"), SHAPES)
@pytest.mark.parametrize("axes", ["0", "1", "2", "-1", "-3", "0, 1", "1, 2", "0, 1, 2", ""])
@pytest.mark.parametrize("keeps", [0, 1])
def test_reductions(axes: str, keeps: int, dims: str, place: int | None) -> None:
    given = f", a) <int64[{len(axes.split(','))}] a = {{{axes}}}>" if axes else ")"
    operand, _, constants = given.partition(")")
    text = f"(float[{dims}] x) => (float[o] y){constants} {{ y = ReduceSum<keepdims = {keeps}>(x{operand}) }}"
    check_rows(one_row(text, {"x": place, "y": None}))


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceL2"])
@pytest.mark.parametrize(("dims", "place"), SHAPES)
def test_reductions_of_the_place_of_the_batch(op: str, dims: str, place: int | None) -> None:
    text = f"(float[{dims}] x) => (float[o] y) <int64[1] a = {{0}}> {{ y = {op}<keepdims = 0>(x, a) }}"
    check_rows(one_row(text, {"x": place, "y": None}))


def test_a_reduction_over_no_axis_changes_nothing() -> None:
    text = "(float[1,t,4] x) => (float[o] y) <int64[0] a = {}> { y = ReduceSum<noop_with_empty_axes = 1>(x, a) }"
    check_rows(one_row(text, {"x": 0, "y": 0}), proved=False)


@pytest.mark.parametrize(("dims", "place"), SHAPES)
@pytest.mark.parametrize(("axis", "keeps"), list(itertools.product((0, 1, -1), (0, 1))))
def test_searches(axis: int, keeps: int, dims: str, place: int | None) -> None:
    text = f"(float[{dims}] x) => (int64[o] y) {{ y = ArgMax<axis = {axis}, keepdims = {keeps}>(x) }}"
    check_rows(one_row(text, {"x": place, "y": None}))


@pytest.mark.parametrize(("dims", "place"), SHAPES)
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_sums_so_far(axis: int, dims: str, place: int | None) -> None:
    text = f"(float[{dims}] x) => (float[o] y) <int64 a = {{{axis}}}> {{ y = CumSum(x, a) }}"
    check_rows(one_row(text, {"x": place, "y": place}))


@pytest.mark.parametrize(("dims", "place"), SHAPES)
@pytest.mark.parametrize("axis", [-1, 0])
def test_the_largest_entries(axis: int, dims: str, place: int | None) -> None:
    text = f"""(float[{dims}] x) => (float[o] y, int64[o] i) <int64[1] k = {{1}}>
    {{ y, i = TopK<axis = {axis}>(x, k) }}"""
    check_rows(one_row(text, {"x": place, "y": place, "i": place}))


@pytest.mark.parametrize(("dims", "place"), SHAPES)
def test_layer_norm(dims: str, place: int | None) -> None:
    text = f"(float[{dims}] x, float[4] g, float[4] b) => (float[o] y) {{ y = LayerNormalization(x, g, b) }}"
    check_rows(one_row(text, {"x": place, "y": place}, random_weights({"g": (4,), "b": (4,)})))


def test_layer_norm_over_the_place_of_the_batch() -> None:
    text = "(float[3,1,4] x, float[1,4] g) => (float[o] y) { y = LayerNormalization<axis = 1>(x, g) }"
    check_rows(one_row(text, {"x": 1, "y": 1}, random_weights({"g": (1, 4)})))


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(axis: int) -> None:
    text = f"""(int64[t] x) => (float[o] y) <int64 n = {{3}}, float[2] v = {{0, 1}}>
    {{ y = OneHot<axis = {axis}>(x, n, v) }}"""
    check_rows(one_row(text, {"x": None, "y": None}))


@pytest.mark.parametrize(("dims", "place"), SHAPES)
def test_triangles(dims: str, place: int | None) -> None:
    text = f"(float[{dims}] x) => (float[o] y) {{ y = Trilu<upper = 0>(x) }}"
    check_rows(one_row(text, {"x": place, "y": place}))


LSTM = """(float[{x}] x, float[{h}] h, float[1,1,4] c, float[1,16,4] w, float[1,16,4] r) => (float[o] y, float[p] n)
{{ frames, n, cells = LSTM<hidden_size = 4>(x, w, r, , , h, c)  y = Identity(frames) }}"""


@pytest.mark.parametrize("state", [0, 1, None])
def test_a_recurrence_over_time_first(state: int | None) -> None:
    weights = random_weights(
        {"w": (1, 16, 4), "r": (1, 16, 4), "c": (1, 1, 4), **({"h": (1, 1, 4)} if state is None else {})}
    )
    places = {"x": 1, "y": 2, "n": 1, **({"h": state} if state is not None else {})}
    check_rows(one_row(LSTM.format(x="t,1,4", h="1,1,4"), places, weights))


def test_a_recurrence_over_frames_without_a_batch() -> None:
    text = """(float[t,4] x, float[1,12,4] w, float[1,12,4] r) => (float[t,4] y)
    <int64[1] one = {1}, int64[2] two = {1, 2}>
    { framed = Unsqueeze(x, one)  frames = GRU<hidden_size = 4>(framed, w, r)  y = Squeeze(frames, two) }"""
    check_rows(one_row(text, {"x": None, "y": None}, random_weights({"w": (1, 12, 4), "r": (1, 12, 4)})))


SEVERAL = """(float[t,3,4] x, float[2,3,4] h, float[2,8,4] w, float[2,8,4] r) => (float[o] y, float[p] n)
{ frames, n = RNN<hidden_size = 4, direction = "bidirectional">(x, w, r, , , h)  y = Identity(frames) }"""


@pytest.mark.parametrize("op", ["LSTM", "RNN"])
def test_several_sequences_of_a_row_are_run_beside_those_of_others(op: str) -> None:
    sizes: dict[str, tuple[int, ...]]
    sizes = {"w": (1, 16, 4), "r": (1, 16, 4)} if op == "LSTM" else {"w": (2, 4, 4), "r": (2, 4, 4)}
    text = LSTM.format(x="t,3,4", h="1,3,4").replace("1,1,4", "1,3,4") if op == "LSTM" else SEVERAL
    places = {"x": None, "h": None, "y": None, "n": None, **({"c": None} if op == "LSTM" else {})}
    check_rows(one_row(text, places, random_weights(sizes)))


def test_as_many_sequences_as_frames_are_refused() -> None:
    weights = random_weights({"w": (1, 16, 4), "r": (1, 16, 4), "c": (1, 1, 4), "h": (1, 1, 4)})
    with pytest.raises(Refused, match="LSTM over t sequences in a model written for one row"):
        AddBatchAxis().apply(one_row(LSTM.format(x="2,t,4", h="1,1,4"), {"x": None, "y": None, "n": None}, weights))


RESIZE = """(float[{}] x) => (float[o] y) <float[3] s = {{{}}}>
{{ y = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">(x, , s) }}"""


@pytest.mark.parametrize(
    ("dims", "place", "scales"), [("1,4,t", 0, "1, 1, 2"), ("2,4,t", None, "1, 1, 2"), ("1,4,t", 0, "1.5, 1, 2")]
)
def test_resizes(dims: str, place: int | None, scales: str) -> None:
    check_rows(one_row(RESIZE.format(dims, scales), {"x": place, "y": place}))


def test_a_resize_to_sizes_is_refused() -> None:
    text = """(float[1,4,5] x) => (float[o] y) <int64[3] s = {1, 4, 10}> { y = Resize(x, , , s) }"""
    with pytest.raises(Refused, match="Resize to sizes"):
        AddBatchAxis().apply(one_row(text, {"x": 0, "y": 0}))


CONVOLUTION = "(float[{}] x, float[5,4,3] k) => (float[o] y) {{ y = Conv(x, k) }}"


@pytest.mark.parametrize(("dims", "place"), [("1,4,t", 0), ("2,4,t", None), ("1,4,t", None)])
def test_convolutions(dims: str, place: int | None) -> None:
    sizes = {"x": place, "y": place}
    check_rows(one_row(CONVOLUTION.format(dims), sizes, random_weights({"k": (5, 4, 3)})))


def test_a_convolution_behind_an_axis_for_it_needs_no_move() -> None:
    text = """(float[4,t] x, float[5,4,3] k) => (float[o] y) <int64[1] front = {0}>
    { framed = Unsqueeze(x, front)  c = Conv(framed, k)  y = Squeeze(c, front) }"""
    outcome = check_rows(one_row(text, {"x": None, "y": None}, random_weights({"k": (5, 4, 3)})))
    assert ops_of(outcome.lowered.model) == ["Conv"]


def test_pools_and_channel_norms() -> None:
    text = """(float[4,t] x, float[4] g, float[4] b, float[4] m, float[4] v) => (float[o] y) <int64[1] front = {0}>
    {
        framed = Unsqueeze(x, front)
        pooled = AveragePool<kernel_shape = [2]>(framed)
        normed = BatchNormalization(pooled, g, b, m, v)
        y = Squeeze(normed, front)
    }"""
    weights = random_weights({"g": (4,), "b": (4,), "m": (4,)}) | {"v": np.ones(4, np.float32)}
    check_rows(one_row(text, {"x": None, "y": None}, weights))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(float[1,4,t] x) => (float[o] y, int64[o] i) { y, i = MaxPool<kernel_shape = [2]>(x) }", "with 2 outputs"),
        ("(float[1,4,t] x, float[5,4,3] i) => (float[o] y) { y = Conv(x, i) }", "Conv takes its weights from 'i'"),
    ],
)
def test_convolutions_and_pools_that_are_refused(text: str, message: str) -> None:
    places = {"x": 0, "y": 0, "i": 0 if "MaxPool" in text else None}
    with pytest.raises(Refused, match=message):
        AddBatchAxis().apply(one_row(text, places))


FOURIER = [
    *[(dims, place, axis, opset) for dims, place in (("1,6,4,2", 0), ("6,4,2", None)) for axis in (0, 1, -2)
      for opset in (19, 20) if not (place == 0 and axis == 0)],
    ("6,1,4,2", 1, 1, 20),
    ("6,1,4,2", 1, 0, 20),
]  # fmt: skip


@pytest.mark.parametrize(("dims", "place", "axis", "opset"), FOURIER)
def test_transforms_of_each_row(dims: str, place: int | None, axis: int, opset: int) -> None:
    node = f"DFT<axis = {axis}>(x)" if opset < 20 else "DFT(x, , a)"
    if opset < 20 and axis < 0:
        node = f"DFT<axis = {len(dims.split(',')) + axis}>(x)"
    text = f"(float[{dims}] x) => (float[o] y) <int64 a = {{{axis}}}> {{ y = {node} }}"
    check_rows(one_row(text, {"x": place, "y": place}, opset=opset))


@pytest.mark.parametrize("opset", [19, 20])
def test_half_a_spectrum_of_a_fixed_length(opset: int) -> None:
    node = "DFT<axis = 1, onesided = 1>(wide, length)" if opset < 20 else "DFT<onesided = 1>(wide, length)"
    text = f"""(float[6,4] x) => (float[o] y) <int64[1] last = {{-1}}, int64 length = {{8}}>
    {{ wide = Unsqueeze(x, last)  y = {node} }}"""
    check_rows(one_row(text, {"x": None, "y": None}, opset=opset))


def test_deviations_of_each_row_alone() -> None:
    """The axes of an original of one row may name that of its row, as they do by default."""
    for axes in ("", "<axes = [1, 3]>", "<axes = [2, 3]>"):
        text = f"(float[1,4,5,6] x) => (float[o] y) {{ y = MeanVarianceNormalization{axes}(x) }}"
        check_rows(one_row(text, {"x": 0, "y": 0}))
        check_rows(one_row(text, {"x": None, "y": None}))


TABLES = {"c": (9, 2), "s": (9, 2)}
ROTATED = {
    "positions of each row": ("float[1,2,3,4] x, int64[1,3] p", "RotaryEmbedding(x, c, s, q)", {"p": 0}),
    "halves of three axes": (
        "float[1,3,8] x, int64[1,3] p", "RotaryEmbedding<num_heads = 2, interleaved = 1>(x, c, s, q)", {"p": 0}
    ),
    "positions that all rows share": ("float[1,2,3,4] x", "RotaryEmbedding(x, c, s, shared)", {}),
    "angles of each row": (
        "float[1,2,3,4] x, float[1,3,2] p", "RotaryEmbedding(x, p, p)", {"p": 0}
    ),
    "angles that all rows share": ("float[1,2,3,4] x", "RotaryEmbedding(x, given, given)", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", ROTATED)
def test_frames_turned_by_their_positions(name: str) -> None:
    given, node, places = ROTATED[name]
    at = "q = Mod(p, five)" if "int64" in given else ""
    text = f"""({given}, float[9,2] c, float[9,2] s, float[1,3,2] given) => (float[o] y)
    <int64 five = {{5}}, int64[1,3] shared = {{2, 0, 1}}> {{ {at}  y = {node} }}"""
    weights = random_weights({**TABLES, "given": (1, 3, 2)})
    check_rows(one_row(text, {"x": 0, "y": 0, **places}, weights, opset=23))


def test_sequences_turned_round_each_by_its_length() -> None:
    text = """(float[5,1,4] x, int64[1] n) => (float[o] y) <int64 five = {5}, int64 one = {1}>
    { m = Mod(n, five)  k = Add(m, one)  y = ReverseSequence(x, k) }"""
    check_rows(one_row(text, {"x": 1, "n": 0, "y": 1}))


def test_pictures_sampled_by_a_grid_of_each_row() -> None:
    text = "(float[1,2,4,4] x, float[1,3,3,2] g) => (float[o] y) { y = GridSample(x, g) }"
    check_rows(one_row(text, {"x": 0, "g": 0, "y": 0}))


def test_quantized_convolutions() -> None:
    text = """(float[1,4,5] x, float one, uint8 zero, uint8[5,4,3] k) => (int32[o] y)
    { q = QuantizeLinear(x, one, zero)  y = ConvInteger(q, k) }"""
    weights: dict[str, Array] = {
        "one": np.array(0.1, np.float32),
        "zero": np.array(0, np.uint8),
        "k": np.ones((5, 4, 3), np.uint8),
    }
    check_rows(one_row(text, {"x": 0, "y": 0}, weights))


OF_SEVERAL = {
    "ReverseSequence": "(float[5,2,4] x, int64[2] n) => (float[o] y) { y = ReverseSequence(x, n) }",
    "GridSample": "(float[2,2,4,4] x, float[2,3,3,2] n) => (float[o] y) { y = GridSample(x, n) }",
    "RotaryEmbedding": "(float[2,2,3,4] x, float[2,3,2] n) => (float[o] y) { y = RotaryEmbedding(x, n, n) }",
}


@pytest.mark.parametrize("op", OF_SEVERAL)
def test_several_rows_in_a_model_of_one_are_refused(op: str) -> None:
    with pytest.raises(Refused, match=f"{op} of 2 .* in a model written for one"):
        AddBatchAxis().apply(one_row(OF_SEVERAL[op], {"x": None, "n": None, "y": None}, opset=23))


def test_one_scale_of_all_rows_is_refused() -> None:
    text = "(float[1,4] x) => (float[1,4] y) { q, s, z = DynamicQuantizeLinear(x)  y = DequantizeLinear(q, s, z) }"
    with pytest.raises(Refused, match="takes one scale from all it sees, in a batch from all rows"):
        AddBatchAxis().apply(one_row(text, {"x": 0, "y": 0}))
