"""window_states: every cached state is cut to the newest frames of the window."""

import dataclasses
from typing import Any

import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, PaddedAxis
from compiler.passes.pad_axes import PadAxes
from compiler.passes.window_states import WindowStates
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
    shape = graphs.outputs_named(outcome.lowered.model)["next_past"].shape
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
    graphs.inputs_named(lowered.model)["past"].shape = ir.Shape(["batch", 30, 4])
    verify_refusal(WindowStates(), lowered, message="fewer than the window", cure="make the window", tensor="next_past")


def of_many_frames(frames: str) -> Lowered:
    lowered = dataclasses.replace(padded()[1], padded_axes=(PaddedAxis("chunk", "chunk_length", minimum=2),))
    graphs.outputs_named(lowered.model)["next_past"].shape = ir.Shape(["batch", frames, 4])
    return lowered


@pytest.mark.parametrize("frames", ["floor(chunk/2) + 5", "Min(6, floor(chunk/2) + 5)"])
def test_frames_that_grow_with_the_chunk_are_cut_to_the_newest(frames: str) -> None:
    # regression: a traceback, as the number of frames was no integer
    lowered = WindowStates().apply(of_many_frames(frames)).lowered
    kept = graphs.outputs_named(lowered.model)["next_past"]
    (node,) = [node for node in lowered.model.graph if kept in node.outputs]
    assert kept.shape == ir.Shape(["batch", WINDOW, 4])
    assert [graphs.integers_of(bound) for bound in node.inputs[1:]] == [(-WINDOW,), (graphs.END,), (1,)]


@pytest.mark.parametrize(
    ("frames", "cure"), [("Min(6, floor(chunk/2) + 4)", "make the window 5 frames"), ("20 - chunk", "let it keep 6")]
)
def test_frames_that_are_fewer_for_some_chunk_are_refused(frames: str, cure: str) -> None:
    lowered = of_many_frames(frames)
    verify_refusal(WindowStates(), lowered, message="fewer than the window", cure=cure, tensor="next_past")
