"""window_inputs: what a graph computes from real_length, against numpy, for every true length."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.evaluate import run_model
from compiler.stages import Array, Window
from compiler.window_inputs import WindowInputs
from tests.kit.graphs import parse

FRAMES, STEP = 6, 4
LENGTHS = np.arange(FRAMES + 1, dtype=np.int64)


def graph_of(mask_input: str | None) -> tuple[ir.Model, WindowInputs]:
    model = parse("(float[batch, 2] x) => (float[batch, 2] y) { y = Relu(x) }")
    return model, WindowInputs(model, Window("past", FRAMES, STEP, "real_length", mask_input), "batch", "pad_axes")


def values_of(model: ir.Model, values: list[ir.Value]) -> dict[str, Array]:
    model.graph.outputs.extend(values)
    feeds: dict[str, Array] = {"x": np.zeros((len(LENGTHS), 2), np.float32), "real_length": LENGTHS}
    if any(value.name == "mask" for value in model.graph.inputs):
        feeds["mask"] = expected_mask()
    return run_model(model, feeds)


def expected_mask() -> Array:
    return (np.arange(FRAMES + STEP)[None] >= FRAMES - LENGTHS[:, None]).astype(np.float32)


@pytest.mark.parametrize("mask_input", [None, "mask"])
def test_valid_slots_are_the_last_of_the_window_and_all_new_ones(mask_input: str | None) -> None:
    model, inputs = graph_of(mask_input)
    found = values_of(model, [inputs.shaped("valid", 2, 4, FRAMES + STEP), inputs.shaped("valid", 1, 3, FRAMES)])
    whole, cached = (found[str(value.name)] for value in model.graph.outputs[1:])
    assert np.array_equal(whole[:, 0, :, 0], expected_mask().astype(bool))
    assert np.array_equal(cached[:, :, 0], expected_mask()[:, :FRAMES].astype(bool))


def test_positions_count_from_the_first_valid_slot() -> None:
    model, inputs = graph_of(None)
    found = values_of(model, [inputs.rows(), inputs.new_rows()])
    rows, new = (found[str(value.name)] for value in model.graph.outputs[1:])
    slots = np.arange(FRAMES + STEP)[None] - (FRAMES - LENGTHS[:, None])
    assert np.array_equal(rows, np.maximum(slots, 0))
    assert np.array_equal(new, LENGTHS[:, None] + np.arange(STEP))


def test_everything_is_made_once() -> None:
    model, inputs = graph_of(None)
    assert inputs.rows() is inputs.rows()
    assert inputs.shaped("mask", 1, 3, FRAMES) is inputs.shaped("mask", 1, 3, FRAMES)
    count = sum(1 for _ in model.graph)
    inputs.shaped("mask", 1, 3, FRAMES)
    assert sum(1 for _ in model.graph) == count


def test_an_input_of_that_name_is_refused() -> None:
    model, _ = graph_of(None)
    with pytest.raises(Refused, match="has an input 'real_length' already"):
        WindowInputs(model, Window("past", FRAMES, STEP, "real_length", None), "batch", "pad_axes")
