"""fuse_attention: products and a softmax as one operator."""

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners.session import run_model
from compiler.graph.stages import Array, Lowered, PaddedAxis
from compiler.passes.fuse_attention import FuseAttention
from tests.kit.contract import ContractBroken, verify_pass, verify_untouched
from tests.kit.graphs import copy_of, node_named, ops_of, parse

ALMOST = 2e-6
QUERIES, KEYS, VALUES = "float[batch,4,3,8] q", "float[batch,4,5,8] k", "float[batch,4,5,6] v"
APART = "float[batch,2,2,3,8] q", "float[batch,2,5,8] keys", "float[batch,2,5,6] values"
CONSTANTS = """float scale = {0.25}, float eight = {8.0}, float[2] pair = {1, 2},
    float lowest = {-3.4028234663852886e38}, float far = {-1e9},
    float near = {-1e4}, float negative = {-0.25}, float[5] places = {0.5, -1, 2, 0, 1}, float zero = {0},
    int64 none = {0}, int64[5] apart = {0, 2, 2, 3, 5},
    float[4,1,1] slopes = {1, 2, 3, 4}, bool[5] front = {1, 0, 0, 0, 0}, int64[1] two = {2},
    int64[5] five = {1, 2, 2, 5, 8},
    int64[5] fives = {1, 2, 2, 5, 6}, int64[4] four = {0, 4, 5, 8}, int64[4] fours = {0, 4, 5, 6},
    int64[4] pairs = {0, 0, 1, 1}, int64[4] crossed = {0, 1, 0, 1}, int64 last = {-1},
    float[2,1,1,1] by_group = {1, 2}, float[2,2,1,1] by_head = {1, 2, 3, 4}"""
TURN = "turned = Transpose<perm = [0, 1, 3, 2]>(k)  raw = MatMul(q, turned)"
END = "weights = Softmax<axis = -1>(scores)  y = MatMul(weights, v)"
SPREAD = """across = Transpose<perm = [0, 1, 3, 2]>(keys)  turned = Unsqueeze(across, two)  raw = MatMul(q, turned)
    v = Unsqueeze(values, two)"""
HIDDEN = "a = Mul(raw, scale)  scores = Where(seen, a, lowest)"


SHAPES = {"q": (2, 4, 3, 8), "k": (2, 4, 5, 8), "v": (2, 4, 5, 6), "bias": (2, 4, 3, 5), "flat": (2, 1, 1, 5)}


def attention(
    steps: str, *, given: tuple[str, ...] = (QUERIES, KEYS, VALUES), turn: str = TURN, end: str = END
) -> Lowered:
    """From `raw` to `scores`; without steps they are one."""
    scores = (turn + end).replace("raw = ", "scores = ") if not steps else turn + steps + end
    return Lowered(
        "tiny",
        parse(
            f"""({", ".join(given)}, int64[batch,1,1,5] marks, float[batch,4,3,5] bias, float[batch,1,1,5] flat,
        float bottom)
        => (float[batch,n,m] y) <{CONSTANTS}> {{ seen = Greater(marks, none)  {scores} }}""",
            {"bottom": np.array(-np.inf, np.float32)},
        ),
        batch_axis="batch",
    )


def inputs_of(lowered: Lowered, output: str = "y") -> list[ir.Value]:
    node = node_named(lowered.model, output)
    assert node.op_type == "Attention"
    return [value for value in node.inputs if value is not None]


def verify_fused(lowered: Lowered) -> Lowered:
    outcome = verify_pass(FuseAttention(), lowered, tolerance=ALMOST, steps=2)
    assert (outcome.matched, outcome.rewritten) == (1, 1)
    assert outcome.lowered.model.opset_imports[""] == 23
    assert "Softmax" not in ops_of(outcome.lowered.model)
    return outcome.lowered


@pytest.mark.parametrize(
    ("steps", "mask", "scale"),
    [
        ("", "", 1.0),
        ("scores = Mul(raw, scale)", "", 0.25),
        ("scores = Mul(scale, raw)", "", 0.25),
        ("scores = Div(raw, eight)", "", 0.125),
        ("a = Mul(raw, scale)  scores = Add(a, bias)", "bias", 0.25),
        ("a = Add(bias, raw)  b = Div(a, eight)  scores = Add(b, places)", "Add", 0.125),
        ("a = Mul(raw, scale)  scores = Add(a, slopes)", "Add", 0.25),
        (HIDDEN, "Where", 0.25),
        (HIDDEN.replace("lowest", "far"), "Where", 0.25),
        ("a = Add(raw, bias)  b = Where(seen, a, lowest)  scores = Mul(b, scale)", "Mul", 0.25),
        ("a = Add(raw, bias)  b = Where(seen, a, far)  scores = Mul(b, eight)", "Mul", 8.0),
        ("a = Where(seen, raw, lowest)  b = Where(front, a, far)  scores = Add(b, flat)", "Add", 1.0),
    ],
)
def test_what_lies_between_becomes_a_scale_and_a_mask(steps: str, mask: str, scale: float) -> None:
    fused = verify_fused(attention(steps))
    node = node_named(fused.model, "y")
    assert node.attributes["scale"].value == scale
    masks = inputs_of(fused)[3:]
    makers = [value.producer() for value in masks]
    assert [maker.op_type if maker else masks[0].name for maker in makers] == ([mask] if mask else [])
    assert [graphs.dims_of(value)[-2:] for value in masks] == [(3, 5)] * bool(mask)  # type: ignore[index]


def test_keys_are_read_as_they_were_turned() -> None:
    fused = verify_fused(attention(HIDDEN))
    assert [value.name for value in inputs_of(fused)[:3]] == ["q", "k", "v"]
    by_frames = TURN.replace("[0, 1, 3, 2]", "[0, 2, 3, 1]")
    fused = verify_fused(attention("", given=(QUERIES, "float[batch,5,4,8] k", VALUES), turn=by_frames))
    keys = inputs_of(fused)[1].producer()
    assert keys is not None and keys.inputs[0] is graphs.inputs_named(fused.model)["k"]
    assert graphs.ints_attribute(keys, "perm") == (0, 2, 1, 3)


def test_keys_that_lie_turned_are_turned() -> None:
    lowered = attention("", given=(QUERIES, "float[batch,4,8,5] turned", VALUES), turn="raw = MatMul(q, turned)")
    assert ops_of(verify_fused(lowered).model).count("Transpose") == 1


@pytest.mark.parametrize(
    "steps",
    [
        "",
        "wide = Unsqueeze(seen, two)  a = Mul(raw, scale)  scores = Where(wide, a, lowest)",
        "scores = Add(raw, by_head)",
        "a = Add(raw, bias_apart)  scores = Add(a, places)",
    ],
)
def test_heads_that_share_keys_are_not_spread(steps: str) -> None:
    steps = f"bias_apart = Reshape(bias, apart)  {steps or 'scores = Add(raw, zero)'}"
    (node,) = (
        node
        for node in verify_fused(attention(steps, given=APART, turn=SPREAD)).model.graph
        if node.op_type == "Attention"
    )
    assert [value.name for value in node.inputs[1:3] if value is not None] == ["keys", "values"]


EXPANDED = """ku = Unsqueeze(keys, two)  ke = Expand(ku, five)  k = Reshape(ke, four)
    vu = Unsqueeze(values, two)  ve = Expand(vu, fives)  v = Reshape(ve, fours)"""
GATHERED = "k = Gather<axis = 1>(keys, pairs)  v = Gather<axis = 1>(values, pairs)"


@pytest.mark.parametrize("how", [EXPANDED, GATHERED])
def test_heads_that_were_repeated_are_not_read_repeated(how: str) -> None:
    given = ("float[batch,4,3,8] q", *APART[1:])
    fused = verify_fused(attention(HIDDEN, given=given, turn=f"{how}  {TURN}"))
    assert [value.name for value in inputs_of(fused)[:3]] == ["q", "keys", "values"]


@pytest.mark.parametrize(
    "how", [GATHERED.replace("pairs)", "crossed)"), GATHERED.replace("(keys, pairs)", "(keys, crossed)")]
)
def test_heads_in_another_order_are_read_as_they_are(how: str) -> None:
    fused = verify_fused(attention(HIDDEN, given=("float[batch,4,3,8] q", *APART[1:]), turn=f"{how}  {TURN}"))
    assert [value.name for value in inputs_of(fused)[:3]] == ["q", "k", "v"]


def test_one_head_of_keys_serves_all() -> None:
    given = (QUERIES, "float[batch,1,5,8] k", "float[batch,1,5,6] v")
    assert [value.name for value in inputs_of(verify_fused(attention("", given=given)))] == ["q", "k", "v"]


def test_a_mask_is_written_once_for_all_layers() -> None:
    again = f"""{END}  t = Transpose<perm = [0, 1, 3, 2]>(v)  r = MatMul(v2, t)  s = Where(seen, r, lowest)
    u = Softmax<axis = -1>(s)  z = MatMul(u, v)  y = Add(y1, z)""".replace("y = MatMul", "y1 = MatMul")
    lowered = attention(
        "scores = Where(seen, raw, lowest)", given=(QUERIES, KEYS, VALUES, "float[batch,4,3,6] v2"), end=again
    )
    outcome = verify_pass(FuseAttention(), lowered, tolerance=ALMOST, steps=2)
    assert outcome.rewritten == 2 and ops_of(outcome.lowered.model).count("Where") == 1


def test_rows_in_which_nothing_is_seen_give_nothing_where_they_are_cleared() -> None:
    cleared = "w = Softmax<axis = -1>(scores)  weights = Where(seen, w, zero)  y = MatMul(weights, v)"
    verify_fused(attention(HIDDEN, end=cleared))


def test_rows_that_infinity_hides_give_nothing() -> None:
    lowered = attention(HIDDEN.replace("lowest", "bottom"))
    fused = FuseAttention().apply(copy_of(lowered)).lowered
    rng = np.random.default_rng(0)
    feed: dict[str, Array] = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    feed["marks"] = np.array([[1, 0, 1, 0, 0], [0] * 5]).reshape(2, 1, 1, 5)
    before, after = (run_model(each.model, feed)["y"] for each in (lowered, fused))
    np.testing.assert_allclose(after[0], before[0], atol=ALMOST)
    assert np.isnan(before[1]).all() and not after[1].any()


@pytest.mark.parametrize(
    ("steps", "end", "reason"),
    [
        ("scores = Tanh(raw)", END, "Tanh lies between"),
        ("scores = Mul(raw, bias)", END, "Mul lies between"),
        ("scores = Mul(raw, negative)", END, "a scale above 0"),
        ("scores = Where(seen, raw, near)", END, "expected hidden places to get"),
        ("scores = Where(seen, near, raw)", END, "Where lies between"),
        ("scores = Mul(raw, scale)", f"{END}  z = Add(weights, weights)", "read by the product with values alone"),
        ("scores = Mul(raw, scale)", END + " z = Neg(scores)", "is read by more than the softmax"),
        (HIDDEN, "w = Softmax<axis = -1>(scores)  weights = Where(front, w, zero)  y = MatMul(weights, v)", "alone"),
        ("scores = Mul(raw, scale)", END.replace("-1", "2").replace("v)", "v)"), "along the last axis"),
    ],
)
def test_others_are_left_alone(steps: str, end: str, reason: str) -> None:
    lowered = attention(steps, end=end)
    for name in ("z",):
        made = [node for node in lowered.model.graph if node.outputs[0].name == name]
        lowered.model.graph.outputs.extend(node.outputs[0] for node in made)
    assert verify_untouched(FuseAttention(), lowered, refused=reason).matched == 1


def test_products_of_dequantised_values_are_left_alone() -> None:
    coded = TURN.replace("MatMul(q, turned)", "MatMul(q, codes)").replace(
        "raw =", "c = QuantizeLinear(turned, scale)  codes = DequantizeLinear(c, scale)  raw ="
    )
    verify_untouched(FuseAttention(), attention("", turn=coded), refused="a product of dequantised values")


def test_an_operator_that_the_opset_reads_otherwise_keeps_the_graph_as_it_is() -> None:
    end = f"{END.replace('y =', 'x =')}  y = GroupNormalization<num_groups = 2>(x, pair, pair)"
    verify_untouched(FuseAttention(), attention(HIDDEN, end=end), refused="opset 23 reads GroupNormalization otherwise")


def test_softmaxes_that_weigh_no_values_are_no_places() -> None:
    text = (
        "(float[batch,4,3,8] q, float[8,8] w) => (float[batch,4,3,8] y) { p = Softmax<axis = -1>(q)  y = MatMul(p, w) }"
    )
    graph = parse(text, {"w": np.eye(8, dtype=np.float32)})
    assert verify_untouched(FuseAttention(), Lowered("tiny", graph, batch_axis="batch")).matched == 0


# --- padding ----------------------------------------------------------------------------------------------------------


def padded(lowered: Lowered) -> Lowered:
    """With frames of keys that may be padding, which `marks` hides."""
    return dataclasses.replace(lowered, padded_axes=(PaddedAxis("frames", "length"),), is_padded=True)


def answer(lowered: Lowered, poison: float) -> Array:
    rng = np.random.default_rng(0)
    feed: dict[str, Array] = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    feed["marks"] = np.array([1, 1, 1, 0, 0] * 2).reshape(2, 1, 1, 5)
    feed["k"][:, :, 3:] = poison
    feed["v"][:, :, 3:] = 0.0
    given = graphs.inputs_named(lowered.model)
    return run_model(lowered.model, {name: array for name, array in feed.items() if name in given})["y"]


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e30])
def test_hidden_keys_of_a_padded_input_are_cleared(poison: float) -> None:
    lowered = padded(attention(HIDDEN))
    fused = FuseAttention().apply(copy_of(lowered)).lowered
    assert ops_of(fused.model).count("Where") == 2
    np.testing.assert_allclose(answer(fused, poison), answer(lowered, 0.0), atol=ALMOST)


def test_keys_that_are_cleared_already_are_not_cleared_again() -> None:
    clean = "column = Transpose<perm = [0, 1, 3, 2]>(seen)  c = Where(column, k, zero)"
    lowered = padded(attention(HIDDEN, turn=f"{clean}  {TURN.replace('(k)', '(c)')}"))
    fused = FuseAttention().apply(copy_of(lowered)).lowered
    assert ops_of(fused.model).count("Where") == 2
    np.testing.assert_array_equal(answer(fused, np.nan), answer(fused, 0.0))


def test_keys_that_only_some_queries_may_not_see_are_left_alone() -> None:
    lowered = padded(attention("t = Greater(bias, zero)  scores = Where(t, raw, lowest)"))
    verify_untouched(FuseAttention(), lowered, refused="hidden from one query and not from another")


def test_a_guard_that_is_forgotten_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.passes.fuse_attention._may_be_padding", lambda *_: False)
    fused = FuseAttention().apply(copy_of(padded(attention(HIDDEN)))).lowered
    assert np.isnan(answer(fused, np.nan)).any()


def test_a_fill_that_is_a_sign_to_the_runtime_breaks_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.passes.fuse_attention.LOWEST", 2 * float(np.finfo(np.float32).min))
    with pytest.raises(ContractBroken, match="meaning"):
        verify_pass(FuseAttention(), attention(HIDDEN), tolerance=ALMOST, steps=2)
