"""lower_integers: the runtime's operator gives what the letter of DequantizeLinear, MatMul and Add gives."""

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import InternalError
from compiler.graph import model as graphs
from compiler.graph.runners.session import open_session
from compiler.graph.stages import Array, Lowered
from compiler.passes.lower_integers import LowerIntegers
from compiler.passes.quantize_static import QuantizeStatic
from tests.kit.contract import verify_pass, verify_untouched
from tests.kit.graphs import copy_of, ops_of, parse
from tests.kit.integers import declared, product
from tests.kit.quantization import speech

LARGEST = 63
"""Of weights: beyond it, processors that add pairs of products in 16 bits cut them off, in either form."""


def around(model: ir.Model) -> Lowered:
    return Lowered("net", model, batch_axis="batch", data_outputs=("y",))


def ran(model: ir.Model, feed: dict[str, Array], *, optimize: bool) -> Array:
    result: Array = open_session(graphs.serialized(model), optimize=optimize).run(["y"], feed)[0]
    return result


@pytest.mark.parametrize("seed", range(12))
def test_random_products_are_those_of_the_letter(seed: int) -> None:
    """Random shapes, scales, zero points and biases; data at both ends of their range among them."""
    rng = np.random.default_rng(seed)
    depth, width, rows = int(rng.integers(1, 70)), int(rng.integers(1, 40)), int(rng.integers(1, 20))
    by_column, batched = seed % 2 == 0, seed % 3 == 2
    scales = np.exp(rng.uniform(-9, 3, width if by_column and not batched else ())).astype(np.float32)
    zeros = rng.integers(-20, 21, scales.shape)
    weights = rng.integers(-LARGEST, LARGEST + 1, (2, depth, width) if batched else (depth, width))
    arrays: dict[str, Array] = {
        "xs": np.array(np.exp(rng.uniform(-9, 3)), np.float32),
        "xz": np.array(rng.integers(0, 256), np.uint8),
        "w": (weights if seed % 4 else np.sign(weights) * LARGEST).astype(np.int8),
        "ws": np.asarray(scales, np.float32),
        "wz": np.asarray(zeros, np.int8),
        "b": rng.standard_normal(width).astype(np.float32),
    }
    model = parse(
        f"""(uint8[batch,{rows},{depth}] x, {", ".join(declared(*each) for each in arrays.items())})
        => (float[batch,{rows},{width}] y)
        {{ a = DequantizeLinear(x, xs, xz)  c = DequantizeLinear<axis = {len(arrays["w"].shape) - 1}>(w, ws, wz)
           sum = MatMul(a, c)  y = Add(b, sum) }}""",
        arrays,
    )
    outcome = LowerIntegers().apply(around(model))
    assert outcome.rewritten == 1
    assert ops_of(outcome.lowered.model) == ["MatMulIntegerToFloat"]
    x = rng.integers(0, 256, (2, rows, depth))
    x[0] = np.where(x[0] < 128, 0, 255)
    got = ran(outcome.lowered.model, {"x": x.astype(np.uint8)}, optimize=True)
    data = (x - int(arrays["xz"])) * np.float64(arrays["xs"])
    numbers = (arrays["w"].astype(np.float64) - zeros) * np.asarray(scales, np.float64)
    expected = data @ numbers + arrays["b"]
    sizes = np.abs(expected - arrays["b"]) + np.abs(
        arrays["b"]
    )  # the sum is scaled, then the bias added: two roundings
    assert np.all(np.abs(got - expected) <= 4 * np.finfo(np.float32).eps * sizes)


@pytest.mark.parametrize("bias", ["", "[4]", "[1,2,1]", "computed", "read twice"])
def test_contract(bias: str) -> None:
    before = around(product(bias=bias))
    outcome = verify_pass(LowerIntegers(), before, tolerance=1e-5)
    assert (outcome.matched, outcome.rewritten) == (1, 1)
    assert outcome.detail == f"{int(bias == '[4]')} with a bias inside"


def test_what_has_no_fast_kernel_stays_and_is_named() -> None:
    outcome = verify_untouched(LowerIntegers(), around(product(kinds=("int8", "int8"))), refused="plain loops")
    assert "node sum_matmul" in str(outcome.refused[0])


def test_constants_that_get_each_others_names_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two products of one shape: under one name the second would be scaled as the first."""
    scales = [np.array([1, 2], np.float32), np.array([3, 1], np.float32)]
    model = parse(
        """(uint8[batch,2,2] x, float xs, uint8 xz, int8[2,2] w, int8[2] wz, float[2] s1, float[2] s2)
        => (float[batch,2,2] y, float[batch,2,2] z)
        { a = DequantizeLinear(x, xs, xz)  c = DequantizeLinear<axis = 1>(w, s1, wz)
          d = DequantizeLinear<axis = 1>(w, s2, wz)  y = MatMul(a, c)  z = MatMul(a, d) }""",
        {
            "xs": np.array(0.5, np.float32),
            "xz": np.array(7, np.uint8),
            "w": np.arange(4, dtype=np.int8).reshape(2, 2),
            "wz": np.zeros(2, np.int8),
            "s1": scales[0],
            "s2": scales[1],
        },
    )
    lowered = Lowered("net", model, batch_axis="batch", data_outputs=("y", "z"))
    constant = graphs.Inserter.constant

    def of_one_name(self: graphs.Inserter, array: Array, name: str) -> ir.Value:
        taken = [value for value in self.graph.initializers.values() if str(value.name).startswith(f"{name}_")]
        alike = [value for value in taken if value.shape == ir.Shape(array.shape)]
        return alike[0] if alike else constant(self, array, name)

    whole = LowerIntegers().apply(dataclasses.replace(lowered, model=graphs.clone(model)))
    assert whole.rewritten == 2
    monkeypatch.setattr(graphs.Inserter, "constant", of_one_name)
    with pytest.raises(InternalError, match="expected the weights of the graph before lowering, got 1 others for 1"):
        LowerIntegers().apply(lowered)


def test_a_quantised_recogniser_keeps_its_answers_and_its_shapes() -> None:
    quantised = QuantizeStatic(pins=()).apply(copy_of(speech())).lowered
    outcome = verify_pass(LowerIntegers(), quantised, tolerance=0.05)
    assert (outcome.matched, outcome.rewritten) == (5, 5)
    again = graphs.clone(outcome.lowered.model)
    graphs.forget_shapes(again)
    graphs.infer_shapes(again)
    shapes = {value.name: (value.shape, value.dtype) for node in again.graph for value in node.outputs}
    for node in outcome.lowered.model.graph:
        for value in node.outputs:
            assert shapes[value.name] == (value.shape, value.dtype)
    assert dataclasses.replace(outcome.lowered, model=quantised.model) == quantised
