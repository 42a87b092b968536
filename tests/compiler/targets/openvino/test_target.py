"""OpenVINO as a target: what ships are the files of `onnx_static`, verified on OpenVINO and run by it."""

import importlib.metadata
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.errors import RecipeError, Refused
from compiler.graph.stages import Lowered
from compiler.targets.onnx_static import OnnxStatic
from compiler.targets.openvino.target import Openvino
from runtime_lite.executors.openvino_graph import CompiledGraph
from runtime_lite.format.arrays import Array
from tests.kit.graphs import parse
from tests.kit.models.project import TIMES, Project, answers, digest_of, largest_difference
from tests.kit.models.shared import shared_project

BUCKETS = {"batch": (1, 2)}


def lowered(text: str) -> Lowered:
    return Lowered("net", parse(text), batch_axis="batch")


def test_what_is_written_is_what_onnx_runtime_gets_and_what_to_compute_in() -> None:
    text = "(float[batch,2] x) => (float[batch,2] y) { y = Relu(x) }"
    built, other = Openvino().emit(lowered(text), BUCKETS), OnnxStatic().emit(lowered(text), BUCKETS)
    assert built.files == other.files
    assert (built.options, other.options) == ({"precision": "float32"}, {})
    assert Openvino(precision="bfloat16").emit(lowered(text), BUCKETS).options == {"precision": "bfloat16"}


def test_what_stands_for_an_artefact_is_openvino(tmp_path: Path) -> None:
    built = Openvino().emit(lowered("(float[batch,2] x) => (float[batch,2] y) { y = Relu(x) }"), BUCKETS)
    (tmp_path / "graph.onnx").write_bytes(bytes(built.files["graphs/net.batch.onnx"]))
    x = np.array([[1, -1], [-2, 2]], np.float32)
    np.testing.assert_array_equal(Openvino().open(tmp_path / "graph.onnx").run(None, {"x": x})[0], np.maximum(x, 0))


@pytest.mark.parametrize(
    ("text", "tensor"),
    [
        ("(double[batch,2] x) => (float[batch,2] y) { y = Cast<to = 1>(x) }", "x"),
        ("(float[batch,2] x) => (float[batch,2] y) { w = Cast<to = 11>(x) v = Exp(w) y = Cast<to = 1>(v) }", "w"),
    ],
)
def test_float64_is_refused_where_openvino_would_drop_its_bits(text: str, tensor: str) -> None:
    with pytest.raises(Refused, match=f"expected no float64, .* got {tensor}") as refused:
        Openvino().emit(lowered(text), BUCKETS)
    assert refused.value.place.tensor == tensor


def test_only_bfloat16_rounds_and_float32_is_beside_it() -> None:
    assert (Openvino().rounds, Openvino(precision="bfloat16").rounds) == (False, True)
    assert Openvino(precision="bfloat16").unrounded() == Openvino()
    with pytest.raises(RecipeError, match="precision: expected one of float32, bfloat16, got 'int8'"):
        Openvino(precision="int8")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A stream of one screen, built for OpenVINO."""
    shared = shared_project(tmp_path_factory)
    project = shared.copy_to(tmp_path_factory.mktemp("openvino") / "project")
    shutil.copytree(shared.folder / "stream", project.folder / "stream")
    project.replace("stream.yaml", "kind: onnx_static", "kind: openvino")
    ended = project.build(out="openvino", recipe="stream.yaml")
    assert ended.code == 0, ended.err
    return project


def chunks() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [{"features": rng.standard_normal((1, 4, 8), dtype=np.float32)} for _ in range(6)]


def test_a_bundle_is_built_verified_and_run_on_openvino(built: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = json.loads((built.folder / "openvino" / "manifest.json").read_text())
    graph = manifest["graphs"]["net"]
    assert (graph["target"], graph["options"]) == ("openvino", {"precision": "float32"})
    assert manifest["tools"]["openvino"] == importlib.metadata.version("openvino")
    assert built.run("verify", "openvino").code == 0
    assert "options: precision float32" in built.run("inspect", "openvino").out
    ran: list[int] = []
    run = CompiledGraph.run

    def note(self: CompiledGraph, given: Sequence[Array], places: Sequence[Array]) -> None:
        ran.append(1)
        run(self, given, places)

    monkeypatch.setattr(CompiledGraph, "run", note)
    got = answers(built.folder / "openvino", "net", chunks())
    assert len(ran) == len(chunks())
    assert max(float(np.abs(each).max()) for each in got) > 0.0
    assert largest_difference(got, answers(built.folder / "stream", "net", chunks())) < 1e-4
    assert len(ran) == len(chunks())


def test_the_same_recipe_gives_the_same_bytes_and_nothing_is_done_twice(built: Project) -> None:
    assert built.build(out="again", recipe="stream.yaml").stages(cached=False) == []
    fresh = built.build(out="fresh", recipe="stream.yaml", cached=False)
    assert fresh.code == 0, fresh.err
    assert digest_of(built.folder / "fresh", TIMES) == digest_of(built.folder / "openvino", TIMES)


def test_bfloat16_is_held_to_the_lossy_limits(built: Project, tmp_path: Path) -> None:
    project = built.copy_to(tmp_path / "project")
    project.replace("stream.yaml", "kind: openvino", "kind: openvino, precision: bfloat16")
    project.replace("stream.yaml", "chained_steps: 6", "chained_steps: 6, lossy: {max_abs: 0.25}")
    ended = project.build(out="half", recipe="stream.yaml")
    assert ended.code == 0, ended.err
    assert min(row["limit"] for row in ended.report["gates"] if row["gate"] == "parity.max_abs") >= 0.25
    assert project.run("verify", "half").code == 0
