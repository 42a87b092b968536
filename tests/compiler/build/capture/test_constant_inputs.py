"""constant_inputs: numbers, lists and files become constants of the graph."""

from pathlib import Path

import numpy as np
import pytest

from compiler.build.capture.constant_inputs import constants_of, fix_inputs
from compiler.errors import RecipeError
from compiler.graph.runners.session import run_model
from compiler.recipe.graph import Graph
from compiler.recipe.load import RecipeLocation
from compiler.recipe.tree.located_yaml import read_document
from tests.kit.graphs import parse


def _spec(**rate: object) -> Graph:
    x = {"shape": ("batch", 4), "dtype": "float32"}
    return Graph.model_validate(
        {"source": {"onnx": "x.onnx"}, "inputs": {"x": x, "rate": rate}, "outputs": ("y",),
         "axes": {"batch": {"buckets": (1, 4)}}}
    )  # fmt: skip


def _places(folder: Path) -> RecipeLocation:
    (folder / "mine.yaml").write_text("name: mine")
    return RecipeLocation(folder / "mine.yaml", read_document(b"name: mine", "mine.yaml"))


@pytest.mark.parametrize(
    ("constant", "expected"), [(2, np.full((2, 2), 2)), (((1, 2), (3, 4)), np.array([[1, 2], [3, 4]]))]
)
def test_a_number_stands_for_all_entries_and_lists_for_each(
    tmp_path: Path, constant: object, expected: np.ndarray
) -> None:
    found = constants_of(_places(tmp_path), "g", _spec(shape=(2, 2), dtype="int32", constant=constant))["rate"]
    assert found.dtype == np.int32 and np.array_equal(found, expected)


def test_a_file_holds_what_the_recipe_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("rate.npy", np.array([1.5, 2.5], np.float32))
    found = constants_of(_places(tmp_path), "g", _spec(shape=(2,), dtype="float32", constant="rate.npy"))
    assert found["rate"].tolist() == [1.5, 2.5]
    with pytest.raises(RecipeError, match=r"expected float64 \[2\] in .*rate.npy, got float32 \[2\]"):
        constants_of(_places(tmp_path), "g", _spec(shape=(2,), dtype="float64", constant="rate.npy"))
    Path("rate.npy").write_bytes(b"no array")
    with pytest.raises(RecipeError, match="expected an array at"):
        constants_of(_places(tmp_path), "g", _spec(shape=(2,), dtype="float32", constant="rate.npy"))


def test_an_input_that_is_fixed_is_none_of_the_graph() -> None:
    model = parse("(float[n] x, float rate) => (float[n] y) { y = Mul(x, rate) }")
    fix_inputs(model, {"rate": np.array(3, np.float32)})
    assert [value.name for value in model.graph.inputs] == ["x"]
    assert run_model(model, {"x": np.ones(2, np.float32)})["y"].tolist() == [3.0, 3.0]
