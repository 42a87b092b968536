"""Graphs on disk: constants stay, weights are drawn alike on every machine."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from tests.kit.graphs import parse
from tests.zoo.store import draw, pack, unpack

TEXT = """(float[batch,time,2] x, float[2,2] weight, float[2] scale) => (float[batch,time,2] y)
    { rows = MatMul(x, weight)  y = Mul(rows, scale) }"""
SCALE = np.array([0.5, 2.0], np.float32)


def graph(weight: float, text: str = TEXT) -> ir.Model:
    content = np.array([[weight, 1], [2, 3]], np.float32)
    return parse(text, {"weight": content, "scale": SCALE})


def weight_of(model: ir.Model, name: str) -> np.ndarray:
    array = graphs.array_of(model.graph.initializers[name])
    assert array is not None
    return array


def test_what_differs_is_drawn_and_the_rest_is_kept() -> None:
    content = pack(graph(0.0), graph(5.0))
    loaded = unpack(content)
    assert np.array_equal(weight_of(loaded, "scale"), SCALE)
    drawn = weight_of(loaded, "weight")
    assert drawn.shape == (2, 2)
    assert not np.array_equal(drawn, weight_of(graph(0.0), "weight"))
    assert drawn.min() >= 0.0
    assert drawn.max() <= 3.0
    assert np.array_equal(drawn, weight_of(unpack(content), "weight"))
    assert [str(value.name) for value in loaded.graph.inputs] == ["x"]
    graphs.infer_shapes(loaded)
    (output,) = loaded.graph.outputs
    assert [str(dim) for dim in graphs.dims_of(output) or ()] == ["batch", "time", "2"]


def test_a_file_is_the_same_for_the_same_graph() -> None:
    assert pack(graph(0.0), graph(5.0)) == pack(graph(0.0), graph(5.0))


def test_two_structures_are_refused() -> None:
    other = graph(5.0, TEXT.replace("Mul(rows", "Add(rows"))
    with pytest.raises(ValueError, match="one structure"):
        pack(graph(0.0), other)


def test_a_draw_follows_its_name_and_its_statistics() -> None:
    drawn = draw("a", (1000,), 1.0, 0.1, 0.8, 1.3)
    assert drawn.dtype == np.float32
    assert abs(drawn.mean() - 1.0) < 0.02
    assert drawn.min() >= np.float32(0.8)
    assert not np.array_equal(drawn, draw("b", (1000,), 1.0, 0.1, 0.8, 1.3))
