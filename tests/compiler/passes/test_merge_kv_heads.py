"""merge_kv_heads: heads that share keys and values."""

import dataclasses

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from compiler import ir as house
from compiler.errors import RecipeError, Refused
from compiler.passes.merge_kv_heads import MergeKvHeads
from compiler.runners.choose import runner_of
from compiler.stages import Array, Lowered, State
from tests.kit.attention import POSITIONS, SIZE, attention, feeds
from tests.kit.calibration import with_streams
from tests.kit.contract import verify_pass
from tests.kit.graphs import BATCH, copy_of, parse


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


@pytest.mark.parametrize("positions", POSITIONS)
def test_it_keeps_the_contract_of_passes(positions: str) -> None:
    verify_pass(MergeKvHeads(2), attention(positions, related=True), tolerance=1e-2, steps=2)


def test_keys_and_values_are_projected_once_per_group_and_never_repeated() -> None:
    model = MergeKvHeads(2).apply(attention("turned", related=True)).lowered.model
    house.infer_shapes(model)
    assert not [node for node in model.graph if node.op_type in ("Expand", "Tile", "ConstantOfShape")]
    shapes = {str(value.name): value.shape for value in model.graph.initializers.values()}
    narrow = [name for name, shape in shapes.items() if shape is not None and list(shape) == [16, 2 * SIZE]]
    assert len(narrow) == 2
    right = [node.inputs[1] for node in model.graph if node.op_type == "MatMul"]
    computed = [house.dims_of(value) for value in right if value is not None and value.producer() is not None]
    assert [dims[1:3] for dims in computed if dims] == [(2, 1)] * 2  # groups, and one for all heads of each


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
        onnx.load_model_from_string(house.serialized(attention(related=each).model)) for each in (True, False)
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


def test_states_and_missing_data_are_refused() -> None:
    with pytest.raises(Refused, match="whole sequences"):
        MergeKvHeads(2).apply(dataclasses.replace(attention(), states=(State("a", "b", None),)))
    with pytest.raises(Refused, match=r"data\.calibration"):
        MergeKvHeads(2).apply(dataclasses.replace(attention(), calibration=None))


@pytest.mark.parametrize("options", [{"groups": 0}, {"method": "median"}])
def test_options_are_checked(options: dict[str, object]) -> None:
    with pytest.raises(RecipeError, match="expected"):
        MergeKvHeads(**options)  # type: ignore[arg-type]
