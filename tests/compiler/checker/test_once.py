"""What is computed once is held to what is computed in every call: a record that does not hold is refused."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper  # noqa: TID251 - graphs as the checker reads them

from compiler.checker.check import check
from compiler.checker.graph import Graph, Rejected, read_by
from compiler.checker.once import check_once
from tests.compiler.passes.test_hoist_invariants import kept, lowered

Record = dict[str, Any]


def proved(kind: str = "seq2seq") -> tuple[onnx.ModelProto, onnx.ModelProto, Record]:
    """The graph before and after, and what the pass says of them."""
    outcome = kept(kind)
    (record,) = outcome.records
    before, after = (ir.serde.serialize_model(each.model) for each in (lowered(kind), outcome.lowered))
    return before, after, copy.deepcopy(record)


@pytest.mark.parametrize("kind", ["seq2seq", "beside", "told", "text"])
def test_what_the_pass_writes_holds(kind: str) -> None:
    before, after, record = proved(kind)
    assert check(before, after, record) == len(record["kept"]) > 1


def branches_of(after: onnx.ModelProto) -> onnx.NodeProto:
    branch: onnx.NodeProto = node(after.graph.node, "If")
    return branch


def first_call(after: onnx.ModelProto) -> onnx.GraphProto:
    found: onnx.GraphProto = next(each.g for each in branches_of(after).attribute if each.name == "then_branch")
    return found


def node(nodes: Any, op_type: str, prefix: str = "") -> onnx.NodeProto:
    """The first of a kind whose output is so called."""
    found: onnx.NodeProto = next(
        each for each in nodes if each.op_type == op_type and each.output[0].startswith(prefix)
    )
    return found


def swap(names: Any, one: int, other: int) -> None:
    names[one], names[other] = names[other], names[one]


def swap_branches(_: Any, after: onnx.ModelProto, __: Record) -> None:
    one, other = branches_of(after).attribute
    one.name, other.name = other.name, one.name


def never_begun(_: Any, after: onnx.ModelProto, record: Record) -> None:
    maker = next(each for each in after.graph.node if record["begun"]["output"] in each.output)
    del maker.input[1]


def keep_the_new(_: Any, after: onnx.ModelProto, __: Record) -> None:
    swap(node(first_call(after).node, "Where", "kept").input, 1, 2)


def keep_what_lies_behind(_: Any, after: onnx.ModelProto, __: Record) -> None:
    node(first_call(after).node, "Where", "clean").input[2] = node(first_call(after).node, "Pad").output[0]


def poison_padding(_: Any, after: onnx.ModelProto, __: Record) -> None:
    """Fill what lies behind true lengths with something that padding was not proved with."""
    after.graph.initializer.append(numpy_helper.from_array(np.arange(4, dtype=np.float32), "numbers"))
    node(first_call(after).node, "Where", "clean").input[2] = "numbers"


def another_weight(_: Any, after: onnx.ModelProto, __: Record) -> None:
    weights = next(each for each in after.graph.initializer if each.name == "w2")
    weights.CopyFrom(numpy_helper.from_array(np.asarray(numpy_helper.to_array(weights) + 1), "w2"))


def another_reader(_: Any, after: onnx.ModelProto, __: Record) -> None:
    swap(node(after.graph.node, "MatMul", "scores").input, 0, 1)


def another_operator(_: Any, after: onnx.ModelProto, __: Record) -> None:
    node(after.graph.node, "Softmax").attribute.append(helper.make_attribute("axis", 1))


def keys_for_values(_: Any, after: onnx.ModelProto, record: Record) -> None:
    one, other = (each["stands"] for each in record["kept"])
    for each in after.graph.node:
        for at, name in enumerate(each.input):
            each.input[at] = {one: other, other: one}.get(name, name)


def other_inputs(_: Any, __: Any, record: Record) -> None:
    record["inputs"] = ["tokens"]


def another_value(_: Any, __: Any, record: Record) -> None:
    record["kept"][0]["value"] = "y"


def one_of_two(_: Any, __: Any, record: Record) -> None:
    record["kept"].pop()


def none(_: Any, __: Any, record: Record) -> None:
    record["kept"].clear()


def no_such_input(_: Any, __: Any, record: Record) -> None:
    record["inputs"] = ["nothing"]


def an_old_value_anew(_: Any, after: onnx.ModelProto, record: Record) -> None:
    old = record["kept"][0]["value"]
    after.graph.node.append(helper.make_node("Identity", [record["kept"][0]["stands"]], [old], "more"))


def random_numbers(before: onnx.ModelProto, _: Any, record: Record) -> None:
    maker = next(each for each in before.graph.node if record["kept"][0]["value"] in each.output)
    drawn = helper.make_node("RandomUniformLike", [maker.input[0]], ["drawn"], "drawn")
    maker.input[0] = "drawn"
    before.graph.node.insert(list(before.graph.node).index(maker), drawn)


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        (swap_branches, "differs from"),
        (never_begun, "differs from"),
        (keep_the_new, "differs from"),
        (keep_what_lies_behind, "differs from"),
        (poison_padding, "differs from what is computed in every call"),
        (another_weight, "constant 'w2' is not what it was"),
        (another_reader, "is not what it was"),
        (another_operator, "is not what it was"),
        (keys_for_values, "is not what it was"),
        (other_inputs, "is no axis of which a stream has one size"),
        (another_value, "is computed of"),
        (one_of_two, "the inputs of the graph are"),
        (none, "the inputs of the graph are"),
        (no_such_input, "input 'nothing' is not there"),
        (an_old_value_anew, "which was there"),
        (random_numbers, "may give something else in every call"),
    ],
)
def test_what_does_not_hold_is_refused(attack: Callable[[Any, Any, Record], None], said: str) -> None:
    before, after, record = proved()
    attack(before, after, record)
    with pytest.raises(Rejected, match=said):
        check_once(before, after, record)


def test_what_a_branch_reads_around_it_is_followed() -> None:
    _, after, record = proved()
    branch = branches_of(after)
    assert "encoded" in read_by(branch) and not set(branch.output) & set(read_by(branch))
    part = Graph(after).part([record["kept"][0]["stands"]], {})
    assert {"encoded", "letters_length", record["kept"][0]["input"]} <= set(part.sources)
