"""Rules of com.microsoft under attack: activations, fused products, normalised sums, positions, quantised numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import Clamp, Fill, Verdict
from compiler.proof.facts.interval import ANYTHING, ZERO, Interval, bounded
from compiler.proof.rules.microsoft import DOMAIN, REFUSED, TABLE, fused_convolution
from tests.kit.judged import check, check_refused
from tests.kit.soundness import Node, Operand, check_node, constant

UINT8, INT64, BOOL = ir.DataType.UINT8, ir.DataType.INT64, ir.DataType.BOOL
LAID_OUT = "0: rows(batch), 1: [time, left]"
RANDOM = np.random.default_rng(0)


def data(*shape: int | str, padding: Interval = ANYTHING) -> Operand:
    return Operand(shape or ("batch", "time", 4), padding=padding)


def weights(*shape: int) -> Operand:
    return constant(RANDOM.standard_normal(shape))


def levels(*shape: int | str, dtype: ir.DataType = UINT8, valid: Interval | None = None) -> Operand:
    return Operand(shape or ("batch", "time", 4), dtype, valid)


def node(op: str, operands: Sequence[Operand | None], outputs: int = 1, **attributes: Any) -> Node:
    return Node(op, operands, attributes, outputs, DOMAIN, 1)


SCALE, ZEROS = constant(0.1), constant(7, np.uint8)
QUANTIZED = [levels(), SCALE, ZEROS]


@pytest.mark.parametrize("padding", [ANYTHING, bounded(5.0), ZERO])
@pytest.mark.parametrize(
    ("op", "bias", "attributes", "rule"),
    [
        ("Gelu", False, {}, "EW1"), ("FastGelu", False, {}, "EW1"), ("QuickGelu", False, {}, "EW1"),
        ("QuickGelu", False, {"alpha": 0.5}, "EW1"), ("FastGelu", True, {}, "EW2"), ("BiasGelu", True, {}, "EW2"),
    ],
)  # fmt: skip
def test_activations(op: str, bias: bool, attributes: dict[str, Any], rule: str, padding: Interval) -> None:
    operands = [data(padding=padding), *([weights(4)] if bias else [])]
    fact = check(node(op, operands, **attributes), rule, LAID_OUT).outputs[0]
    assert fact.content({1}).is_finite == padding.is_finite
    assert fact.content({1}).is_zero == (padding.is_zero and not bias)


def test_fused_products() -> None:
    assert not check(node("FusedMatMul", [data(), weights(3, 4)], transB=1, alpha=0.5), "MM1", LAID_OUT).needs
    both = f"{LAID_OUT.replace('1:', '2:')}, 3: [time, left]"
    heads = [data("batch", 2, "time", 4), data("batch", 2, "time", 4)]
    check(node("FusedMatMul", heads, transB=1), "MM1", both)
    over = node("FusedMatMul", [data("batch", "time", 4), data("batch", "time", 3)], transA=1)
    assert check(over, "MM2", "0: rows(batch)").needs == (Fill(0, 1, 0.0), Fill(1, 1, 0.0))
    check_refused(node("FusedMatMul", heads, transBatchA=1), "batch axes")
    turned = [data("time", "batch", 4), data("batch", 4, 3)]
    check_refused(node("FusedMatMul", turned, transBatchA=1), "batch axes")
    activated = node("FusedGemm", [data("batch", 4), weights(4, 3), weights(3)], activation="Relu")
    assert check(activated, "MM1", "0: rows(batch)").outputs[0].valid.low == 0.0
    leaky = node("FusedGemm", [data("time", 4), weights(4, 3)], activation="LeakyRelu", activation_alpha=0.1)
    check(leaky, "MM1", "0: [time, left]")


def with_shape(*shape: int | str) -> Any:
    """The rule of FusedConv on a node whose output has a known shape."""

    def rule(case: Case) -> Verdict:
        case.node.outputs[0].shape = ir.Shape(shape)
        return fused_convolution(case)

    return rule


def test_fused_convolution() -> None:
    operands = [data("batch", 4, "time", 1), weights(5, 4, 3, 1), weights(5)]
    padded = node("FusedConv", operands, kernel_shape=[3, 1], pads=[1, 0, 1, 0], activation="Relu")
    verdict = check_node(padded, rule=with_shape("batch", 5, "time", 1), extremes=False)
    assert (verdict.rule, verdict.needs) == ("CV5", (Fill(0, 2, 0.0),))
    assert verdict.outputs[0].valid.low == 0.0
    causal = node("FusedConv", operands, kernel_shape=[3, 1], pads=[2, 0, 0, 0], activation="Tanh")
    assert check_node(causal, rule=with_shape("batch", 5, "time", 1)).rule == "CV4"
    added = [*operands, data("batch", 5, "time", 1)]
    check_refused(node("FusedConv", added, kernel_shape=[3, 1], pads=[1, 0, 1, 0]), "fourth operand")


def test_products_of_quantised_numbers() -> None:
    packed = constant(RANDOM.integers(0, 256, (3, 2, 8)), np.uint8)
    few_bits = [data("batch", "time", 32, padding=bounded(5.0)), packed, constant(abs(RANDOM.standard_normal(6)))]
    for level in (0, 4):
        made = node("MatMulNBits", few_bits, K=32, N=3, bits=4, block_size=16, accuracy_level=level)
        assert check(made, "MM1", LAID_OUT, extremes=False).outputs[0].content({1}).is_finite
    parameters = [SCALE, SCALE, ZEROS, constant(1, np.uint8)]
    scaled = node("MatMulIntegerToFloat", [levels(), constant(np.arange(12).reshape(4, 3), np.uint8), *parameters])
    check(scaled, "QT3", LAID_OUT)
    summed = node("MatMulIntegerToFloat", [levels("batch", 5, "time"), levels("batch", "time", 3), *parameters])
    assert check(summed, "QT3", "0: rows(batch)").needs == (Fill(1, 1, 1.0),)
    check_refused(node("MatMulNBits", [data("batch", "time"), *few_bits[1:]], K=32, N=3, bits=4), "padded axis")


@pytest.mark.parametrize("padding", [ANYTHING, bounded(5.0)])
def test_normalised_sums(padding: Interval) -> None:
    pair = [data(padding=padding), data(padding=padding)]
    full = node("SkipLayerNormalization", [*pair, weights(4), weights(4), weights(4)], 4, epsilon=1e-5)
    simple = node("SkipSimplifiedLayerNormalization", [*pair, weights(4), weights(4)], epsilon=1e-5)
    for each in (full, simple):
        fact = check(each, "NM1", LAID_OUT, extremes=False).outputs[0]
        assert fact.content({1}).is_finite == padding.is_finite
    frames_last = [data("batch", 4, "time"), data("batch", 4, "time")]
    check_refused(node("SkipLayerNormalization", [*frames_last, data("time"), data("time")]), "padded")


def test_positions_in_the_padding_stay_in_the_table() -> None:
    table = [weights(10, 4), weights(10, 4)]
    ids = levels("batch", "time", dtype=INT64, valid=Interval(0.0, 9.0))
    wide = node("RotaryEmbedding", [data("batch", "time", 16), ids, *table], num_heads=2)
    assert check(wide, "EW2", LAID_OUT, extremes=False).needs == (Clamp(1, 0, 9),)
    heads = node("RotaryEmbedding", [data("batch", 2, "time", 8), ids, *table])
    check(heads, "EW2", "0: rows(batch), 2: [time, left]", extremes=False)
    by_slot = node("RotaryEmbedding", [data("batch", 2, "time", 8), constant([0], np.int64), *table])
    check_refused(by_slot, "follow from the slot")
    shared = levels(1, "time", dtype=INT64, valid=Interval(0.0, 9.0))
    check_refused(node("RotaryEmbedding", [data("batch", 2, "time", 8), shared, *table]), "another layout")


@pytest.mark.parametrize(
    ("op", "operands"),
    [
        ("QLinearAdd", [*QUANTIZED, levels("time", 1), SCALE, ZEROS, SCALE, ZEROS]),
        ("QLinearMul", [*QUANTIZED, levels("time", 1), SCALE, ZEROS, SCALE, ZEROS]),
        ("QLinearSigmoid", [*QUANTIZED, SCALE, ZEROS]),
        ("QLinearLeakyRelu", [*QUANTIZED, SCALE, ZEROS]),
        ("QLinearWhere", [levels(dtype=BOOL), *QUANTIZED, *QUANTIZED, SCALE, ZEROS]),
        ("DequantizeLinear", QUANTIZED),
    ],
)
def test_quantised_entries_are_scaled_one_by_one(op: str, operands: Sequence[Operand]) -> None:
    check(node(op, operands), "QT2", LAID_OUT)


def test_kernels_that_look_along_axes_are_refused_by_name() -> None:
    check_refused(node("MultiHeadAttention", [data(), data(), data()], num_heads=2), "holds a whole attention")
    check_refused(node("DynamicQuantizeMatMul", [data(), levels(4, 3), SCALE]), "rows of one batch would mix")
    assert all((DOMAIN, op) in TABLE for ops in REFUSED.values() for op in ops)
