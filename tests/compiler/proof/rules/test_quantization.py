"""Rules QT under attack: entries scaled one by one, one scale for all, products whose zeros are zero points."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.proof.facts.facts import Fill
from compiler.proof.facts.interval import ANYTHING, ZERO, Interval, bounded
from compiler.proof.facts.interval import constant as exactly
from tests.kit.judged import attack, check, check_refused
from tests.kit.soundness import Node, Operand, check_node, constant, number

INT8, UINT8, INT32 = ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT32
LAID_OUT = "0: rows(batch), 1: [time, left]"


def quantized(*shape: int | str, dtype: ir.DataType = UINT8, padding: Interval | None = None) -> Operand:
    return Operand(shape, dtype, padding=padding or Interval(-128.0, 255.0))


def data(padding: Interval, *shape: int | str) -> Operand:
    return Operand(shape or ("batch", "time", 4), padding=padding)


SCALE, ZEROS = constant(0.5), constant(7, np.uint8)
BY_CHANNEL = [constant([0.5] * 4), constant([0, 1, 2, 3], np.int8)]
BYTE = bounded(8.0)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (Node("QuantizeLinear", [data(ZERO), SCALE, ZEROS]), exactly(7.0)),
        (Node("QuantizeLinear", [data(bounded(2.0)), SCALE, ZEROS]), Interval(2.0, 12.0)),
        (Node("QuantizeLinear", [data(Interval(-np.inf, np.inf)), SCALE]), Interval(0.0, 255.0)),
        (Node("QuantizeLinear", [data(bounded(0.5)), *BY_CHANNEL], {"axis": 2}), Interval(-2.0, 5.0)),
        (Node("DequantizeLinear", [quantized("batch", "time", padding=exactly(7.0)), SCALE, ZEROS]), ZERO),
        (Node("DequantizeLinear", [quantized("batch", "time"), SCALE, ZEROS]), Interval(-3.5, 124.0)),
        (Node("DequantizeLinear", [quantized("batch", "time", dtype=INT32, padding=BYTE), SCALE]), bounded(4.0)),
    ],
)  # fmt: skip
def test_entries_are_scaled_one_by_one(node: Node, expected: Interval) -> None:
    verdict = check(node, "QT2", LAID_OUT)
    got = verdict.outputs[0].content({1})
    assert (got.low, got.high) == pytest.approx((expected.low, expected.high), rel=1e-5)
    assert verdict.pointwise


def test_scales_are_the_same_for_all_rows_and_frames() -> None:
    per_frame = Node("QuantizeLinear", [Operand(("batch", "time")), constant([1.0, 2.0])])
    check_refused(per_frame, "entry of a tracked axis")
    zero_per_row = Node("DequantizeLinear", [quantized("batch", "time"), SCALE, Operand(("batch",), UINT8)])
    check_refused(zero_per_row, "a scale of its own for each row")
    check_refused(Node("QuantizeLinear", [data(ZERO), number("time", ir.DataType.FLOAT)]), "axis length")
    blocks = Node("DequantizeLinear", [quantized("batch", "time", 4), constant(np.ones((1, 1, 2)))], {"block_size": 2},
                  opset=21)  # fmt: skip
    check_refused(blocks, "in blocks")


def test_one_scale_for_all_mixes_rows() -> None:
    check_refused(Node("DynamicQuantizeLinear", [data(ZERO)], outputs=3), "rows of one batch would mix")
    check_refused(Node("DynamicQuantizeLinear", [data(ANYTHING, 1, "time")], outputs=3), "rows of one batch would mix")
    check_node(Node("DynamicQuantizeLinear", [Operand((3, 4))], outputs=3))


def test_products_keep_axes_that_are_not_summed() -> None:
    weights = constant(np.arange(12).reshape(4, 3) - 6, np.int8)
    check(Node("MatMulInteger", [quantized("batch", "time", 4), weights, ZEROS]), "QT3", LAID_OUT)
    pair = [quantized("batch", "time", 4), quantized("batch", 4, "time")]
    check(Node("MatMulInteger", pair), "QT3", f"{LAID_OUT}, 2: [time, left]")


def test_summed_padding_becomes_the_zero_point() -> None:
    first, second = quantized("batch", 5, "time"), quantized("batch", "time", 3, dtype=INT8)
    verdict = check(Node("MatMulInteger", [first, second, ZEROS, constant(-1, np.int8)]), "QT3", "0: rows(batch)")
    assert verdict.needs == (Fill(1, 1, -1.0),)
    clean = quantized("batch", 5, "time", padding=exactly(7.0))
    assert not check_node(Node("MatMulInteger", [clean, second, ZEROS])).needs
    scaled = [first, SCALE, ZEROS, quantized("batch", "time", 3), SCALE, constant(2, np.uint8), SCALE, ZEROS]
    assert check(Node("QLinearMatMul", scaled), "QT3", "0: rows(batch)").needs == (Fill(3, 1, 2.0),)


def test_products_are_refused_with_zero_points_that_are_not_known() -> None:
    computed = Operand((), UINT8)
    pair = [quantized("batch", 5, "time"), quantized("batch", "time", 3)]
    check_refused(Node("MatMulInteger", [*pair, computed, computed]), "computed zero point")
    check_refused(Node("MatMulInteger", [*pair, Operand(("batch", 1, 1), UINT8)]), "for each row")


def test_sums_over_the_batch_are_refused() -> None:
    check_refused(Node("MatMulInteger", [quantized(4, "batch"), quantized("batch", 3)]), "batch")


def drawn(random: np.random.Generator) -> Node:
    """A quantisation or a product with random parameters."""
    dtype, kind = ((UINT8, np.uint8), (INT8, np.int8))[int(random.integers(2))]
    zero = constant(int(random.integers(0, 100)), kind)
    scale = constant(random.choice([0.01, 0.3, 2.0, 1e4]))
    low, high = sorted(random.standard_normal(2) * random.choice([1.0, 50.0, 1e6]))
    content = data(Interval(float(low), float(high)), "batch", "time", 3)
    lowest, highest = sorted(float(level) for level in random.integers(0, 100, 2))
    given = quantized("batch", "time", 3, dtype=dtype, padding=Interval(lowest, highest))
    other = quantized("batch", 3, "time", dtype=UINT8)
    summed = quantized("batch", 2, "time", dtype=dtype)
    return [
        Node("QuantizeLinear", [content, scale, zero]),
        Node("DequantizeLinear", [given, scale, zero]),
        Node("MatMulInteger", [given, other, zero]),
        Node("MatMulInteger", [summed, given, zero, zero]),
    ][int(random.integers(4))]


def test_quantised_numbers_hold_under_attack() -> None:
    attack(drawn, 60, 60)
