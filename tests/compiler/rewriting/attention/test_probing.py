"""probing: what parts of a graph do to channels."""

import numpy as np
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered
from compiler.rewriting.attention.attention import Attention, find_attentions
from compiler.rewriting.attention.probing import TURNED, channels_of, output_projection, projection, turning
from compiler.rewriting.attention.shared_maps import Channels
from tests.kit.attention import HEADS, SIZE, WIDTH, attention, feeds, weights

FEED = feeds(1, 10)[0][0]


def the_one(lowered: Lowered) -> Attention:
    graphs.infer_shapes(lowered.model)
    (found,) = find_attentions(lowered.model).attentions
    return found


def test_projections_are_the_weights_with_their_biases() -> None:
    graph, stored = attention("turned"), weights()
    each = the_one(graph)
    found = projection(graph.model, each.key, FEED)
    np.testing.assert_allclose(found.weights, stored["wk"], atol=1e-6)
    np.testing.assert_allclose(found.bias, stored["bk"], atol=1e-6)
    np.testing.assert_allclose(output_projection(graph.model, each, FEED).weights, stored["wo"], atol=1e-6)
    assert found.weights.shape == (WIDTH, HEADS * SIZE)


def test_turned_channels_are_found_in_pairs() -> None:
    graph = attention("turned")
    each = the_one(graph)
    tables = turning(graph.model, each.query, FEED), turning(graph.model, each.key, FEED, TURNED)
    assert channels_of(*tables) == Channels((), ((0, 2), (1, 3)))
    np.testing.assert_allclose(tables[0][3], tables[1][3], atol=1e-6)
    np.testing.assert_allclose(tables[0][3][0, [0, 2]], [np.cos(3), np.sin(3)], atol=1e-5)


def test_channels_that_nothing_turns_are_free() -> None:
    graph = attention()
    each = the_one(graph)
    tables = turning(graph.model, each.query, FEED), turning(graph.model, each.key, FEED, TURNED)
    assert channels_of(*tables) == Channels(tuple(range(SIZE)))


def turned(*angles: float) -> np.ndarray:
    """Rotations of channels 0 and 1 at some frames, beside a free channel."""
    found = np.zeros((len(angles), 3, 3))
    for at, angle in enumerate(angles):
        found[at, :2, :2] = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
        found[at, 2, 2] = 1
    return found


def test_some_channels_may_be_turned_and_others_free() -> None:
    assert channels_of(turned(0, 1, 2), 0.5 * turned(0, 1, 2)) == Channels((2,), ((0, 1),))


def test_what_positions_may_not_do_is_refused() -> None:
    shear, scaled = turned(0, 1), turned(0, 1)
    shear[1, 0, 1] *= 2
    scaled[1, 2, 2] = 2
    with pytest.raises(Refused, match="turn channels in pairs"):
        channels_of(turned(0, 1), shear)
    with pytest.raises(Refused, match="scaled alike"):
        channels_of(turned(0, 1), scaled)
    with pytest.raises(Refused, match="same pairs"):
        channels_of(turned(0, 1), np.stack([np.eye(3)] * 2))
    with pytest.raises(Refused, match="turn channels in pairs"):
        channels_of(*[np.random.default_rng(0).standard_normal((2, 3, 3))] * 2)


def test_heads_that_are_normalised_are_refused() -> None:
    norm = "size = ReduceL2<keepdims = 1>(k_turned, three)  normed = Div(k_turned, size)"
    graph = attention(key="normed", keys=norm)
    with pytest.raises(Refused, match="same linear map"):
        turning(graph.model, the_one(graph).key, FEED, TURNED)


def test_frames_that_are_treated_differently_are_refused() -> None:
    graph = attention()
    model = graph.model
    each = the_one(graph)
    product = next(node for node in model.graph if node.outputs[0].name == "k_biased")
    insert = graphs.Inserter(model, "test", after=product)
    ramp = insert.op(
        "Slice",
        [
            next(v for v in model.graph.initializers.values() if v.name == "cosines"),
            *[insert.int64s(n) for n in (0, 10, 0)],
        ],
        name="ramp",
    )
    scaled = insert.op(
        "Mul",
        [product.outputs[0], insert.op("ReduceSum", [ramp, insert.int64s(1)], name="ramps")],
        name="scaled_by_frame",
    )
    graphs.take_over(model, product.outputs[0], scaled, except_in=[node for node in [scaled.producer()] if node])
    with pytest.raises(Refused, match="one affine map"):
        projection(model, each.key, FEED)
