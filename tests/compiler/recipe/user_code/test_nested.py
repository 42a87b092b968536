"""nested: arguments and results in lists, tuples, dictionaries and records are flat lists with names."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from compiler.recipe.user_code.nested import arguments_of, leaves_of, named_leaves_of


def forward(x: Any, caches: Any = None, *more: Any) -> None:
    """Takes them."""


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["x", "cache"], (0, 1)),
        (["x", "caches.0", "caches.1"], (0, (1, 2))),
        (["x", "caches.0.0", "caches.0.1", "caches.1.0", "caches.1.1"], (0, ((1, 2), (3, 4)))),
        (["x", "caches.key", "caches.value"], (0, {"key": 1, "value": 2})),
        (["x", "caches.0.key", "caches.0.value"], (0, ({"key": 1, "value": 2},))),
        (["x.0", "caches"], ((0,), 1)),
        (["x", "other.0", "other.1"], (0, 1, 2)),
        (["x", "caches", "more.0", "more.1"], (0, 1, 2, 3)),
    ],
)
def test_arguments_by_their_names(names: list[str], expected: tuple[Any, ...]) -> None:
    assert arguments_of(forward, names, range(len(names))) == expected


def test_a_leaf_may_be_a_dictionary() -> None:
    assert arguments_of(forward, ["x", "caches.0"], [{0: "batch"}, {}]) == ({0: "batch"}, ({},))


class Pair(NamedTuple):
    """What a layer hands on."""

    key: Any
    value: Any


@dataclasses.dataclass
class Layer:
    """What a layer hands on, and what its convolution does."""

    attention: Pair
    context: Any = None


def as_list(x: Any, caches: list[Any]) -> None:
    """A list."""


def as_records(x: Any, caches: list[Layer]) -> None:
    """Records in a list."""


def as_pair(x: Any, caches: Pair | None = None) -> None:
    """A record or nothing."""


def as_dictionary(x: Any, caches: dict[str, Pair]) -> None:
    """Records in a dictionary."""


def as_two(x: Any, caches: tuple[Pair, Layer]) -> None:
    """Two kinds side by side."""


def as_unknown(x: Any, caches: "Missing") -> None:  # type: ignore[name-defined]  # noqa: F821
    """An annotation that names nothing."""


@pytest.mark.parametrize(
    ("takes", "names", "expected"),
    [
        (as_list, ["caches.0", "caches.1"], [1, 2]),
        (as_records, ["caches.0.attention.key", "caches.0.attention.value"], [Layer(Pair(1, 2))]),
        (
            as_records,
            ["caches.0.attention.key", "caches.0.attention.value", "caches.0.context"],
            [Layer(Pair(1, 2), 3)],
        ),
        (as_pair, ["caches.key", "caches.value"], Pair(1, 2)),
        (as_dictionary, ["caches.first.key", "caches.first.value"], {"first": Pair(1, 2)}),
        (as_two, ["caches.0.key", "caches.0.value", "caches.1.attention"], (Pair(1, 2), Layer(3))),  # type: ignore[arg-type]
        (as_unknown, ["caches.0", "caches.1"], (1, 2)),
    ],
)
def test_containers_are_those_of_the_annotation(takes: Callable[..., Any], names: list[str], expected: Any) -> None:
    given = arguments_of(takes, ["x", *names], range(len(names) + 1))
    assert given == (0, expected) and type(given[1]) is type(expected)


def test_other_fields_than_those_of_a_record_are_an_error() -> None:
    with pytest.raises(TypeError, match="keys"):
        arguments_of(as_pair, ["x", "caches.keys", "caches.value"], [0, 1, 2])


def test_results_in_order() -> None:
    assert list(leaves_of((0, [(1, 2), [3]], 4))) == [0, 1, 2, 3, 4]
    assert list(leaves_of({"y": 1, "caches": [2, Pair(3, 4)]})) == [1, 2, 3, 4]
    assert list(leaves_of((0, Layer(Pair(1, 2), 3)))) == [0, 1, 2, 3]
    assert list(leaves_of(7)) == [7]


def test_results_have_the_names_of_keys_and_fields() -> None:
    found = list(named_leaves_of((0, {"y": 1, "caches": [2]}, Layer(Pair(3, 4), 5))))
    assert found == [("", 0), ("y", 1), ("", 2), ("key", 3), ("value", 4), ("context", 5)]
