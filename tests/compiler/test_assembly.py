"""assembly: the bundle as a whole, its report and its bytes."""

import json

import onnx_ir as ir

from tests.kit.models.project import TIMES, Project, digest_of


def test_graphs_are_static_packed_and_share_their_weights(shared: Project) -> None:
    bundle = shared.folder / "bundle"
    manifest = json.loads((bundle / "manifest.json").read_text())
    graph = manifest["graphs"]["net"]
    assert len(graph["inputs"]) <= 6
    assert {tuple(artifact["files"]) for artifact in graph["artifacts"]} == {("graphs/net.weights",)}
    assert (bundle / "graphs/net.weights").stat().st_size > 0
    for artifact in graph["artifacts"]:
        model = ir.load(bundle / artifact["file"])
        values = [*model.graph.inputs, *(output for node in model.graph for output in node.outputs)]
        assert all(value.shape is not None and all(isinstance(dim, int) for dim in value.shape) for value in values)


def test_report_names_every_stage_and_every_tensor(shared: Project) -> None:
    ended = shared.build()
    stages = [stage["stage"] for stage in ended.report["stages"]]
    assert stages[:2] == ["data", "capture"]
    assert stages[-1] == "bundle"
    assert {row["tensor"] for row in ended.report["parity"]} >= {"logits"}
    assert ended.report["task"]["identical"] == ended.report["task"]["recordings"] == 2
    assert set(ended.report["sizes"]) == set(digest_of(shared.folder / "bundle"))
    assert {row["sizes"] for row in ended.report["speed"]} == {"batch=1", "batch=2"}


def test_build_without_cache_is_byte_identical(shared: Project, project: Project) -> None:
    ended = project.build(out="again", cached=False)
    assert ended.code == 0, ended.err
    assert ended.stages(cached=True) == []
    assert digest_of(project.folder / "again", TIMES) == digest_of(shared.folder / "bundle", TIMES)
