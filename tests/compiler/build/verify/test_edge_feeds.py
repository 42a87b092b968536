"""edge_feeds: what each kind holds, and that it stays within what an input may hold."""

import numpy as np
import pytest

from compiler.build.verify.edge_feeds import KINDS, Range, edge_feeds, ranges_of
from compiler.graph.stages import Array
from compiler.recipe.gates import EdgeKind
from compiler.recipe.graph import Graph

REAL = {"x": np.full((1, 3, 4), 0.25, np.float32)}
TINY = float(np.finfo(np.float32).tiny)


def made(kind: EdgeKind, low: float = -3.0, high: float = 5.0, calls: int = 2) -> list[Array]:
    return [feed["x"] for feed in edge_feeds(kind, [REAL] * calls, {"x": Range(low, high)})]


def test_each_kind_holds_what_it_says() -> None:
    assert not np.any(made("silence"))
    assert np.all(made("constant")[0] == 2.0)
    first, second = made("impulse")
    assert first[0, 1, 2] == 5.0 and np.count_nonzero(first) == 1 and not np.any(second)
    assert set(made("full_scale")[0].flat) == {np.float32(-3), np.float32(5)}
    assert set(made("smallest")[0].flat) == {np.float32(-TINY), np.float32(TINY)}
    for kind in KINDS:
        assert all(array.shape == (1, 3, 4) and array.dtype == np.float32 for array in made(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_leaves_the_range(kind: EdgeKind) -> None:
    for low, high in ((1.0, 2.0), (-2.0, -1.0), (0.0, 0.0), (-1e-30, 1e-30), (0.0, 3e38)):
        for array in made(kind, low, high):
            assert np.all((array >= np.float32(low)) & (array <= np.float32(high)))


@pytest.mark.parametrize("kind", KINDS)
def test_whole_numbers_without_a_range_stay_between_those_of_their_feed(kind: EdgeKind) -> None:
    feed = {
        "ids": np.array([[3, 9, 4]]),
        "length": np.array([7], np.int32),
        "seen": np.array([True, True]),
        "scalar": np.array(5),
        "none": np.zeros((0, 2), np.int64),
        "hash": np.array([2**62 + 1, -(2**62)]),
    }
    (found,) = edge_feeds(kind, [feed], {})
    assert found["ids"].min() >= 3 and found["ids"].max() <= 9
    assert found["length"] == 7 and found["seen"].all() and found["scalar"] == 5
    assert np.array_equal(found["hash"], feed["hash"])
    assert all(found[name].dtype == array.dtype and found[name].shape == array.shape for name, array in feed.items())


def test_what_a_stream_is_fed_alike_stays_what_it_is() -> None:
    feeds = [{"x": REAL["x"], "text": REAL["x"]}] * 2
    first, second = edge_feeds("impulse", feeds, dict.fromkeys(("x", "text"), Range(-3, 5)), ["text"])
    assert first["text"].any() and np.array_equal(first["text"], second["text"])
    assert first["x"].any() and not second["x"].any()


def test_half_precision_has_its_own_smallest_number() -> None:
    feed = {"x": np.ones((2, 2), np.float16)}
    (found,) = edge_feeds("smallest", [feed], {"x": Range(-1, 1)})
    assert set(abs(found["x"]).flat) == {np.finfo(np.float16).tiny}


def test_ranges_are_declared_or_those_of_the_data_with_zero() -> None:
    spec = Graph.model_validate(
        {
            "source": {"onnx": "m.onnx"},
            "inputs": {
                "a": {"shape": (2,), "dtype": "float32", "range": (-1.0, 1.0)},
                "b": {"shape": (2,), "dtype": "float32"},
                "c": {"shape": (2,), "dtype": "int64"},
                "d": {"shape": (2,), "dtype": "int64", "range": (0.0, 9.0)},
                "s": {"shape": (2,), "dtype": "float32", "state": "y"},
            },
            "outputs": ("y",),
        }
    )
    feed = {name: np.array([2, 3], np.float32) for name in "abcd"}
    assert ranges_of(spec, [[feed], [feed]]) == {"a": Range(-1, 1), "b": Range(0, 3), "d": Range(0, 9)}
