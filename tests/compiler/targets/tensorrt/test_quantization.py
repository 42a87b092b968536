"""Q/DQ placement that the TensorRT linter accepts, next to what the planted graphs show."""

import numpy as np
import pytest

from compiler.graph.stages import Array
from tests.compiler.targets.tensorrt.planted import DW, MATMUL, QDQ, WEIGHT, Case, pair


def rules_of(case: Case) -> set[str]:
    return {violation.rule for violation in case.found()}


CONV = """(float[1,4,8] x, int8[4,4,3] w, float[4] ws, int8[4] wz, float s, int8 z) => (float[1,4,6] y)
    {{ {qdq}  dw = DequantizeLinear<axis = {axis}>(w, ws, wz)  y = {op}(d, dw) }}"""


@pytest.mark.parametrize(("op", "axis"), [("Conv", 0), ("ConvTranspose", 1)])
def test_convolutions_have_their_output_channels_where_they_are(op: str, axis: int) -> None:
    weights = WEIGHT | {"w": np.ones((4, 4, 3), np.int8)}
    for given in (0, 1):
        found = rules_of(Case(CONV.format(qdq=QDQ, axis=given, op=op), weights))
        assert found == (set() if given == axis else {"weight-axis"})


@pytest.mark.parametrize(("trans_b", "axis"), [(0, 1), (1, 0)])
def test_a_gemm_has_them_by_its_transposition(trans_b: int, axis: int) -> None:
    for given in (0, 1):
        text = f"{QDQ}  dw = DequantizeLinear<axis = {given}>(w, ws, wz)  y = Gemm<transB = {trans_b}>(d, dw)"
        assert rules_of(pair(text)) == (set() if given == axis else {"weight-axis"})


def test_a_weight_on_the_left_has_them_in_its_rows() -> None:
    text = """(float[4,2] x, int8[4,4] w, float[4] ws, int8[4] wz, float s, int8 z) => (float[4,2] y)
        {{ {qdq}  dw = DequantizeLinear<axis = {axis}>(w, ws, wz)  y = MatMul(dw, d) }}"""
    assert rules_of(Case(text.format(qdq=QDQ, axis=0), WEIGHT)) == set()
    assert rules_of(Case(text.format(qdq=QDQ, axis=1), WEIGHT)) == {"weight-axis"}


def test_one_scale_for_a_whole_weight_is_refused() -> None:
    text = f"{QDQ}  dw = DequantizeLinear(w, s, z)  y = MatMul(d, dw)"
    assert rules_of(pair(text)) == {"weight-axis"}


def test_a_weight_that_is_quantised_in_the_graph_is_judged_as_one() -> None:
    text = """(float[2,4] x, float[4,4] f, float[4] ws, int8[4] wz, float s, int8 z) => (float[2,4] y)
        {{ {qdq}  qw = QuantizeLinear<axis = {axis}>(f, ws, wz)  dw = DequantizeLinear<axis = {axis}>(qw, ws, wz)
           y = MatMul(d, dw) }}"""
    fine = WEIGHT | {"f": np.full((4, 4), 12.7, np.float32)}
    assert rules_of(Case(text.format(qdq=QDQ, axis=1), fine)) == set()
    assert rules_of(Case(text.format(qdq=QDQ, axis=0), fine)) == {"weight-axis"}
    low = fine | {"f": np.full((4, 4), -12.8, np.float32)}
    assert rules_of(Case(text.format(qdq=QDQ, axis=1), low)) == {"weight-range"}


def test_scales_of_a_constant_that_do_not_fit_it_are_said_once_and_break_no_other_rule() -> None:
    text = """(float[2,4] x, float[4,4] f, float[3] ws, int8[3] wz, float s, int8 z) => (float[2,4] y)
        { q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  qw = QuantizeLinear<axis = 1>(f, ws, wz)
          dw = DequantizeLinear<axis = 1>(qw, ws, wz)  y = MatMul(d, dw) }"""
    odd: dict[str, Array] = {"f": np.ones((4, 4), np.float32), "ws": np.ones(3, np.float32), "wz": np.zeros(3, np.int8)}
    assert rules_of(Case(text, WEIGHT | odd)) == {"scale-channels"}


def test_the_scale_that_is_wrong_is_the_one_that_is_named() -> None:
    (found,) = Case(MATMUL, WEIGHT).with_weights(ws=np.array([1, np.inf, 1, 1], np.float32)).found()
    assert found.message == "expected finite scales above 0, got inf"


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_scales_are_finite_and_above_zero(scale: float) -> None:
    assert rules_of(Case(MATMUL, WEIGHT).with_weights(s=np.array(scale, np.float32))) == {"scale"}


def test_scales_are_constants() -> None:
    case = Case(MATMUL, {name: array for name, array in WEIGHT.items() if name != "s"})
    assert rules_of(case) == {"scale"}


def test_both_inputs_of_a_product_of_activations_may_be_quantised_behind_a_softmax() -> None:
    text = f"{QDQ}  {DW}  m = MatMul(d, dw)  p = Softmax(m)  qp = QuantizeLinear(p, s, z)  "
    text += "dp = DequantizeLinear(qp, s, z)  t = Transpose(d)  y = MatMul(t, dp)"
    assert rules_of(pair(text).with_weights()) == set()


@pytest.mark.parametrize("op", ["Gelu", "Softmax", "Erf"])
def test_operators_that_stay_in_floating_point(op: str) -> None:
    assert rules_of(pair(f"{QDQ}  y = {op}(d)")) == {"float-only"}


def test_the_bias_of_a_gemm_stays_float() -> None:
    text = f"{QDQ}  {DW}  db = DequantizeLinear(wz, s, z)  y = Gemm(d, dw, db)"
    assert rules_of(pair(text)) == {"float-bias"}


def test_a_residual_may_be_quantised() -> None:
    assert rules_of(pair(f"{QDQ}  {DW}  m = MatMul(d, dw)  y = Add(m, d)")) == set()


def test_integers_that_enter_the_network_are_no_pair() -> None:
    text = "(int8[2,4] x, float s, int8 z) => (float[2,4] y) { y = DequantizeLinear(x, s, z) }"
    case = Case(text, {"s": WEIGHT["s"], "z": WEIGHT["z"]})
    assert rules_of(case) == {"both-halves", "int8-quantized"}
