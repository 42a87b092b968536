"""What runs on the host and what the device computes: together the graph, the device's half in numbers alone."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.graph.runners.session import open_model
from compiler.targets.ethos_u.host_side import Sides, require_numbers, split_sides
from compiler.targets.ethos_u.masks import Limits, hidden_scores, write_masks
from tests.compiler.targets.ethos_u.graphs import LENGTHS, attention, feeds
from tests.kit.graphs import parse


def halves() -> Sides:
    model = attention()
    write_masks(model, {str(node.name): Limits(40.0, -60.0) for node in hidden_scores(model)})
    return split_sides(model, LENGTHS)


def names(values: object) -> list[str]:
    return [str(value.name) for value in values]  # type: ignore[attr-defined]


def test_both_halves_together_compute_the_graph() -> None:
    sides, feed = halves(), feeds(3)
    taken = {name: feed[name] for name in names(sides.host.graph.inputs)}
    made = dict(zip(names(sides.host.graph.outputs), open_model(sides.host).run(None, taken), strict=True))
    assert not np.isnan(made["filled"]).any()
    full = {**feed, **made}
    got = open_model(sides.device).run(None, {name: full[name] for name in names(sides.device.graph.inputs)})
    expected = open_model(attention()).run(None, feed)
    assert np.abs(got[0] - expected[0]).max() < 1e-5
    assert np.array_equal(got[1], expected[1])


def test_the_device_has_numbers_alone_and_no_product_is_on_the_host() -> None:
    sides = halves()
    require_numbers(sides.device, "net", "ethos_u")
    assert names(sides.device.graph.inputs) == ["x", "filled", "shown_limit"]
    operators = {node.op_type for node in sides.host.graph}
    assert operators <= {"Constant", "Slice", "Cast", "Unsqueeze", "Where"}, operators
    assert {"MatMul", "Softmax", "Min"} <= {node.op_type for node in sides.device.graph}


def test_a_lookup_of_tokens_is_on_the_host_and_what_follows_on_the_device() -> None:
    text = """(int64[1,3] tokens, float[5,4] table, float[4,4] w) => (float[1,3,4] y) {
        rows = Gather(table, tokens)  product = MatMul(rows, w)  y = Relu(product)
    }"""
    weights = {"table": np.ones((5, 4), np.float32), "w": np.eye(4, dtype=np.float32)}
    sides = split_sides(parse(text, weights), ())
    assert [node.op_type for node in sides.host.graph] == ["Gather"]
    assert names(sides.device.graph.inputs) == ["rows"]


def test_a_graph_without_masks_leaves_the_host_nothing() -> None:
    sides = split_sides(parse("(float[1,4] x) => (float[1,4] y) { y = Relu(x) }", {}), ())
    assert (list(sides.host.graph.outputs), names(sides.device.graph.inputs)) == ([], ["x"])


PICKED = """(float[1,4] x, int64[1] shift, float[4,4] w) => (int64[1,1] y, float[1,4] shares, float[1,4] scores) {
    product = MatMul(x, w)  scores = Relu(product)  shares = LogSoftmax<axis = 1>(scores)
    best = ArgMax<axis = 1>(scores)  by = Neg(shift)  y = Add(best, by)
}"""
"""An index and logarithms at the end of a graph, and a shift of the index that follows from whole numbers alone."""


def test_an_index_and_logarithms_at_the_end_leave_the_device() -> None:
    weights = {"w": np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)}
    sides = split_sides(parse(PICKED, weights), ())
    require_numbers(sides.device, "net", "ethos_u")
    assert [node.op_type for node in sides.device.graph] == ["MatMul", "Relu"]
    assert names(sides.device.graph.outputs) == ["scores"]
    assert (names(sides.host.graph.outputs), names(sides.behind.graph.inputs)) == (["by"], ["by", "scores"])
    assert sorted(node.op_type for node in sides.behind.graph) == ["Add", "ArgMax", "LogSoftmax"]
    feed = {"x": np.array([[0.5, -1.0, 2.0, 0.1]], np.float32), "shift": np.array([7])}
    full = dict(feed)
    for part in (sides.host, sides.device, sides.behind):
        made = open_model(part).run(None, {name: full[name] for name in names(part.graph.inputs)})
        full |= dict(zip(names(part.graph.outputs), made, strict=True))
    for name, expected in zip(
        ("y", "shares", "scores"), open_model(parse(PICKED, weights)).run(None, feed), strict=True
    ):
        np.testing.assert_array_equal(full[name], expected, err_msg=name)


def test_what_follows_from_whole_numbers_alone_is_given_by_the_host() -> None:
    text = "(float[1,4] x, int64[1] count) => (float[1,4] y, int64[1] next) { y = Relu(x)  next = Add(count, count) }"
    sides = split_sides(parse(text, {}), ())
    assert (names(sides.host.graph.outputs), names(sides.device.graph.outputs)) == (["next"], ["y"])
    assert list(sides.behind.graph.outputs) == []


def test_whole_numbers_that_follow_from_data_are_refused_with_their_line_where_products_read_them() -> None:
    text = """(float[1,4] x, float[4,4] w) => (float[1,4] y) {
        best = ArgMax<axis = 1>(x)  n = Cast<to = 1>(best)  s = Add(x, n)  y = MatMul(s, w) }"""
    device: ir.Model = split_sides(parse(text, {"w": np.eye(4, dtype=np.float32)}), ()).device
    with pytest.raises(Refused, match="expected float32 in what the NPU computes, got INT64 in best") as caught:
        require_numbers(device, "net", "ethos_u")
    place = caught.value.place
    assert (place.node, place.op, place.source) == ("best_argmax", "ArgMax", "tiny.py:1 in forward: ArgMax")
