"""Graphs that are one model at several latencies are told apart, fed alike, and not wired."""

from pathlib import Path

import pytest

from compiler.recipe.graph_parts import Latency
from compiler.recipe.load import load_recipe
from compiler.recipe.record import Recipe
from tests.kit.recipes import GOOD, WIRE, load, refusal, wired, write

AXES = "    axes:\n      batch: {buckets: [1, 4]}\n      cache: {window: 16, mask_input: mask}\n"


def _at(latencies: str, text: str = GOOD) -> str:
    """A recipe whose encoder has latencies."""
    return text.replace(AXES, f"{AXES}    latencies: {latencies}\n", 1)


def test_each_latency_is_a_graph_with_its_own_arguments_and_sizes(tmp_path: Path) -> None:
    over = "{fast: {source: {arguments: {look_ahead: 0}}}, exact: {axes: {cache: {window: 32}}}}"
    recipe = load(tmp_path, _at(over))
    assert list(recipe.graphs) == ["encoder_fast", "encoder_exact"]
    fast, exact = recipe.graphs.values()
    assert (fast.latency, exact.latency) == (Latency(of="encoder", name="fast"), Latency(of="encoder", name="exact"))
    assert (fast.source.arguments, fast.axes["cache"].window) == ({"look_ahead": 0}, 16)
    assert (exact.source.arguments, exact.axes["cache"].window) == ({}, 32)
    assert recipe.gates.parity.keys() == recipe.graphs.keys()
    assert [len(graph.inputs) for graph in (fast, exact)] == [4, 4]


def test_the_effective_recipe_is_read_back_as_the_same_and_set_reaches_a_latency(tmp_path: Path) -> None:
    text = _at("{fast: {passes: [standard]}, exact: {}}")
    loaded = load_recipe(write(tmp_path, text), ["graphs.encoder.latencies.fast.axes.cache={window: 8}"])
    assert loaded.recipe.graphs["encoder_fast"].axes["cache"].window == 8
    (tmp_path / "again.yaml").write_text(loaded.text)
    again: Recipe = load_recipe(str(tmp_path / "again.yaml")).recipe
    assert again == loaded.recipe


OTHER_OUTPUTS = '{fast: {}, exact: {outputs: [scores, "next_{0..2}"]}}'
EVERY_KEY = (Path(__file__).parents[2] / "docs" / "every_key.yaml").read_text(encoding="utf-8")
SHARED = "    share_heads: {groups"
WRONG = {
    "other outputs": (
        _at(OTHER_OUTPUTS),
        "graphs.encoder_exact: expected what callers of encoder_fast feed and get, features float32 -> logits, got",
    ),
    "a wire": (
        _at("{fast: {}}", wired(WIRE.replace("encoder", "encoder_fast"))),
        "wiring.0: expected graphs with one latency in a wire, got 'encoder_fast', which is one of several",
    ),
    "heads that are trained": (
        EVERY_KEY.replace(SHARED, f"    latencies: {{fast: {{}}}}\n{SHARED}"),
        "share_heads: expected a model with one latency for share_heads, got several",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_latencies_are_answered_with_their_place(case: str, tmp_path: Path) -> None:
    text, message = WRONG[case]
    assert message in refusal(tmp_path, text)


def test_graphs_that_name_their_latency_themselves_are_told_apart(tmp_path: Path) -> None:
    text = load_recipe(write(tmp_path, _at("{fast: {}, exact: {}}"))).text
    again = refusal(tmp_path, text.replace("name: exact", "name: fast"))
    assert "expected another latency of encoder than that of encoder_fast, got 'fast' again" in again
    taken = refusal(tmp_path, text.replace("of: encoder,", "of: encoder_fast,"))
    assert "expected a name that no graph has, got 'encoder_fast'" in taken
