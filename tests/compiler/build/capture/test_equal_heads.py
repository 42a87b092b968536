"""equal_heads: what is equal is projected once, and nothing else is shared."""

import numpy as np
import pytest

from compiler.build.capture.equal_heads import merge_equal_heads
from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.runners.session import run_model
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Axis, Input, ShareHeads, Source
from compiler.rewriting.attention.attention import find_attentions
from tests.kit.attention import HEADS, POSITIONS, ROWS, SIZE, WIDTH, feeds, text, weights
from tests.kit.graphs import parse

SPEC = Graph(
    source=Source(factory="my_model:build"),
    inputs={"x": Input(shape=("batch", "time", WIDTH), dtype="float32")},
    outputs=("y",),
    axes={"batch": Axis(buckets=(1,)), "time": Axis(buckets=(24,), length_input="time_length")},
    share_heads=ShareHeads(groups=2, answers="numbers", limit=1.0),
)


def tied(*, biases: bool = True) -> dict[str, np.ndarray]:
    """Weights whose heads 0 and 2, and 1 and 3, have equal keys and values."""
    found = weights()
    for name in ("wk", "wv", *(("bk", "bv") if biases else ())):
        heads = found[name].reshape(-1, HEADS, SIZE)
        heads[:, 2:] = heads[:, :2]
    return found


@pytest.mark.parametrize(
    ("positions", "rows"), [*((each, "batch first") for each in POSITIONS), *(("none", each) for each in ROWS)]
)
def test_equal_keys_and_values_are_projected_once(positions: str, rows: str) -> None:
    whole, model = (parse(text(positions, rows=rows), tied()) for _ in range(2))
    merge_equal_heads(model, "net", SPEC)
    found = find_attentions(model)
    assert found.shared == 1 and not found.attentions
    shapes = [list(value.shape or ()) for value in model.graph.initializers.values()]
    assert shapes.count([WIDTH, 2 * SIZE]) == 2
    (feed,) = feeds(1, seed=5)[0]
    right = run_model(whole, feed)["y"]
    np.testing.assert_allclose(run_model(model, feed)["y"], right, atol=1e-5 * np.abs(right).max())
    graphs.infer_shapes(model)


@pytest.mark.parametrize(
    ("given", "groups", "got"),
    [(weights(), 2, "groups of 1, 1, 1, 1"), (tied(biases=False), 2, "groups of 1, 1, 1, 1"), (tied(), 1, "of 2, 2")],
    ids=["unequal", "unequal biases", "more groups"],
)
def test_heads_that_are_not_equal_are_refused(given: dict[str, np.ndarray], groups: int, got: str) -> None:
    spec = SPEC.model_copy(update={"share_heads": ShareHeads(groups=groups, answers="numbers", limit=1.0)})
    with pytest.raises(Refused, match=got):
        merge_equal_heads(parse(text(), given), "net", spec)


def test_a_graph_whose_attention_is_not_found_is_refused() -> None:
    model = parse(text(gate="s = Sigmoid(x)  gated = Mul(flat, s)"), tied())
    with pytest.raises(Refused, match="expected every attention to be found: expected a projection behind, got Mul"):
        merge_equal_heads(model, "net", SPEC)
