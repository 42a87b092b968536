"""onnx_static: the static graphs themselves, run as they ship."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from compiler.base.pieces import write_files
from compiler.graph.stages import Lowered
from compiler.targets.onnx_static import OnnxStatic
from compiler.targets.static_graphs import write_static
from tests.compiler.passes.test_specialize_full_caches import placed
from tests.kit.graphs import BATCH, ops_of, parse
from tests.kit.guarded import guarded


def test_what_is_written_are_the_static_graphs_and_runs(tmp_path: Path) -> None:
    lowered = Lowered("plain", parse("(float[batch,2] x) => (float[batch,2] y) { y = Relu(x) }"), batch_axis="batch")
    built = OnnxStatic().emit(lowered, {"batch": (1, 2)})
    assert built.files == write_static(OnnxStatic(), lowered, {"batch": (1, 2)}, opens_rows=True).files
    assert built.engine is None
    (tmp_path / "graph.onnx").write_bytes(bytes(built.files["graphs/plain.batch.onnx"]))
    x = np.array([[1, -1], [-2, 2]], np.float32)
    np.testing.assert_array_equal(OnnxStatic().open(tmp_path / "graph.onnx").run(None, {"x": x})[0], np.maximum(x, 0))


def test_no_compiler_of_a_vendor_is_needed() -> None:
    assert OnnxStatic().absent() is None


@pytest.mark.parametrize("lowered", [guarded(), placed()], ids=["guarded", "placed"])
def test_plain_onnx_runtime_opens_what_ships_without_a_warning(
    lowered: Lowered, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    built = OnnxStatic().emit(lowered, {BATCH: (1, 4)})
    write_files(tmp_path, built.files)
    assert all("If" in ops_of(each.lowered.model) for each in built.artifacts), "a branch for full caches"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 2
    capfd.readouterr()
    for artifact in built.artifacts:
        onnxruntime.InferenceSession(tmp_path / artifact.file, options, providers=["CPUExecutionProvider"])
    assert "".join(capfd.readouterr()) == ""
