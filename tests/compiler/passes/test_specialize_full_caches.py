"""specialize_full_caches: a call in which every row's caches are full selects nothing and looks nothing up."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners.session import run_model
from compiler.graph.stages import Array, Lowered, State
from compiler.passes.specialize_full_caches import SMALL, SpecializeFullCaches
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.contract import verify_pass, verify_untouched
from tests.kit.graphs import BATCH, copy_of, ops_of, parse, random_weights
from tests.kit.guarded import guarded

STEP, SLOTS, WIDTH, PLACES = 2, 4, 3, 6
FAT = SMALL // WIDTH + 1
ROUNDED = 1e-6
"""A product with one table for all rows may be summed otherwise than with one for each."""

PARTS = {
    "at": "at = Sub(all_places, first)",
    "own": "own = GatherElements<axis = 2>(by_place, spread)",
    "moved": "rows = Gather(table, safe)  moved = Transpose<perm = [0, 2, 1]>(rows)",
    "more": "more = MatMul(x, moved)",
    "sum": "sum = Add(own, more)",
    "all": "all = Concat<axis = 1>(clean, x)",
    "next": "next_past = Slice(all, two, six, one)",
}


def placed(parts: Mapping[str, str] | None = None) -> Lowered:
    """Scores by the place of a frame since the stream's first: looked up in all of them, and in a table."""
    written = PARTS | dict(parts or {})
    weights = random_weights(
        {"table": (PLACES, WIDTH), "by": (WIDTH, PLACES), "wide": (WIDTH, FAT), "narrow": (FAT, WIDTH)}
    )
    text = f"""(float[{BATCH},{STEP},{WIDTH}] x, float[{BATCH},{SLOTS},{WIDTH}] past, int64[{BATCH}] real_length,
        float[{PLACES},{WIDTH}] table, float[{WIDTH},{PLACES}] by, float[{WIDTH},{FAT}] wide,
        float[{FAT},{WIDTH}] narrow)
    => (float[{BATCH},{STEP},{PLACES}] y, float[{BATCH},{SLOTS},{WIDTH}] next_past)
    <int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] six = {{6}}, int64[1] slots = {{4}}, int64[1] nil = {{0}},
     int64[2] last_two = {{1, 2}}, int64[2] frames = {{-1, 3}}, int64[3] apart_again = {{-1, 6, 3}},
     int64[1,6] all_places = {{0, 1, 2, 3, 4, 5}}, float none = {{0.0}}>
    {{
        length = Unsqueeze(real_length, one)
        first = Sub(slots, length)
        {written["at"]}
        safe = Max(at, nil)
        apart = Unsqueeze(safe, one)
        by_place = MatMul(x, by)
        shape = Shape(by_place)
        spread = Expand(apart, shape)
        {written["own"]}
        {written["moved"]}
        {written["more"]}
        {written["sum"]}
        place = Unsqueeze(at, two)
        is_seen = GreaterOrEqual(place, nil)
        valid = Slice(is_seen, nil, slots, one)
        clean = Where(valid, past, none)
        {written["all"]}
        turned = Transpose<perm = [0, 2, 1]>(all)
        found = MatMul(x, turned)
        y = Add(found, sum)
        {written["next"]}
    }}"""
    return Lowered(
        "placed", parse(text, weights), states=(State("past", "next_past", 1, "cache"),),
        caches=(CacheAxis("cache", SLOTS, STEP, "real_length", None),), batch_axis=BATCH, data_outputs=("y",),
        is_padded=True, rows_independent=True,
    )  # fmt: skip


def branches_of(model: ir.Model) -> list[tuple[list[str], list[str]]]:
    """Operators of the branches that full caches take, and those of the others."""
    nodes = [node for node in model.graph if node.op_type == "If"]
    bodies = [{name: [each.op_type for each in node.attributes[name].as_graph()]
               for name in ("then_branch", "else_branch")} for node in nodes]  # fmt: skip
    return [(body["then_branch"], body["else_branch"]) for body in bodies]


@pytest.mark.parametrize("lowered", [guarded(), placed()], ids=["guarded", "placed"])
def test_plain_onnx_runtime_opens_the_graph_without_a_warning(
    lowered: Lowered, capfd: pytest.CaptureFixture[str]
) -> None:
    """It warns of constants that nothing reads, as folding may leave behind."""
    model = SpecializeFullCaches().apply(lowered).lowered.model
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 2
    capfd.readouterr()
    onnxruntime.InferenceSession(graphs.serialized(model), options, providers=["CPUExecutionProvider"])
    assert "".join(capfd.readouterr()) == ""


def test_full_caches_are_neither_filled_nor_hidden() -> None:
    outcome = verify_pass(SpecializeFullCaches(), guarded(), tolerance=0.0)
    assert (outcome.matched, outcome.rewritten) == (3, 3)
    assert "Where" not in ops_of(outcome.lowered.model)
    branches = branches_of(outcome.lowered.model)
    assert not any("Where" in full for full, _ in branches)
    assert sum(filling.count("Where") for _, filling in branches) == 3


def test_places_are_not_looked_up_and_tables_are_as_they_are_then() -> None:
    outcome = verify_pass(SpecializeFullCaches(), placed(), tolerance=ROUNDED)
    assert outcome.rewritten == outcome.matched == 3
    branches = branches_of(outcome.lowered.model)
    assert not any({"Gather", "GatherElements", "Transpose", "Where"} & set(full) for full, _ in branches)
    assert any({"Gather", "GatherElements"} <= set(filling) for _, filling in branches)


@pytest.mark.parametrize("lengths", [(4, 4, 4), (4, 4, 0), (3, 4, 4), (0, 0, 0)])
def test_one_row_that_still_fills_its_cache_is_enough(lengths: tuple[int, ...]) -> None:
    before, after = placed(), SpecializeFullCaches().apply(placed()).lowered
    rng = np.random.default_rng(0)
    feeds: dict[str, Array] = {
        "x": rng.standard_normal((3, STEP, WIDTH)).astype(np.float32),
        "past": rng.standard_normal((3, SLOTS, WIDTH)).astype(np.float32), "real_length": np.array(lengths),
    }  # fmt: skip
    feeds["past"][np.arange(SLOTS) < SLOTS - np.array(lengths)[:, None]] = np.nan
    found, right = run_model(after.model, feeds), run_model(before.model, feeds)
    for name, array in right.items():
        np.testing.assert_allclose(found[name], array, rtol=ROUNDED, atol=ROUNDED)


def test_each_branch_is_taken_when_it_says_so() -> None:
    after = SpecializeFullCaches().apply(placed()).lowered
    feeds: dict[str, Array] = {
        "x": np.ones((1, STEP, WIDTH), np.float32), "past": np.ones((1, SLOTS, WIDTH), np.float32),
        "real_length": np.array([SLOTS]),
    }  # fmt: skip
    right = run_model(after.model, feeds)["y"]
    for node in after.model.graph:
        if node.op_type == "If":
            body = node.attributes["then_branch"].as_graph()
            for at, value in enumerate(body.outputs):
                lost = ir.node("Sub", [value, value], name=f"lost_{node.name}_{at}")
                lost.outputs[0].name, lost.outputs[0].type = f"lost_{node.name}_{at}", value.type
                body.append(lost)
                body.outputs[at] = lost.outputs[0]
    lost_full, filling = (run_model(after.model, feeds | {"real_length": np.array([each])})["y"] for each in (SLOTS, 1))
    assert np.abs(lost_full - right).max() > 0.1
    truth = run_model(placed().model, feeds | {"real_length": np.array([1])})["y"]
    np.testing.assert_allclose(filling, truth, rtol=ROUNDED, atol=ROUNDED)


def test_what_follows_from_data_is_asked_in_no_call() -> None:
    verify_untouched(
        SpecializeFullCaches(),
        guarded({"first": "top = ReduceMax<keepdims = 0>(x)  whole = Cast<to = 7>(top)  first = Sub(length, whole)"}),
    )


def test_a_selection_that_hides_slots_of_a_full_cache_stays() -> None:
    hiding = guarded({"seen": "later = Add(first, one)  seen = GreaterOrEqual(all_places, later)"})
    outcome = verify_pass(SpecializeFullCaches(), hiding, tolerance=0.0)
    assert outcome.rewritten == 2
    assert ops_of(outcome.lowered.model).count("Where") == 1


def test_a_lookup_at_other_places_stays() -> None:
    other = placed({"at": "back = Sub(all_places, first)  at = Sub(back, one)"})
    outcome = verify_pass(SpecializeFullCaches(), other, tolerance=ROUNDED)
    assert "GatherElements" in ops_of(outcome.lowered.model)
    assert "Gather" not in ops_of(outcome.lowered.model)


def test_what_else_reads_a_table_keeps_its_lookup() -> None:
    shown = placed({"sum": "mean = ReduceMean<keepdims = 1>(rows)  part = Add(own, mean)  sum = Add(part, more)"})
    outcome = verify_pass(SpecializeFullCaches(), shown, tolerance=ROUNDED)
    assert "Gather" in ops_of(outcome.lowered.model)


def test_a_lookup_whose_rows_are_merged_with_places_stays() -> None:
    merged = """rows = Gather(table, safe)  flat = Reshape(rows, frames)  three = Concat<axis = 1>(x, x, x)
        others = Reshape(three, frames)  sum_of_both = Add(flat, others)  again = Reshape(sum_of_both, apart_again)
        moved = Transpose<perm = [0, 2, 1]>(again)"""
    outcome = verify_pass(SpecializeFullCaches(), placed({"moved": merged}), tolerance=ROUNDED)
    assert "Gather" in ops_of(outcome.lowered.model)


def test_large_weights_are_in_no_branch() -> None:
    heavy = "heavy = MatMul(clean, wide)  top = ReduceMax<keepdims = 1>(heavy, last_two)  low = Tanh(top)"
    weighted = placed({"next": f"newest = Slice(all, two, six, one)  {heavy}  next_past = Add(newest, low)"})
    outcome = verify_pass(SpecializeFullCaches(), weighted, tolerance=ROUNDED)
    assert outcome.rewritten == 3
    assert any("Identity" in full for full, _ in branches_of(outcome.lowered.model))
    assert not any("ReduceMax" in filling for _, filling in branches_of(outcome.lowered.model))


def test_caches_that_never_make_room_are_left_alone() -> None:
    whole = guarded()
    caches = tuple(dataclasses.replace(cache, is_whole=True) for cache in whole.caches)
    outcome = SpecializeFullCaches().apply(dataclasses.replace(copy_of(whole), caches=caches))
    assert outcome.matched == outcome.rewritten == 0


def test_what_goes_out_and_comes_back_is_in_no_branch() -> None:
    detour = "heavy = MatMul(clean, wide)  back = MatMul(heavy, narrow)  both = Add(clean, back)"
    outcome = verify_pass(
        SpecializeFullCaches(), placed({"all": f"{detour}  all = Concat<axis = 1>(both, x)"}), tolerance=ROUNDED
    )
    assert (outcome.matched, outcome.rewritten) == (3, 2)


def test_what_says_which_branch_is_taken_is_in_none() -> None:
    chosen = """later = Add(first, one)  is_full = Less(first, one)  since = Where(is_full, first, later)
        seen = GreaterOrEqual(all_places, since)"""
    outcome = verify_pass(SpecializeFullCaches(), guarded({"seen": chosen}), tolerance=0.0)
    assert (outcome.matched, outcome.rewritten) == (4, 3)


def test_all_conditions_must_hold_not_the_first_to_do_so() -> None:
    sooner = guarded({"seen": "near = Sub(first, two)  seen = GreaterOrEqual(all_places, near)"})
    assert verify_pass(SpecializeFullCaches(), sooner, tolerance=0.0).rewritten == 3


def test_what_nobody_reads_is_no_reason_for_a_branch() -> None:
    outcome = SpecializeFullCaches().apply(guarded({"z": "z = Neg(x)  unread = Where(wide, keys, nil)"}))
    assert (outcome.matched, outcome.rewritten) == (3, 3)


@pytest.mark.parametrize("axis", [2, -1])
def test_places_that_are_spread_over_more_axes(axis: int) -> None:
    text = f"""(float[1,2,6] x, int64[1] real_length) => (float[1,2,6] y)
    <int64[1] one = {{1}}, int64[1] slots = {{4}}, int64[1] nil = {{0}}, int64[1,6] all_places = {{0, 1, 2, 3, 4, 5}}>
    {{
        length = Unsqueeze(real_length, one)  first = Sub(slots, length)  at = Sub(all_places, first)
        safe = Max(at, nil)  shape = Shape(x)  spread = Expand(safe, shape)
        y = GatherElements<axis = {axis}>(x, spread)
    }}"""
    graph = dataclasses.replace(guarded(), model=parse(text), states=(), batch_axis=None)
    outcome = SpecializeFullCaches().apply(copy_of(graph))
    assert outcome.rewritten == 1
    x = np.random.default_rng(0).standard_normal((1, 2, 6)).astype(np.float32)
    for length in range(SLOTS + 1):
        feeds: dict[str, Array] = {"x": x, "real_length": np.array([length])}
        assert np.array_equal(run_model(outcome.lowered.model, feeds)["y"], run_model(graph.model, feeds)["y"])
