"""select_states: of all that is computed frame by frame from caches, what makes the step cheapest is carried."""

import dataclasses

import numpy as np

from compiler import ir as house
from compiler.passes.pad_axes import PadAxes
from compiler.passes.select_states import SelectStates
from compiler.stages import Lowered, State, Window
from tests.kit.contract import verify_pass, verify_refusal, verify_untouched
from tests.kit.graphs import BATCH, copy_of, ops_of, parse, random_weights, streaming


def caching(body: str, outputs: str = "", inputs: str = "", frames_axis: int = 1) -> Lowered:
    """A cache `past` joined to `next_past`, and a body that makes `y` of it."""
    text = f"""(float[batch,2,4] x, float[batch,cache,4] past{inputs}, float[4,4] w, float[4] g, float[4] b)
    => (float[batch,q,r] y, float[batch,kept,4] next_past{outputs})
    <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] newest = {{-2}}, int64[1] end = {{9223372036854775807}},
     int64[4] heads = {{0, -1, 2, 2}}>
    {{
        next_past = Concat<axis = 1>(past, x)
        {body}
    }}"""
    model = parse(text, random_weights({"w": (4, 4), "g": (4,), "b": (4,)}))
    states = (State("past", "next_past", frames_axis),)
    return Lowered("tiny", model, states=states, window=Window("cache", 6, 2, "real_length", None), batch_axis=BATCH)


DEAR = SelectStates(multiply_adds_per_s=1e9)
"""Of a machine whose arithmetic is slow beside its memory: products are worth carrying at the width of these graphs."""

CHEAP = SelectStates(multiply_adds_per_s=1e15, bytes_per_s=1e9)
"""Of a machine on which only memory takes time."""

MIX = "t = Transpose<perm = [0, 2, 1]>(keys)  s = MatMul(x, t)  p = Softmax<axis = -1>(s)  y = MatMul(p, keys)"


def test_keys_are_carried_instead_of_frames() -> None:
    origin = caching("n = LayerNormalization<axis = -1>(next_past, g, b)  keys = MatMul(n, w)  " + MIX)
    outcome = verify_pass(SelectStates(), origin, tolerance=1e-5)
    assert [state.input for state in outcome.lowered.states] == ["past_carried_0"]
    assert "past" not in house.inputs_named(outcome.lowered.model)


def test_a_stream_with_positions_and_convolution() -> None:
    verify_pass(SelectStates(), streaming(), tolerance=1e-5)


def test_only_the_new_frames_need_nothing_of_the_cache() -> None:
    body = "keys = MatMul(next_past, w)  new = Slice(next_past, newest, end, one)  " + MIX.replace("y =", "m =")
    body += "  y = Add(m, new)"
    outcome = verify_pass(SelectStates(), caching(body), tolerance=1e-5)
    assert "past" not in house.inputs_named(outcome.lowered.model)


def test_frames_that_are_read_as_they_are_travel_beside_their_projection() -> None:
    # regression: the map of states asked for a state of the name of its own result
    body = "keys = MatMul(next_past, w)  " + MIX.replace("MatMul(p, keys)", "MatMul(p, next_past)")
    outcome = verify_pass(DEAR, caching(body), tolerance=1e-5)
    assert [state.input for state in outcome.lowered.states] == ["past_carried_0", "past"]


def test_a_projection_that_nothing_reads_is_no_reason_to_carry() -> None:
    verify_untouched(SelectStates(), caching("dead = MatMul(next_past, w)  " + MIX.replace("keys", "next_past")))


def test_a_cache_that_is_mixed_as_it_is_stays() -> None:
    origin = caching(MIX.replace("keys", "next_past"))
    outcome = verify_untouched(SelectStates(), origin)
    assert outcome.matched == 1


def test_a_cache_whose_function_is_wider_stays_to_the_last_node() -> None:
    # regression: nodes were left behind while the report said nothing had changed
    body = "keys = Concat<axis = -1>(next_past, next_past)  new = Slice(next_past, newest, end, one)  "
    body += """x2 = Concat<axis = -1>(x, x)  t = Transpose<perm = [0, 2, 1]>(keys)  s = MatMul(x2, t)
        p = Softmax<axis = -1>(s)  m = MatMul(p, next_past)  y = Add(m, new)"""
    verify_untouched(SelectStates(), caching(body))


def test_a_projection_that_is_also_a_result_stays_a_result() -> None:
    # regression: the graph was malformed, because the result still hung on the removed cache
    body = "keys = MatMul(next_past, w)  " + MIX
    verify_pass(SelectStates(), caching(body, ", float[batch,kept,4] keys"), tolerance=1e-5)


def test_frames_are_carried_before_the_batch_axis_moves() -> None:
    # regression: a state was carried whose first axis was not the batch
    body = (
        """k = MatMul(next_past, w)  first = Transpose<perm = [1, 0, 2]>(k)  bent = Tanh(first)
        keys = Transpose<perm = [1, 0, 2]>(bent)  """
        + MIX
    )
    outcome = verify_pass(SelectStates(), caching(body), tolerance=1e-5)
    states = house.inputs_named(outcome.lowered.model)
    for state in outcome.lowered.states:
        shape = states[state.input].shape
        assert shape is not None
        assert str(shape[0]) == BATCH
    PadAxes().apply(copy_of(outcome.lowered))


def test_heads_are_split_before_they_are_carried() -> None:
    body = """k = MatMul(next_past, w)  h = Reshape(k, heads)  keys = Transpose<perm = [0, 2, 1, 3]>(h)
        q = Reshape(x, heads)  query = Transpose<perm = [0, 2, 3, 1]>(q)  s = MatMul(keys, query)
        p = Softmax<axis = 2>(s)  turned = Transpose<perm = [0, 1, 3, 2]>(p)  heads_of_y = MatMul(turned, keys)
        y = ReduceMean<keepdims = 0>(heads_of_y, one)"""
    outcome = verify_pass(SelectStates(), caching(body), tolerance=1e-5)
    shape = house.inputs_named(outcome.lowered.model)["past_carried_0"].shape
    assert list(map(str, shape or ())) == [BATCH, "2", "cache", "2"]
    assert outcome.rewritten == 1


def test_a_whole_shape_of_the_cache_is_read_from_elsewhere() -> None:
    body = "keys = MatMul(next_past, w)  size = Shape(next_past)  flat = Reshape(keys, size)  " + MIX.replace(
        "keys", "flat"
    )
    verify_pass(SelectStates(), caching(body), tolerance=1e-5)


def test_a_cache_joined_behind_the_new_frames_is_reported() -> None:
    origin = caching("keys = MatMul(next_past, w)  " + MIX)
    join = next(node for node in origin.model.graph if node.op_type == "Concat")
    first, second = join.inputs
    join.replace_input_with(0, second)
    join.replace_input_with(1, first)
    outcome = verify_untouched(SelectStates(), origin, refused="not joined exactly once")
    assert outcome.refused[0].place.tensor == "past"


def test_a_cache_that_is_joined_twice_is_reported() -> None:
    body = "again = Concat<axis = 1>(past, x)  both = Add(again, next_past)  keys = MatMul(both, w)  " + MIX
    verify_untouched(SelectStates(), caching(body), refused="not joined exactly once")


def test_a_window_cut_inside_the_graph_is_reported() -> None:
    verify_untouched(SelectStates(), streaming(in_graph_window=True), refused="not joined exactly once")


def test_without_a_window_there_is_nothing_to_do() -> None:
    verify_untouched(SelectStates(), dataclasses.replace(streaming(), window=None))


def test_after_padding_it_is_too_late() -> None:
    padded = PadAxes().apply(copy_of(streaming())).lowered
    verify_refusal(SelectStates(), padded, message="padded already", cure="before pad_axes")


def test_carried_values_of_empty_caches_are_empty() -> None:
    lowered = DEAR.apply(copy_of(streaming())).lowered
    (state_map,) = lowered.state_maps
    mapped = state_map.apply({"past": np.zeros((3, 0, 4), np.float32), "context": np.ones((3, 4, 2), np.float32)})
    assert {name: array.shape for name, array in mapped.items()} == {
        "context": (3, 4, 2), "past_carried_0": (3, 0, 4), "past_carried_1": (3, 0, 4)
    }  # fmt: skip
    assert ops_of(lowered.model).count("Concat") == 3
