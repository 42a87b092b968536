"""`--set` writes one value into a recipe's tree, wherever it says; the record's check has the last word."""

from compiler.recipe.tree.located_yaml import Node, read_document
from compiler.recipe.tree.overrides import apply_override


def tree(text: str) -> Node:
    return read_document(text.encode(), "a.yaml")


def test_override_adds_what_is_not_there() -> None:
    given = tree("free: {a: 1}")
    assert apply_override(given, "inner.size=2").plain() == {"free": {"a": 1}, "inner": {"size": 2}}
    assert apply_override(given, "free.b=2").plain() == {"free": {"a": 1, "b": 2}}
    assert given.plain() == {"free": {"a": 1}}


def test_a_pass_is_opened_to_its_options_and_other_entries_are_not() -> None:
    given = tree("passes: [a, {b: {x: 1}}]\ntargets: [{kind: k}]")
    assert apply_override(given, "passes.a.y=2").plain()["passes"] == ({"a": {"y": 2}}, {"b": {"x": 1}})
    assert apply_override(given, "passes.b.y=2").plain()["passes"] == ("a", {"b": {"x": 1, "y": 2}})
    assert apply_override(given, "passes.1=c").plain()["passes"] == ("a", "c")
    assert apply_override(given, "targets.k.opset=20").plain()["targets"] == ({"kind": "k", "opset": 20},)
