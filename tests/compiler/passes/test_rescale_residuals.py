"""rescale_residuals: an exact power of two, moved into the constants around a region."""

import numpy as np
import pytest

from compiler.calib.magnitudes import HALF_MAX, largest_magnitudes
from compiler.calib.watched_streams import noise_between
from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.stages import Array, Feed, Lowered
from compiler.passes.rescale_residuals import RescaleResiduals
from tests.kit.calibration import with_streams
from tests.kit.graphs import copy_of, node_named, parse, random_weights

SHAPES = {"w": (8, 8), "v": (8, 8), "u": (8, 8), "c": (8,), "gamma": (8,), "beta": (8,), "gain": (8,), "shift": (8,)}


def lowered_of(body: str, scale: float = 1e5, u: Array | None = None) -> Lowered:
    weights = random_weights(SHAPES) | ({} if u is None else {"u": u})
    for name in ("gain", "shift", "w", "c"):
        weights[name] = (weights[name] * scale).astype(np.float32)
    inputs = ", ".join(f"float[{','.join(map(str, array.shape))}] {name}" for name, array in weights.items())
    return Lowered("tiny", parse(f"(float[1,2,8] x, {inputs}) => (float[1,2,8] y) {{ {body} }}", weights))


STREAM = """n = LayerNormalization(x, gain, shift)
    h = MatMul(x, w) k = Add(h, c) t = Transpose<perm = [0, 2, 1]>(k) b = Transpose<perm = [0, 2, 1]>(t)
    r = Add(n, b) m = LayerNormalization<epsilon = 0.001>(r, gamma, beta) o = MatMul(r, u) y = Add(m, o)"""


def feeds() -> list[Feed]:
    rng = np.random.default_rng(3)
    return [{"x": rng.standard_normal((1, 2, 8), dtype=np.float32)} for _ in range(4)]


def test_a_region_is_divided_bit_for_bit() -> None:
    before = with_streams(lowered_of(STREAM, u=(np.eye(8) / 1e6).astype(np.float32)), feeds())
    after = RescaleResiduals().apply(with_streams(copy_of(before), feeds()))
    assert after.rewritten == 1 and after.refused == ()
    assert noise_between(before, after.lowered, [feeds()]) == {"y": 0.0}
    found, _ = largest_magnitudes(after.lowered, [feeds()])
    assert max(found[name] for name in "nhktbr") <= HALF_MAX / 2
    plain, _ = largest_magnitudes(before, [feeds()])
    factor = plain["r"] / found["r"]
    assert factor == 2.0 ** round(np.log2(factor)) and plain["n"] / found["n"] == factor
    norm = node_named(after.lowered.model, "m")
    assert graphs.attribute(norm, "epsilon") == np.float32(0.001) / factor**2


def test_a_constant_that_others_read_stays_theirs() -> None:
    body = "h = MatMul(x, w) m = LayerNormalization(h, gamma, beta) o = MatMul(m, w) p = MatMul(o, u) y = Tanh(p)"
    before = with_streams(lowered_of(body, u=np.zeros((8, 8), np.float32)), feeds())
    after = RescaleResiduals().apply(with_streams(copy_of(before), feeds()))
    kept = graphs.array_of(node_named(after.lowered.model, "o").inputs[1])
    original = graphs.array_of(node_named(before.model, "o").inputs[1])
    assert original is not None and kept is not None
    assert noise_between(before, after.lowered, [feeds()])["y"] == 0.0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("h = MatMul(x, w) s = Sigmoid(h) y = Mul(h, s)", "Sigmoid reads it and is not homogeneous"),
        ("h = MatMul(x, w) e = Exp(x) k = Add(h, e) y = LayerNormalization(k, gamma, beta)", "Exp cannot take a scale"),
        ("h = MatMul(x, w) k = Add(h, x) y = LayerNormalization(k, gamma, beta)", "an input of the graph"),
        ("y = MatMul(x, w)", "an output of the graph"),
    ],
)
def test_what_is_not_homogeneous_is_refused_by_name(body: str, words: str) -> None:
    lowered = with_streams(lowered_of(body), feeds())
    before = graphs.serialized(lowered.model)
    outcome = RescaleResiduals().apply(lowered)
    assert outcome.rewritten == 0 and any(words in str(refusal) for refusal in outcome.refused)
    assert graphs.serialized(lowered.model) == before


def test_nothing_is_done_where_nothing_overflows() -> None:
    lowered = with_streams(lowered_of(STREAM, scale=1.0), feeds())
    assert RescaleResiduals().apply(lowered).matched == 0


def test_factors_take_a_scale_in_or_hand_it_on() -> None:
    body = """h = MatMul(x, w) d = Div(h, c) m1 = Mul(c, d) m = LayerNormalization(h, gamma, beta)
    q = LayerNormalization(m1, gamma, beta) y = Add(m, q)"""
    before = with_streams(lowered_of(body), feeds())
    after = RescaleResiduals().apply(with_streams(copy_of(before), feeds()))
    assert after.rewritten >= 1
    assert noise_between(before, after.lowered, [feeds()])["y"] == 0.0


def test_without_data_it_cannot_know_what_overflows() -> None:
    with pytest.raises(Refused, match=r"data\.calibration"):
        RescaleResiduals().apply(lowered_of(STREAM))
