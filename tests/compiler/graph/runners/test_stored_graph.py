"""A graph that is kept is read as it was, and stays readable when its files are gone."""

from pathlib import Path

import numpy as np
import onnx

from compiler.base.pieces import write_files
from compiler.graph.runners.session import run_model
from compiler.graph.runners.stored_graph import read_stored, stored
from compiler.graph.runners.structure import is_same, split
from tests.kit.graphs import parse

WIDE = np.random.default_rng(0).standard_normal((32, 33)).astype(np.float32)
TEXT = """(float[n,32] x, float[32,33] v, float[32,33] w, float[2] b) => (float[n,33] y)
    { a = MatMul(x, v)  c = MatMul(x, w)  y = Add(a, c) }"""


def test_a_graph_is_read_as_it_was(tmp_path: Path) -> None:
    model = parse(TEXT, {"v": WIDE, "w": -WIDE, "b": WIDE[0, :2]})
    files = stored(split(model), "net")
    assert set(files) == {"net.onnx", "net.weights"}
    write_files(tmp_path, files)
    onnx.checker.check_model(tmp_path / "net.onnx")
    again = read_stored(tmp_path / "net.onnx")
    for path in tmp_path.iterdir():
        path.unlink()
    assert is_same(model, again)
    x = np.ones((2, 32), np.float32)
    assert np.array_equal(run_model(again, {"x": x})["y"], run_model(model, {"x": x})["y"])


def test_a_graph_without_large_weights_is_one_file(tmp_path: Path) -> None:
    model = parse("(float[2] x, float[2] b) => (float[2] y) { y = Add(x, b) }", {"b": np.ones(2, np.float32)})
    files = stored(split(model), "net")
    assert set(files) == {"net.onnx"}
    write_files(tmp_path, files)
    assert is_same(model, read_stored(tmp_path / "net.onnx"))
