"""What lies in padding is not seen, and found where it is."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.build.verify.invariance_check import POISONS, check_invariance
from compiler.errors import GateFailed, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.session import open_session
from compiler.graph.runners.stream import Runner
from compiler.graph.stages import Lowered, State
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.growing_stream import padded
from tests.kit.models.tiny_task import one_recording

SEEN = "(float[batch,2] x) => (float[batch,2] y) <float[1,1] content = {1e30}, int64[1] last = {-1}> { %s }"


OF_THE_LAST_ROW = "row = Gather<axis=0>(x, last)  seen = %s  number = Cast<to=1>(seen)  y = Add(x, number)"


def test_padding_is_invisible_in_a_padded_graph() -> None:
    lowered = padded()
    assert lowered.batch_axis == "batch"
    session = open_session(graphs.serialized(lowered.model))
    invariance = check_invariance(Runner(lowered, session, 2), one_recording(4, 4))
    assert (invariance.batch, invariance.calls, set(invariance.poisons)) == (2, 4 * 5, set(POISONS))


def test_padding_that_is_seen_is_found() -> None:
    lowered = padded()
    model = lowered.model
    for node in list(model.graph):
        if node.op_type == "Where":  # nothing is cleaned or masked any more
            kept = node.inputs[1]
            assert kept is not None
            ir.convenience.replace_all_uses_with(node.outputs[0], kept)
    with pytest.raises(GateFailed, match="unchanged by NaN in padded places, got other values at call 0"):
        check_invariance(Runner(lowered, open_session(graphs.serialized(model)), 1), one_recording(4, 4))


def test_rows_that_see_each_other_are_found() -> None:
    text = "(float[batch,2] x) => (float[batch,2] y) <int64[1] zero = {0}> { m = ReduceSum(x, zero)  y = Add(x, m) }"
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20]>\nmixing {text}')
    lowered = Lowered("net", model, batch_axis="batch")
    feeds = [{"x": np.ones((1, 2), np.float32)}]
    with pytest.raises(GateFailed, match="mixes rows"):
        check_invariance(Runner(lowered, open_session(graphs.serialized(model)), 2), feeds)
    assert check_invariance(Runner(lowered, open_session(graphs.serialized(model)), 1), feeds).calls == len(POISONS)


@pytest.mark.parametrize("kept", [False, True], ids=["anywhere", "within the table"])
def test_a_place_that_is_computed_of_data_may_not_end_the_call_of_the_other_rows(kept: bool) -> None:
    # regression: NaN in a row of no stream became a place far in front of the table, and ended the build as a bug
    places = "inside = Clip(whole, first, last)" if kept else "inside = Identity(whole)"
    text = f"""(float[batch,1] x) => (float[batch,2] y)
    <float[3,2] table = {{1, 2, 3, 4, 5, 6}}, int64 first = {{0}}, int64 last = {{2}}> {{
        low = Floor(x)  whole = Cast<to = 7>(low)  {places}  found = GatherND(table, inside)  y = Identity(found)
    }}"""
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20]>\nlooking {text}')
    for node in model.graph:
        node.name = f"node_{node.outputs[0].name}"
    runner = Runner(Lowered("net", model, batch_axis="batch"), open_session(graphs.serialized(model)), 2)
    feeds = [{"x": np.ones((1, 1), np.float32)}] * 2
    if kept:
        assert check_invariance(runner, feeds).calls == 2 * len(POISONS)
        return
    with pytest.raises(Refused, match="a call of all rows ends where one of them holds NaN") as refused:
        check_invariance(runner, feeds)
    assert refused.value.place.node == "node_found" and "clamp(0, size - 1)" in str(refused.value)


def test_states_without_rows_have_anything_in_front() -> None:
    text = "(float[1,4] x, float[3,1,4] h) => (float[3,1,4] y) { y = Add(x, h) }"
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20]>\nlayers {text}')
    lowered = Lowered("net", model, states=(State("h", "y", None),))
    feeds = [{"x": np.ones((1, 4), np.float32)}] * 2
    assert check_invariance(Runner(lowered, open_session(graphs.serialized(model)), 1), feeds).calls == 2 * len(POISONS)


@pytest.mark.parametrize("batch", [2, 7, 16])
@pytest.mark.parametrize(
    ("label", "seen"),
    [
        ("NaN", "IsNaN(row)"),
        ("Inf", "IsInf<detect_negative=0>(row)"),
        ("-Inf", "IsInf<detect_positive=0>(row)"),
        ("1e30", "Equal(row, content)"),
    ],
)
def test_every_content_comes_into_every_row(label: str, seen: str, batch: int) -> None:
    text = SEEN % OF_THE_LAST_ROW % seen
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 20]>\nseeing {text}')
    lowered = Lowered("net", model, batch_axis="batch")
    feeds = [{"x": np.ones((1, 2), np.float32)}] * 6
    with pytest.raises(GateFailed, match=f"expected y unchanged by {label} in padded places"):
        check_invariance(Runner(lowered, open_session(graphs.serialized(model)), batch), feeds)


ROWLESS = CacheAxis("cache", 4, 2, "valid", None)
"""Of a graph without an axis of rows: a call is one row, whatever lies in front of the slots."""


def rowless(front: int, body: str, result: str) -> Runner:
    """A runner of a graph whose cache has layers, or one row, in front; what is cut off leaves at the call's end."""
    head = f"(float[{front},4,2] past, float[{front},2,2] x, int64[1] valid) => (float[{front},4,2] next, {result} y)"
    lines = "joined = Concat<axis = 1>(past, x)  next = Slice(joined, two, six, one)"
    constants = "<int64[1] one = {1}, int64[1] two = {2}, int64[1] six = {6}, int64 second = {1}>"
    text = f'<ir_version: 10, opset_import: ["" : 20]> layers {head} {constants} {{ {lines}  {body} }}'
    model = ir.from_onnx_text(text)
    lowered = Lowered("net", model, states=(State("past", "next", 1, "cache"),), caches=(ROWLESS,), is_padded=True)
    return Runner(lowered, open_session(graphs.serialized(model)))


@pytest.mark.parametrize("front", [1, 3])
def test_free_slots_of_a_cache_without_rows_may_hold_anything(front: int) -> None:
    feeds = [{"x": np.ones((front, 2, 2), np.float32)}] * 3
    runner = rowless(front, "y = Identity(x)", f"float[{front},2,2]")
    assert check_invariance(runner, feeds).calls == 3 * len(POISONS)


def test_free_slots_of_every_layer_are_poisoned() -> None:
    feeds = [{"x": np.ones((3, 2, 2), np.float32)}] * 3
    with pytest.raises(GateFailed, match="expected y unchanged"):
        check_invariance(rowless(3, "y = Gather<axis = 0>(past, second)", "float[4,2]"), feeds)
