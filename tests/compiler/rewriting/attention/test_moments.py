"""moments: sums over calibration streams."""

import numpy as np

from compiler.graph import model as graphs
from compiler.rewriting.attention.attention import find_attentions
from compiler.rewriting.attention.moments import head_moments
from tests.kit.attention import HEADS, SIZE, attention, feeds, weights


def test_moments_are_those_of_the_projections() -> None:
    graph, stored = attention("turned"), weights()
    graphs.infer_shapes(graph.model)
    streams = feeds(3, 7)
    (found,) = head_moments(graph, find_attentions(graph.model).attentions, streams)
    rows = np.concatenate([feed["x"][0] for stream in streams for feed in stream]).astype(np.float64)
    keys = (rows @ stored["wk"] + stored["bk"]).reshape(-1, HEADS, SIZE)
    queries = (rows @ stored["wq"] + stored["bq"]).reshape(-1, HEADS, SIZE)
    np.testing.assert_allclose(found.keys, np.einsum("thi,tgj->higj", keys, keys), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found.queries, np.einsum("thi,thj->hij", queries, queries), rtol=1e-3, atol=1e-3)
