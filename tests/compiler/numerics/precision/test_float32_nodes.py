"""What half precision cannot hold pins its neighbours; what it can is chosen by cost."""

import numpy as np
import onnx_ir as ir

from compiler.graph.stages import Array, Lowered, State
from compiler.numerics.precision.float32_nodes import Planner, typed_operands
from tests.kit.graphs import node_named, parse

HALF = ir.DataType.FLOAT16
W = {"w": np.zeros((64, 64), np.float32)}
"""Enough work that a cast is cheap beside it."""

CHAIN = """(float[1,64] x, float[64,64] w) => (float[1,64] y)
{ a = MatMul(x, w) b = MatMul(a, w) c = MatMul(b, w) d = MatMul(c, w) y = MatMul(d, w) }"""


def planner(text: str = CHAIN, magnitudes: dict[str, float] | None = None, **given: object) -> Planner:
    noise = given.pop("noise", {})
    patterns = given.pop("patterns", ())
    headroom = given.pop("headroom", 2.0)
    return Planner(Lowered("tiny", parse(text, W), **given), HALF, magnitudes or {}, noise, headroom, patterns)  # type: ignore[arg-type]


def nodes_of(found: Planner, budget: float = 1.0) -> set[str]:
    return {pin.node for pin in found.plan(budget).pins}


def test_an_overflowing_value_pins_its_maker_and_its_readers_only() -> None:
    found = planner(magnitudes={"b": 40000.0})
    assert nodes_of(found) == {"b_matmul", "c_matmul"}
    reasons = {pin.node: pin.reason for pin in found.plan(1.0).pins}
    assert reasons["b_matmul"] == "gives b, which reaches 40000, above 32752"
    assert reasons["c_matmul"].startswith("reads b")
    assert nodes_of(planner(magnitudes={"b": 40000.0}, headroom=1.0)) == set()


def test_pins_carry_source_tensor_value_and_cost() -> None:
    pin = next(pin for pin in planner(magnitudes={"b": 4e4}).plan(1.0).pins if pin.node == "b_matmul")
    assert (pin.tensor, pin.value, pin.op) == ("b", 4e4, "MatMul")
    assert pin.source.startswith("tiny.py:2") and pin.cost is not None and pin.cost > 0


def test_noise_above_the_budget_is_bought_back_where_it_is_cheapest() -> None:
    noise = {"a_matmul": 1e-3, "c_matmul": 1e-6, "y_matmul": 1e-6}
    assert nodes_of(planner(noise=noise), 1e-2) == set()
    assert nodes_of(planner(noise=noise), 1e-4) >= {"a_matmul"}
    assert "y_matmul" not in nodes_of(planner(noise=noise), 1e-4)
    assert nodes_of(planner(noise=noise), 1e-9) >= {"a_matmul", "c_matmul", "y_matmul"}


def test_a_state_has_one_type_and_an_overflowing_one_stays() -> None:
    text = """(float[1,64] x, float[1,64] s, float[64,64] w) => (float[1,64] y, float[1,64] t)
    { a = MatMul(s, w) t = MatMul(a, w) y = MatMul(t, w) }"""
    states = (State("s", "t", None),)
    free = planner(text, states=states).plan(1.0)
    held = planner(text, {"s": 1e5, "t": 1e5}, states=states).plan(1.0)
    assert "state s" not in free.float32 and "state s" in held.float32


def test_operators_without_a_half_form_stay() -> None:
    text = """(float[2,2] x) => (float[2,2] y)
    { q, s, z = DynamicQuantizeLinear(x) d = DequantizeLinear(q, s, z) y = Neg(d) }"""
    model = parse(text)
    assert typed_operands(node_named(model, "q"), HALF) is None
    assert typed_operands(node_named(model, "y"), HALF) is not None
    assert "q_dynamicquantizelinear" in nodes_of(planner(text))


def test_spectra_stay_in_float32_as_nobody_has_a_kernel_in_half() -> None:
    text = """(float[1,32,1] x, int64 step, float[8] w) => (float[1,7,5,2] y, float[1,7,5,2] z)
        { y = STFT<onesided = 1>(x, step, w)  z = Neg(y) }"""
    model = parse(text, {"step": np.array(4), "w": np.ones(8, np.float32)})
    assert typed_operands(node_named(model, "y"), HALF) is None
    assert typed_operands(node_named(model, "z"), HALF) is not None


def test_constants_out_of_range_pin_but_for_what_masks_fill_in() -> None:
    weights = {"big": np.array(1e6, np.float32), "low": np.array(-1e9, np.float32), "m": np.array([True, False])}
    text = "(float[2] x, float big, float low, bool[2] m) => (float[2] y) { a = Where(m, x, low) y = Mul(a, big) }"
    found = Planner(Lowered("tiny", parse(text, weights)), HALF, {}, {}, 2.0)
    assert {pin.node for pin in found.plan(1.0).pins if "reads big" in pin.reason} == {"y_mul"}


def test_scales_that_would_lose_bits_pin() -> None:
    weights: dict[str, Array] = {"s": np.array(1e-6, np.float32), "z": np.array(0, np.int8)}
    text = "(float[2] x, float s, int8 z) => (float[2] y) { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"
    found = Planner(Lowered("tiny", parse(text, weights)), HALF, {}, {}, 2.0)
    assert nodes_of(found) == {"q_quantizelinear", "y_dequantizelinear"}


def test_what_is_dequantised_is_bounded_by_its_scale() -> None:
    weights: dict[str, Array] = {"s": np.array(300.0, np.float32), "z": np.array(0, np.int8)}
    text = "(int8[2] q, float s, int8 z) => (float[2] y) { d = DequantizeLinear(q, s, z) y = Tanh(d) }"
    found = Planner(Lowered("tiny", parse(text, weights)), HALF, {}, {}, 2.0)
    assert nodes_of(found) == {"d_dequantizelinear", "y_tanh"}


def test_the_users_pins_are_kept() -> None:
    assert nodes_of(planner(patterns=("c_mat*",))) == {"c_matmul"}


def test_integers_are_nobodys_business() -> None:
    text = "(int64[2] n) => (int64[2] y) { a = Add(n, n) y = Mul(a, n) }"
    assert planner(text).graph_nodes == {}
