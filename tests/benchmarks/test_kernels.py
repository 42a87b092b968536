"""kernels: a row for every form of a recipe's graph, counted after fusion; the builder of engines is a double."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from benchmarks import kernels
from compiler.base.cache import store
from compiler.errors import Refused, ToolchainAbsent
from compiler.targets.base import EngineLayer, Part, TrialEngine
from tests.kit.models.project import stream_project

LAYER = EngineLayer("k", frozenset({"k"}), False, frozenset(), (), frozenset(), False)


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A graph of one screen in a folder of its own."""
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    stream_project(tmp_path, tmp_path / "cache")
    return "stream.yaml"


def rows(printed: str) -> list[list[str]]:
    lines = [line.strip("│\n").split("│") for line in printed.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line] for line in lines]


def test_every_form_that_changes_the_graph_has_a_row(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    kernels.main(["--recipe", recipe])
    found = rows(capsys.readouterr().out)
    assert {row[0] for row in found} == {"packed", "apart"}
    assert {"without forms", "all forms"} <= {row[1] for row in found}
    for _, _, bucket, nodes, fused, launched in found:
        assert bucket.startswith("batch=")
        assert int(nodes) >= int(fused) >= int(launched) > 0


def test_layers_of_engines_stand_beside_them_or_why_there_are_none(
    recipe: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built: Iterator[TrialEngine | Refused] = iter(
        [TrialEngine("RTX", "8.6", "", 1, (LAYER,) * 3), Refused("too odd"), TrialEngine("RTX", "8.6", "", 1, None)]
    )

    def build(*_: Any) -> tuple[TrialEngine, bytes]:
        answer = next(built, None) or TrialEngine("RTX", "8.6", "", 1, (LAYER,))
        if isinstance(answer, Refused):
            raise answer
        return answer, b""

    monkeypatch.setattr(kernels, "built_trial", build)
    monkeypatch.setattr(kernels, "trial_part", lambda is_needed: Part("builder", "1"))
    kernels.main(["--recipe", recipe, "--engine", "8.6"])
    assert [row[-1] for row in rows(capsys.readouterr().out)][:4] == ["3", "refused: too odd", "not read", "1"]


def test_without_the_builder_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "trial_part", lambda is_needed: Part("builder", "no package", "pip install it"))
    with pytest.raises(ToolchainAbsent, match="builder: no package; pip install it"):
        kernels.main(["--engine", "8.6"])


def test_a_change_of_shape_is_no_kernel() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[2,3] x, int64[1] s) => (float[6] y) '
        "{ a = Relu(x) b = Reshape(a, s) y = Identity(b) }"
    )
    assert kernels.kernels(model) == 1
