"""States along a padded axis go in and come back in the slots of its largest bucket, with zeros behind the length."""

import numpy as np
import pytest

from compiler.build.capture.held_states import hold_states, slice_states
from compiler.build.capture.initial_graph import states_of
from compiler.build.capture.next_states import moved_on
from compiler.build.capture.trial_calls import empty_states
from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.runners.session import run_model
from compiler.recipe.graph import Graph
from tests.kit.graphs import parse

SPEC = Graph.model_validate(
    {
        "source": {"factory": "m:f"},
        "inputs": {
            "memory": {"shape": ("batch", "text", 3), "dtype": "float32"},
            "weights": {"shape": ("batch", 2, "text"), "dtype": "float32", "state": "after"},
        },
        "outputs": ("after",),
        "axes": {"batch": {"buckets": (1, 2)}, "text": {"buckets": (4, 6), "length_input": "text_length"}},
    }
)

TEXT = """
(float[batch,text,3] memory, float[batch,2,text] weights) => (float[batch,2,text] after) <int64[1] last = {2}>
{ sums = ReduceSum<keepdims = 1>(memory, last)  row = Transpose<perm = [0, 2, 1]>(sums)  after = Add(weights, row) }
"""

UNKNOWN = """
(float[batch,text,3] memory, float[batch,2,text] weights) => (float[batch,2,3,n] after) <int64[1] last = {2}>
{ sums = ReduceSum<keepdims = 1>(memory, last)  there = NonZero(sums)  after = Gather<axis = 2>(weights, there) }
"""


def test_a_graph_takes_and_gives_all_slots() -> None:
    model = parse(TEXT, {})
    graphs.infer_shapes(model)
    hold_states(model, SPEC)
    random = np.random.default_rng(0)
    memory = random.standard_normal((1, 4, 3)).astype(np.float32)
    weights = random.standard_normal((1, 2, 6)).astype(np.float32)
    got = run_model(model, {"memory": memory, "weights": weights})["after"]
    np.testing.assert_allclose(got[..., :4], weights[..., :4] + memory.sum(2)[:, None], rtol=1e-6)
    np.testing.assert_array_equal(got[..., 4:], np.zeros((1, 2, 2)))
    assert graphs.dims_of(graphs.inputs_named(model)["weights"]) == (graphs.symbol("batch"), 2, 6)


def test_the_original_is_given_and_gives_as_much_as_a_call_is_long() -> None:
    feed = {"memory": np.ones((1, 4, 3), np.float32)}
    states = empty_states(SPEC, states_of(SPEC), 1)
    assert states["weights"].shape == (1, 2, 6)
    cut = slice_states(SPEC, feed, states)
    assert cut["weights"].shape == (1, 2, 4)
    after = moved_on(SPEC, states_of(SPEC), {}, feed, cut, {"after": np.ones((1, 2, 4), np.float32)})["after"]
    assert after[0].tolist() == 2 * [[1, 1, 1, 1, 0, 0]]


def test_a_state_whose_length_is_not_known_is_refused() -> None:
    model = parse(UNKNOWN, {})
    graphs.infer_shapes(model)
    with pytest.raises(
        Refused, match=r"a state along 'text' is returned as .*, and not known to be as long as the call"
    ):
        hold_states(model, SPEC)
