"""What convolutions, pools, recurrent layers and transforms read along time is told to the frame."""

import math
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.axis_map import NotMapped
from compiler.proof.derivation.dependence import EVERYWHERE, HERE, Reach
from compiler.proof.derivation.derive import derive
from compiler.proof.derivation.reading import Read, read_along

WIDTH = 4


def graph(op_type: str, taps: int, frames_first: bool = False, **attributes: Any) -> ir.Model:
    """Features through one operator that reads along time."""
    shape: list[int | str] = ["time", "batch", WIDTH] if frames_first else ["batch", WIDTH, "time"]
    given = ir.Value(name="features", shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))
    made = ir.Graph([given], [], nodes=[], opset_imports={"": 20}, name="reading")
    model = ir.Model(made, ir_version=10)
    insert = graphs.Inserter(model, "test")

    def weights(*sizes: int) -> ir.Value:
        return insert.constant(np.ones(sizes, np.float32), "weights")

    operands: list[ir.Value | None] = [given]
    if op_type in ("Conv", "ConvTranspose"):
        operands.append(weights(WIDTH, WIDTH, taps))
    elif op_type == "Resize":
        operands += [None, insert.constant(np.array([1, 1, taps], np.float32), "scales")]
    elif op_type == "GRU":
        ways = 2 if attributes["direction"] == "bidirectional" else 1
        operands += [weights(ways, 3 * WIDTH, WIDTH), weights(ways, 3 * WIDTH, WIDTH)]
        attributes["hidden_size"] = WIDTH
    else:
        attributes["kernel_shape"] = [taps]
    value = insert.op(op_type, operands, attributes, name="read")
    value.name = "result"
    made.outputs.append(value)
    graphs.infer_shapes(model)
    return model


READ: dict[str, tuple[ir.Model, int, Reach]] = {
    "three taps": (graph("Conv", 3, pads=[1, 1]), 2, Reach(-1, 1)),
    "three taps apart": (graph("Conv", 3, pads=[2, 2], dilations=[2]), 2, Reach(-2, 2)),
    "causal": (graph("Conv", 3, pads=[2, 0]), 2, Reach(-2, 0)),
    "ahead alone": (graph("Conv", 3, pads=[0, 2]), 2, Reach(0, 2)),
    "one tap": (graph("Conv", 1), 2, HERE),
    "same upper": (graph("Conv", 4, auto_pad="SAME_UPPER"), 2, Reach(-1, 2)),
    "same lower": (graph("Conv", 4, auto_pad="SAME_LOWER"), 2, Reach(-2, 1)),
    "pool": (graph("MaxPool", 3, pads=[1, 1]), 2, Reach(-1, 1)),
    "forward": (graph("GRU", 0, True, direction="forward"), 0, Reach(-math.inf, 0)),
    "reverse": (graph("GRU", 0, True, direction="reverse"), 0, Reach(0, math.inf)),
    "both": (graph("GRU", 0, True, direction="bidirectional"), 0, EVERYWHERE),
}


@pytest.mark.parametrize("name", READ)
def test_reach_is_told_exactly(name: str) -> None:
    model, axis, expected = READ[name]
    (node,) = model.graph
    assert read_along(node, axis).reach == expected


SPREAD: dict[str, tuple[int, dict[str, Any], Read]] = {
    "no overlap": (4, {"strides": [4]}, Read(0, 0, 1, True)),
    "one tap": (1, {}, Read(0, 0, 1, True)),
    "overlap in front": (8, {"strides": [4], "pads": [0, 4]}, Read(1, 0, 1, True)),
    "overlap on both sides": (8, {"strides": [4], "pads": [2, 2]}, Read(1, 1, 1, True)),
    "apart": (4, {"strides": [2], "dilations": [2], "pads": [0, 5]}, Read(3, 0, 1, True)),
    "an entry behind": (4, {"strides": [2], "pads": [0, 3], "output_padding": [1]}, Read(1, 0, 1, True)),
}


@pytest.mark.parametrize("name", SPREAD)
def test_a_transposed_convolution_reads_what_reaches_its_entries(name: str) -> None:
    taps, attributes, expected = SPREAD[name]
    (node,) = graph("ConvTranspose", taps, **attributes).graph
    assert read_along(node, 2) == expected


def test_what_is_read_at_a_rate_is_counted_in_whole_frames() -> None:
    (node,) = graph("Conv", 7, pads=[6, 0]).graph
    assert (read_along(node, 2, 4).reach, read_along(node, 2, 4).back) == (Reach(-2, 0), 6)
    (node,) = graph("Conv", 3, pads=[1, 1]).graph
    assert read_along(node, 2, 4).reach == Reach(-1, 1)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, True),
        ({"mode": "nearest"}, True),
        ({"mode": "nearest", "nearest_mode": "ceil"}, False),
        ({"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}, False),
        ({"mode": "linear"}, False),
    ],
)
def test_a_resize_repeats_entries_or_is_refused(attributes: dict[str, Any], expected: bool) -> None:
    (node,) = graph("Resize", 3, **attributes).graph
    if expected:
        assert read_along(node, 2) == Read(is_resized=True)
    else:
        with pytest.raises(NotMapped, match="computes of neighbours"):
            read_along(node, 2)


def test_a_transposed_convolution_that_makes_too_few_entries_says_how_many_it_may() -> None:
    (node,) = graph("ConvTranspose", 4, strides=[2], pads=[1, 2]).graph
    with pytest.raises(NotMapped, match=r"makes 2\*time - 1 entries of time.* such that it makes 2\*time"):
        read_along(node, 2)


@pytest.mark.parametrize("name", [name for name, (_, _, reach) in READ.items() if reach.high > 0])
def test_what_looks_ahead_is_refused_with_its_reach(name: str) -> None:
    model, _, reach = READ[name]
    with pytest.raises(Refused) as refused:
        derive(graphs.clone(model), "time", "past", 8)
    assert str(reach) in refused.value.message
    assert refused.value.place.op == next(iter(model.graph)).op_type


def test_the_newest_frames_of_a_convolution_are_kept() -> None:
    (kept,) = derive(graphs.clone(READ["causal"][0]), "time", "past", 8).cached
    assert (kept.kept, kept.is_state, kept.is_joined) == (2, False, False)


def test_the_state_of_a_recurrence_is_carried() -> None:
    (state,) = derive(graphs.clone(READ["forward"][0]), "time", "past", 8).cached
    assert (state.kept, state.is_state, state.is_joined) == (0, True, False)
    assert [str(dim) for dim in state.value.shape or ()] == ["1", "batch", str(WIDTH)]


NOT_KEPT = {
    "pool": (graph("MaxPool", 3, pads=[2, 0]), "no rule says what steps of MaxPool along time keep"),
    "same lower": (graph("Conv", 2, auto_pad="SAME_LOWER"), "no rule says what steps of Conv along time keep"),
}


@pytest.mark.parametrize("name", NOT_KEPT)
def test_what_keeps_otherwise_has_no_steps_yet(name: str) -> None:
    model, said = NOT_KEPT[name]
    with pytest.raises(Refused, match=said):
        derive(graphs.clone(model), "time", "past", 8)


def begun(number: float) -> ir.Model:
    """A recurrence that begins with a layer of a stack of states, all of them one number."""
    model = graphs.clone(READ["forward"][0])
    (node,) = model.graph
    insert = graphs.Inserter(model, "test", before=node)
    one = insert.constant(np.array([[[number]]], np.float32), "one")
    rows = insert.op("Shape", [model.graph.inputs[0]], {"start": 1, "end": 2}, name="rows", dtype=ir.DataType.INT64)
    sizes = insert.op("Concat", [insert.int64s(2), rows, insert.int64s(WIDTH)], {"axis": 0}, name="sizes")
    stack = insert.op("Expand", [one, sizes], name="stack")
    state = insert.op("Slice", [stack, *(insert.int64s(each) for each in (0, 1, 0))], name="state")
    node.resize_inputs(6)
    node.replace_input_with(5, state)
    graphs.infer_shapes(model)
    return model


def test_a_recurrence_may_begin_with_zeros_that_are_cut_from_a_stack() -> None:
    (state,) = derive(begun(0.0), "time", "past", 8).cached
    assert state.is_state


def test_a_recurrence_may_begin_with_other_numbers_which_its_state_begins_with() -> None:
    (state,) = derive(begun(0.5), "time", "past", 8).cached
    assert np.array_equal(state.begins, np.full((1, 1, WIDTH), 0.5, np.float32))


def test_a_recurrence_whose_rows_begin_apart_is_refused() -> None:
    model = begun(0.5)
    node, rows = model.graph.node(-1), next(each for each in model.graph if each.op_type == "Shape").outputs[0]
    insert = graphs.Inserter(model, "test", before=node)
    table = insert.constant(np.ones((1, 9, WIDTH), np.float32), "table")
    cut = insert.op("Slice", [table, insert.int64s(0), rows, insert.int64s(1)], name="cut", shape=[1, "batch", WIDTH])
    node.replace_input_with(5, cut)
    graphs.infer_shapes(model)
    with pytest.raises(Refused, match="GRU begins with a state that is not one row of constants"):
        derive(model, "time", "past", 8)


def test_a_state_that_is_used_hangs_on_the_last_frame() -> None:
    model = graphs.clone(READ["forward"][0])
    (node,) = model.graph
    node.resize_outputs(2)
    node.outputs[1].name, node.outputs[1].dtype = "last", ir.DataType.FLOAT
    model.graph.outputs.append(node.outputs[1])
    graphs.infer_shapes(model)
    with pytest.raises(Refused, match="the state of GRU behind the last frame is used"):
        derive(model, "time", "past", 8)


def test_strides_make_another_number_of_frames() -> None:
    (node,) = graph("Conv", 3, strides=[2], pads=[1, 1]).graph
    with pytest.raises(NotMapped, match="makes one entry of 2, and a frame has 1"):
        read_along(node, 2)


def test_one_tap_is_computed_frame_by_frame() -> None:
    assert derive(graph("ConvTranspose", 1), "time", "past", 8).cached == ()
    assert derive(graph("Conv", 1), "time", "past", 8).cached == ()
