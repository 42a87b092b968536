"""first_states: the files that states begin with become numbers of the record."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.build.capture.first_states import with_first_states
from compiler.build.capture.initial_graph import states_of
from compiler.build.capture.trial_calls import empty_states
from compiler.errors import RecipeError
from compiler.recipe.graph import Graph
from compiler.recipe.load import RecipeLocation
from compiler.recipe.tree.located_yaml import read_document


def _spec(initial: Any, dtype: str = "float32") -> Graph:
    inputs = {
        "x": {"shape": ("batch", 4), "dtype": "float32"},
        "h": {"shape": ("batch", 2, 3), "dtype": dtype, "state": "h2", "initial": initial},
    }
    axes = {"batch": {"buckets": (1, 4)}}
    return Graph.model_validate({"source": {"onnx": "x.onnx"}, "inputs": inputs, "outputs": ("y", "h2"), "axes": axes})


@pytest.fixture
def location(tmp_path: Path) -> RecipeLocation:
    (tmp_path / "mine.yaml").write_text("name: mine")
    return RecipeLocation(tmp_path / "mine.yaml", read_document(b"name: mine", "mine.yaml"))


@pytest.mark.parametrize("initial", [0.5, (((1.0, 2.0, 3.0),),), (((1.0,), (2.0,)),)])
def test_every_row_begins_with_what_is_written(location: RecipeLocation, initial: Any) -> None:
    spec = with_first_states(location, "g", _spec(initial))
    begun = empty_states(spec, states_of(spec), 2)["h"]
    assert np.array_equal(begun, np.broadcast_to(np.array(initial), (2, 2, 3)))


def test_a_file_is_its_content(location: RecipeLocation) -> None:
    numbers = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    for name in ("one.npy", "other.npy"):
        np.save(location.path.parent / name, numbers)
    one, other = (with_first_states(location, "g", _spec(name)) for name in ("one.npy", "other.npy"))
    assert one == other
    assert one.inputs["h"].initial == (((0.0, 1.0, 2.0), (3.0, 4.0, 5.0)),)
    np.save(location.path.parent / "alike.npy", np.full((1, 2, 3), 2.5, np.float32))
    assert with_first_states(location, "g", _spec("alike.npy")).inputs["h"].initial == 2.5


def test_lists_lie_as_the_model_takes_the_state(location: RecipeLocation) -> None:
    np.save(location.path.parent / "h.npy", np.array([[[1, 2, 3]], [[4, 5, 6]]], np.float32))
    given = _spec(None).model_dump()
    given["inputs"]["h"] |= {"shape": (2, "batch", 3), "original": None, "initial": "h.npy"}
    spec = with_first_states(location, "g", Graph.model_validate(given))
    assert states_of(spec)[0].initial == (((1.0, 2.0, 3.0), (4.0, 5.0, 6.0)),)


WRONG: dict[str, tuple[np.ndarray, str]] = {
    "another shape": (np.zeros(3, np.float32), r"numbers of shape \[1, 2, 3\], .* got lists of shape \[3\] in h.npy"),
    "another type": (np.zeros((1, 2, 3)), "expected float32 in h.npy, got float64"),
    "no number": (np.full((1, 1, 1), np.nan, np.float32), "expected numbers that float32 has, got nan in h.npy"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_file_of_something_else_is_refused(location: RecipeLocation, what: str) -> None:
    array, message = WRONG[what]
    np.save(location.path.parent / "h.npy", array)
    with pytest.raises(RecipeError, match=message):
        with_first_states(location, "g", _spec("h.npy"))


def test_a_file_that_is_not_there_is_refused(location: RecipeLocation) -> None:
    with pytest.raises(RecipeError, match=r"expected an array at .*h.npy, got"):
        with_first_states(location, "g", _spec("h.npy"))
