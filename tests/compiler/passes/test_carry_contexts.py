"""carry_contexts: what is computed from a context frame by frame is carried in its place."""

import dataclasses

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.stream import expected_states
from compiler.graph.stages import Array, Lowered, Outcome, State
from compiler.passes.carry_contexts import CarryContexts
from compiler.passes.pack_states import PackStates
from compiler.passes.pad_axes import PadAxes
from runtime_lite.format.initial_value import array_of_initial
from tests.kit.contract import ContractBroken, check_meaning, verify_pass, verify_untouched
from tests.kit.graphs import BATCH, copy_of, feeds_of, node_named, ops_of, parse, random_weights

WEIGHTS = {
    "gain_row": (4,),
    "shift_row": (4,),
    "square": (4,),
    "w1": (8, 4, 1),
    "b1": (8,),
    "kernel": (4, 1, 4),
}

GATED = """c = Conv(joined, w1, b1)  first, second = Split<axis = 1, num_outputs = 2>(c)  s = Sigmoid(second)
    glu = Mul(first, s)  y = Conv<group = 4>(glu, kernel)"""
"""What a Conformer does with its context: a 1x1 convolution, a gate, and then the convolution that needs it."""

CUT = "next_context = Slice(joined, newest, end, two)"


def convolving(body: str, cut: str = CUT, join: str = "context, x", outputs: str = "", frames: str = "5") -> Lowered:
    """A context of 3 frames joined with 5 new ones, and a body that makes `y` of it."""
    text = f"""(float[batch,4,{frames}] x, float[batch,4,3] context, {
        ", ".join(f"float[{','.join(map(str, shape))}] {name}" for name, shape in WEIGHTS.items())
    }) => (float[batch,q,r] y, float[batch,4,3] next_context{outputs})
    <int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] three = {{3}}, int64[1] newest = {{-3}},
     int64[1] older = {{-4}}, int64[1] end = {{9223372036854775807}}>
    {{ joined = Concat<axis = 2>({join})  {cut}  {body} }}"""
    states = (State("context", "next_context", None),)
    return Lowered("tiny", parse(text, weights()), states=states, batch_axis=BATCH)


def weights() -> dict[str, Array]:
    """Random ones; variances are positive."""
    made = random_weights(WEIGHTS)
    return {**made, "square": np.square(made["square"])}


def carried(lowered: Lowered, tolerance: float = 1e-5) -> Outcome:
    return verify_pass(CarryContexts(), lowered, tolerance=tolerance, steps=16)


def test_the_gated_frames_of_a_context_are_carried() -> None:
    outcome = carried(convolving(GATED))
    (state,) = outcome.lowered.states
    assert (state.input, state.output) == ("context_carried_0", "next_context_carried_0")
    dims = node_named(outcome.lowered.model, "y").inputs[0]
    assert dims is not None
    wide = next(node for node in outcome.lowered.model.graph if node.op_type == "Conv")
    assert [str(dim) for dim in wide.outputs[0].shape or ()] == [BATCH, "8", "5"]
    assert outcome.detail == "values carried for 1 contexts: 1, 0.000256 -> 0.00016 M multiply-adds of theirs"


def test_a_stream_begins_with_the_gate_of_the_bias() -> None:
    (state,) = carried(convolving(GATED)).lowered.states
    bias = random_weights(WEIGHTS)["b1"].astype(np.float64)
    expected = bias[:4] / (1 + np.exp(-bias[4:]))
    got = array_of_initial(state.initial, "float32")
    assert got.shape == (1, 4, 1)
    np.testing.assert_allclose(got[0, :, 0], expected, rtol=1e-6)


def test_a_stream_that_would_begin_with_zeros_is_noticed() -> None:
    origin = convolving(GATED)
    after = CarryContexts().apply(copy_of(origin)).lowered
    (state,) = after.states
    wrong = dataclasses.replace(after, states=(dataclasses.replace(state, initial=0),))
    with pytest.raises(ContractBroken, match=r"y differs by .* in step 0"):
        check_meaning(origin, wrong, 1e-3, 4, 1)


FOLLOWED = {
    "normalised": """t = Transpose<perm = [0, 2, 1]>(joined)  n = LayerNormalization<axis = -1>(t, gain_row, shift_row)
        u = Transpose<perm = [0, 2, 1]>(n)  y = Conv<group = 4>(u, kernel)""",
    "batch norm at inference": """n = BatchNormalization(joined, gain_row, shift_row, shift_row, square)
        y = Conv<group = 4>(n, kernel)""",
    "read by what needs all and by what needs the new ones": GATED.replace("y = ", "h = ")
    + "  last = Slice(joined, three, end, two)  y = Add(h, last)",
    "the gate is a result": GATED,
    "a context of the context": GATED.replace("y = ", "h = ") + "  d = Conv<group = 4>(joined, kernel)  y = Add(h, d)",
}


@pytest.mark.parametrize("body", FOLLOWED)
def test_the_meaning_is_kept(body: str) -> None:
    outputs = ", float[batch,q,r] glu" if body == "the gate is a result" else ""
    assert carried(convolving(FOLLOWED[body], outputs=outputs)).rewritten == 1


def test_the_newest_of_the_new_frames_may_be_fed_back() -> None:
    assert carried(convolving(GATED, CUT.replace("joined", "x"))).rewritten == 1


def test_a_context_may_lie_in_rows_of_channels() -> None:
    text = """(float[batch,5,4] x, float[batch,3,4] context, float[4,8] w, float[8] b, float[4,1,4] kernel)
    => (float[batch,q,r] y, float[batch,3,4] next_context)
    <int64[1] one = {1}, int64[1] newest = {-3}, int64[1] end = {9223372036854775807}>
    { joined = Concat<axis = 1>(context, x)  next_context = Slice(joined, newest, end, one)
      m = MatMul(joined, w)  c = Add(m, b)  first, second = Split<axis = 2, num_outputs = 2>(c)  s = Sigmoid(second)
      glu = Mul(first, s)  t = Transpose<perm = [0, 2, 1]>(glu)  y = Conv<group = 4>(t, kernel) }"""
    model = parse(text, random_weights({"w": (4, 8), "b": (8,), "kernel": (4, 1, 4)}))
    lowered = Lowered("tiny", model, states=(State("context", "next_context", None),), batch_axis=BATCH)
    (state,) = carried(lowered).lowered.states
    assert array_of_initial(state.initial, "float32").size == 4


def test_chunks_of_any_length_are_joined() -> None:
    assert carried(convolving(GATED, frames="frames")).rewritten == 1


def test_of_no_more_new_frames_than_the_context_has_none_are_fed_back_twice() -> None:
    outcome = carried(convolving(GATED, frames="2"))
    assert outcome.rewritten == 1


def test_states_of_several_layers_are_packed_with_what_they_begin_with() -> None:
    lowered = two_layers()
    outcome = carried(lowered)
    assert outcome.rewritten == 2
    packed = PackStates().apply(PadAxes().apply(copy_of(outcome.lowered)).lowered).lowered
    (state,) = packed.states
    assert np.shape(state.initial) == (1, 2, 4, 1)
    check_meaning(lowered, packed, 1e-5, 12, 2)


def two_layers() -> Lowered:
    first = convolving(GATED)
    model = parse(
        """(float[batch,4,5] x, float[batch,4,3] one_context, float[batch,4,3] other_context, float[8,4,1] w1,
            float[8] b1, float[8,4,1] w2, float[8] b2, float[4,1,4] kernel)
        => (float[batch,4,5] y, float[batch,4,3] next_one, float[batch,4,3] next_other)
        <int64[1] two = {2}, int64[1] newest = {-3}, int64[1] end = {9223372036854775807}>
        { joined = Concat<axis = 2>(one_context, x)  next_one = Slice(joined, newest, end, two)
          c = Conv(joined, w1, b1)  p, q = Split<axis = 1, num_outputs = 2>(c)  s = Sigmoid(q)  glu = Mul(p, s)
          h = Conv<group = 4>(glu, kernel)
          joined2 = Concat<axis = 2>(other_context, h)  next_other = Slice(joined2, newest, end, two)
          c2 = Conv(joined2, w2, b2)  p2, q2 = Split<axis = 1, num_outputs = 2>(c2)  s2 = Sigmoid(q2)
          glu2 = Mul(p2, s2)  y = Conv<group = 4>(glu2, kernel) }""",
        random_weights({"w1": (8, 4, 1), "b1": (8,), "w2": (8, 4, 1), "b2": (8,), "kernel": (4, 1, 4)}),
    )
    states = (State("one_context", "next_one", None), State("other_context", "next_other", None))
    return dataclasses.replace(first, model=model, states=states)


def test_the_reference_is_carried_through_the_same_function() -> None:
    origin = convolving(GATED)
    after = CarryContexts().apply(copy_of(origin)).lowered
    runner, other = runner_of(origin, 1), runner_of(after, 1)
    for feed in feeds_of(origin, 5):
        runner.step(feed)
        other.step(feed)
    (expected,) = expected_states(after, runner.states).values()
    np.testing.assert_allclose(other.states["context_carried_0"], expected, atol=1e-6)


ALONE = {
    "mixed as it is": ("y = Conv<group = 4>(joined, kernel)", ""),
    "another in every call": ("r = RandomNormalLike(joined)  a = Add(joined, r)  y = Conv<group = 4>(a, kernel)", ""),
    "of the frame before": ("n = CumSum(joined, two)  y = Conv<group = 4>(n, kernel)", ""),
    "not finite": ("n = Reciprocal(joined)  y = Conv<group = 4>(n, kernel)", "numbers that are not finite"),
    "read beside": (
        "g = Conv(joined, w1, b1)  h, k = Split<axis = 1, num_outputs = 2>(g)  z = ReduceSum(context, two)  "
        "m = Mul(h, z)  y = Conv<group = 4>(m, kernel)",
        "the state is read elsewhere",
    ),
    "fed back and read": (
        GATED.replace("y =", "d =") + "  z = ReduceSum(next_context, two)  y = Mul(d, z)",
        "what is fed back is read",
    ),
}


@pytest.mark.parametrize("body", ALONE)
def test_what_is_left_alone(body: str) -> None:
    verify_untouched(CarryContexts(), convolving(ALONE[body][0]), refused=ALONE[body][1])


@pytest.mark.parametrize(
    ("lowered", "refused"),
    [
        (convolving(GATED, join="x, context"), "not joined in front"),
        (convolving(GATED, join="context, x, x"), "not joined in front"),
        (convolving(GATED, CUT.replace("newest", "older").replace("end", "newest")), "not the newest"),
        (convolving(GATED, CUT.replace("joined", "x"), frames="2"), "not the newest"),
        (convolving(GATED, "next_context = Identity(context)"), "read elsewhere"),
    ],
)
def test_what_is_no_context_is_reported(lowered: Lowered, refused: str) -> None:
    outcome = verify_untouched(CarryContexts(), lowered, refused=refused)
    assert outcome.refused[0].place.tensor == "context"


def test_a_state_that_nothing_is_joined_to_is_none() -> None:
    verify_untouched(
        CarryContexts(), convolving("y = Add(x, context)", "next_context = Tanh(context)", "x, x", frames="3")
    )


def test_beside_a_first_call_of_its_own_nothing_is_carried() -> None:
    lowered = convolving(GATED)
    lowered = dataclasses.replace(lowered, first_call=graphs.clone(lowered.model))
    outcome = CarryContexts().apply(copy_of(lowered))
    assert not outcome.rewritten
    assert "the call that starts a stream is a graph of its own" in outcome.refused[0].reason


def test_ops_run_on_new_frames_once() -> None:
    assert ops_of(carried(convolving(GATED)).lowered.model).count("Conv") == 2
