"""Weights lie in one file, each content once, and graphs that share it read what they read alone."""

import hashlib
from pathlib import Path

import numpy as np
import onnx

from compiler.base.pieces import write_files
from compiler.graph.stages import Lowered
from compiler.targets.base import Built
from compiler.targets.onnx_static import OnnxStatic
from compiler.targets.static_graphs import bytes_of_graphs
from compiler.targets.weights_file import WeightsFile, places_read
from tests.kit.graphs import parse

SHARED, ONE, OTHER = (np.random.default_rng(seed).standard_normal((16, 16)).astype(np.float32) for seed in range(3))
TEXT = "(float[2,16] x, float[16,16] v, float[16,16] w) => (float[2,16] y) { h = MatMul(x, v)  y = MatMul(h, w) }"


def emitted(name: str, last: np.ndarray, weights: WeightsFile | None) -> Built:
    lowered = Lowered(name, parse(TEXT, {"v": SHARED, "w": last}))
    return OnnxStatic().emit(lowered, {}, weights)


def read(built: Built, folder: Path) -> list[bytes]:
    """The weights of the first graph, as ONNX reads them from disk."""
    write_files(folder, built.files)
    model = onnx.load(folder / built.artifacts[0].file)
    return [onnx.numpy_helper.to_array(tensor).tobytes() for tensor in model.graph.initializer]


def test_graphs_share_a_file_and_read_what_they_read_alone(tmp_path: Path) -> None:
    weights = WeightsFile("net.weights")
    first, second = emitted("net_fast", ONE, weights), emitted("net_exact", OTHER, weights)
    assert {each.artifacts[0].files for each in (first, second)} == {("graphs/net.weights",)}
    assert bytes(second.files["graphs/net.weights"]).startswith(bytes(first.files["graphs/net.weights"]))
    assert len(second.files["graphs/net.weights"]) == 3 * SHARED.nbytes
    for built, last in ((first, ONE), (second, OTHER)):
        alone = emitted(built.artifacts[0].lowered.graph, last, None)
        whole = Built(built.artifacts, {**built.files, "graphs/net.weights": weights.content}, built.versions)
        expected = sorted(each.tobytes() for each in (SHARED, last))
        assert sorted(read(whole, tmp_path)) == sorted(read(alone, tmp_path)) == expected
        assert bytes_of_graphs(built) - len(built.files[built.artifacts[0].file]) == 2 * SHARED.nbytes


def test_a_file_that_is_read_keeps_every_weight_where_it_is() -> None:
    weights = WeightsFile("net.weights")
    emitted("net_fast", ONE, weights)
    second = emitted("net_exact", OTHER, weights)
    graph = bytes(second.files[second.artifacts[0].file])
    content = bytes(weights.content)
    again = emitted("net_exact", OTHER, WeightsFile.read_by("net.weights", content, [graph]))
    assert again.files == second.files
    other = emitted("net_exact", -OTHER, WeightsFile.read_by("net.weights", content, [graph]))
    assert len(other.files["graphs/net.weights"]) > len(content)
    lengths = {hashlib.sha256(content[at : at + size]).digest() for at, size in places_read(graph)}
    assert lengths == {hashlib.sha256(each.tobytes()).digest() for each in (SHARED, OTHER)}
