"""The short forms of a recipe are written out without touching what is not understood."""

import pytest

from compiler.recipe.tree.located_yaml import Node, read_document
from compiler.recipe.tree.short_forms import (
    expand_name_ranges,
    inherit_checkpoints,
    normalize_specs,
    replace_checkpoints,
)


def tree(text: str) -> Node:
    return read_document(text.encode(), "a.yaml")


def test_ranges_expand_together_in_key_and_state() -> None:
    text = 'graphs: {g: {inputs: {"c_{09..10}x": {state: "n_{09..10}"}}, outputs: [y, "n_{09..10}"]}}'
    assert expand_name_ranges(tree(text)).plain() == {
        "graphs": {
            "g": {"inputs": {"c_09x": {"state": "n_09"}, "c_10x": {"state": "n_10"}}, "outputs": ("y", "n_09", "n_10")}
        }
    }


def test_expansion_of_expanded_names_changes_nothing() -> None:
    once = expand_name_ranges(tree('graphs: {g: {inputs: {"c_{0..1}": {}}, outputs: ["n_{0..1}"]}}'))
    assert expand_name_ranges(once) == once


@pytest.mark.parametrize(
    "text",
    [
        "name: tiny",
        "graphs: later",
        "graphs: [1]",
        "graphs: {g: 3}",
        "graphs: {g: {inputs: [a], outputs: y, passes: {}, first_call: 1, source: 2}}",
        "graphs: {g: {inputs: {a: 1}, outputs: [1, null], first_call: {onnx: x}, source: {checkpoint: c}}}",
        "targets: {kind: x}",
        "- 1",
    ],
)
def test_parts_of_another_type_are_left_for_the_check(text: str) -> None:
    given = tree(text)
    completed = inherit_checkpoints(expand_name_ranges(given))
    assert completed.plain() == given.plain()
    assert replace_checkpoints(tree("graphs: 3"), "c").plain() == {"graphs": 3}


def test_passes_and_targets_get_one_form() -> None:
    given = tree("graphs: {g: {passes: [a, {b: {x: 1}}, {c: }]}}\ntargets: [{kind: k, opset: 20}, {opset: 1}]")
    assert normalize_specs(given).plain() == {
        "graphs": {
            "g": {
                "passes": (
                    {"name": "a", "options": {}},
                    {"name": "b", "options": {"x": 1}},
                    {"name": "c", "options": {}},
                )
            }
        },
        "targets": ({"kind": "k", "options": {"opset": 20}}, {"options": {"opset": 1}}),
    }
