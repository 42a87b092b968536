"""A graph with latencies is written out as one graph for each, and what names it holds for all of them."""

import pytest

from compiler.errors import RecipeError
from compiler.recipe.tree.latencies import expand_latencies
from compiler.recipe.tree.located_yaml import Node, read_document

GRAPH = "source: {factory: f, arguments: {a: 1}}, axes: {chunk: {buckets: [8]}, batch: {fixed: 1}}"


def tree(text: str) -> Node:
    return read_document(text.encode(), "a.yaml")


def test_what_a_latency_writes_is_put_over_the_graph_and_axes_are_replaced_whole() -> None:
    over = "fast: {source: {arguments: {b: 2}}, axes: {chunk: {fixed: 4}}}, exact: , wide: {outputs: [y]}"
    found = expand_latencies(tree(f"graphs: {{g: {{{GRAPH}, latencies: {{{over}}}}}, h: {{outputs: [z]}}}}")).plain()
    base = {"source": {"factory": "f", "arguments": {"a": 1}}, "axes": {"chunk": {"buckets": (8,)}}}
    base["axes"] = {"chunk": {"buckets": (8,)}, "batch": {"fixed": 1}}
    assert found["graphs"] == {
        "g_fast": {
            "source": {"factory": "f", "arguments": {"a": 1, "b": 2}},
            "axes": {"chunk": {"fixed": 4}, "batch": {"fixed": 1}},
            "latency": {"of": "g", "name": "fast"},
        },
        "g_exact": {**base, "latency": {"of": "g", "name": "exact"}},
        "g_wide": {**base, "outputs": ("y",), "latency": {"of": "g", "name": "wide"}},
        "h": {"outputs": ("z",)},
    }


def test_gates_and_feeds_hold_for_each_latency_that_they_do_not_name() -> None:
    text = (
        f"graphs: {{g: {{{GRAPH}, latencies: {{fast: {{}}, exact: {{}}}}}}}}\n"
        "gates: {parity: {g: 1, g_exact: 2}}\n"
        "data: {verification: {feeds: {g: all, g_fast: some}}, calibration: {feeds: one}}"
    )
    found = expand_latencies(tree(text)).plain()
    assert found["gates"] == {"parity": {"g_fast": 1, "g_exact": 2}}
    assert found["data"]["verification"]["feeds"] == {"g_exact": "all", "g_fast": "some"}
    assert found["data"]["calibration"]["feeds"] == "one"


@pytest.mark.parametrize("text", ["name: tiny", "graphs: [1]", "graphs: {g: {outputs: [y]}}", "graphs: {g: 3}"])
def test_a_recipe_without_latencies_stays_as_it_is(text: str) -> None:
    assert expand_latencies(tree(text)) == tree(text)


WRONG = {
    "a list": ("[fast]", "", "expected names of latencies, each with keys of the graph, got"),
    "none": ("{}", "", "expected names of latencies, each with keys of the graph, got"),
    "a number for keys": ("{fast: 4}", "", "graphs.g.latencies.fast: expected keys of the graph, got 4"),
    "the name of a graph": ("{fast: {}}", ", g_fast: {}", "expected names that no graph has, got 'g_fast' again"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_latencies_are_answered_with_their_line(case: str) -> None:
    latencies, beside, message = WRONG[case]
    with pytest.raises(RecipeError, match=r"^a\.yaml:1: ") as caught:
        expand_latencies(tree(f"graphs: {{g: {{latencies: {latencies}}}{beside}}}"))
    assert message in str(caught.value)
