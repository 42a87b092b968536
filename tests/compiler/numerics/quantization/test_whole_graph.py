"""Graphs on grids: every operator between codes, close to the graph in float32, and states that are rounded once."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir
import pytest

from compiler.calib.noise import Noise
from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.session import run_model
from compiler.graph.stages import Lowered
from compiler.numerics.quantization.value_grids import grids_of_values
from compiler.numerics.quantization.whole_graph import write_on_grids
from tests.compiler.numerics.quantization.test_value_grids import one_row, row, small
from tests.kit.calibration import with_streams
from tests.kit.graphs import parse

CODES = ("DequantizeLinear", "QuantizeLinear")


def on_grids(lowered: Lowered, bits: int) -> Lowered:
    grids, _ = grids_of_values(lowered, bits)
    model = graphs.clone(lowered.model)
    write_on_grids(model, "test", grids, bits)
    return dataclasses.replace(lowered, model=model)


def real_operands(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Value]]:
    for node in model.graph:
        for value in node.inputs:
            if node.op_type not in CODES and value is not None and value.dtype == ir.DataType.FLOAT:
                yield node, value


@pytest.mark.parametrize(("bits", "least_db"), [(16, 40.0), (8, 28.0)])
def test_every_operator_lies_between_codes_and_the_answers_stay_close(bits: int, least_db: float) -> None:
    exact = one_row()
    rounded = on_grids(exact, bits)
    for node, value in real_operands(rounded.model):
        maker = value.producer()
        assert maker is not None and maker.op_type == "DequantizeLinear", (node.name, value.name)
    for node in rounded.model.graph:
        for result in node.outputs:
            if node.op_type not in CODES and result.dtype == ir.DataType.FLOAT:
                assert [each.op_type for each in graphs.consumers_of(result)] == ["QuantizeLinear"], node.name
    assert [each.name for each in rounded.model.graph.outputs] == [each.name for each in exact.model.graph.outputs]
    one, other, noises = runner_of(exact), runner_of(rounded), dict[str, Noise]()
    for feed in exact.calibration.streams[0]:  # type: ignore[union-attr]
        right, got = one.step(feed), other.step(feed)
        for name, array in right.items():
            noises.setdefault(name, Noise()).add(got[name], array)
    for name, noise in noises.items():
        assert noise.sqnr_db is not None and noise.sqnr_db > least_db, name


def test_a_cache_is_rounded_once_however_long_it_is_carried() -> None:
    lowered = one_row()
    rounded = on_grids(lowered, 8)
    runner, feeds = runner_of(rounded), lowered.calibration.streams[0]  # type: ignore[union-attr]
    runner.step(feeds[0])
    before = runner.states["past"]
    runner.step(feeds[1])
    kept = runner.states["past"][:, : before.shape[1] // 2]
    assert any(np.array_equal(kept, before[:, start : start + kept.shape[1]]) for start in range(before.shape[1])), (
        "the frames of the call before, to the bit"
    )


def test_weights_are_signed_with_a_scale_per_channel_and_biases_are_sums_of_products() -> None:
    rounded = on_grids(one_row(), 16)
    by_operator: dict[str, list[list[np.ndarray | None]]] = {}
    for node in rounded.model.graph:
        if node.op_type in ("Conv", "LayerNormalization", "MatMul"):
            makers = [None if value is None else value.producer() for value in node.inputs[1:]]
            codes = [None if maker is None else graphs.array_of(maker.inputs[0]) for maker in makers]
            by_operator.setdefault(node.op_type, []).append(codes)
    assert [[each.dtype.name for each in codes if each is not None] for codes in by_operator["Conv"]] == [
        ["int8", "int32"]
    ] * 2
    assert [each.dtype.name for each in by_operator["LayerNormalization"][0] if each is not None] == ["uint8", "int32"]
    constant = [codes[0] for codes in by_operator["MatMul"] if codes[0] is not None]
    assert {each.dtype.name for each in constant} == {"int8"} and len(constant) == 5


def test_a_flag_that_is_cast_is_compared() -> None:
    body = "seen = Cast<to = 9>(x)  zero = Constant<value = float {0.0}>()  y = Where(seen, x, zero)"
    lowered = with_streams(small(body), [row(0, 1, 0, 1), row(-1, 0, 0.5, 0)])
    rounded = on_grids(lowered, 8).model
    assert "Cast" not in [node.op_type for node in rounded.graph]
    for feed in lowered.calibration.streams[0]:  # type: ignore[union-attr]
        assert run_model(rounded, feed)["y"] == pytest.approx(run_model(lowered.model, feed)["y"], abs=0.01)


def test_values_of_long_codes_are_written_by_the_operators_that_have_them() -> None:
    lowered = with_streams(small("y = Relu(x)"), [row(0, 1, 0, 1)])
    domains = {bits: {n.domain for n in on_grids(lowered, bits).model.graph if n.op_type in CODES} for bits in (8, 16)}
    assert domains == {8: {""}, 16: {"com.microsoft"}}


def test_equal_codes_of_two_grids_are_two_constants() -> None:
    body = """zero = Constant<value = float {0.0}>()  positive = Greater(x, zero)  a = Where(positive, x, zero)
        b = Mul(x, x)  y = Where(positive, b, zero)  z = Add(a, y)"""
    lowered = with_streams(small(body, "float[1,4] y, float[1,4] z"), [row(0, 1, 4, 1), row(1, 0, 0.5, 0)])
    grids: dict[str, set[str]] = {}
    for node in on_grids(lowered, 8).model.graph:
        if node.op_type == "DequantizeLinear" and graphs.array_of(node.inputs[0]) is not None:
            codes, *grid = (str(value.name) for value in node.inputs if value is not None)
            grids.setdefault(codes, set()).add(" ".join(grid))
    assert len(grids) > 1 and all(len(each) == 1 for each in grids.values())


def test_a_value_that_nobody_measured_is_refused_by_name() -> None:
    model = parse("(float[1,4] x) => (float[1,4] y) { y = Relu(x) }")
    with pytest.raises(Refused, match="expected a range of x from calibration, got none"):
        write_on_grids(model, "test", {}, 8)
