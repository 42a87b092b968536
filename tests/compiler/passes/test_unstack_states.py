"""unstack_states: the members of a stack are carried apart."""

import dataclasses

import numpy as np
import pytest

from compiler.errors import RecipeError
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, State
from compiler.passes.carry_contexts import CarryContexts
from compiler.passes.simplify import Simplify
from compiler.passes.unstack_states import UnstackStates
from tests.kit.contract import check_meaning, verify_pass, verify_untouched
from tests.kit.graphs import BATCH, copy_of, ops_of, parse, random_weights

LAYER = """joined{n} = Concat<axis = 2>({cache}, {x})  new{n} = Slice(joined{n}, newest, end, two)
    bent{n} = Sigmoid(joined{n})  h{n} = Conv<group = 4>(bent{n}, kernel)"""


def stacked(take: str, give: str = "back0, back1", axis: int = 1) -> Lowered:
    """Two layers with a context each, which come and go in one tensor."""
    layers = LAYER.format(n=0, cache="cache0", x="x") + "  " + LAYER.format(n=1, cache="cache1", x="h0")
    where = "one" if axis == 1 else "zero"
    text = f"""(float[batch,4,5] x, float[batch,2,4,3] stack, float[4,1,4] kernel)
    => (float[batch,q,r] y, float[a,b,c,d] next)
    <int64 first = {{0}}, int64 second = {{1}}, int64 minus = {{-1}}, int64[1] zero = {{0}}, int64[1] one = {{1}},
     int64[1] two = {{2}}, int64[1] newest = {{-3}}, int64[1] end = {{9223372036854775807}}>
    {{ {take}  {layers}  back0 = Unsqueeze(new0, {where})  back1 = Unsqueeze(new1, {where})
       next = Concat<axis = {axis}>({give})  y = Identity(h1) }}"""
    model = parse(text, random_weights({"kernel": (4, 1, 4)}))
    return Lowered("tiny", model, states=(State("stack", "next", None),), batch_axis=BATCH)


GATHERED = "cache0 = Gather<axis = 1>(stack, first)  cache1 = Gather<axis = 1>(stack, second)"

TAKEN = {
    "by a number": GATHERED,
    "by a number from the end": GATHERED.replace("(stack, second)", "(stack, minus)"),
    "by a list of one": "wide0 = Gather<axis = 1>(stack, zero)  wide1 = Gather<axis = 1>(stack, one) "
    " cache0 = Squeeze(wide0, one)  cache1 = Squeeze(wide1, one)",
    "by slices": "wide0 = Slice(stack, zero, one, one)  wide1 = Slice(stack, one, two, one) "
    " cache0 = Squeeze(wide0, one)  cache1 = Squeeze(wide1, one)",
    "turned": "t = Transpose<perm = [1, 0, 2, 3]>(stack)  cache0 = Gather<axis = 0>(t, first) "
    " cache1 = Gather<axis = 0>(t, second)",
    "and their sizes": GATHERED.replace(
        "cache0 =", "size = Shape<start = 2, end = 4>(stack)  few = Cast<to = 1>(size)  raw ="
    )
    + "  less = ReduceMin<keepdims = 0>(few)  none = Sub(less, less)  cache0 = Add(raw, none)",
}


@pytest.mark.parametrize("take", TAKEN)
def test_members_are_carried_apart(take: str) -> None:
    outcome = verify_pass(UnstackStates(), stacked(TAKEN[take]), tolerance=0.0)
    states = [(each.input, each.output) for each in outcome.lowered.states]
    assert states == [("stack_0", "next_0"), ("stack_1", "next_1")]
    assert outcome.detail == "2 states in the place of 1"


def test_a_stack_stays_where_a_step_may_not_have_so_many_states() -> None:
    outcome = verify_untouched(UnstackStates(most=1), stacked(GATHERED))
    assert outcome.detail == "apart there were 2 states, and a step may have 1"
    assert verify_pass(UnstackStates(most=2), stacked(GATHERED), tolerance=0.0).rewritten == 1


@pytest.mark.parametrize("most", [-1, True])
def test_states_are_counted(most: int) -> None:
    with pytest.raises(RecipeError, match="expected a number of states"):
        UnstackStates(most=most)


def test_a_stack_that_lies_before_the_rows_in_the_model_is_taken_apart() -> None:
    lowered = stacked(TAKEN["turned"], axis=0)
    join = graphs.outputs_named(lowered.model)["next"]
    insert = graphs.Inserter(lowered.model, "test", source="tiny.py:1 in forward: turned")
    turned = insert.op("Transpose", [join], {"perm": [1, 0, 2, 3]}, name="turned")
    graphs.take_over(lowered.model, join, turned, except_in=graphs.consumers_of(join))
    graphs.infer_shapes(lowered.model)
    outcome = verify_pass(UnstackStates(), lowered, tolerance=0.0)
    assert "Transpose" not in ops_of(outcome.lowered.model)


def test_members_begin_with_what_the_stack_began_with() -> None:
    lowered = stacked(GATHERED)
    begun = dataclasses.replace(lowered.states[0], initial=((((1.0,),), ((2.0,),)),))
    after = UnstackStates().apply(copy_of(dataclasses.replace(lowered, states=(begun,)))).lowered
    assert [each.initial for each in after.states] == [1.0, 2.0]


def test_contexts_of_a_stack_can_be_carried_behind_a_gate() -> None:
    lowered = stacked(GATHERED)
    assert CarryContexts().apply(copy_of(lowered)).matched == 0
    apart = Simplify().apply(UnstackStates().apply(copy_of(lowered)).lowered).lowered
    outcome = CarryContexts().apply(apart)
    assert outcome.rewritten == 2
    check_meaning(lowered, outcome.lowered, 1e-5, 12, 2)


ALONE = {
    "members are mixed": (
        stacked(GATHERED.replace("cache0 =", "m = ReduceMean<keepdims = 0>(stack, one)  g =") + "  cache0 = Add(g, m)"),
        "more than one member of the stack is read at once",
    ),
    "a place that is computed": (
        stacked(GATHERED.replace("cache0 =", "r = ReduceMax<keepdims = 0>(x)  z = Sub(r, r)  at = Cast<to = 7>(z)  "
                                 "cache0 =").replace("(stack, first)", "(stack, at)")),
        "more than one member",
    ),
    "a member of two": (
        stacked("both = Slice(stack, zero, two, one)  cache0 = Gather<axis = 1>(both, first) "
                " cache1 = Gather<axis = 1>(both, second)"),
        "more than one member",
    ),
    "nothing is put together": (stacked(GATHERED, give="back0, back1, back1"), ""),
}  # fmt: skip


@pytest.mark.parametrize("graph", ALONE)
def test_what_is_left_alone(graph: str) -> None:
    lowered, refused = ALONE[graph]
    verify_untouched(UnstackStates(), lowered, refused=refused)


def test_entries_follow_the_reference() -> None:
    (state_map,) = UnstackStates().apply(copy_of(stacked(GATHERED))).lowered.state_maps
    array = np.arange(24, dtype=np.float32).reshape(1, 2, 4, 3)
    mapped = state_map.apply({"stack": array, "other": array[0]})
    assert set(mapped) == {"stack_0", "stack_1", "other"}
    assert np.array_equal(mapped["stack_1"], array[:, 1])
