"""Masks and true sizes per row."""

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.graph.model import Dim, symbol
from compiler.graph.runners.session import run_model
from compiler.graph.stages import Array
from compiler.passes.pad_axes import PadAxes
from compiler.proof.facts.facts import make_fact
from compiler.proof.facts.interval import ANYTHING
from compiler.proof.facts.layout import Axis, Frames, Plain, Rows, Segment, Side, suffix
from compiler.proof.padding.valid_slots import Length, ValidSlots
from tests.kit.graphs import copy_of, ops_of, parse
from tests.kit.offline import check_padded, offline

TIME, BATCH = symbol("time"), symbol("batch")
ROWS: Axis = (Rows(BATCH),)


def made(axes: dict[int, Axis], axis: int, dims: tuple[Dim, ...], batch: str | int = "batch") -> Array:
    """The mask of three rows of lengths 1, 4 and 6 in 6 slots."""
    model = parse("(float[batch,time] x) => (bool[a] y) { y = Cast<to = 9>(x) }")
    length = ir.Value(name="length", shape=ir.Shape(["batch"]), type=ir.TensorType(ir.DataType.INT64))
    model.graph.inputs.append(length)
    places = ValidSlots(model, [Length("time", length)], batch, "test")
    mask = places.mask(make_fact(axes, lambda region: ANYTHING), axis, dims)
    assert mask is places.mask(make_fact(axes, lambda region: ANYTHING), axis, dims), "each mask once"
    model.graph.outputs[0] = mask
    feeds = {"x": np.zeros((3, 6), np.float32), "length": np.array([1, 4, 6])}
    return run_model(model, feeds)[str(mask.name)]


WANTED = np.arange(6)[None] < np.array([[1], [4], [6]])


def test_suffix_and_prefix_padding() -> None:
    np.testing.assert_array_equal(made({0: ROWS, 1: suffix(TIME)}, 1, (BATCH, TIME)), WANTED)
    right: Axis = (Frames((Segment(TIME, Side.RIGHT),)),)
    np.testing.assert_array_equal(made({0: ROWS, 1: right}, 1, (BATCH, TIME)), WANTED[:, ::-1])


def test_subsampled_axes_count_what_is_left() -> None:
    size = (TIME - 3) // 2 + 1
    mask = made({0: ROWS, 1: suffix(size)}, 1, (BATCH, size))
    np.testing.assert_array_equal(mask, np.arange(2)[None] < np.array([[0], [1], [2]]))


def test_several_segments() -> None:
    axis: Axis = (Frames((Segment(TIME, Side.RIGHT), Segment(TIME - 1))),)
    mask = made({0: ROWS, 1: axis}, 1, (BATCH, 2 * TIME - 1))
    np.testing.assert_array_equal(mask[1], [0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0])


def test_axes_in_any_order_and_merged_with_the_batch() -> None:
    turned = made({2: ROWS, 0: suffix(TIME)}, 0, (TIME, 5, BATCH))
    np.testing.assert_array_equal(turned[:, 0, :], WANTED.T)
    heads = made({0: (*ROWS, Plain(2)), 2: suffix(TIME)}, 2, (2 * BATCH, 7, TIME))
    np.testing.assert_array_equal(heads[:, 0], np.repeat(WANTED, 2, axis=0))
    flat = made({0: (*ROWS, *suffix(TIME))}, 0, (BATCH * TIME, 4))
    np.testing.assert_array_equal(flat[:, 0], WANTED.reshape(-1))


def test_a_shared_value_cannot_be_masked_per_row() -> None:
    with pytest.raises(Refused, match="all rows share"):
        made({1: suffix(TIME)}, 1, (5, TIME))


def test_the_mask_of_a_single_row_is_repeated_over_axes_merged_with_its_own() -> None:
    text = """(float[late,4] x, float[3,time,4] scores) => (float[3,q,4] y, float[r,4] z)
        <int64[1] flat = {-1}, int64[3] back = {3, -1, 4}, int64[1] four = {4}, int64[1] end = {9223372036854775807},
         int64[1] zero = {0}>
        { p = ArgMax<axis = 2, keepdims = 0>(scores)  i = Reshape(p, flat)  g = Gather(x, i)  y = Reshape(g, back)
          z = Slice(x, four, end, zero) }"""
    alone = dataclasses.replace(offline(text, axes=("time", "late")), batch_axis=None)
    outcome = PadAxes().apply(copy_of(alone))
    assert ops_of(outcome.lowered.model).count("Where") == 1
    check_padded(alone, outcome, rows=1)
