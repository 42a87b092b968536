"""Magnitudes are those of what is valid, without what masks fill in."""

import numpy as np
import pytest

from compiler.calib.magnitudes import largest_magnitudes, mask_fills, with_magnitudes
from compiler.graph.stages import Lowered
from compiler.passes.pad_axes import PadAxes
from compiler.passes.window_states import WindowStates
from tests.kit.graphs import copy_of, feeds_of, parse, streaming


def windowed() -> Lowered:
    return WindowStates().apply(PadAxes().apply(copy_of(streaming())).lowered).lowered


def test_the_largest_magnitudes_are_those_of_the_graph_without_padding() -> None:
    dynamic, static = streaming(), windowed()
    streams = [feeds_of(dynamic, 6), feeds_of(dynamic, 2, seed=8)]
    plain, _ = largest_magnitudes(dynamic, streams)
    padded, last = largest_magnitudes(static, streams)
    for name in ("normed", "query", "keys", "mixed", "convolved", "y"):
        assert padded[name] == pytest.approx(plain[name], rel=1e-5), name
    assert len(last) == 2 and all(name in last[0] for name in ("x", "past", "context"))


def test_what_masks_fill_in_is_not_counted_and_a_real_giant_is() -> None:
    weights = {"low": np.array(-3.4028235e38, np.float32), "m": np.array([True, False, True])}
    text = "(float[3] x, bool[3] m, float low) => (float[3] y) { y = Where(m, x, low) }"
    lowered = Lowered("tiny", parse(text, weights))
    assert [round(fill / 1e38, 3) for fill in mask_fills(lowered.model)] == [-3.403]
    found, _ = largest_magnitudes(lowered, [[{"x": np.array([7e4, 9e9, -1.0], np.float32)}]])
    assert found["y"] == 7e4 and found["x"] == np.float32(9e9)


def test_infinity_and_nan_are_no_magnitude() -> None:
    lowered = Lowered("tiny", parse("(float[3] x) => (float[3] y) { y = Neg(x) }"))
    found, _ = largest_magnitudes(lowered, [[{"x": np.array([np.inf, np.nan, -3.0], np.float32)}]])
    assert found["y"] == 3.0


def test_names_and_order_of_outputs_stay() -> None:
    before = streaming()
    names = [value.name for value in before.model.graph.outputs]
    assert [value.name for value in with_magnitudes(before).model.graph.outputs][: len(names)] == names
