"""onnx_cuda: graphs that can be captured, in real numbers, verified on the CPU; what is refused says why."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from compiler.base.pieces import write_files
from compiler.errors import Refused
from compiler.graph.stages import Lowered
from compiler.targets.onnx_cuda import OnnxCuda
from compiler.targets.onnx_static import OnnxStatic
from runtime_lite.errors import EngineAbsent
from runtime_lite.executors.cuda import Device
from tests.kit.graphs import BATCH, ops_of, parse
from tests.kit.guarded import guarded

QUANTISED = """(float[batch,2] x) => (float[batch,2] y) <float scale = {0.1}, int8 zero = {0}>
{ q = QuantizeLinear(x, scale, zero)  y = DequantizeLinear(q, scale, zero) }"""


def test_every_combination_of_sizes_is_a_file_without_branches(tmp_path: Path) -> None:
    built = OnnxCuda().emit(guarded(), {BATCH: (1, 4)})
    write_files(tmp_path, built.files)
    assert built.engine is None
    assert len({artifact.file for artifact in built.artifacts}) == 2
    assert not any("If" in ops_of(artifact.lowered.model) for artifact in built.artifacts)
    OnnxCuda().open(tmp_path / built.artifacts[0].file)


def test_half_precision_is_computed_as_the_graph_says(tmp_path: Path) -> None:
    text = "(float16[batch,2] x) => (float16[batch,2] y) { y = Mul(x, x) }"
    built = OnnxCuda().emit(Lowered("net", parse(text), batch_axis="batch"), {"batch": (1,)})
    write_files(tmp_path, built.files)
    x = np.array([[1.001, 200]], np.float16)
    (y,) = OnnxCuda().open(tmp_path / built.artifacts[0].file).run(None, {"x": x})
    np.testing.assert_array_equal(y, x * x)


def test_a_branch_is_refused_with_its_name() -> None:
    static = OnnxStatic().emit(guarded(), {BATCH: (1,)}).artifacts[0].lowered
    assert "If" in ops_of(static.model)
    with pytest.raises(Refused, match="expected a graph that a CUDA graph can hold, got If, which chooses") as caught:
        OnnxCuda().accept([static])
    assert caught.value.place.node and caught.value.place.op == "If"


def test_quantised_graphs_are_refused_with_the_reason() -> None:
    lowered = Lowered("net", parse(QUANTISED), batch_axis="batch")
    with pytest.raises(
        Refused, match="expected real numbers, got QuantizeLinear: the CUDA provider computes"
    ) as caught:
        OnnxCuda().emit(lowered, {"batch": (1,)})
    assert "lower_precision" in caught.value.cure


def test_what_is_missing_here_is_named_with_a_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> Device:
        raise EngineAbsent("CUDA: expected a CUDA device, got none; run it elsewhere")

    monkeypatch.setattr("runtime_lite.executors.onnx_cuda.probe", nothing)
    device, library = OnnxCuda().parts()
    assert (device.found, bool(device.cure)) == ("CUDA: expected a CUDA device, got none", True)
    assert "expected one with CUDAExecutionProvider" in library.found and "onnxruntime-gpu" in library.cure
    assert OnnxCuda().cannot_run() == device.found
    monkeypatch.setattr("runtime_lite.executors.onnx_cuda.probe", lambda: Device("H100", "9.0", "13.0"))
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CUDAExecutionProvider"])
    assert OnnxCuda().cannot_run() is None
    assert [part.cure for part in OnnxCuda().parts()] == ["", ""]


def test_its_options_are_those_of_every_target() -> None:
    assert {field.name for field in dataclasses.fields(OnnxCuda)} == {"forms", "search_s"}
