"""The targets of a recipe: what is wrong with them is said with the line, before anything runs."""

import dataclasses
from pathlib import Path

import onnx_ir as ir
import pytest

from compiler.build.lowering.listed_targets import missing_packages, require_packages
from compiler.errors import ToolchainAbsent
from compiler.targets import TARGETS
from compiler.targets.base import Part, Target
from compiler.targets.null import Null
from tests.kit.graphs import parse
from tests.kit.models.project import Project


@dataclasses.dataclass(frozen=True)
class Lacking(Null):
    """A target whose packages nobody has."""

    packages = ("numpy", "no-such-distribution")


def test_packages_that_are_here_are_not_missing() -> None:
    assert [missing_packages(kind) for kind in TARGETS.values()] == [()] * len(TARGETS)
    assert missing_packages(Lacking) == ("no-such-distribution",)


def test_a_target_that_nothing_runs_here_is_refused_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolchainAbsent, match=r"target null: .* got none of no-such-distribution") as refused:
        require_packages(Lacking())
    assert refused.value.cure == "pip install no-such-distribution"

    def parts(self: Target) -> tuple[Part, ...]:
        return (Part("library", "none", "buy one"),)

    monkeypatch.setattr(Lacking, "parts", parts)
    with pytest.raises(ToolchainAbsent) as cured:
        require_packages(Lacking())
    assert cured.value.cure == "buy one"


def write_inputs(folder: Path) -> None:
    ir.save(parse("(float[batch,4] x) => (float[batch,4] y) { y = Relu(x) }"), folder / "net.onnx")
    (folder / "feeds.py").write_text("def rows():\n    yield []\n", encoding="utf-8")


def test_a_build_says_so_before_it_captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "lacking", type("Kind", (Lacking,), {"name": "lacking"}))
    write_inputs(tmp_path)
    (tmp_path / "mine.yaml").write_text(RECIPE.format(target="lacking", lossy=""), encoding="utf-8")
    ended = Project(tmp_path, tmp_path / "cache").build(recipe="mine.yaml")
    assert (ended.code, "target lacking: expected the packages" in ended.message) == (5, True), ended.err
    assert ended.report["stages"] == []


def test_a_target_that_rounds_needs_limits_of_what_may_be_lost(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    project, file = Project(tmp_path, tmp_path / "cache"), tmp_path / "mine.yaml"
    for target, lossy, code in (
        ("openvino", "", 0),
        ("openvino, precision: bfloat16", "", 2),
        ("openvino, precision: bfloat16", ", lossy: {max_abs: 0.5}", 0),
        ("openvino, precision: bfloat16", ", targets: {openvino: {max_abs: 0.5}}", 0),
    ):
        file.write_text(RECIPE.format(target=target, lossy=lossy), encoding="utf-8")
        ended = project.run("check", "mine.yaml")
        assert ended.code == code, ended.err
        if code:
            assert "mine.yaml:" in ended.message and "parity.net.lossy, as openvino rounds" in ended.message


def test_limits_of_a_target_that_is_not_listed_are_refused_with_their_line(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    text = RECIPE.format(target="openvino", lossy=", targets: {openvina: {max_abs: 0.5}}")
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    ended = Project(tmp_path, tmp_path / "cache").run("check", "mine.yaml")
    said = "mine.yaml:11: gates.parity.net.targets.openvina: expected one of the recipe's targets (openvino), got"
    assert ended.code == 2 and said in ended.message and "openvino" in ended.message.split("got", 1)[1], ended.err


def test_a_target_that_takes_ranges_needs_calibration_data(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    text = RECIPE.format(target="qnn, precision: a8w8", lossy=", lossy: {max_abs: 0.5}")
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    ended = Project(tmp_path, tmp_path / "cache").run("check", "mine.yaml")
    assert ended.code == 2 and "mine.yaml:10: targets.0: expected data.calibration, as qnn takes" in ended.message, (
        ended.err
    )
    roles = 'data: {verification: {feeds: "feeds:rows", count: 1}, calibration: {feeds: "feeds:rows", count: 1}}'
    (tmp_path / "mine.yaml").write_text(
        text.replace('data: {verification: {feeds: "feeds:rows", count: 1}}', roles), encoding="utf-8"
    )
    assert Project(tmp_path, tmp_path / "cache").run("check", "mine.yaml").code == 0


RECIPE = """\
name: mine
graphs:
  net:
    source: {{onnx: net.onnx}}
    inputs: {{x: {{shape: [batch, 4], dtype: float32}}}}
    outputs: [y]
    axes: {{batch: {{buckets: [1]}}}}
    passes: [simplify]
data: {{verification: {{feeds: "feeds:rows", count: 1}}}}
targets: [{{kind: {target}}}]
gates: {{parity: {{net: {{max_abs: 1.0e-5, chained_steps: 1{lossy}}}}}}}
"""
