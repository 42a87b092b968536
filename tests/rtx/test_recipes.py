"""Every recipe for NVIDIA's devices: the genuine builder takes each of its graphs, and computes as planned."""

from pathlib import Path
from typing import Any

import pytest

from compiler.assembly import Assembly
from compiler.cache.store import StageCache, default_folder
from compiler.capture.original import Original
from compiler.culprits.reproducer import failure_folder
from compiler.lowering.lowering import Lowering
from compiler.pipeline import check
from compiler.recipe.load import load_recipe
from compiler.report.build_record import BuildRecord
from compiler.report.progress import Progress
from compiler.verify.gates.engine_layers import ENGINE_LAYERS, require_read
from tests.kit.shipped import silent
from tests.rtx.installed import NEEDS_RTX

ROOT = Path(__file__).resolve().parents[2]

RECIPES = sorted(path.name for path in (ROOT / "recipes").glob("*.yaml") if "kind: tensorrt" in path.read_text())

pytestmark = [NEEDS_RTX, pytest.mark.slow]


@pytest.mark.parametrize("name", RECIPES)
def test_every_graph_of_a_recipe_is_built_and_computes_as_planned(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    loaded, progress = load_recipe(f"recipes/{name}", (), None), Progress()
    (listed,) = check(loaded)
    cache = StageCache(default_folder())
    graphs: dict[str, Any] = {}
    for graph, spec in loaded.recipe.graphs.items():
        original = Original(loaded, graph, spec, cache, progress)
        graphs[graph] = Lowering(original, listed.target, failure_folder(tmp_path / "out"))
        graphs[graph].run(())
    bundle = Assembly(loaded, tmp_path, tmp_path / "engines", graphs, progress, BuildRecord(name, (), "", progress))
    bundle.emit()
    for shipped in bundle.shipped.alone():
        findings = ENGINE_LAYERS.run(shipped, silent).findings
        require_read(findings)
        for each in findings:
            print(each.graph, each.gate, each.subject, each.measured, each.limit, each.detail, dict(each.figures))
        assert len(findings) >= 3 * len(shipped.graph.built.artifacts)
