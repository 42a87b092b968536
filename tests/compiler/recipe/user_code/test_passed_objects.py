"""Objects in the place of references: what keeps its name, what gets one, and copies of modules."""

import ast
import sys
import typing
from collections.abc import Callable
from typing import Any

import pytest

from compiler.errors import RecipeError
from compiler.recipe.field_types import ObjectName
from compiler.recipe.user_code.callables import function_name, resolve
from compiler.recipe.user_code.passed_objects import KEYS, is_module, passed, with_references
from tests.docs.recipe_page import every_key


class Weights:
    """What of a framework's module is looked at."""

    def __init__(self) -> None:
        self.numbers = [1.0]

    def forward(self) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {}

    def cpu(self) -> "Weights":
        return self


class Uncopied(Weights):
    def __deepcopy__(self, memo: object) -> Weights:
        raise RuntimeError("not a leaf")


def referred(value: Any, key: str) -> tuple[Any, dict[str, Callable[..., Any]]]:
    objects: dict[str, Callable[..., Any]] = {}
    [found] = with_references({"graphs": {"my net": {key: value}}}, objects)["graphs"]["my net"].values()
    return found, objects


def test_the_keys_that_take_code_are_those_of_the_recipe() -> None:
    """`feeds` is one of them by graph, too."""
    kinds = ((name, record.model_fields[name].annotation) for record, name in every_key())
    hints = {name: typing.get_type_hints(record, include_extras=True)[name] for record, name in every_key()}
    assert {name for name, _ in kinds if _has(hints[name])} == KEYS


def _has(kind: Any) -> bool:
    return kind == ObjectName or any(_has(part) for part in typing.get_args(kind))


def test_what_can_be_imported_keeps_its_name() -> None:
    assert referred(ast.parse, "factory") == ("ast:parse", {})
    assert referred(Weights, "factory") == (f"{Weights.__module__}:Weights", {})
    assert referred("my_model:build", "factory") == ("my_model:build", {})


def test_what_cannot_is_found_while_the_build_runs() -> None:
    made = lambda: 7  # noqa: E731
    found, objects = referred(made, "metric")
    assert found == "passed_objects:graphs_my_net_metric"
    with passed(objects):
        assert resolve(found, (), "compile") is made
        with pytest.raises(RecipeError, match="expected one build at a time in a process"), passed({}):
            pass
        assert resolve(found, (), "compile") is made
    assert "passed_objects" not in sys.modules
    with passed({}):
        pass


def test_streams_are_given_by_a_generator_of_their_own() -> None:
    streams = [[{"x": 1}], [{"x": 2}]]
    found, objects = referred(streams, "feeds")
    assert objects[found.partition(":")[2]]() is streams
    by_graph, objects = referred({"net": streams, "other": ast.parse}, "feeds")
    assert by_graph["other"] == "ast:parse"
    assert with_references({"shape": [1, ast.parse]}, {}) == {"shape": [1, ast.parse]}


def test_a_module_is_copied_for_every_call() -> None:
    module = Weights()
    assert is_module(module) and not is_module(Weights) and not is_module(ast.parse)
    found, objects = referred(module, "factory")
    [factory] = objects.values()
    copied = factory()
    copied.numbers.append(2.0)
    assert (module.numbers, factory().numbers) == ([1.0], [1.0])
    assert function_name(factory) == found


def test_a_module_that_cannot_be_copied_is_refused() -> None:
    _, objects = referred(Uncopied(), "factory")
    [factory] = objects.values()
    with pytest.raises(
        RecipeError, match=r"expected a module that copy\.deepcopy copies, got RuntimeError: not a leaf"
    ) as e:
        factory()
    assert e.value.cure == "give a function that makes the module and loads its weights"
