"""canonicalize_attention: what stands for the operator computes what ONNX Runtime's own kernel does."""

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners.session import open_session
from compiler.graph.stages import Lowered, PaddedAxis
from compiler.passes import make_pass
from compiler.passes.canonicalize_attention import CanonicalizeAttention
from compiler.passes.pad_axes import PadAxes
from compiler.recipe.tree.standard_passes import STANDARD_PASSES
from tests.kit.contract import verify_pass, verify_untouched
from tests.kit.graphs import copy_of, ops_of, parse
from tests.kit.offline import offline, verify_offline

WITHOUT = ""
CAUSAL = "is_causal = 1"
LOWEST = float(np.finfo(np.float32).min)
HEADS = "float[batch,2,3,4] q, float[batch,2,5,4] k, float[batch,2,5,6] v"


def attention(
    inputs: str = HEADS, attributes: str = "", mask: str = "", line: str = "", outputs: str = "y", kind: str = "float"
) -> Lowered:
    """A graph around one Attention; `line` computes the mask."""
    attributes = f"<{attributes}>" if attributes else ""
    operands = ", ".join(each for each in ("q, k, v", mask) if each)
    text = f"""({inputs}) => ({kind}[batch,a,b,c] y)
    <float zero = {{0}}>
    {{ {line} {outputs} = Attention{attributes}({operands}) }}"""
    shared = np.random.default_rng(3).standard_normal((2, 3, 5)).astype(np.float32)
    return Lowered("tiny", parse(text, {"per_head": shared, "common": shared[0]}, opset=23), batch_axis="batch")


@pytest.mark.parametrize("attributes", [WITHOUT, CAUSAL, "scale = 0.3", "softcap = 0.5", f"{CAUSAL}, softcap = 2.0"])
@pytest.mark.parametrize(
    ("m", "mask", "line"),
    [
        ("", "", ""),
        ("float[3,5] common", "mask", "mask = Greater(common, zero)"),
        ("float[batch,1,3,5] m", "mask", "mask = Greater(m, zero)"),
        ("float[batch,2,3,5] m", "m", ""),
        ("float[2,3,5] per_head", "per_head", ""),
    ],
    ids=["no mask", "selects", "selects per row", "adds", "adds per head"],
)
def test_every_spelling(m: str, mask: str, line: str, attributes: str) -> None:
    lowered = attention(", ".join(filter(None, (HEADS, m))), attributes, mask, line)
    outcome = verify_pass(CanonicalizeAttention(), lowered, tolerance=1e-5, steps=2)
    assert "Attention" not in ops_of(outcome.lowered.model)


def test_heads_side_by_side_and_shared_heads() -> None:
    wide = "float[batch,3,16] q, float[batch,5,8] k, float[batch,5,12] v"
    text = attention(wide, "q_num_heads = 4, kv_num_heads = 2, is_causal = 1")
    outcome = verify_pass(CanonicalizeAttention(), text, tolerance=1e-5, steps=2)
    assert ops_of(outcome.lowered.model).count("Gather") == 2
    shared = "float[batch,6,3,4] q, float[batch,2,5,4] k, float[batch,2,5,6] v"
    verify_pass(CanonicalizeAttention(), attention(shared), tolerance=1e-5, steps=2)
    narrow = HEADS.replace("float", "float16")
    verify_pass(CanonicalizeAttention(), attention(narrow, kind="float16"), tolerance=5e-3, steps=2)


def test_attention_after_attention_and_in_front_of_an_output() -> None:
    text = """(float[batch,2,3,4] q) => (float[batch,2,3,4] y) { a = Attention(q, q, q) y = Attention(a, q, a) }"""
    lowered = Lowered("tiny", parse(text, opset=23), batch_axis="batch")
    assert verify_pass(CanonicalizeAttention(), lowered, tolerance=1e-5, steps=2).rewritten == 2


def both(mask: np.ndarray, attributes: str = "") -> tuple[np.ndarray, np.ndarray]:
    """What the kernel and what is written out give with a mask [3, 5]."""
    kind = "bool" if mask.dtype == bool else "float"
    before = attention(f"{HEADS}, {kind}[3,5] m", attributes, "m")
    after = CanonicalizeAttention().apply(copy_of(before)).lowered
    rng = np.random.default_rng(0)
    feeds = {
        str(value.name): rng.standard_normal([1 if not isinstance(dim, int) else dim for dim in value.shape or ()])
        for value in before.model.graph.inputs
    }
    feeds = {name: array.astype(np.float32) for name, array in feeds.items()} | {"m": mask}
    kernel, written = (open_session(graphs.serialized(each.model)).run(None, feeds)[0] for each in (before, after))
    return kernel, written


@pytest.mark.parametrize("attributes", [WITHOUT, CAUSAL])
@pytest.mark.parametrize("hidden", [False, -np.inf, LOWEST])
def test_a_row_that_is_hidden_whole_gives_zeros(hidden: float, attributes: str) -> None:
    mask = np.full((3, 5), True) if hidden is False else np.zeros((3, 5), np.float32)
    mask[1, :2] = hidden  # the rest is hidden from the second row of a causal attention
    if not attributes:
        mask[1] = hidden
    kernel, written = both(mask, attributes)
    np.testing.assert_allclose(written, kernel, atol=1e-6)
    assert not written[:, :, 1].any() and written[:, :, 0].all()


def drawn(rng: np.random.Generator) -> tuple[str, dict[str, np.ndarray]]:
    """A random node as a graph, and what it reads."""
    shared, batch = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    heads = shared * int(rng.integers(1, 4))
    size, value_size, queries, keys = (int(each) for each in rng.integers(1, 7, 4))
    wide = bool(rng.random() < 0.5)
    attributes = [f"q_num_heads = {heads}", f"kv_num_heads = {shared}"] if wide else []
    others = (
        "is_causal = 1",
        "softmax_precision = 1",
        f"softcap = {rng.uniform(0.1, 5)}",
        f"scale = {rng.uniform(0.1, 3)}",
    )
    attributes += [each for each in others if rng.random() < 0.4]
    numbers = {
        name: rng.standard_normal([batch, time, count * width] if wide else [batch, count, time, width])
        for name, count, time, width in (
            ("q", heads, queries, size),
            ("k", shared, keys, size),
            ("v", shared, keys, value_size),
        )
    }
    feeds: dict[str, np.ndarray] = {name: array.astype(np.float32) for name, array in numbers.items()}
    kind = rng.integers(0, 3)
    if kind:
        leading = [int(rng.choice([1, batch])), int(rng.choice([1, heads]))]
        seen = rng.random([*leading[int(rng.integers(0, 3)) :], queries, keys]) > 0.4
        hidden = rng.choice([-np.inf, LOWEST, -1e9])
        feeds["m"] = seen if kind == 1 else np.where(seen, 0.3, hidden).astype(np.float32)
    inputs = ", ".join(
        f"{'bool' if array.dtype == bool else 'float'}[{', '.join(map(str, array.shape))}] {name}"
        for name, array in feeds.items()
    )
    node = f"Attention{'<' + ', '.join(attributes) + '>' if attributes else ''}({', '.join(feeds)})"
    return f"({inputs}) => (float[{'a, b, c' if wide else 'a, b, c, d'}] y) {{ y = {node} }}", feeds


def test_random_nodes_compute_what_the_kernel_does() -> None:
    for seed in range(150):
        text, feeds = drawn(np.random.default_rng(seed))
        lowered = Lowered("tiny", parse(text, opset=23))
        kernel = open_session(graphs.serialized(lowered.model)).run(None, feeds)[0]
        assert CanonicalizeAttention().apply(lowered).rewritten == 1, text
        written = open_session(graphs.serialized(lowered.model)).run(None, feeds)[0]
        np.testing.assert_allclose(written, kernel, rtol=1e-5, atol=1e-5, err_msg=f"seed {seed}: {text}")


def test_large_numbers_that_are_added_to_a_whole_row_hide_nothing() -> None:
    mask = np.zeros((3, 5), np.float32)
    mask[1] = LOWEST / 2
    kernel, written = both(mask)
    np.testing.assert_allclose(written, kernel, atol=1e-6)
    assert written[:, :, 1].all()


def test_constant_numbers_that_hide_nothing_need_no_selection() -> None:
    text = f"({HEADS}, float[3,5] m) => (float[batch,a,b,c] y) {{ y = Attention(q, k, v, m) }}"
    bias = np.linspace(-1.0, 0.0, 15, dtype=np.float32).reshape(3, 5)
    for content, selections in ((bias, 0), (np.where(bias < -0.9, np.float32(-np.inf), bias), 2)):
        lowered = Lowered("tiny", parse(text, {"m": content}, 23), batch_axis="batch")
        outcome = verify_pass(CanonicalizeAttention(), lowered, tolerance=1e-5, steps=2)
        assert ops_of(outcome.lowered.model).count("Where") == selections


CACHE = f"{HEADS}, float[batch,2,1,4] pk, float[batch,2,1,6] pv"


@pytest.mark.parametrize(
    ("lowered", "reason"),
    [
        (attention(CACHE, mask=", pk, pv", outputs="y, nk, nv"), "past_key"),
        (attention(attributes="softmax_precision = 11"), "softmax has another type"),
        (attention("float[batch,h,3,4] q, float[batch,h,5,4] k, float[batch,h,5,6] v"), "[0, 0] heads"),
        (attention("float[batch,2,3,d] q, float[batch,2,5,d] k, float[batch,2,5,6] v"), "heads of d"),
        (attention("float[batch,3,3,4] q, float[batch,2,5,4] k, float[batch,2,5,6] v"), "[3, 2] heads"),
        (attention(HEADS.replace("float[batch,2,5,6]", "float16[batch,2,5,6]")), "one type"),
        (attention(attributes="scale = -1.0"), "scale above 0"),
        (attention(f"{HEADS}, int64[3,5] m", mask="m"), "a mask of bool"),
    ],
    ids=["cache", "another type", "unknown heads", "unknown size", "odd heads", "mixed types", "scale", "mask"],
)
def test_what_is_kept_is_named(lowered: Lowered, reason: str) -> None:
    outcome = verify_untouched(CanonicalizeAttention(), lowered, refused=reason)
    assert (outcome.matched, len(outcome.refused)) == (1, 1)


def test_scores_that_are_given_out_stay() -> None:
    text = f"({HEADS}) => (float[batch,a,b,c] y, float[batch,a,d,e] s) {{ y, p, r, s = Attention(q, k, v) }}"
    lowered = Lowered("tiny", parse(text, opset=23), batch_axis="batch")
    verify_untouched(CanonicalizeAttention(), lowered, refused="qk_matmul_output")
    lowered.model.graph.outputs.pop()
    assert CanonicalizeAttention().apply(lowered).rewritten == 1


def test_another_opset_stays() -> None:
    text = f"({HEADS}) => (float[batch,a,b,c] y) {{ y = Attention(q, k, v) }}"
    lowered = Lowered("tiny", parse(text, opset=24), batch_axis="batch")
    verify_untouched(CanonicalizeAttention(), lowered, refused="expected opset 23, got 24")


def test_a_graph_without_attention_stays_as_it_is_to_the_byte() -> None:
    model = parse("(float[batch,2] x) => (float[batch,2] y) { y = Relu(x) }")
    before = graphs.serialized(model)
    assert CanonicalizeAttention().apply(Lowered("tiny", model, batch_axis="batch")).matched == 0
    assert graphs.serialized(model) == before


PADDED = """(float[batch,time,8] x, float[8,8] wq, float[8,4] wk, float[8,4] wv) => (float[batch,time,8] y)
<float low = {-0.3}, int64[2] axes = {1, 2}, int64[1] last = {2}, int64[4] apart = {0, 0, 2, 4}>
{
    q = MatMul(x, wq)  k = MatMul(x, wk)  v = MatMul(x, wv)
    LINES
}"""
FORMS = {
    "none": "y = Attention<q_num_heads = 2, kv_num_heads = 1>(q, k, v)",
    "causal": "y = Attention<q_num_heads = 2, kv_num_heads = 1, is_causal = 1>(q, k, v)",
    "selects": """level = ReduceMean<keepdims = 0>(x, last)  loud = Greater(level, low)
        mask = Unsqueeze(loud, axes)  y = Attention<q_num_heads = 2, kv_num_heads = 1>(q, k, v, mask)""",
    "adds": """level = ReduceMean<keepdims = 0>(x, last)
        bias = Unsqueeze(level, axes)
        y = Attention<q_num_heads = 2, kv_num_heads = 1, softcap = 3.0>(q, k, v, bias)""",
    "both": """level = ReduceMean<keepdims = 0>(x, last)  loud = Greater(level, low)
        mask = Unsqueeze(loud, axes)
        y = Attention<q_num_heads = 2, kv_num_heads = 1, is_causal = 1>(q, k, v, mask)""",
}


@pytest.mark.parametrize("form", FORMS)
def test_it_is_proved_and_padded(form: str) -> None:
    rng = np.random.default_rng(0)
    weights = {
        name: rng.standard_normal((8, 8 if name == "wq" else 4)).astype(np.float32) for name in ("wq", "wk", "wv")
    }
    lowered = offline(PADDED.replace("LINES", FORMS[form]), weights, opset=23)
    for name in STANDARD_PASSES[: STANDARD_PASSES.index(PadAxes.name)]:
        lowered = make_pass(name, {}).apply(lowered).lowered
    assert "Attention" not in ops_of(lowered.model)
    verify_offline(lowered)


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("bool", "m = Unsqueeze(mask, axes)"),
        ("float", "hidden = Sub(one, mask)  low = Mul(hidden, lowest)  m = Unsqueeze(low, axes)"),
    ],
)
def test_a_mask_that_tells_of_padding_leaves_nothing_behind(kind: str, lines: str) -> None:
    text = f"""(float[batch,time,8] x, {kind}[batch,time] mask) => (float[batch,time,8] y)
    <float one = {{1}}, float lowest = {{-3.4028234663852886e38}}, int64[2] axes = {{1, 2}}>
    {{ {lines}  y = Attention<q_num_heads = 2, kv_num_heads = 2>(x, x, x, m) }}"""
    axis = PaddedAxis("time", "time_length", mask_inputs=("mask",))
    lowered = Lowered("tiny", parse(text, opset=23), batch_axis="batch", padded_axes=(axis,))
    for name in STANDARD_PASSES[: STANDARD_PASSES.index(PadAxes.name)]:
        lowered = make_pass(name, {}).apply(lowered).lowered
    assert [value.name for value in lowered.model.graph.inputs] == ["x"]
    assert not {"Where", "Greater", "Add"} & set(ops_of(lowered.model))
    verify_offline(lowered)
