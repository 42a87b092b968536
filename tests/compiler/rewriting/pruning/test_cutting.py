"""cutting: channels taken out of every constant that has a part for them."""

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.session import run_model
from compiler.rewriting.pruning.cutting import affine_weights, cut, set_weights, stamped
from compiler.rewriting.pruning.inner_axes import inner_axes
from compiler.rewriting.pruning.kept_entries import KeptEntries
from tests.compiler.rewriting.pruning.test_inner_axes import SWISH, WEIGHTS, graph, images
from tests.kit.graphs import feeds_of
from tests.kit.pruning import SIZE, attending

KEPT = np.array([0, 1, 4, 7, 11])
GATED = "a = MatMul(x, w)  i = MatMul(x, u)  s = Sigmoid(i)  g = Mul(a, s)  y = MatMul(g, v)"
FEEDS = {"x": np.random.default_rng(3).standard_normal((2, 5, 4)).astype(np.float32)}


def test_without_some_channels_of_convolutions_the_rest_is_as_it_was() -> None:
    masked, small = images(), images()
    ((axis,), _), ((whole,), _) = inner_axes(small), inner_axes(masked)
    rows = affine_weights(whole)
    rows[[*range(4, 8), *range(20, 24)]] = 0.0
    set_weights(masked, whole.product, rows, "test")
    cut(small, axis, np.array([0, 2, 3, 4]), "test")
    graphs.infer_shapes(small)
    np.testing.assert_allclose(run_model(small, FEEDS)["y"], run_model(masked, FEEDS)["y"], atol=1e-5)


@pytest.mark.parametrize("body", [SWISH, GATED])
def test_the_cut_graph_is_the_graph_with_these_channels_at_0(body: str) -> None:
    masked, small = graph(body), graph(body)
    ((axis,), _), ((whole,), _) = inner_axes(small), inner_axes(masked)
    rows = affine_weights(whole)
    rows[[channel for channel in range(12) if channel not in KEPT]] = 0.0
    set_weights(masked, whole.product, rows, "test")
    cut(small, axis, KEPT, "test")
    graphs.infer_shapes(small)
    np.testing.assert_allclose(run_model(small, FEEDS)["y"], run_model(masked, FEEDS)["y"], atol=1e-6)
    shapes = {array.shape for node in small.graph for array in map(graphs.array_of, node.inputs) if array is not None}
    assert not {size for shape in shapes for size in shape} & {12}
    assert stamped(small, "test") and not stamped(masked, "test")


def test_all_channels_are_the_graph_to_the_bit() -> None:
    before, after = graph(SWISH), graph(SWISH)
    ((axis,), _) = inner_axes(after)
    cut(after, axis, np.arange(12), "test")
    set_weights(after, axis.product, affine_weights(axis), "test")
    assert run_model(after, FEEDS)["y"].tobytes() == run_model(before, FEEDS)["y"].tobytes()


def test_a_bias_goes_into_the_sum_behind() -> None:
    model = graph(SWISH)
    ((axis,), _) = inner_axes(model)
    rows = affine_weights(axis)
    assert rows.shape == (13, 4)
    np.testing.assert_array_equal(rows[-1], WEIGHTS["c"].astype(np.float64))
    rows[-1] += 2.0
    set_weights(model, axis.product, rows, "test")
    np.testing.assert_allclose(run_model(model, FEEDS)["y"], run_model(graph(SWISH), FEEDS)["y"] + 2.0, atol=1e-5)


def test_without_some_heads_attention_is_that_with_these_heads_at_0() -> None:
    masked, small = attending(), attending()
    ((axis,), _), ((whole,), _) = (inner_axes(each.model, each.states) for each in (small, masked))
    kept = np.array([0, 2, 3])
    rows = affine_weights(whole)
    rows[SIZE : 2 * SIZE] = 0.0
    set_weights(masked.model, whole.product, rows, "test")
    cut(small.model, axis, kept, "test")
    graphs.infer_shapes(small.model)
    right, got = runner_of(masked), runner_of(small)
    for feed in feeds_of(small, 6):
        np.testing.assert_allclose(got.step(feed)["y"], right.step(feed)["y"], atol=1e-5)
    assert got.states["keys"].shape[2] == 3 * SIZE and got.states["values"].shape[1] == 3
    of_all = KeptEntries({"keys": [(2, axis.indices(kept, 8))], "values": [(1, kept)]}).apply(right.states)
    for name, array in of_all.items():
        np.testing.assert_allclose(got.states[name], array, atol=1e-6)
