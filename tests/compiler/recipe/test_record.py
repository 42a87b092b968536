"""Gates and data of a recipe agree with its graphs."""

from pathlib import Path

import pytest

from compiler.recipe.load import load_recipe
from tests.kit.recipes import changed, load, refusal, write


def test_recipe_loads_into_frozen_record(tmp_path: Path) -> None:
    recipe = load(tmp_path)
    graph = recipe.graphs["encoder"]
    assert list(graph.inputs) == ["features", "cache_0", "cache_1", "cache_2"]
    assert [spec.state for spec in graph.inputs.values()] == [None, "next_0", "next_1", "next_2"]
    assert graph.outputs == ("logits", "next_0", "next_1", "next_2")
    assert graph.inputs["cache_1"].shape == ("batch", "cache", 8)
    assert (graph.axes["cache"].window, graph.axes["cache"].length_input) == (16, "real_length")
    assert graph.axes["batch"].buckets == (1, 4)
    assert [(spec.name, spec.options) for spec in graph.passes] == [("pad_axes", {"fill": 0.0}), ("simplify", {})]
    assert [(target.kind, target.options) for target in recipe.targets] == [("onnx_static", {"opset": 20})]
    assert recipe.gates.parity["encoder"].max_abs == 1e-5
    with pytest.raises(ValueError, match="frozen"):
        recipe.name = "other"


CONTRADICTIONS = [
    pytest.param(
        "    encoder: {max_abs",
        "    encodr: {max_abs",
        "tiny.yaml:28: gates.parity.encodr: expected the name of a graph, got 'encodr'; "
        "did you mean 'encoder'? known: encoder",
        id="gate of no graph",
    ),
    pytest.param(
        "    encoder: {max_abs: 1.0e-5, chained_steps: 100}\n",
        "    {}\n",
        "tiny.yaml:27: gates.parity: expected an entry for every graph, got none for 'encoder'; add encoder",
        id="graph without a gate",
    ),
    pytest.param(
        "feeds: data:streams",
        "feeds: {decoder: data:streams}",
        "tiny.yaml:21: data.verification.feeds.decoder: expected the name of a graph, got 'decoder'; ",
        id="feeds of no graph",
    ),
]


@pytest.mark.parametrize(("old", "new", "message"), CONTRADICTIONS)
def test_contradiction_is_answered_with_line_key_and_cure(old: str, new: str, message: str, tmp_path: Path) -> None:
    got = refusal(tmp_path, changed(old, new))
    assert got.startswith(message), got


def test_drift_is_for_graphs_that_hand_states_on(tmp_path: Path) -> None:
    text = changed("chained_steps: 100}", "chained_steps: 100, drift: {max_growth: 2}}")
    gate = load_recipe(write(tmp_path, text)).recipe.gates.parity["encoder"]
    assert gate.drift is not None
    assert (gate.drift.steps, gate.drift.max_growth) == (1000, 2.0)
    alone = text.replace(', state: "next_{0..2}"', "")
    assert "gates.parity.encoder.drift: expected a graph that hands states on for drift" in refusal(tmp_path, alone)
