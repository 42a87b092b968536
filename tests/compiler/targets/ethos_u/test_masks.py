"""Masks as numbers: what the device computes is what the mask says, and nothing is infinite."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners.session import open_model
from compiler.targets.ethos_u.masks import HIDDEN, Limits, hidden_scores, write_masks
from tests.compiler.targets.ethos_u.graphs import attention, feeds
from tests.kit.graphs import parse


def limits_of(model: ir.Model, limits: Limits) -> dict[str, Limits]:
    return {str(node.name): limits for node in hidden_scores(model)}


def test_limits_lie_below_the_largest_score_of_every_row() -> None:
    assert Limits.of(np.array([3.0, -2.0, -np.inf, 5.0])) == Limits(5.0, -2.0 - HIDDEN)


@pytest.mark.parametrize("valid", [0, 3, 8])
def test_hidden_scores_come_to_nothing(valid: int) -> None:
    model = attention()
    written = graphs.clone(model)
    write_masks(written, limits_of(written, Limits(40.0, -60.0)))
    assert [node.op_type for node in written.graph].count("Min") == 1
    got, expected = (open_model(each).run(None, feeds(valid)) for each in (written, model))
    assert np.abs(got[0] - expected[0]).max() < 1e-5
    assert np.array_equal(got[1], expected[1])


def test_a_limit_that_is_too_high_shows_what_is_hidden() -> None:
    model = attention()
    write_masks(model, limits_of(model, Limits(40.0, 0.0)))
    feed = feeds(3)
    feed["x"] *= 0.1
    got, expected = (open_model(each).run(None, feed) for each in (model, attention()))
    assert np.abs(got[0] - expected[0]).max() > 1e-2


def test_what_is_hidden_behind_a_computation_is_multiplied_by_the_mask() -> None:
    text = """(float[1,4] x, float[1,4] mask) => (float[1,4] y) {
        zero = Constant<value = float {0.0}>()
        a = Relu(x)  valid = Cast<to = 9>(mask)  y = Where(valid, a, zero)
    }"""
    model = parse(text, {})
    write_masks(model, {})
    assert [node.op_type for node in model.graph if node.op_type in ("Where", "Mul")] == ["Mul"]
    array = np.array([[1.0, -2.0, 3.0, 4.0]], np.float32)
    (got,) = open_model(model).run(["y"], {"x": array, "mask": np.array([[1, 1, 0, 1]], np.float32)})
    assert got.tolist() == [[1.0, 0.0, 0.0, 4.0]]


def test_other_numbers_than_those_of_masks_stay() -> None:
    text = """(float[1,4] x, float[1,4] mask) => (float[1,4] y) {
        seven = Constant<value = float {7.0}>()
        a = Relu(x)  valid = Cast<to = 9>(mask)  y = Where(valid, a, seven)
    }"""
    model = parse(text, {})
    write_masks(model, {})
    assert "Where" in [node.op_type for node in model.graph]
