"""A recipe with several targets: one bundle each from one run, each with its own gates; one exit code."""

import json
from pathlib import Path

import pytest

from compiler.recipe.load import load_recipe
from runtime_lite import read_bundle
from tests.kit.models.project import TIMES, Project, digest_of
from tests.kit.models.shared import shared_project

BOTH = "targets: [{kind: onnx_static}, {kind: openvino}]"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A stream of one screen, built for two targets into `both` without the cache, with its page."""
    project = shared_project(tmp_path_factory).copy_to(tmp_path_factory.mktemp("several") / "project")
    project.replace("stream.yaml", "targets: [{kind: onnx_static}]", BOTH)
    ended = project.build("--report-html", "page.html", out="both", recipe="stream.yaml", cached=False)
    assert ended.code == 0, ended.err
    project.write("report.kept", json.dumps(ended.report))
    return project


def test_every_target_has_a_bundle_that_is_what_a_recipe_for_it_alone_builds(both: Project) -> None:
    for target in ("onnx_static", "openvino"):
        with read_bundle(both.folder / "both" / target) as bundle:
            assert {graph.target for graph in bundle.manifest.graphs.values()} == {target}
        assert both.run("verify", f"both/{target}").code == 0
        alone = both.folder / "alone.yaml"
        text = (both.folder / "stream.yaml").read_text().replace(BOTH, f"targets: [{{kind: {target}}}]")
        alone.write_text(text)
        ended = both.build(out=f"alone-{target}", recipe="alone.yaml", cached=False)
        assert ended.code == 0, ended.err
        assert digest_of(both.folder / f"alone-{target}", TIMES) == digest_of(both.folder / "both" / target, TIMES)


def test_the_report_has_a_section_per_target_and_says_which_is_faster_here(both: Project) -> None:
    report = json.loads((both.folder / "report.kept").read_text())
    assert [each["target"] for each in report["targets"]] == ["onnx_static", "openvino"]
    assert all(each["gates"] and each["speed"] and each["verdict"] == "all gates hold" for each in report["targets"])
    assert report["bundle"] == "both" and report["targets"][1]["bundle"] == "both/openvino"
    assert {(row["sizes"], row["target"], row["against"]) for row in report["ratios"]} == {
        (f"batch={rows}", "openvino", "onnx_static") for rows in (1, 2)
    }
    assert all(0.0 < row["low"] <= row["median"] <= row["high"] for row in report["ratios"])
    assert all(each["call_bytes"]["net"] > 0 for each in report["targets"])
    page = (both.folder / "page.html").read_text()
    assert "<h2>Targets</h2>" in page and page.count("<td>executed natively</td>") == 2
    assert "<h1>onnx_static</h1>" in page and "<h1>openvino</h1>" in page and "Targets side by side" in page


def test_what_targets_share_is_done_once(both: Project) -> None:
    report = json.loads((both.folder / "report.kept").read_text())
    first, second = report["targets"]
    names = [stage["stage"] for stage in first["stages"]]
    passes = names[names.index("simplify") : names.index("onnx_static")]
    assert len(passes) == 4
    assert [stage["stage"] for stage in second["stages"] if stage["cached"]] == passes
    assert [stage["stage"] for stage in report["stages"]].count("capture") == 1


def test_nothing_is_done_again_where_nothing_has_changed(both: Project) -> None:
    assert both.build(out="kept", recipe="stream.yaml").code == 0
    again = both.build(out="again", recipe="stream.yaml")
    assert again.stages(cached=False) == [":side by side"], "what was measured is of this machine at this moment"
    for target in ("onnx_static", "openvino"):
        assert digest_of(both.folder / "again" / target) == digest_of(both.folder / "kept" / target)


def test_one_that_does_not_hold_ends_the_build_and_the_others_stay(both: Project, tmp_path: Path) -> None:
    project = both.copy_to(tmp_path / "project")
    strict = "targets: [{kind: openvino, precision: bfloat16}, {kind: openvino}]"
    project.replace("stream.yaml", BOTH, strict)
    limits = "lossy: {max_abs: 0.5}, targets: {openvino-bfloat16: {max_abs: 1.0e-5, sqnr_db: 300}}"
    project.replace("stream.yaml", "chained_steps: 6", f"chained_steps: 6, {limits}")
    ended = project.build(out="out", recipe="stream.yaml")
    assert ended.code == 4, ended.err
    assert [each["verdict"] for each in ended.report["targets"]] == ["a gate failed", "all gates hold"]
    assert [each["failure"] is None for each in ended.report["targets"]] == [False, True]
    assert ended.report["failure"]["exit_code"] == 4 and ended.report["ratios"] == []
    assert "openvino-bfloat16: a gate failed" in ended.out and "openvino-float32: all gates hold" in ended.out
    assert sorted(path.name for path in (project.folder / "out").iterdir() if ".failure" not in path.name) == [
        "openvino-float32"
    ]
    assert project.run("verify", "out/openvino-float32").code == 0
    kept = load_recipe(str(project.folder / "out/openvino-float32/recipe.yaml")).recipe.gates.parity["net"]
    assert (kept.limits(lossy=True).max_abs, kept.targets) == (0.5, None)


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ("[{kind: openvino}, {kind: openvino}]", "targets.1: expected each target once, got openvino as in targets.0"),
        (
            "[{kind: onnx_static}, {kind: openvino, precision: float32}, {kind: openvino}]",
            "targets.2: expected each target once, got openvino as in targets.1",
        ),
        ("[{kind: onnx_static}, {kind: openvino, precision: int4}]", "expected one of float32, bfloat16, got 'int4'"),
    ],
)
def test_a_mistake_is_answered_with_its_line_before_anything_runs(
    both: Project, tmp_path: Path, targets: str, said: str
) -> None:
    project = both.copy_to(tmp_path / "project")
    project.replace("stream.yaml", BOTH, f"targets: {targets}")
    for ended in (project.run("check", "stream.yaml"), project.build(out="out", recipe="stream.yaml")):
        assert (ended.code, said in ended.message, "stream.yaml:" in ended.message) == (2, True, True), ended.message
    assert not (project.folder / "out").exists()


def test_a_bundle_in_the_place_of_the_folder_is_not_touched(both: Project, tmp_path: Path) -> None:
    project = both.copy_to(tmp_path / "project")
    (project.folder / "out").mkdir()
    (project.folder / "out" / "manifest.json").write_text("{}")
    before = digest_of(project.folder)
    ended = project.build(out="out", recipe="stream.yaml")
    assert ended.code == 2
    assert "out: expected a folder for a bundle of each target, got a bundle" in ended.message
    assert digest_of(project.folder) == before


def test_check_names_all_targets(both: Project) -> None:
    assert "targets onnx_static, openvino" in both.run("check", "stream.yaml").out
