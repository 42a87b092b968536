"""lower_quantized_convolutions: 1x1 convolutions of codes are products of the same codes."""

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.graph.stages import Array, Lowered
from compiler.passes.lower_quantized_convolutions import LowerQuantizedConvolutions
from tests.kit.contract import verify_pass, verify_untouched
from tests.kit.graphs import ops_of, parse

CONV = """(float[2,4,6] x, int8[5,4,1] w, float[5] ws, int8[5] wz, float s, int8 z, float[5] b, float[4] s4, int8[4] z4)
    => (float[2,5,6] y) {
    q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)
    dw = DequantizeLinear<axis = 0>(w, ws, wz)  y = Conv(d, dw, b) }"""


def lowered(text: str, kernel: int = 1) -> Lowered:
    rng = np.random.default_rng(0)
    weights: dict[str, Array] = {
        "w": rng.integers(-127, 128, (5, 4, kernel)).astype(np.int8), "wz": np.zeros(5, np.int8),
        "ws": np.linspace(0.01, 0.05, 5, dtype=np.float32), "s": np.array(0.03, np.float32),
        "z": np.array(0, np.int8), "b": rng.standard_normal(5).astype(np.float32),
        "s4": np.full(4, 0.03, np.float32), "z4": np.zeros(4, np.int8),
    }  # fmt: skip
    model = parse(text, weights)
    graphs.prune(model)
    return Lowered("tiny", model)


@pytest.mark.parametrize("bias", [", b)", ")"])
def test_a_convolution_over_one_place_is_a_product_of_the_same_codes(bias: str) -> None:
    before = lowered(CONV.replace(", b) }", f"{bias} }}"))
    outcome = verify_pass(LowerQuantizedConvolutions(), before, tolerance=1e-6)
    assert outcome.rewritten == 1
    ops = ops_of(outcome.lowered.model)
    assert "Conv" not in ops and ops.count("MatMul") == 1 and ops.count("QuantizeLinear") == 1
    weights = next(node for node in outcome.lowered.model.graph if node.outputs[0].name == "y_weights")
    assert graphs.int_attribute(weights, "axis", 0) == 1


KEPT = {
    "strides": CONV.replace("Conv(", "Conv<strides = [2]>("),
    "padding": CONV.replace("Conv(", "Conv<pads = [1, 1]>("),
    "a wider kernel": CONV.replace("[5,4,1]", "[5,4,3]"),
    "data that are not quantised": CONV.replace("Conv(d,", "Conv(x,"),
    "weights that are not quantised": CONV.replace(
        "dw = DequantizeLinear<axis = 0>(w, ws, wz)", "dw = Cast<to = 1>(w)"
    ),
    "data of a scale per channel": CONV.replace("(x, s, z)", "(x, s4, z4)").replace("(q, s, z)", "(q, s4, z4)"),
}


@pytest.mark.parametrize("reason", KEPT)
def test_others_stay(reason: str) -> None:
    verify_untouched(LowerQuantizedConvolutions(), lowered(KEPT[reason], 3 if reason == "a wider kernel" else 1))
