"""merge_first_call: the call that starts a stream is proved to be the later call with empty caches, and dropped."""

import dataclasses
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import pytest

from compiler import ir as house
from compiler.passes.merge_first_call import MergeFirstCall
from compiler.passes.simplify import Simplify
from compiler.stages import Lowered, State
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.contract import verify_pass, verify_refusal, verify_untouched
from tests.kit.graphs import first_call_of, node_named, parse, streaming


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
    pad.replace_input_with(1, house.Inserter(model, "test", before=pad).int64s(0, 0, 1, 0, 0, 1))


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
    value = house.inputs_named(lowered.model)[name]
    reader = next(iter(house.consumers_of(value)))
    insert = house.Inserter(lowered.model, "test", before=reader)
    reader.replace_input_with(list(reader.inputs).index(value), insert.op(op, [value], name=f"{name}_read"))
    return lowered


@pytest.mark.parametrize(
    ("name", "message"), [("past", "otherwise than by concat"), ("context", "in front of a concat")]
)
def test_a_state_that_is_not_joined_is_refused(name: str, message: str) -> None:
    lowered = insert_after_cache(two_calls(), name, "Relu")
    verify_refusal(MergeFirstCall(), lowered, message=message, cure="remove merge_first_call", op="Relu")


def test_axes_counted_from_the_end_are_the_same_axes() -> None:
    lowered = two_calls()
    node_named(lowered.model, "next_past").attributes["axis"] = ir.AttrInt64("axis", -2)
    verify_pass(MergeFirstCall(), lowered, tolerance=0.0)


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
