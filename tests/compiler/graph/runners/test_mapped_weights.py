"""Large weights lie in files that are mapped: each content once, and in memory while it is read alone."""

import mmap
import tempfile
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph.model import array_of
from compiler.graph.runners import mapped_weights
from compiler.graph.runners.mapped_weights import map_weights, unload_weights
from compiler.graph.runners.structure import digest_of, is_same
from tests.kit.graphs import parse

TEXT = """(float[2,16] x, float[16,16] v, float[16,16] w, float[8,8] small, int64[16,16] sizes) => (float[2,16] y)
    { a = MatMul(x, v)  b = MatMul(a, w)  c = Cast<to = 1>(sizes)  d = Add(w, c)  e = MatMul(b, d)
      f = ReduceSum(small)  y = Mul(e, f) }"""


def graph(seed: int = 0) -> ir.Model:
    draw = np.random.default_rng(seed).standard_normal
    numbers = {"v": draw((16, 16)), "w": draw((16, 16)), "small": draw((8, 8))}
    arrays = {name: array.astype(np.float32) for name, array in numbers.items()}
    return parse(TEXT, {**arrays, "sizes": np.arange(256).reshape(16, 16)})


def owner(model: ir.Model, name: str) -> object:
    found: object = array_of(model.graph.initializers[name])
    while isinstance(found, np.ndarray | memoryview):
        found = found.base if isinstance(found, np.ndarray) else found.obj
    return found


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_weights, "LEAST_BYTES", 1024)


def test_large_weights_are_mapped_and_stay_what_they_were() -> None:
    model, before = graph(), graph()
    map_weights(model, None)
    assert {name for name in model.graph.initializers if isinstance(owner(model, name), mmap.mmap)} == {"v", "w"}
    assert is_same(model, before)
    unload_weights()
    for name, value in before.graph.initializers.items():
        mapped, held = model.graph.initializers[name].const_value, value.const_value
        assert mapped is not None and held is not None
        assert (digest_of(mapped), mapped.numpy().tolist()) == (digest_of(held), held.numpy().tolist())


def test_equal_weights_of_several_graphs_are_mapped_once() -> None:
    first, second = graph(1), graph(1)
    map_weights(first)
    map_weights(second)
    map_weights(second)
    assert owner(first, "v") is owner(second, "v") is owner(first, "w")


def test_without_room_on_the_disk_weights_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError("no space left on device")

    model = graph(2)
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    map_weights(model)
    assert not isinstance(owner(model, "v"), mmap.mmap)


def test_what_nobody_reads_takes_no_memory() -> None:
    wide = np.ones((2048, 2048), np.float32)
    model = parse("(float[2,2048] x, float[2048,2048] w) => (float[2,2048] y) { y = MatMul(x, w) }", {"w": wide})
    map_weights(model)
    array = array_of(model.graph.initializers["w"])
    assert array is not None
    assert array.sum() == wide.size
    held = resident_bytes()
    unload_weights()
    assert held - resident_bytes() > wide.nbytes // 2


def test_weights_beside_an_onnx_file_are_read_from_there_and_let_go(tmp_path: Path) -> None:
    wide = np.ones((2048, 2048), np.float32)
    model = parse("(float[2,2048] x, float[2048,2048] w) => (float[2,2048] y) { y = MatMul(x, w) }", {"w": wide})
    ir.save(model, tmp_path / "net.onnx", external_data="net.weights")
    loaded = ir.load(tmp_path / "net.onnx")
    assert map_weights(loaded) == 0
    array = array_of(loaded.graph.initializers["w"])
    assert array is not None
    assert array.sum() == wide.size
    held = resident_bytes()
    unload_weights()
    assert held - resident_bytes() > wide.nbytes // 2


def resident_bytes() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssFile"))
