"""The checker of derived steps believes nothing: what is told otherwise than it is, or derived wrongly, is rejected."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from compiler.checker.graph import Rejected, Unanswered
from compiler.checker.steps import agree, check_steps
from compiler.graph import model as graphs
from compiler.proof.derivation.derive import derive
from tests.kit.graphs import parse
from tests.kit.whole_sequences import CHUNKED, LONGEST, Drawing, whole_graph

Told = dict[str, Any]


def derived(drawing: Drawing) -> tuple[onnx.ModelProto, onnx.ModelProto, Told]:
    whole = whole_graph(drawing)
    found = derive(whole, "time", "past", LONGEST, chunk=drawing.chunk, forget=drawing.forgets)
    graphs.infer_shapes(found.model)
    return ir.serde.serialize_model(whole), ir.serde.serialize_model(found.model), found.certificate


def test_what_holds_is_replayed() -> None:
    whole, steps, told = derived(Drawing(positions="rotary"))
    assert check_steps(whole, steps, told) == len(told["values"])


def test_tokens_that_are_joined_and_moved_back_are_drawn_for_their_table() -> None:
    model = parse("""(int64[batch,time] tokens, int64[batch,3] text) => (float[batch,time,2] y)
        <float[4,2] table = {1, 2, 3, 4, 5, 6, 7, 8}, int64[4] one = {0, 1, 0, -1}, int64[1] three = {3},
         int64[1] end = {9223372036854775807}, int64[1] axis = {1}>
        { moved = Pad(tokens, one) both = Concat<axis = 1>(text, moved) found = Gather(table, both)
          y = Slice(found, three, end, axis) }""")
    graphs.infer_shapes(model)
    made = derive(model, "time", "past", 8)
    whole, steps = (ir.serde.serialize_model(each) for each in (model, made.model))
    assert check_steps(whole, steps, made.certificate) == len(made.certificate["values"])


IN_HALVES = """(float16[batch,time,16] x) => (float[batch,time,16] y) <int64 none = {0}, int64 whole = {1},
     int64[1] front = {0}, int64[1] last = {-1}, float hidden = {-1e4}, float scale = {0.25}>
    { k = Transpose<perm = [0, 2, 1]>(x)  by = Cast<to = 10>(scale)  q = Mul(x, by)  s = MatMul(q, k)
      n = Shape<start = 1, end = 2>(x)  l = Squeeze(n, front)  p = Range(none, l, whole)  r = Unsqueeze(p, last)
      m = GreaterOrEqual(r, p)  low = Cast<to = 10>(hidden)  z = Where(m, s, low)  w = Softmax<axis = -1>(z)
      a = MatMul(w, x)  y = Cast<to = 1>(a) }"""


def _scaled_by(steps: onnx.ModelProto, number: float) -> onnx.ModelProto:
    changed = copy.deepcopy(steps)
    (scale,) = [each for each in changed.graph.initializer if each.name == "scale"]
    scale.CopyFrom(numpy_helper.from_array(np.array(number, np.float32), "scale"))
    return changed


def test_graphs_that_compute_in_halves_are_held_to_the_rounding_of_halves() -> None:
    model = parse(IN_HALVES)
    graphs.infer_shapes(model)
    made = derive(model, "time", "past", 16)
    whole, steps = (ir.serde.serialize_model(each) for each in (model, made.model))
    last_bit = float(np.nextafter(np.float16(0.25), np.float16(1)))
    assert check_steps(whole, _scaled_by(steps, last_bit), made.certificate) == len(made.certificate["values"])
    with pytest.raises(Rejected, match="is not the part of"):
        check_steps(whole, _scaled_by(steps, 0.27), made.certificate)


def _value(told: Told, name: str) -> Told:
    return next(each for each in told["values"] if each["step"] == name)


TAMPERED: dict[str, Callable[[Told], Any]] = {
    "a result is not told of": lambda told: told["values"].remove(_value(told, "scores")),
    "other places": lambda told: _value(told, "scores").update(parts=[[1, "all", [], "0"]]),
    "another value": lambda told: _value(told, "scores").update(value="gather"),
    "no such value": lambda told: _value(told, "scores").update(value="nothing"),
    "no such part": lambda told: _value(told, "scores").update(parts=[[1, "some", [], "0"]]),
    "a cache is not told of": lambda told: told["caches"].pop(),
}


@pytest.mark.parametrize(
    ("largest", "error", "agrees"),
    [
        (0.5, 1e-7, True),  # rounding of numbers near a half
        (0.5, 1e-6, False),
        (1e-3, 1e-7, False),  # all numbers of the value are as small
        (1e9, 2e-6, False),  # beside a score that hides
        (np.inf, 1e-8, True),
    ],
)
def test_a_part_that_cancels_is_held_to_the_rounding_of_its_value(largest: float, error: float, agrees: bool) -> None:
    part = np.array([2e-4, -1e-4])
    assert agree(part, part + error, among=np.array([largest, *part])) is agrees


@pytest.mark.parametrize("change", TAMPERED)
def test_what_is_told_otherwise_is_rejected(change: str) -> None:
    whole, steps, told = derived(Drawing())
    changed = copy.deepcopy(told)
    TAMPERED[change](changed)
    with pytest.raises(Rejected):
        check_steps(whole, steps, changed)


def test_steps_of_another_model_are_rejected() -> None:
    whole, _, told = derived(Drawing(seed=1))
    _, steps, _ = derived(Drawing(seed=2))
    with pytest.raises(Rejected, match="is not the part of"):
        check_steps(whole, steps, told)


def test_a_cache_that_moves_with_what_comes_later_is_rejected() -> None:
    whole, steps, told = derived(Drawing())
    for node in whole.graph.node:  # the mask lets every frame see every other
        if node.op_type == "LessOrEqual":
            node.op_type = "GreaterOrEqual"
    with pytest.raises(Rejected):
        check_steps(whole, steps, told)


CHUNKS = Drawing(mask=CHUNKED, width=4, positions="rotary", forgets=True)


@pytest.mark.parametrize("change", [{"chunk": 2}, {"look_ahead": 2}, {"recent": 5}], ids=str)
def test_chunks_and_what_is_kept_are_not_believed(change: Told) -> None:
    whole, steps, told = derived(CHUNKS)
    assert check_steps(whole, steps, told) == len(told["values"])
    with pytest.raises(Rejected):
        check_steps(whole, steps, {**told, **change})


ENDLESS = Drawing(mask="band", width=4, positions="rotary", forgets=True)


def test_rows_of_other_ages_are_looked_at() -> None:
    whole, steps, told = derived(ENDLESS)
    assert check_steps(whole, steps, told) == len(told["values"])
    (count,) = (each["input"] for each in told["caches"] if each["is_count"])
    (by_row,) = (node for node in steps.graph.node if node.op_type == "Unsqueeze" and node.input[0] == count)
    first = onnx.NodeProto(op_type="Gather", input=[count, "first_row"], output=["of_first"], name="of_first")
    steps.graph.initializer.append(numpy_helper.from_array(np.array([0]), "first_row"))
    by_row.input[0] = "of_first"
    steps.graph.node.insert(0, first)
    with pytest.raises(Rejected, match="moves with the age of other rows"):
        check_steps(whole, steps, told)


def test_a_stream_without_end_is_followed_for_several_windows() -> None:
    whole, steps, told = derived(ENDLESS)
    (count,) = (each["input"] for each in told["caches"] if each["is_count"])
    (by_row,) = (node for node in steps.graph.node if node.op_type == "Unsqueeze" and node.input[0] == count)
    bounded = onnx.NodeProto(op_type="Min", input=[count, "longest"], output=["bounded"], name="bounded")
    steps.graph.initializer.append(numpy_helper.from_array(np.array([LONGEST]), "longest"))
    by_row.input[0] = "bounded"
    steps.graph.node.insert(0, bounded)
    with pytest.raises(Rejected, match="is not the part of"):
        check_steps(whole, steps, told)


CLAMPED = Drawing(tokens="clamped", declared=(-1, 12))


def test_tokens_are_drawn_from_the_range_that_is_told() -> None:
    whole, steps, told = derived(CLAMPED)
    assert told["ranges"] == {"tokens": [0, 12]}
    clamp = next(node for node in steps.graph.node if node.op_type == "Max")
    clamp.op_type, clamp.input[1] = "Identity", ""
    del clamp.input[1]
    assert check_steps(whole, steps, told) > 0  # no token below 0 was told of
    with pytest.raises(Rejected, match="is not the part of"):
        check_steps(whole, steps, {**told, "ranges": {"tokens": [-1, 12]}})


def test_a_range_that_the_whole_graph_does_not_answer_is_told_with_a_cure() -> None:
    whole, steps, told = derived(CLAMPED)
    with pytest.raises(Unanswered, match="does not answer numbers within") as unanswered:
        check_steps(whole, steps, {**told, "ranges": {"tokens": [0, 40]}})
    assert "range: [0, 1023]" in unanswered.value.cure


def test_where_no_range_is_told_few_numbers_are_drawn_for_tables() -> None:
    whole, steps, told = derived(Drawing(tokens="offset"))
    assert check_steps(whole, steps, {name: each for name, each in told.items() if name != "ranges"}) > 0


PHASES = """(float[batch,time,4] x) => (float[batch,time,4] y)
    <int64 axis = {1}, float fast = {200.0}, float[4,4] w = {1, 2, 3, -4, -5, 6, 7, -8, 9, 10, -11, -12, 13, 1, 2, 3}>
    { advance = MatMul(x, w)  total = CumSum(advance, axis)  turns = Mul(total, fast)  y = Sin(turns) }"""


@pytest.mark.parametrize(("error", "agrees"), [(0.0, True), (2.0e-7, True), (1.0e-4, False)])
def test_phases_are_held_to_what_roundings_of_the_weights_move_them(error: float, agrees: bool) -> None:
    model = parse(PHASES)
    graphs.infer_shapes(model)
    made = derive(model, "time", "past", 64)
    graphs.infer_shapes(made.model)
    whole, steps = (ir.serde.serialize_model(each) for each in (model, made.model))
    for tensor in steps.graph.initializer:
        if list(tensor.dims) == [4, 4]:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(1 + error), tensor.name))
    if agrees:
        check_steps(whole, steps, made.certificate)
    else:
        with pytest.raises(Rejected):
            check_steps(whole, steps, made.certificate)


def test_kept_entries_are_those_of_the_newest_frames() -> None:
    whole, steps, told = derived(Drawing(layers=0, chain=("spread", "conv", "residual"), seed=1))
    check_steps(whole, steps, told)
    (kept, *_) = [each for each in told["values"] if each["parts"][0][1] == "last" and each["parts"][0][2]]
    kept["parts"][0][2] = []
    with pytest.raises(Rejected, match="entries per frame"):
        check_steps(whole, steps, told)
