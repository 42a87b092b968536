"""nested: arguments and results in lists and tuples are flat lists with names."""

from typing import Any

import pytest

from compiler.capture.nested import arguments_of, leaves_of


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


def test_results_in_order() -> None:
    assert list(leaves_of((0, [(1, 2), [3]], 4))) == [0, 1, 2, 3, 4]
    assert list(leaves_of({"y": 1})) == [{"y": 1}]
    assert list(leaves_of(7)) == [7]
