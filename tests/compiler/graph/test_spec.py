"""spec: what is legal between passes and before a static target, and who is at fault."""

import dataclasses

import onnx_ir as ir
import pytest

from compiler.errors import InternalError, Refused
from compiler.graph import model as graphs
from compiler.graph.spec import check_between_passes, check_static
from compiler.graph.stages import State
from tests.kit.graphs import copy_of, node_named, parse, streaming


def test_a_stream_is_legal() -> None:
    check_between_passes(streaming())


def test_a_graph_without_a_producer_is_our_fault() -> None:
    lowered = copy_of(streaming())
    lowered.model.graph.remove(node_named(lowered.model, "y"))
    with pytest.raises(InternalError, match="malformed"):
        check_between_passes(lowered)


@pytest.mark.parametrize("state", [State("gone", "next_past", 1, "cache"), State("past", "gone", 1, "cache")])
def test_a_state_must_be_fed_back(state: State) -> None:
    with pytest.raises(InternalError, match=f"state {state.input!r} is not fed by {state.output!r}"):
        check_between_passes(dataclasses.replace(streaming(), states=(state,)))


def test_a_state_keeps_its_type() -> None:
    lowered = copy_of(streaming())
    node_named(lowered.model, "next_past").outputs[0].dtype = ir.DataType.DOUBLE
    with pytest.raises(InternalError):
        check_between_passes(lowered)


def test_static_names_the_first_value_with_a_symbol() -> None:
    check_static(parse("(float[1,2] x) => (float[1,2] y) { y = Relu(x) }"), "tiny")
    with pytest.raises(Refused, match="needs numbers") as raised:
        check_static(parse("(float[batch,2] x) => (float[batch,2] y) { y = Relu(x) }"), "tiny")
    assert (raised.value.place.tensor, raised.value.place.graph, raised.value.place.stage) == ("x", "tiny", "static")
    assert raised.value.cure.startswith("give every axis buckets")


@pytest.mark.parametrize(
    ("body", "sources"),
    [
        ("end = Add(offset, one) seen = Slice(past, zero, end, zero) y = ReduceSum(seen, zero)", "offset"),
        ("near = NonZero(past) y = Cast<to = 1>(near)", "past"),
    ],
)
def test_sizes_that_values_decide_want_no_buckets(body: str, sources: str) -> None:
    """A model without rows has no axis to give buckets to; what decides is what the state holds."""
    model = parse(f"""(float[8,4] past, int64[1] offset) => (float[n,m] y)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}> {{ {body} }}""")
    graphs.infer_shapes(model)
    with pytest.raises(Refused, match=f"computed from the values of {sources};") as raised:
        check_static(model, "tiny")
    assert "mask" in raised.value.cure and "buckets" not in raised.value.cure


def test_an_output_of_the_caller_that_a_pass_lost_is_our_bug() -> None:
    lowered = dataclasses.replace(streaming(), data_outputs=("y", "gone"))
    with pytest.raises(InternalError, match="lost its output 'gone'"):
        check_between_passes(lowered)
