"""States that hold codes are told by the graph, and read in the numbers that they stand for."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler import ir as house
from compiler.runners.coded_states import Codes, codes_of, outputs_in_numbers, states_in_numbers
from compiler.stages import Lowered, State


def carrying(*, read_twice: bool = False, computed_scales: bool = False) -> Lowered:
    """A state of codes that is handed on as it is."""
    cache = ir.Value(name="cache", shape=ir.Shape(["batch", 2, 3]), type=ir.TensorType(ir.DataType.INT8))
    model = ir.Model(ir.Graph([cache], [], nodes=[], opset_imports={"": 20}), ir_version=10)
    insert = house.Inserter(model, "test")
    scales = insert.constant(np.array([0.5, 2.0], np.float32), "scales")
    if computed_scales:
        scales = insert.op("Add", [insert.op("Cast", [cache], {"to": 1}, name="wide"), scales], name="sum")
    numbers = insert.op("DequantizeLinear", [cache, scales], {"axis": -2}, name="numbers")
    codes = insert.op("QuantizeLinear", [numbers, scales], {"axis": 1}, name="next_cache", dtype=ir.DataType.INT8)
    model.graph.outputs.extend([codes, *([insert.op("Identity", [cache], name="same")] if read_twice else [])])
    return Lowered("net", model, states=(State("cache", "next_cache", None),))


def test_codes_are_read_by_the_axis_of_their_scales() -> None:
    codes = np.array([[[1, 2, -3], [4, -5, 127]]], np.int8)
    numbers = [[[0.5, 1.0, -1.5], [8.0, -10.0, 254.0]]]
    lowered = carrying()
    assert states_in_numbers(lowered, {"cache": codes})["cache"].tolist() == numbers
    assert outputs_in_numbers(lowered, {"next_cache": codes})["next_cache"].tolist() == numbers
    grid = codes_of(lowered.model, "cache")
    assert grid is not None
    assert grid.axis == 1
    assert np.array_equal(grid.codes(np.array(numbers)), codes)


@pytest.mark.parametrize("written", [{"read_twice": True}, {"computed_scales": True}], ids=str)
def test_integers_that_are_used_otherwise_are_no_codes(written: dict[str, bool]) -> None:
    lowered = carrying(**written)
    assert codes_of(lowered.model, "cache") is None
    codes = np.array([[[1, 2, -3], [4, -5, 127]]], np.int8)
    assert states_in_numbers(lowered, {"cache": codes})["cache"] is codes


def test_what_lies_outside_is_cut_off() -> None:
    grid = Codes(np.array(0.5, np.float32), 0)
    assert grid.codes(np.array([1e30, -1e30, 0.26, np.inf, np.nan])).tolist() == [127, -128, 1, 127, 0]
