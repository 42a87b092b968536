"""Every recipe for NVIDIA's devices: the genuine builder takes each of its graphs, and computes as planned."""

from pathlib import Path

import pytest

from benchmarks import engines
from compiler.base.cache import store
from tests.kit.models.project import stream_project
from tests.rtx.installed import NEEDS_RTX

ROOT = Path(__file__).resolve().parents[2]

RECIPES = sorted(path.name for path in (ROOT / "recipes").glob("*.yaml") if "kind: tensorrt" in path.read_text())

pytestmark = NEEDS_RTX


@pytest.mark.parametrize("more", [[], ["--capabilities", "8.6", "12.0"]])
def test_the_engines_of_a_small_recipe_compute_as_planned_and_are_the_same_bytes_twice(
    more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    stream_project(tmp_path, tmp_path / "cache").replace("stream.yaml", "{kind: onnx_static}", "{kind: tensorrt_rtx}")
    assert engines.main(["--recipe", "stream.yaml", *more]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_every_graph_of_a_recipe_is_built_and_computes_as_planned(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert engines.main(["--recipe", f"recipes/{name}"]) == 0
