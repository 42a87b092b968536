"""site: what is found out about one attention."""

import numpy as np
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered
from compiler.rewriting.attention.attention import find_attentions
from compiler.rewriting.attention.shared_maps import Channels
from compiler.rewriting.attention.site import Site, site_of
from tests.kit.attention import HEADS, SIZE, attention, feeds, weights


def the_site(lowered: Lowered) -> Site:
    graphs.infer_shapes(lowered.model)
    (found,) = find_attentions(lowered.model).attentions
    return site_of(lowered.model, found, feeds(1)[0][0])


def test_keys_are_bound_by_positions_and_values_are_free() -> None:
    site = the_site(attention("turned"))
    assert site.keys == Channels((), ((0, 2), (1, 3))) and site.values == Channels(tuple(range(SIZE)))


def test_values_are_weighed_by_the_projection_behind() -> None:
    of_heads = weights()["wo"].reshape(HEADS, SIZE, -1).astype(np.float64)
    expected = [each @ each.T for each in of_heads]
    np.testing.assert_allclose(the_site(attention()).value_metrics, expected, atol=1e-5)


def test_values_that_are_changed_on_their_way_are_refused() -> None:
    graph = attention()
    graphs.infer_shapes(graph.model)
    heads = next(node for node in graph.model.graph if node.outputs[0].name == "v_heads")
    insert = graphs.Inserter(graph.model, "test", after=heads)
    doubled = insert.op("Add", [heads.outputs[0], heads.outputs[0]], name="doubled")
    graphs.take_over(graph.model, heads.outputs[0], doubled, except_in=[node for node in [doubled.producer()] if node])
    with pytest.raises(Refused, match="the projected values as they are"):
        the_site(graph)
