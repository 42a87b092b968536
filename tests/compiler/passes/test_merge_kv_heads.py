"""merge_kv_heads: heads that share keys and values."""

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import yaml

import runtime_lite
from compiler.errors import RecipeError, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of
from compiler.graph.stages import Array, Feed, Lowered, State
from compiler.passes.merge_kv_heads import MergeKvHeads
from compiler.passes.simplify import simplify_model
from compiler.rewriting.attention.attention import find_attentions
from tests.kit.attention import LONGEST, POSITIONS, ROWS, SIZE, attention, feeds
from tests.kit.attention import text as decoder_text
from tests.kit.attention import weights as decoder_weights
from tests.kit.calibration import with_streams
from tests.kit.contract import verify_pass
from tests.kit.derived import in_chunks, steps_of, with_chunks
from tests.kit.graphs import BATCH, copy_of, parse
from tests.kit.models.project import Project
from tests.kit.whole_sequences import LABELS, Drawing, whole_graph

GUARDED = """soft = Softmax<axis = 3>(masked)  nothing_seen = IsNaN(soft)
    weights = Where(nothing_seen, no_weight, soft)"""


def result_of(lowered: Lowered, seed: int = 9) -> Array:
    return runner_of(lowered).step(feeds(1, 30, seed)[0][0])["y"]


def error_of(lowered: Lowered, merged: Lowered) -> float:
    right = result_of(lowered)
    return float(np.linalg.norm(result_of(merged) - right) / np.linalg.norm(right))


@pytest.mark.parametrize("positions", POSITIONS)
def test_heads_that_are_images_of_each_other_share_without_loss(positions: str) -> None:
    graph = attention(positions, related=True)
    outcome = MergeKvHeads(2).apply(copy_of(graph))
    assert outcome.matched == outcome.rewritten == 1 and not outcome.refused
    assert error_of(graph, outcome.lowered) < 1e-4
    assert error_of(graph, MergeKvHeads(2, method="mean", refit=False).apply(copy_of(graph)).lowered) > 1e-2


@pytest.mark.parametrize("rows", ROWS)
def test_rows_of_projections_lie_time_first_or_merged_as_well(rows: str) -> None:
    """Three rows of their own show whether frames and rows change places."""
    graph = attention("added", rows=rows, related=True)
    outcome = MergeKvHeads(2).apply(copy_of(graph))
    assert (outcome.matched, outcome.rewritten, outcome.refused) == (1, 1, ())
    feed = {"x": np.concatenate([stream[0]["x"] for stream in feeds(3, 17, seed=9)])}
    right, got = (runner_of(each).step(feed)["y"] for each in (graph, outcome.lowered))
    np.testing.assert_allclose(got, right, atol=1e-4 * np.abs(right).max())


@pytest.mark.parametrize("positions", POSITIONS)
def test_it_keeps_the_contract_of_passes(positions: str) -> None:
    verify_pass(MergeKvHeads(2), attention(positions, related=True), tolerance=1e-2, steps=2)


def test_keys_and_values_are_projected_once_per_group_and_never_repeated() -> None:
    model = MergeKvHeads(2).apply(attention("turned", related=True)).lowered.model
    graphs.infer_shapes(model)
    assert not [node for node in model.graph if node.op_type in ("Expand", "Tile", "ConstantOfShape")]
    shapes = {str(value.name): value.shape for value in model.graph.initializers.values()}
    narrow = [name for name, shape in shapes.items() if shape is not None and list(shape) == [16, 2 * SIZE]]
    assert len(narrow) == 2
    right = [node.inputs[1] for node in model.graph if node.op_type == "MatMul"]
    computed = [graphs.dims_of(value) for value in right if value is not None and value.producer() is not None]
    assert [dims[1:3] for dims in computed if dims] == [(2, 1)] * 2  # groups, and one for all heads of each


def test_lengths_that_are_counted_and_rows_that_may_see_nothing_are_no_obstacle() -> None:
    """What torch exports: places are counted anew, and a softmax of nothing is 0."""
    text = decoder_text("turned", key="k_turned", keys="")
    text = text.replace(
        "cos = Slice(cosines, zero, frames, zero)", "at = Range(nothing, count, unit)  cos = Gather(cosines, at)"
    )
    text = text.replace("weights = Softmax<axis = 3>(masked)", GUARDED).replace(
        "float lowest =", "float no_weight = {0.0}, float lowest ="
    )
    graph = attention("turned", related=True)
    guarded = dataclasses.replace(graph, model=parse(text, decoder_weights(related=True, turned=True)))
    outcome = MergeKvHeads(2).apply(copy_of(guarded))
    assert outcome.rewritten == 1 and not outcome.refused
    assert error_of(graph, outcome.lowered) < 1e-4


def test_unrelated_heads_lose_least_by_the_optimum_and_less_after_the_fit() -> None:
    graph = attention("turned")
    errors = {
        (method, refit): error_of(graph, MergeKvHeads(2, method, refit=refit).apply(copy_of(graph)).lowered)
        for method in ("optimal", "mean")
        for refit in (False, True)
    }
    assert errors["optimal", False] < errors["mean", False]
    assert errors["optimal", True] < errors["optimal", False]


def test_layers_that_lose_more_keep_more_heads() -> None:
    # of the first layer's heads every one is an image of one other, of the second's none
    first, second = (
        onnx.load_model_from_string(graphs.serialized(attention(related=each).model)) for each in (True, False)
    )
    both = onnx.compose.merge_models(first, second, [("y", "x")], prefix1="a.", prefix2="b.")
    lowered = Lowered("decoder", ir.from_proto(both), batch_axis=BATCH, data_outputs=("b.y",))
    streams = [[{"a.x": feed["x"]} for feed in stream] for stream in feeds(5)]
    outcome = MergeKvHeads(3, spread=True).apply(with_streams(lowered, *streams))
    assert (outcome.matched, outcome.rewritten) == (2, 1) and "4 -> 2 heads" in outcome.detail


def test_a_second_time_nothing_is_left_to_do() -> None:
    once = MergeKvHeads(2).apply(attention(related=True)).lowered
    again = MergeKvHeads(2).apply(once)
    assert again.matched == again.rewritten == 0


def test_as_many_groups_as_heads_change_nothing() -> None:
    outcome = MergeKvHeads(4).apply(attention())
    assert outcome.matched == 1 and outcome.rewritten == 0


def test_a_graph_without_attention_is_refused_with_what_was_looked_for() -> None:
    model = parse("(float[batch,time,4] x) => (float[batch,time,4] y) { y = Softmax(x) }")
    graph = with_streams(Lowered("tiny", model, batch_axis=BATCH), *feeds(1))
    with pytest.raises(Refused, match="a softmax between two products of data"):
        MergeKvHeads(2).apply(graph)


def test_normalised_heads_are_refused_by_name() -> None:
    norm = "mean = ReduceL2<keepdims = 1>(k_turned, three)  normed = Div(k_turned, mean)"
    with pytest.raises(Refused, match="same linear map of the channels"):
        MergeKvHeads(2).apply(attention("none", key="normed", keys=norm))


def test_a_number_of_groups_that_does_not_divide_the_heads_is_refused() -> None:
    with pytest.raises(Refused, match="expected a divisor of 4 heads, got 3 groups"):
        MergeKvHeads(3).apply(attention())


def test_padding_and_missing_data_are_refused() -> None:
    with pytest.raises(Refused, match="as it is captured"):
        MergeKvHeads(2).apply(dataclasses.replace(attention(), is_padded=True))
    with pytest.raises(Refused, match=r"data\.calibration"):
        MergeKvHeads(2).apply(dataclasses.replace(attention(), calibration=None))


@pytest.mark.parametrize("options", [{"groups": 0}, {"method": "median"}])
def test_options_are_checked(options: dict[str, object]) -> None:
    with pytest.raises(RecipeError, match="expected"):
        MergeKvHeads(**options)  # type: ignore[arg-type]


CHUNKS = (7, 1, 1, 10, 1, 4)
"""Frames of the calls of a stream: 24."""


def steps(positions: str, *, related: bool, rows: str = "batch first") -> Lowered:
    return with_chunks(steps_of(attention(positions, related=related, rows=rows), LONGEST), feeds(5), CHUNKS)


@pytest.mark.parametrize(
    ("positions", "rows"), [*((each, "batch first") for each in POSITIONS), *(("none", each) for each in ROWS)]
)
def test_steps_that_are_derived_and_then_merged_are_those_of_the_merged_graph(positions: str, rows: str) -> None:
    merge = MergeKvHeads(2, refit=False)
    whole = merge.apply(attention(positions, rows=rows)).lowered
    outcome = merge.apply(steps(positions, related=False, rows=rows))
    assert (outcome.matched, outcome.rewritten, outcome.refused) == (1, 1, ())
    (stream,) = feeds(1, 24, seed=9)
    runner = runner_of(outcome.lowered)
    got = np.concatenate([runner.step(feed)["y"] for feed in in_chunks(stream, CHUNKS)], axis=1)
    right = runner_of(whole).step(stream[0])["y"]
    np.testing.assert_allclose(got, right, atol=1e-3 * np.abs(right).max())


@pytest.mark.parametrize("positions", POSITIONS)
def test_caches_hold_the_groups_and_what_the_original_cached_of_them(positions: str) -> None:
    graph = steps(positions, related=True)
    outcome = verify_pass(MergeKvHeads(2), graph, tolerance=1e-2, steps=6)
    before, after = (graphs.inputs_named(each.model) for each in (graph, outcome.lowered))
    for state in graph.states:
        assert 4 * np.prod([d for d in graphs.dims_of(after[state.input]) or () if isinstance(d, int)]) == 2 * np.prod(
            [d for d in graphs.dims_of(before[state.input]) or () if isinstance(d, int)]
        )


def whole_sequences(seed: int, frames: int = 16) -> Feed:
    return {"tokens": np.random.default_rng(seed).integers(0, LABELS, (1, frames))}


@pytest.mark.parametrize(
    ("positions", "groups"),
    [*itertools.product(("rotary", "looked_up", "linear_bias", "bucket_bias"), (2,)), ("rotary", 1), ("table", 1)],
)
def test_decoders_drawn_at_random_merge_alike_before_and_behind_the_derivation(positions: str, groups: int) -> None:
    """With one group the heads share as they come, which leaves nothing to do."""
    model = whole_graph(Drawing(positions, "band", "add", layers=2, groups=groups, seed=groups))
    simplify_model(model)
    streams = [[whole_sequences(seed)] for seed in range(5)]
    whole = with_streams(Lowered("decoder", model, batch_axis=BATCH, data_outputs=("scores",)), *streams)
    chunks = (5, 1, 1, 6, 3)
    derived = with_chunks(steps_of(whole, 24), streams, chunks)
    merge = MergeKvHeads(1, refit=False)
    first, behind = merge.apply(copy_of(whole)), merge.apply(copy_of(derived))
    assert first.rewritten == behind.rewritten == (2 if groups == 2 else 0)
    runner = runner_of(behind.lowered)
    feed = whole_sequences(9)
    got = np.concatenate([runner.step(each)["scores"] for each in in_chunks([feed], chunks)], axis=1)
    right = runner_of(first.lowered).step(feed)["scores"]
    np.testing.assert_allclose(got, right, atol=1e-3 * np.abs(right).max())


def test_a_cache_that_is_joined_before_heads_are_apart_is_refused_by_name() -> None:
    graph = steps("none", related=True)
    (split,) = [node for node in graph.model.graph if node.outputs[0].name == "v_split"]
    biased = split.inputs[0]
    assert biased is not None
    state = graph.states[0]
    old = ir.Value(name="flat", shape=ir.Shape([BATCH, "past", 4 * SIZE]), type=ir.TensorType(ir.DataType.FLOAT))
    graph.model.graph.inputs.append(old)
    insert = graphs.Inserter(graph.model, "test", before=split)
    joined = insert.op("Concat", [old, biased], {"axis": 1}, name="joined_flat")
    split.replace_input_with(0, joined)
    flat = State("flat", state.output, 1, "past")
    outcome = find_attentions(graph.model, (*graph.states, flat))
    assert "expected flat to be joined to new frames behind where heads are apart" in str(outcome.refused[0])


RECIPE = {
    "name": "decoder",
    "graphs": {
        "net": {
            "source": {"onnx": "whole.onnx"},
            "inputs": {"x": {"shape": ["batch", "time", 4 * SIZE], "dtype": "float32"}},
            "outputs": ["y"],
            "axes": {"batch": {"buckets": [1, 2]}, "time": {"buckets": [1, 8], "length_input": "time_length"}},
            "derive_steps": {"along": "time", "window": 24},
            "passes": [{"merge_kv_heads": {"groups": 2}}, "standard"],
        }
    },
    "data": {
        "verification": {"feeds": "frames:streams", "count": 2},
        "calibration": {"feeds": "frames:others", "count": 5},
    },
    "targets": [{"kind": "onnx_static"}],
    "gates": {"parity": {"net": {"max_abs": 1.0e-4, "chained_steps": 9, "lossy": {"max_abs": 0.05, "sqnr_db": 40.0}}}},
}

DATA = f"""
import numpy as np

def drawn(seed):
    random = np.random.default_rng(seed)
    while True:
        yield [{{"x": random.standard_normal((1, n, {4 * SIZE})).astype("f")}} for n in (8, *[1] * 10, 6)]

def streams():
    return drawn(0)

def others():
    return drawn(1)
"""


@pytest.mark.slow
def test_a_recipe_derives_steps_and_merges_heads(tmp_path: Path) -> None:
    graph = attention("added", related=True, rows="time first, merged")
    made = Project(tmp_path, tmp_path / "cache")
    ir.save(graph.model, tmp_path / "whole.onnx")
    made.write("frames.py", DATA)
    made.write("whole.yaml", yaml.safe_dump(RECIPE, sort_keys=False))
    ended = made.build(recipe="whole.yaml")
    assert ended.code == 0, ended.err
    x = feeds(1, 24, seed=3)[0][0]["x"]
    right = runner_of(graph).step({"x": x})["y"]
    with runtime_lite.Runtime() as runtime, runtime.load(tmp_path / "bundle").open_stream() as stream:
        got = [stream.push({"x": x[:, at : at + 1]})["y"] for at in range(24)]
    np.testing.assert_allclose(np.concatenate(got, axis=1), right, atol=1e-2 * np.abs(right).max())
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    shapes = [state["shape"] for state in manifest["graphs"]["net"]["states"]]
    assert shapes and all(2 in shape and 24 in shape for shape in shapes)
    again = made.build(recipe="whole.yaml")
    assert again.code == 0 and "net:merge_kv_heads" in again.stages(cached=True)
