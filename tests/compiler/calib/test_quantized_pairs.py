"""Pairs of QuantizeLinear and DequantizeLinear disappear; weights that are stored as int8 stay."""

import numpy as np

from compiler.calib.quantized_pairs import without_quantized_pairs
from compiler.graph.stages import Array, Lowered
from tests.kit.graphs import ops_of, parse

WEIGHTS: dict[str, Array] = {
    "s": np.array(0.1, np.float32),
    "z": np.array(0, np.int8),
    "w": np.array([[3, -4]], np.int8),
}


def test_activations_are_passed_on_and_weights_are_still_dequantised() -> None:
    text = """(float[1,1] x, float s, int8 z, int8[1,2] w) => (float[1,2] y)
    { q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) v = DequantizeLinear(w, s, z) y = MatMul(d, v) }"""
    before = Lowered("tiny", parse(text, WEIGHTS))
    after = without_quantized_pairs(before)
    assert ops_of(after.model) == ["DequantizeLinear", "MatMul"]
    assert ops_of(before.model).count("QuantizeLinear") == 1


def test_a_graph_without_pairs_is_left_alone() -> None:
    lowered = Lowered("tiny", parse("(float[1] x) => (float[1] y) { y = Neg(x) }"))
    assert without_quantized_pairs(lowered) is lowered
