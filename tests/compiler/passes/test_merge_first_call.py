"""merge_first_call: the call that starts a stream is proved to be the later call with empty caches, and dropped."""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, State
from compiler.passes.merge_first_call import MergeFirstCall
from compiler.passes.simplify import Simplify
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.contract import verify_pass, verify_refusal, verify_untouched
from tests.kit.graphs import first_call_of, node_named, parse, random_weights, streaming


def two_calls(change: Callable[[ir.Model], None] = lambda model: None, **variant: Any) -> Lowered:
    """Both call forms, simplified; `change` edits the first call."""
    lowered = streaming(**variant)
    first = first_call_of(lowered)
    change(first)
    return Simplify().apply(dataclasses.replace(lowered, first_call=first)).lowered


def test_an_empty_cache_is_the_first_call() -> None:
    origin = two_calls()
    outcome = verify_pass(MergeFirstCall(), origin, tolerance=0.0)
    assert outcome.lowered.first_call is None
    assert outcome.rewritten == 1


def test_nodes_without_operands_are_like_others() -> None:
    """A pass in front may leave a Constant, where it is not simplified again."""
    origin = two_calls()
    for model in origin.models:
        last = graphs.outputs_named(model)["y"].producer()
        assert last is not None
        insert = graphs.Inserter(model, "test", before=last)
        one = insert.op("Constant", [], {"value_float": 1.5}, name="drawn", dtype=ir.DataType.FLOAT)
        last.replace_input_with(0, insert.op("Mul", [last.inputs[0], one], name="scaled"))
    verify_pass(MergeFirstCall(), origin, tolerance=0.0)


def test_without_a_first_call_there_is_nothing_to_do() -> None:
    verify_untouched(MergeFirstCall(), streaming())


def scale_weights(model: ir.Model) -> None:
    tensor = model.graph.initializers["wk"].const_value
    assert tensor is not None
    model.graph.initializers["wk"].const_value = ir.tensor(tensor.numpy() * 2, name="wk")


def another_operator(model: ir.Model) -> None:
    node_named(model, "weights").op_type = "LogSoftmax"


def another_context(model: ir.Model) -> None:
    pad = node_named(model, "wide")
    pad.replace_input_with(1, graphs.Inserter(model, "test", before=pad).int64s(0, 0, 1, 0, 0, 1))


def another_axis(model: ir.Model) -> None:
    node_named(model, "weights").attributes["axis"] = ir.AttrInt64("axis", 1)


DIFFERENCES = {
    "weights": (scale_weights, "MatMul"),
    "operator": (another_operator, "Softmax"),
    "context": (another_context, "Conv"),
    "attribute": (another_axis, "Softmax"),
}


@pytest.mark.parametrize("what", DIFFERENCES)
def test_a_first_call_that_differs_is_refused(what: str) -> None:
    change, op = DIFFERENCES[what]
    lowered = two_calls(change)
    refused = verify_refusal(
        MergeFirstCall(), lowered, message="not the later call with empty caches", cure="two graphs", op=op
    )
    assert "tiny.py:" in refused.message


def insert_after_cache(lowered: Lowered, name: str, op: str) -> Lowered:
    """Let an operator read a state in front of everything else."""
    value = graphs.inputs_named(lowered.model)[name]
    reader = next(iter(graphs.consumers_of(value)))
    insert = graphs.Inserter(lowered.model, "test", before=reader)
    reader.replace_input_with(list(reader.inputs).index(value), insert.op(op, [value], name=f"{name}_read"))
    return lowered


def test_nothing_is_computed_of_an_empty_cache() -> None:
    """What is computed of no entries has none, and is the first call all the same."""
    verify_pass(MergeFirstCall(), insert_after_cache(two_calls(), "past", "Relu"), tolerance=0.0)


def test_what_is_computed_of_zeros_is_not_taken_for_them() -> None:
    lowered = insert_after_cache(two_calls(), "context", "Exp")
    verify_refusal(
        MergeFirstCall(), lowered, message="not the later call with empty caches", cure="two graphs", op="Concat"
    )


def test_a_cache_that_is_counted_where_it_is_empty_is_refused() -> None:
    """The largest of no entries is no number that a first call could have."""
    lowered = two_calls()
    value = graphs.inputs_named(lowered.model)["past"]
    last = graphs.outputs_named(lowered.model)["y"].producer()
    assert last is not None
    insert = graphs.Inserter(lowered.model, "test", before=last)
    most = insert.op("ReduceSum", [value, insert.int64s(1)], {"keepdims": 1}, name="total")
    last.replace_input_with(0, insert.op("Add", [last.inputs[0], most], name="with_total"))
    verify_refusal(
        MergeFirstCall(), lowered, message="otherwise than by concat", cure="remove merge_first_call", op="ReduceSum"
    )


STACKED = """(float[batch,2,4] x, float[2,batch,cache,4] past, float[2,batch,1,4] contexts)
    => (float[batch,2,4] y, float[2,batch,kept,4] next_past, float[2,batch,1,4] next_contexts)
<int64 first = {0}, int64 second = {1}, int64[1] at = {0}, int64[1] last = {-1}, int64[1] most = {-6},
 int64[1] end = {9223372036854775807}, int64[1] time = {1}, int64[1] kept_axis = {2}>
{
    past_0 = Gather<axis = 0>(past, first)
    past_1 = Gather<axis = 0>(past, second)
    context_0 = Gather<axis = 0>(contexts, first)
    context_1 = Gather<axis = 0>(contexts, second)
    joined_0 = Concat<axis = 1>(past_0, x)
    wide_0 = Concat<axis = 1>(context_0, x)
    before = Slice(wide_0, at, last, time)
    a = Add(x, before)
    joined_1 = Concat<axis = 1>(past_1, a)
    wide_1 = Concat<axis = 1>(context_1, a)
    turned = Transpose<perm = [0, 2, 1]>(joined_1)
    scores = MatMul(a, turned)
    weights = Softmax<axis = -1>(scores)
    y = MatMul(weights, joined_1)
    keep_0 = Unsqueeze(joined_0, at)
    keep_1 = Unsqueeze(joined_1, at)
    all_kept = Concat<axis = 0>(keep_0, keep_1)
    next_past = CUT
    end_0 = Slice(wide_0, last, end, time)
    end_1 = Slice(wide_1, last, end, time)
    keep_end_0 = Unsqueeze(end_0, at)
    keep_end_1 = Unsqueeze(end_1, at)
    next_contexts = Concat<axis = 0>(keep_end_0, keep_end_1)
}"""

STARTS = {
    "float[2,batch,cache,4] past, float[2,batch,1,4] contexts": "",
    "float[batch,2,4] x, )": "float[batch,2,4] x)",
    "    past_0 = Gather<axis = 0>(past, first)\n": "",
    "    past_1 = Gather<axis = 0>(past, second)\n": "",
    "    context_0 = Gather<axis = 0>(contexts, first)\n": "",
    "    context_1 = Gather<axis = 0>(contexts, second)\n": "",
    "Concat<axis = 1>(past_0, x)": "Identity(x)",
    "Concat<axis = 1>(past_1, a)": "Identity(a)",
    "Concat<axis = 1>(context_0, x)": 'Pad<mode = "constant">(x, front)',
    "Concat<axis = 1>(context_1, a)": 'Pad<mode = "constant">(a, front)',
    "<int64 first": "<int64[6] front = {0, 1, 0, 0, 0, 0}, int64 first",
}


def stacked(cut: str, first_cut: str, change: Mapping[str, str] = MappingProxyType({})) -> Lowered:
    """Caches and contexts of two layers, each in one tensor; `change` edits the first call."""
    first = STACKED.replace("CUT", first_cut)
    for old, new in {**STARTS, **change}.items():
        assert first.count(old) == 1, old
        first = first.replace(old, new)
    lowered = Lowered(
        "tiny",
        parse(STACKED.replace("CUT", cut)),
        parse(first),
        (State("past", "next_past", 2, "cache"), State("contexts", "next_contexts", None)),
        (CacheAxis("cache", 6, 2, "n", None),),
        "batch",
    )
    return Simplify().apply(lowered).lowered


WHOLE, CUT = "Identity(all_kept)", "Slice(all_kept, most, end, kept_axis)"


@pytest.mark.parametrize(("cut", "first_cut"), [(WHOLE, WHOLE), (CUT, CUT), (CUT, WHOLE)])
def test_caches_of_all_layers_in_one_tensor_start_empty(cut: str, first_cut: str) -> None:
    outcome = MergeFirstCall().apply(stacked(cut, first_cut))
    assert outcome.lowered.first_call is None


@pytest.mark.parametrize("stack", ["all_kept = Concat<axis = 0>(keep_0, keep_1)", "(keep_end_0, keep_end_1)"])
def test_layers_that_change_places_are_seen(stack: str) -> None:
    turned = stack.replace("0, keep", "X, keep").replace("_1)", "_0)").replace("_X", "_1")
    with pytest.raises(Refused, match="not the later call with empty caches"):
        MergeFirstCall().apply(stacked(WHOLE, WHOLE, {stack: turned}))


def test_what_a_later_call_cuts_and_the_first_one_keeps_is_seen() -> None:
    ends = {f"end_{at} = Slice(wide_{at}, last,": f"end_{at} = Slice(wide_{at}, most," for at in (0, 1)}
    with pytest.raises(Refused, match="not the later call with empty caches"):
        MergeFirstCall().apply(stacked(WHOLE, WHOLE, ends))


def test_axes_counted_from_the_end_are_the_same_axes() -> None:
    lowered = two_calls()
    node_named(lowered.model, "next_past").attributes["axis"] = ir.AttrInt64("axis", -2)
    verify_pass(MergeFirstCall(), lowered, tolerance=0.0)


COUNTED = """(float[batch,2,4] x, float[batch,cache,4] past, int64[batch] offset, float[99,4] table, float[4] rates)
    => (float[batch,2,4] y, float[batch,kept,4] next_past, int64[batch] offset_after)
<int64[1] one = {1}, int64[1] last = {-1}, int64[2] places = {0, 1}, int64 step = {2}>
{
    next_past = Concat<axis = 1>(past, x)
    offset_after = Add(offset, step)
    column = Unsqueeze(offset, one)
    at = Add(column, places)
    rows = Gather<axis = 0>(table, at)
    placed = Add(x, rows)
    real = Cast<to = 1>(at)
    wide = Unsqueeze(real, last)
    angles = Mul(wide, rates)
    turns = Cos(angles)
    turned = Mul(placed, turns)
    mixed = Transpose<perm = [0, 2, 1]>(next_past)
    scores = MatMul(turned, mixed)
    weights = Softmax<axis = -1>(scores)
    y = MatMul(weights, next_past)
}"""
"""Rows of a table and angles by a count."""

STARTED = """(float[batch,2,4] x, float[99,4] table, float[4] rates)
    => (float[batch,2,4] y, float[batch,2,4] next_past, int64[batch] offset_after)
<int64[1] last = {-1}, int64[2] places = {0, 1}, int64[1] step = {2}>
{
    next_past = Identity(x)
    size = Shape<start = 0, end = 1>(x)
    offset_after = Expand(step, size)
    rows = Gather<axis = 0>(table, places)
    placed = Add(x, rows)
    real = Cast<to = 1>(places)
    wide = Unsqueeze(real, last)
    angles = Mul(wide, rates)
    turns = Cos(angles)
    turned = Mul(placed, turns)
    mixed = Transpose<perm = [0, 2, 1]>(x)
    scores = MatMul(turned, mixed)
    weights = Softmax<axis = -1>(scores)
    y = MatMul(weights, x)
}"""
"""Their first call, which has constants in their place."""


def counted(change: Mapping[str, str] = MappingProxyType({})) -> Lowered:
    first = STARTED
    for old, new in change.items():
        assert first.count(old) == 1, old
        first = first.replace(old, new)
    weights = random_weights({"table": (99, 4), "rates": (4,)})
    states = (State("past", "next_past", 1, "cache"), State("offset", "offset_after", None))
    lowered = Lowered(
        "tiny", parse(COUNTED, weights), parse(first, weights), states, (CacheAxis("cache", 6, 2, "n", None),), "batch"
    )
    return Simplify().apply(lowered).lowered


def test_counts_begin_with_0() -> None:
    verify_pass(MergeFirstCall(), counted(), tolerance=0.0)


@pytest.mark.parametrize(
    "change",
    [
        {"places = {0, 1}": "places = {1, 2}"},
        {"step = {2}": "step = {3}"},
        {"real = Cast<to = 1>(places)": "other = Mul(places, places) real = Cast<to = 1>(other) "}
        | {"<int64[1] last": "<int64[1] unread = {0}, int64[1] last", "places = {0, 1}": "places = {0, 2}"},
        {"turned = Mul(placed, turns)": "turned = Div(placed, turns)"},
        {"turns = Cos(angles)": "turns = Sin(angles)"},
    ],
)
def test_a_count_that_begins_elsewhere_is_seen(change: Mapping[str, str]) -> None:
    with pytest.raises(Refused, match="not the later call with empty caches"):
        MergeFirstCall().apply(counted(change))


def test_a_count_that_rows_are_added_up_by_is_left_as_it_is() -> None:
    """The sum over rows is no row: computed once, it would be another number."""
    lowered = counted()
    at = node_named(lowered.model, "placed")
    insert = graphs.Inserter(lowered.model, "test", before=at)
    offset = graphs.inputs_named(lowered.model)["offset"]
    total = insert.op("ReduceSum", [offset], {"keepdims": 1}, name="total")
    real = insert.op("Cast", [total], {"to": 1}, name="real_total")
    at.replace_input_with(0, insert.op("Add", [at.inputs[0], real], name="with_total"))
    with pytest.raises(Refused, match="not the later call with empty caches"):
        MergeFirstCall().apply(lowered)


ONE_HEAD = """(float[batch,2,4] x, float[batch,cache,4] past)
    => (float[batch,1,2,2] y, float[batch,kept,4] next_past)
<int64[4] heads = {0, -1, 1, 4}>
{
    next_past = Concat<axis = 1>(past, x)
    split = Reshape(next_past, heads)
    keys = Transpose<perm = [0, 2, 3, 1]>(split)
    asked = Reshape(x, heads)
    query = Transpose<perm = [0, 2, 1, 3]>(asked)
    y = MatMul(query, keys)
}"""


@pytest.mark.parametrize(
    ("keys", "is_same"),
    [
        ("bare = Transpose<perm = [0, 2, 1]>(x)  keys = Reshape(bare, wide)", True),
        ("bare = Transpose<perm = [0, 2, 1]>(x)  more = Unsqueeze(bare, one)  keys = Identity(more)", True),
        ("keys = Reshape(x, wide)", False),
    ],
)
def test_a_single_head_is_split_before_or_behind_a_turn(keys: str, is_same: bool) -> None:
    first = (
        ONE_HEAD.replace(", float[batch,cache,4] past", "")
        .replace("Concat<axis = 1>(past, x)", "Identity(x)")
        .replace("split = Reshape(next_past, heads)\n", "")
        .replace("keys = Transpose<perm = [0, 2, 3, 1]>(split)", keys)
        .replace("<int64[4] heads", "<int64[4] wide = {0, 1, 4, 2}, int64[1] one = {1}, int64[4] heads")
    )
    lowered = Lowered(
        "tiny",
        parse(ONE_HEAD),
        parse(first),
        (State("past", "next_past", 1, "cache"),),
        (CacheAxis("cache", 6, 2, "n", None),),
        "batch",
    )
    if is_same:
        verify_pass(MergeFirstCall(), lowered, tolerance=0.0)
        return
    with pytest.raises(Refused, match="not the later call with empty caches"):
        MergeFirstCall().apply(lowered)


BRANCHES = """(float[batch,2,4] x, float[batch,cache,4] past, bool flag)
    => (float[batch,kept,4] next_past, float[batch,2,4] y)
{
    next_past = Concat<axis = 1>(past, x)
    outer = OUTER(x)
    y = If (flag) <
        then_branch = yes () => (float[batch,2,4] a) { a = Relu(outer) },
        else_branch = no () => (float[batch,2,4] b) { b = Neg(outer) }
    >
}"""


def test_bodies_that_read_values_around_them_are_equal_to_no_other() -> None:
    later = parse(BRANCHES.replace("OUTER", "Sin"))
    first = parse(
        BRANCHES.replace("OUTER", "Cos")
        .replace("float[batch,cache,4] past, ", "")
        .replace("Concat<axis = 1>(past, x)", "Identity(x)")
    )
    lowered = Lowered(
        "tiny", later, first, (State("past", "next_past", 1, "cache"),), (CacheAxis("cache", 6, 2, "n", None),), "batch"
    )
    verify_refusal(MergeFirstCall(), lowered, message="not the later call", cure="two graphs", op="If")
