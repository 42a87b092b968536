"""rewriting: groups of heads in the graph."""

import numpy as np
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.passes.merge_kv_heads import MergeKvHeads
from compiler.rewriting.attention.attention import find_attentions
from compiler.rewriting.attention.rewriting import Rewriter, merged_weights, require_rewritable
from compiler.rewriting.attention.shared_maps import Maps
from compiler.rewriting.attention.site import site_of
from tests.kit.attention import POSITIONS, SIZE, attention, feeds
from tests.kit.graphs import copy_of


@pytest.mark.parametrize("positions", POSITIONS)
def test_groups_of_one_head_give_the_same_whatever_invertible_maps_are_used(positions: str) -> None:
    graph = attention(positions)
    changed = copy_of(graph)
    graphs.infer_shapes(changed.model)
    (found,) = find_attentions(changed.model).attentions
    require_rewritable(found)
    site = site_of(changed.model, found, feeds(1)[0][0])
    rng = np.random.default_rng(2)
    partition = [[2], [0], [3], [1]]
    values, keys = [], []
    for _ in partition:
        free = rng.standard_normal((1, SIZE, SIZE)) + 2 * np.eye(SIZE)
        values.append(Maps(free, np.asarray(np.linalg.inv(free), np.float64)))
        key = free
        if positions == "turned":  # complex numbers for the pairs (0, 2) and (1, 3)
            a, b = np.diag(rng.uniform(0.5, 2, SIZE // 2)), np.diag(rng.standard_normal(SIZE // 2))
            key = np.block([[a, b], [-b, a]])[np.newaxis]
        keys.append(Maps(key, np.asarray(np.linalg.inv(key), np.float64)))
    weights = merged_weights(site, partition, keys, values)
    Rewriter(changed.model, found, partition, weights, "test").write()
    graphs.prune(changed.model)
    graphs.infer_shapes(changed.model)
    for feed in feeds(1, 17)[0]:
        right, got = runner_of(graph).step(feed)["y"], runner_of(changed).step(feed)["y"]
        np.testing.assert_allclose(got, right, atol=2e-4 * np.abs(right).max())


def test_weights_that_something_else_reads_are_refused() -> None:
    graph = attention()
    graphs.infer_shapes(graph.model)
    (found,) = find_attentions(graph.model).attentions
    graph.model.graph.outputs.append(found.softmax.outputs[0])
    with pytest.raises(Refused, match="weights is read by more"):
        require_rewritable(found)


def test_projections_of_more_axes_are_refused() -> None:
    graph = attention()
    graphs.infer_shapes(graph.model)
    (found,) = find_attentions(graph.model).attentions
    source = found.query.product.inputs[0]
    assert source is not None
    source.shape = None
    with pytest.raises(Refused, match=r"\[batch, time, width\]"):
        require_rewritable(found)


def test_sizes_that_the_path_states_are_those_of_the_groups() -> None:
    again = "parts = Reshape(k_turned, apart)  joined = Reshape(parts, together)"
    graph = attention(key="joined", keys=again, related=True)
    MergeKvHeads(2).merges(graph)
    sizes = [
        graphs.array_of(node.inputs[1]) for node in graph.model.graph if node.outputs[0].name in ("parts", "joined")
    ]
    assert [list(each) for each in sizes if each is not None] == [[0, 2, -1, SIZE // 2, 2], [0, 2, -1, SIZE]]
    right = runner_of(attention(key="joined", keys=again, related=True)).step(feeds(1)[0][0])["y"]
    np.testing.assert_allclose(runner_of(graph).step(feeds(1)[0][0])["y"], right, atol=1e-3)


SIZES = """sizes = Shape(k_turned)  {}  number = Cast<to = 1>(picked)
    same = Div(number, number)  joined = Mul(k_turned, same)"""


@pytest.mark.parametrize("picked", ["picked = Gather(sizes, two)", "picked = Slice(sizes, two, three, zero)"])
def test_sizes_beside_the_number_of_heads_may_be_read(picked: str) -> None:
    graph = attention(key="joined", keys=SIZES.format(picked), related=True)
    merged = MergeKvHeads(2).apply(copy_of(graph))
    assert merged.rewritten == 1
    right = runner_of(graph).step(feeds(1)[0][0])["y"]
    np.testing.assert_allclose(runner_of(merged.lowered).step(feeds(1)[0][0])["y"], right, atol=1e-3)


@pytest.mark.parametrize("picked", ["Gather(sizes, one)", "Slice(sizes, one, three, zero)", "Identity(sizes)"])
def test_a_number_of_heads_that_is_read_is_refused(picked: str) -> None:
    picked = f"found = {picked}  picked = ReduceMax<keepdims = 0>(found)"
    with pytest.raises(Refused, match="got their number"):
        MergeKvHeads(2).merges(attention(key="joined", keys=SIZES.format(picked)))


def test_sizes_that_are_computed_as_a_whole_are_refused() -> None:
    again = """listed = Concat<axis = 0>(row, whole, frames, whole)
        stated = Abs(listed)  joined = Reshape(k_turned, stated)"""
    graph = attention(key="joined", keys=again)
    graphs.infer_shapes(graph.model)
    (found,) = find_attentions(graph.model).attentions
    with pytest.raises(Refused, match="keep the heads apart"):
        require_rewritable(found)
