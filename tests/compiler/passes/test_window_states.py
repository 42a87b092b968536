"""window_states: every cached state is cut to the newest frames of the window."""

import dataclasses
from typing import Any

import onnx_ir as ir
import pytest

from compiler import ir as house
from compiler.passes.pad_axes import PadAxes
from compiler.passes.window_states import WindowStates
from compiler.stages import Lowered
from tests.kit.contract import verify_pass, verify_refusal, verify_untouched
from tests.kit.graphs import WINDOW, copy_of, ops_of, streaming


def padded(**variant: Any) -> tuple[Lowered, Lowered]:
    origin = streaming(**variant)
    return origin, PadAxes().apply(copy_of(origin)).lowered


@pytest.mark.parametrize("two_caches", [False, True])
def test_each_cache_keeps_the_newest_frames(two_caches: bool) -> None:
    origin, lowered = padded(two_caches=two_caches)
    outcome = verify_pass(WindowStates(), lowered, tolerance=1e-5, origin=origin, steps=20)
    assert outcome.rewritten == 1 + two_caches
    shape = house.outputs_named(outcome.lowered.model)["next_past"].shape
    assert shape is not None
    assert shape[1] == WINDOW
    assert ops_of(outcome.lowered.model).count("Slice") == ops_of(lowered.model).count("Slice") + 1 + two_caches


def test_a_model_that_cuts_its_cache_itself_stays() -> None:
    outcome = verify_untouched(WindowStates(), padded(in_graph_window=True)[1])
    assert outcome.matched == 1


def test_without_a_window_there_is_nothing_to_do() -> None:
    verify_untouched(WindowStates(), dataclasses.replace(streaming(), caches=()))


def test_fewer_frames_than_the_window_are_refused() -> None:
    # regression: a Slice from a negative start was written
    lowered = padded()[1]
    house.inputs_named(lowered.model)["past"].shape = ir.Shape(["batch", 30, 4])
    verify_refusal(WindowStates(), lowered, message="fewer than the window", cure="make the window", tensor="next_past")
