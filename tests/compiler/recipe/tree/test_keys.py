"""A recipe's tree is completed without touching what it does not understand."""

import pydantic
import pytest

from compiler.errors import RecipeError
from compiler.recipe.tree.keys import (
    apply_override,
    expand_name_ranges,
    inherit_checkpoints,
    normalize_specs,
    replace_checkpoints,
    require_filled,
    where,
)
from compiler.recipe.tree.located_yaml import Node, read_document


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


def test_where_stops_at_the_deepest_key_that_exists() -> None:
    given = tree("a:\n  b:\n    - 1\n    - 2\n")
    assert where(given, ("a", "b", 1)) == "a.yaml:4: a.b.1"
    assert where(given, ("a", "b", 7)) == "a.yaml:2: a.b.7"
    assert where(given, ("a", "c", "d")) == "a.yaml:1: a.c.d"
    assert where(given, ()) == "a.yaml:1"


class Inner(pydantic.BaseModel):
    size: int = 1


class Outer(pydantic.BaseModel):
    inner: Inner | None = None
    free: dict[str, int] = {}
    many: dict[str, Inner] = {}


def test_override_adds_fields_of_records_and_scalars_of_open_mappings() -> None:
    given = tree("free: {a: 1}")
    assert apply_override(given, "inner.size=2", Outer).plain() == {"free": {"a": 1}, "inner": {"size": 2}}
    assert apply_override(given, "free.b=2", Outer).plain() == {"free": {"a": 1, "b": 2}}
    assert given.plain() == {"free": {"a": 1}}


def test_override_does_not_add_records_to_open_mappings() -> None:
    with pytest.raises(RecipeError, match=r"--set: expected an existing path, got 'many.x.size'; known: y"):
        apply_override(tree("many: {y: {size: 1}}"), "many.x.size=2", Outer)


@pytest.mark.parametrize(
    ("text", "place"),
    [("a: TODO", "t.yaml:1: a"), ("a: 1\nb: [x, {c: TODO}]", "t.yaml:2: b.1.c"), ("a: TODO\nb: TODO", "t.yaml:1: a")],
)
def test_the_first_value_that_is_left_to_fill_in_is_told(text: str, place: str) -> None:
    with pytest.raises(RecipeError) as caught:
        require_filled(read_document(text.encode(), "t.yaml"))
    assert str(caught.value).startswith(f"{place}: expected a value, got TODO; fill it in")


def test_a_word_that_only_begins_like_it_is_a_value() -> None:
    require_filled(read_document(b"TODO: [TODOS, todo]", "t.yaml"))
