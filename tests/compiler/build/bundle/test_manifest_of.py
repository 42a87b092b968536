"""What the manifest says of a graph."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from compiler.build.bundle import manifest_of
from compiler.build.bundle.manifest_of import GraphParts
from compiler.graph.runners.choose import runner_of
from compiler.passes.carry_codes import CarryCodes
from compiler.passes.quantize_static import QuantizeStatic
from runtime_lite.format.manifest import Tensor
from tests.kit.quantization import speech


@pytest.mark.parametrize(("dtype", "zero"), [("float32", 0.0), ("float16", 0.0), ("int64", 0), ("bool", False)])
def test_a_state_starts_with_the_zero_of_its_own_type(dtype: str, zero: bool | int | float) -> None:
    initial = manifest_of._initial(0, dtype)
    assert (initial, type(initial)) == (zero, type(zero))


def test_numbers_that_differ_are_rounded_to_the_type() -> None:
    assert manifest_of._initial((((0.1,), (2.5,)),), "float16") == (((0.0999755859375,), (2.5,)),)


def test_a_state_of_codes_starts_with_the_code_of_0() -> None:
    lowered = CarryCodes().apply(QuantizeStatic(pins=()).apply(speech()).lowered).lowered
    first = {state.input: state.initial for state in lowered.states}
    begun = runner_of(lowered).states["context"]
    assert begun.dtype == "uint8"
    assert set(begun.ravel().tolist()) == {first["context"]} != {0}
    assert first["past"] == 0


@pytest.mark.parametrize(
    ("comes", "goes"),
    [
        (("batch", "min(16, chunk + 12)", 8), ("batch", 16, 8)),
        (("batch", 16, 8), ("batch", 16, 8)),
        (("batch", "chunk", 8), ("batch", "chunk", 8)),
        (("batch", 1, 8), ("batch", 1, 8)),
    ],
    ids=["a formula", "a number", "the frames of a call", "a number of them"],
)
def test_a_state_leaves_with_the_sizes_it_goes_in_with(
    comes: tuple[int | str, ...], goes: tuple[int | str, ...]
) -> None:
    given, output = (Tensor("state", shape, "float32", "state") for shape in (("batch", 16, 8), comes))
    assert manifest_of._as_fed(output, given).shape == goes


def test_the_range_that_was_proved_of_what_callers_feed_is_said() -> None:
    lowered = speech()
    fed = next(str(value.name) for value in lowered.model.graph.inputs if value.name not in lowered.ranges)
    ranges = dict.fromkeys((fed, *(state.input for state in lowered.states)), (0, 7))
    built: Any = SimpleNamespace(versions={"opset": 20, "ir_version": 10}, artifacts=(), engine=None, options={})
    parts = GraphParts(dataclasses.replace(lowered, ranges=ranges), {}, {}, "onnx_static", built, b"", b"")
    told = {each.name: (each.role, each.range) for each in manifest_of.graph_record("net", parts).inputs}
    assert told[fed] == ("data", (0, 7))
    assert {span for role, span in told.values() if role != "data"} == {None}
