"""Measurements see everything that is valid and nothing that is padding."""

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

from compiler.calib.watched_streams import noise_between, run_streams
from compiler.graph import model as graphs
from compiler.graph.runners.session import session_of
from compiler.graph.runners.stream import Runner
from compiler.graph.stages import Lowered
from compiler.passes.pad_axes import PadAxes
from compiler.passes.window_states import WindowStates
from tests.kit.graphs import copy_of, feeds_of, parse, streaming


def windowed() -> Lowered:
    return WindowStates().apply(PadAxes().apply(copy_of(streaming())).lowered).lowered


def test_padded_slots_hold_nan_and_outputs_do_not() -> None:
    static = windowed()
    calls = list(run_streams(static, [feeds_of(static, 2)]))
    assert np.isnan(calls[0].feed["past"]).all() and np.isnan(calls[1].feed["past"]).any()
    assert all(np.isfinite(call.outputs["y"]).all() for call in calls)


def test_streams_begin_empty_and_are_chained() -> None:
    dynamic = streaming()
    feeds = feeds_of(dynamic, 3)
    runner = Runner(dynamic, session_of(dynamic.model))
    expected = [runner.step(feed)["y"] for feed in feeds]
    calls = list(run_streams(dynamic, [feeds, feeds]))
    assert [call.stream for call in calls] == [0, 0, 0, 1, 1, 1]
    for call, y in zip(calls, [*expected, *expected], strict=True):
        assert np.array_equal(call.outputs["y"], y)


def test_noise_is_a_share_of_the_signal_per_output() -> None:
    exact = Lowered("tiny", parse("(float[2] x) => (float[2] y, float[2] z) { y = Neg(x) z = Abs(x) }"))
    model = graphs.clone(exact.model)
    half = graphs.Inserter(model, "test").constant(np.array(0.9, np.float32), "near_one")
    node = next(node for node in model.graph if node.op_type == "Neg")
    scaled = graphs.Inserter(model, "test", before=node).op("Mul", [node.inputs[0], half], name="scaled")
    node.replace_input_with(0, scaled)
    found = noise_between(exact, dataclasses.replace(exact, model=model), [[{"x": np.array([1, 2], np.float32)}]])
    assert found["y"] == pytest.approx(0.01) and found["z"] == 0.0


def test_overflow_is_infinite_noise() -> None:
    exact = Lowered("tiny", parse("(float[1] x) => (float[1] y) { y = Mul(x, x) }"))
    half = parse("(float[1] x) => (float[1] y) { h = Cast<to = 10>(x) s = Mul(h, h) y = Cast<to = 1>(s) }")
    assert half.graph.node(1).outputs[0].dtype == ir.DataType.FLOAT16
    found = noise_between(exact, Lowered("tiny", half), [[{"x": np.array([300.0], np.float32)}]])
    assert found == {"y": np.inf}


def test_noise_of_classes_is_that_of_what_decides_them() -> None:
    text = "(float[1,4] x) => (int64[1] labels) { scores = Mul(x, x) labels = ArgMax<axis = 1, keepdims = 0>(scores) }"
    near = text.replace("Mul(x, x)", "Mul(x, scaled)").replace(
        "{ scores", "<float part = {0.9}> { scaled = Mul(x, part) scores"
    )
    stream = [{"x": np.array([[1, 2, 3, 4]], np.float32)}]
    found = noise_between(Lowered("tiny", parse(text)), Lowered("tiny", parse(near)), [stream])
    assert found == {"labels": pytest.approx(0.01)}, "no label differs, and its numbers do by a tenth"
