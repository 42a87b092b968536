"""Axes named on the command line become the graph that a build would pad."""

from pathlib import Path

import onnx_ir as ir
import pytest

from compiler.errors import RecipeError
from compiler.front.explain.request import Request, from_file, padded_axes
from compiler.graph import model as graphs
from compiler.graph.stages import State
from compiler.passes.pad_axes import PadAxes
from tests.kit.graphs import parse, streaming

MASKED = """(float[batch,time,2] x, float[batch,time] mask, bool[batch,time] hidden, int64[batch] length,
    float[batch,time,heads] bias)
=> (float[batch,time,heads] y) { y = Relu(bias) }"""


def write(folder: Path, model: ir.Model) -> Path:
    path = folder / "net.onnx"
    path.write_bytes(graphs.serialized(model))
    return path


def test_masks_and_lengths_belong_to_their_axis(tmp_path: Path) -> None:
    request = Request(axes=["time"], masks=["mask=time"], pad_masks=["hidden=time"], lengths=["length=time"])
    lowered, passes = from_file(write(tmp_path, parse(MASKED)), request)
    (axis,) = lowered.padded_axes
    assert (axis.axis, axis.masks, axis.length_inputs) == ("time", {"mask": 1, "hidden": 0}, ("length",))
    assert (lowered.graph, lowered.batch_axis, lowered.data_outputs) == ("net", "batch", ("y",))
    names = [each.name for each in passes]
    assert names[0] == "simplify" and "remove_mask_inputs" in names and names[-1] == PadAxes.name


def test_passes_are_those_of_a_build_up_to_padding(tmp_path: Path) -> None:
    _, passes = from_file(write(tmp_path, parse(MASKED)), Request(axes=["time"]))
    assert passes[-1].name == PadAxes.name
    assert "canonicalize_reshapes" in [each.name for each in passes]


def test_length_inputs_get_names_that_are_free() -> None:
    model = parse("(float[batch,t] x, float[batch] t_length) => (float[batch,t] y) { y = Relu(x) }")
    assert padded_axes(model, Request(axes=["t"]))[0].length_input == "t_length_2"


def test_batch_is_named_or_the_usual_one_or_none(tmp_path: Path) -> None:
    path = write(tmp_path, parse("(float[rows,t] x) => (float[rows,t] y) { y = Relu(x) }"))
    assert from_file(path, Request(axes=["t"]))[0].batch_axis is None
    assert from_file(path, Request(axes=["t"], batch="rows"))[0].batch_axis == "rows"
    assert from_file(path, Request(batch="rows"))[0].padded_axes == ()


def test_windows_know_their_caches_and_what_a_call_adds(tmp_path: Path) -> None:
    states = ["past=next_past", "context=next_context"]
    lowered, _ = from_file(write(tmp_path, streaming().model), Request(windows=["cache=6"], states=states))
    assert [(cache.axis, cache.slots, cache.step) for cache in lowered.caches] == [("cache", 6, 2)]
    assert lowered.states == (State("past", "next_past", 1, "cache"), State("context", "next_context", None))
    assert lowered.data_outputs == ("y",)


def test_unknown_names_are_answered_with_the_known_ones(tmp_path: Path) -> None:
    path = write(tmp_path, parse(MASKED))
    with pytest.raises(RecipeError, match="known: batch, heads, time"):
        from_file(path, Request(axes=["frames"]))
    with pytest.raises(RecipeError, match="known: bias, hidden, length, mask, x"):
        from_file(path, Request(axes=["time"], masks=["masc=time"]))
    with pytest.raises(RecipeError, match="known: y"):
        from_file(path, Request(windows=["time=3"], states=["x=z"]))
