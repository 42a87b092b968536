"""The real driver, the real cuda-python and the real TensorRT, on a machine that has them."""

from pathlib import Path

import numpy as np
import pytest

from compiler.base.pieces import write_files
from compiler.graph.stages import Array, Lowered
from compiler.targets.tensorrt.builder import probe_builder
from compiler.targets.tensorrt.target import Tensorrt
from compiler.targets.tensorrt.verify import Trial
from runtime_lite.executors.cuda import open_cuda, probe
from runtime_lite.executors.tensorrt_engine import import_tensorrt
from runtime_lite.format.arrays import npz_from_arrays
from tests.kit.graphs import parse

pytestmark = pytest.mark.device


def test_the_driver_says_what_its_device_is() -> None:
    device = probe()
    assert device.name
    assert tuple(map(int, device.capability.split("."))) >= (7, 5)


def test_bytes_go_to_the_device_and_come_back() -> None:
    probe()
    cuda = open_cuda()
    with cuda.active():
        stream, first, second = cuda.stream(), cuda.event(), cuda.event()
        sent, back = (cuda.pinned((1000, 3), np.dtype(np.float16)) for _ in range(2))
        sent[:] = np.random.default_rng(0).standard_normal(sent.shape)
        pointer = cuda.alloc(sent.nbytes)
        cuda.record(first, stream)
        cuda.copy_to_device(pointer, sent, stream)
        cuda.copy_to_host(back, pointer, stream)
        cuda.record(second, stream)
        cuda.synchronize(stream)
        np.testing.assert_array_equal(back, sent)
        assert cuda.elapsed_ms(first, second) > 0
        cuda.free(pointer)
    cuda.close()


def test_rows_are_copied_on_the_device() -> None:
    """Every other row of eight bytes."""
    probe()
    cuda = open_cuda()
    with cuda.active():
        stream, (first, second) = cuda.stream(), (cuda.alloc(64) for _ in range(2))
        numbers = np.arange(8, dtype=np.int64)
        cuda.copy_to_device(first, numbers, stream)
        cuda.copy_to_device(second, np.zeros(8, np.int64), stream)
        cuda.copy_on_device(second, first, 8, 16, 8, 4, stream)
        back = np.empty(8, np.int64)
        cuda.copy_to_host(back, second, stream)
        cuda.synchronize(stream)
        assert back.tolist() == [0, 2, 4, 6, 0, 0, 0, 0]
        cuda.free(second)
        cuda.free(first)
    cuda.close()


def test_an_engine_is_built_and_gives_what_the_graph_gives(tmp_path: Path) -> None:
    device, _ = probe(), probe_builder()
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float16)
    text = "(float16[batch,64] x, float16[64,64] w) => (float16[batch,64] y) { m = MatMul(x, w)  y = Relu(m) }"
    target = Tensorrt(compute_capability=device.capability)
    built = target.emit(Lowered("net", parse(text, {"w": w}), batch_axis="batch"), {"batch": (1,)})
    x = np.random.default_rng(1).standard_normal((1, 64)).astype(np.float16)
    write_files(tmp_path, built.files)
    (y,) = target.open(tmp_path / "graphs/net.batch1.onnx").run(None, {"x": x})
    arrays: dict[str, Array] = {"tolerance": np.array(0.01, np.float32), "batch=1/feed/x": x, "batch=1/output/y": y}
    (tmp_path / "tensorrt/net.feeds.npz").write_bytes(npz_from_arrays(arrays))
    cuda = open_cuda()
    with cuda.active():
        steps = Trial(import_tensorrt(), cuda, device, tmp_path, tmp_path / "scratch").run()
    cuda.close()
    assert [step for step in steps if not step["ok"]] == []
