"""select_states: of all that is computed frame by frame from caches, what makes the step cheapest is carried."""

import dataclasses
import random

import pytest

from compiler.errors import RecipeError
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Outcome, State
from compiler.passes.pad_axes import PadAxes
from compiler.passes.select_states import SelectStates
from runtime_lite.format.cache_axis import CacheAxis
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
    states = (State("past", "next_past", frames_axis, "cache"),)
    return Lowered(
        "tiny", model, states=states, caches=(CacheAxis("cache", 6, 2, "real_length", None),), batch_axis=BATCH
    )


DEAR = SelectStates(multiply_adds_per_s=1e9)
"""Of a machine whose arithmetic is slow beside its memory: products are worth carrying at the width of these graphs."""

SLOW = SelectStates(multiply_adds_per_s=1e6)
"""Of a machine that can hardly multiply."""

CHEAP = SelectStates(multiply_adds_per_s=1e15, bytes_per_s=1e9)
"""Of a machine on which only memory takes time."""

MIX = "t = Transpose<perm = [0, 2, 1]>(keys)  s = MatMul(x, t)  p = Softmax<axis = -1>(s)  y = MatMul(p, keys)"


def test_keys_are_carried_instead_of_frames() -> None:
    origin = caching("n = LayerNormalization<axis = -1>(next_past, g, b)  keys = MatMul(n, w)  " + MIX)
    outcome = verify_pass(SelectStates(), origin, tolerance=1e-5)
    assert [state.input for state in outcome.lowered.states] == ["past_carried_0"]
    assert "past" not in graphs.inputs_named(outcome.lowered.model)


def test_a_stream_with_positions_and_convolution() -> None:
    verify_pass(SelectStates(), streaming(), tolerance=1e-5)


def test_only_the_new_frames_need_nothing_of_the_cache() -> None:
    body = "keys = MatMul(next_past, w)  new = Slice(next_past, newest, end, one)  " + MIX.replace("y =", "m =")
    body += "  y = Add(m, new)"
    outcome = verify_pass(SelectStates(), caching(body), tolerance=1e-5)
    assert "past" not in graphs.inputs_named(outcome.lowered.model)


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
    states = graphs.inputs_named(outcome.lowered.model)
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
    shape = graphs.inputs_named(outcome.lowered.model)["past_carried_0"].shape
    assert list(map(str, shape or ())) == [BATCH, "2", "cache", "2"]
    assert outcome.rewritten == 1


def test_a_whole_shape_of_the_cache_is_read_from_elsewhere() -> None:
    body = "keys = MatMul(next_past, w)  size = Shape(next_past)  flat = Reshape(keys, size)  " + MIX.replace(
        "keys", "flat"
    )
    verify_pass(SelectStates(), caching(body), tolerance=1e-5)


def test_a_whole_shape_of_the_cached_frames_is_read_from_elsewhere() -> None:
    mixed = MIX.replace("y = MatMul(p, keys)", "a = MatMul(p, keys)  y = Add(a, some)")
    body = (
        f"size = Shape(past)  many = Expand(g, size)  some = ReduceSum(many, one)  keys = MatMul(next_past, w) {mixed}"
    )
    assert "past" not in graphs.inputs_named(verify_pass(DEAR, caching(body), tolerance=1e-5).lowered.model)


def test_sizes_that_a_pass_in_front_forgot_are_inferred_again() -> None:
    lowered = caching(f"keys = MatMul(next_past, w)  {MIX}")
    graphs.forget_shapes(lowered.model)
    assert DEAR.apply(lowered).rewritten == 1


def test_a_cache_joined_behind_the_new_frames_is_reported() -> None:
    origin = caching("keys = MatMul(next_past, w)  " + MIX)
    join = next(node for node in origin.model.graph if node.op_type == "Concat")
    first, second = join.inputs
    join.replace_input_with(0, second)
    join.replace_input_with(1, first)
    outcome = verify_untouched(SelectStates(), origin, refused="give every layer a cache of its own and feed it back")
    assert outcome.refused[0].place.tensor == "past"


def test_a_cache_that_is_joined_twice_is_reported() -> None:
    body = "again = Concat<axis = 1>(past, x)  both = Add(again, next_past)  keys = MatMul(both, w)  " + MIX
    verify_untouched(SelectStates(), caching(body), refused="not joined exactly once")


def test_a_window_cut_inside_the_graph_is_reported() -> None:
    verify_untouched(SelectStates(), streaming(in_graph_window=True), refused="cuts the joined cache before it returns")


@pytest.mark.parametrize(
    ("take", "parts"),
    [
        ("Gather<axis = 1>(past, {at})", "Unsqueeze({part}, one)"),
        ("Slice(past, {at}, {behind}, one)", "Identity({part})"),
    ],
)
def test_caches_stacked_in_one_tensor_are_reported_with_who_takes_them_apart(take: str, parts: str) -> None:
    """The model as its author has it, and as the cure says: with a cache for each layer there is a choice."""
    rank = 3 if "Gather" in take else 4
    joined = "  ".join(
        f"part_{layer} = {take.format(at=number, behind=behind)}  new_{layer} = Concat<axis = {rank - 2}>"
        f"(part_{layer}, {'x' if rank == 3 else 'wide'})  back_{layer} = {parts.format(part=f'new_{layer}')}"
        for layer, number, behind in ((0, "first" if rank == 3 else "zero", "one"), (1, "second", "two"))
    )
    model = parse(
        f"""(float[batch,2,4] x, float[batch,2,cache,4] past) => (float[batch,q,r,4] y, float[batch,2,kept,4] next_past)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64 first = {{0}},
         int64{"" if rank == 3 else "[1]"} second = {{1}}>
        {{ wide = Unsqueeze(x, one)  {joined}
           next_past = Concat<axis = 1>(back_0, back_1)  y = Softmax<axis = 2>(next_past) }}"""
    )
    states = (State("past", "next_past", 2, "cache"),)
    caches = (CacheAxis("cache", 6, 2, "real_length", None),)
    lowered = Lowered("tiny", model, states=states, caches=caches, batch_axis=BATCH)
    outcome = verify_untouched(SelectStates(), lowered, refused="a list of caches, one for each layer, not a stack")
    assert outcome.refused[0].place.op == take.partition("(")[0].partition("<")[0]


def test_without_a_window_there_is_nothing_to_do() -> None:
    verify_untouched(SelectStates(), dataclasses.replace(streaming(), caches=()))


# what is worth carrying


def caching_wide(body: str, frames_width: int = 32) -> Lowered:
    """`caching` with a weight that makes frames wider, and another that makes them narrow again."""
    text = f"""(float[batch,2,4] x, float[batch,2,{frames_width}] q, float[batch,cache,4] past,
        float[4,{frames_width}] w, float[{frames_width},4] v)
    => (float[batch,a,b] y, float[batch,kept,4] next_past)
    {{
        next_past = Concat<axis = 1>(past, x)
        {body}
    }}"""
    model = parse(text, random_weights({"w": (4, frames_width), "v": (frames_width, 4)}))
    states = (State("past", "next_past", 1, "cache"),)
    return Lowered(
        "tiny", model, states=states, caches=(CacheAxis("cache", 6, 2, "real_length", None),), batch_axis=BATCH
    )


WIDE = "t = Transpose<perm = [0, 2, 1]>(keys)  s = MatMul(q, t)  p = Softmax<axis = -1>(s)  y = MatMul(p, keys)"


def carried(outcome: Outcome) -> dict[str, list[str]]:
    """Shapes of the states by input."""
    inputs = graphs.inputs_named(outcome.lowered.model)
    return {each.input: list(map(str, inputs[each.input].shape or ())) for each in outcome.lowered.states}


def test_a_cheap_projection_that_is_eight_times_wider_is_computed_again() -> None:
    assert verify_untouched(CHEAP, caching_wide("keys = MatMul(next_past, w)  " + WIDE)).matched == 1


def test_a_dear_projection_is_carried_however_wide() -> None:
    outcome = verify_pass(SLOW, caching_wide("keys = MatMul(next_past, w)  " + WIDE), tolerance=1e-5)
    assert carried(outcome) == {"past_carried_0": [BATCH, "cache", "32"]}


def test_two_readers_share_what_is_carried_before_they_part() -> None:
    outcome = verify_pass(SelectStates(), streaming(), tolerance=1e-5)
    assert list(carried(outcome)) == ["past_carried_0", "context"]
    model = outcome.lowered.model
    normed = [node for node in model.graph if node.op_type == "LayerNormalization"]
    assert [node.inputs[0].name for node in normed if node.inputs[0] is not None] == ["x"]
    joined = graphs.outputs_named(model)["next_past_carried_0"]
    assert sorted(node.op_type for node in graphs.consumers_of(joined)) == ["MatMul", "MatMul"]


def wide_and_narrow() -> Lowered:
    """A value that is cheap to make and wide, and a dear and narrow one behind it; both are mixed."""
    wide = "wide = Concat<axis = -1>(" + ", ".join(["next_past"] * 8) + ")  keys = MatMul(wide, v)  "
    body = "tw = Transpose<perm = [0, 2, 1]>(wide)  s = MatMul(q, tw)  p = Softmax<axis = -1>(s)  y = MatMul(p, keys)"
    return caching_wide(wide + body)


def test_a_wide_value_is_computed_again_and_cut_although_more_is_carried_behind_it() -> None:
    outcome = verify_pass(SLOW, wide_and_narrow(), tolerance=1e-5)
    assert sorted(carried(outcome)) == ["past", "past_carried_0"]
    assert "Slice" in ops_of(outcome.lowered.model)


def test_what_two_caches_make_together_replaces_both() -> None:
    body = "next_other = Concat<axis = 1>(other, z)  both = Mul(next_past, next_other)  keys = MatMul(both, w)  " + MIX
    inputs, outputs = ", float[batch,cache,4] other, float[batch,2,4] z", ", float[batch,kept,4] next_other"
    origin = caching(body, outputs, inputs)
    origin = dataclasses.replace(origin, states=(*origin.states, State("other", "next_other", 1, "cache")))
    outcome = verify_pass(DEAR, origin, tolerance=1e-5)
    assert (list(carried(outcome)), outcome.rewritten) == (["past_carried_0"], 2)


def test_weights_that_are_computed_from_constants_are_constants() -> None:
    body = "turned = Transpose<perm = [1, 0]>(w)  keys = MatMul(next_past, turned)  " + MIX
    assert list(carried(verify_pass(DEAR, caching(body), tolerance=1e-5))) == ["past_carried_0"]


def test_an_operand_that_a_caller_may_change_is_no_constant() -> None:
    body = "keys = Mul(next_past, scale)  " + MIX
    verify_untouched(DEAR, caching(body, inputs=", float[4] scale"))


def test_parts_of_one_projection_are_carried_each() -> None:
    body = """pair = MatMul(next_past, w)  left, right = Split<axis = -1, num_outputs = 2>(pair)
        q, rest = Split<axis = -1, num_outputs = 2>(x)  t = Transpose<perm = [0, 2, 1]>(left)  s = MatMul(q, t)
        p = Softmax<axis = -1>(s)  y = MatMul(p, right)"""
    assert sum(shape[-1] == "2" for shape in carried(verify_pass(DEAR, caching(body), tolerance=1e-5)).values()) >= 1


def test_flags_are_not_carried_though_they_are_small() -> None:
    body = "flags = Greater(next_past, g)  keys = Where(flags, g, b)  " + MIX
    outcome = verify_pass(DEAR, caching(body), tolerance=1e-5)
    inputs = graphs.inputs_named(outcome.lowered.model)
    assert {str(inputs[state.input].dtype) for state in outcome.lowered.states} == {"FLOAT"}


def test_a_cache_of_which_only_the_new_frames_are_read_is_gone() -> None:
    body = "next_other = Concat<axis = 1>(other, x)  new = Slice(next_other, newest, end, one)  "
    body += "keys = MatMul(next_past, w)  " + MIX.replace("y =", "m =") + "  y = Add(m, new)"
    origin = caching(body, ", float[batch,kept,4] next_other", ", float[batch,cache,4] other")
    origin = dataclasses.replace(origin, states=(*origin.states, State("other", "next_other", 1, "cache")))
    assert list(carried(verify_pass(CHEAP, origin, tolerance=1e-5))) == ["past_carried_0"]


@pytest.mark.parametrize("pass_", [SelectStates(), DEAR, CHEAP], ids=["as measured", "dear", "cheap"])
@pytest.mark.parametrize("two_caches", [False, True])
def test_whatever_is_selected_can_be_padded(pass_: SelectStates, two_caches: bool) -> None:
    origin = streaming(two_caches=two_caches)
    selected = pass_.apply(copy_of(origin)).lowered
    verify_pass(PadAxes(), selected, tolerance=1e-5, origin=origin)


def test_what_is_computed_again_and_cut_can_be_padded() -> None:
    origin = wide_and_narrow()
    verify_pass(PadAxes(), SLOW.apply(copy_of(origin)).lowered, tolerance=1e-5, origin=origin)


# memory

FIXED, VALUE = 4 * 2 * 4, 6 * 4 * 4
"""Bytes of the convolution's context, and of one value of 6 frames."""


def test_the_memory_decides_how_much_is_carried() -> None:
    outcome = verify_pass(DEAR, streaming(), tolerance=1e-5)
    assert len(outcome.lowered.states) == 3
    exactly = dataclasses.replace(DEAR, memory_mb=(FIXED + 2 * VALUE) / 1e6)
    assert len(verify_pass(exactly, streaming(), tolerance=1e-5).lowered.states) == 3
    tight = dataclasses.replace(DEAR, memory_mb=(FIXED + 2 * VALUE - 1) / 1e6)
    assert len(verify_pass(tight, streaming(), tolerance=1e-5).lowered.states) == 2


def test_states_that_do_not_fit_are_refused_with_what_would() -> None:
    small = SelectStates(memory_mb=(FIXED + VALUE - 1) / 1e6)
    refused = verify_refusal(small, streaming(), message="got 0.000128 MB at least", cure="allow memory_mb: 0.000128")
    assert "0.000127 MB" in refused.message
    assert "3.2e-05 MB are states without a choice" in refused.message
    verify_pass(SelectStates(memory_mb=0.000128), streaming(), tolerance=1e-5)


def test_states_without_a_window_must_fit_too() -> None:
    small = SelectStates(memory_mb=FIXED / 2e6)
    lowered = dataclasses.replace(streaming(), caches=(), states=(State("context", "next_context", None),))
    verify_refusal(small, lowered, message="got 3.2e-05 MB at least", cure="allow memory_mb")
    verify_refusal(
        small, streaming(in_graph_window=True), message="are states without a choice", cure="allow memory_mb"
    )


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("option", ["memory_mb", "multiply_adds_per_s", "bytes_per_s"])
def test_an_option_out_of_range_is_refused(option: str, value: float) -> None:
    with pytest.raises(RecipeError, match=f"{option}: expected a number above 0, got"):
        SelectStates(**{option: value})


# over time


def test_a_hundred_chunks_in_a_row_stay_exact() -> None:
    verify_pass(DEAR, streaming(two_caches=True), tolerance=1e-5, steps=100)


def test_the_report_says_what_it_costs() -> None:
    outcome = DEAR.apply(copy_of(streaming()))
    # keys and values: two products of 4 by 4 for 8 frames, then for 2
    expected = (
        "values carried for 1 caches: 2, 0.000256 -> 6.4e-05 M multiply-adds of theirs, states 0.000128 -> 0.000224 MB"
    )
    assert outcome.detail == expected


OPS = (
    "Tanh({0})", "Add({0}, g)", "MatMul({0}, w)", "LayerNormalization<axis = -1>({0}, g, b)", "Mul({0}, {1})",
    "Add({0}, {1})", "Softmax<axis = -1>({0})",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_random_graphs_at_random_prices_mean_the_same(seed: int) -> None:
    draw = random.Random(seed)
    values, lines = ["next_past"], []
    for index in range(8):
        operands = draw.choices(values[-4:], k=2)
        lines.append(f"v{index} = {draw.choice(OPS).format(*operands)}")
        values.append(f"v{index}")
    keys, mixed = draw.choices(values[3:], k=2)
    body = f"{'  '.join(lines)}  k = Transpose<perm = [0, 2, 1]>({keys})  s = MatMul(x, k)  p = Softmax<axis = -1>(s)"
    body += f"  m = MatMul(p, {mixed})  new = Slice({values[-1]}, newest, end, one)  y = Add(m, new)"
    pass_ = SelectStates(multiply_adds_per_s=10 ** draw.uniform(8, 11), bytes_per_s=1e10)
    verify_pass(pass_, caching(body), tolerance=1e-4)


def test_memory_is_not_shared_out_between_several_cache_axes() -> None:
    origin = streaming()
    other = dataclasses.replace(origin.caches[0], axis="other", length_input="other_length")
    lowered = dataclasses.replace(origin, caches=(*origin.caches, other))
    message = "memory_mb is not shared out between several cache axes yet (cache, other)"
    verify_refusal(SelectStates(memory_mb=1.0), lowered, message=message, cure="drop memory_mb")
