"""shipped_graphs: what gates see of a graph that was emitted, whole and with some of its variants."""

from pathlib import Path

from compiler.base.pieces import write_files
from compiler.build.lowering.emission import emit
from compiler.build.lowering.lowering import lower
from compiler.build.shipped_graphs import graph_parts, original_graph, shipped_graph
from compiler.recipe.load import load_recipe
from tests.kit.models.planned import planned_stream


def test_gates_see_the_artefacts_and_the_steps_that_they_are_held_to(tmp_path: Path) -> None:
    lowering = lower(planned_stream(tmp_path))
    loaded, folder = load_recipe(str(tmp_path / "stream.yaml")), tmp_path / "bundle"
    built = emit(lowering)
    write_files(folder, built.files)
    variants = lowering.plan.target.plan
    shipped = shipped_graph(lowering, variants, built, folder, tmp_path / "engines", loaded)
    assert (len(shipped.steps), shipped.is_rounded, shipped.runs_here, shipped.is_timed_here) == (6, False, True, True)
    assert shipped.forms == [variant.name for variant in variants] and shipped.rounding_variants == []
    assert all(difference.max_abs < 1e-5 for difference in shipped.artefacts.differences(lambda done, total: None))
    with shipped.with_variants(["merge_rows"]) as (part, graph):
        assert list(part.rglob("*.onnx")) and [each.variant for each in graph.built.forms] == ["merge_rows"]
    assert not part.exists()


def test_the_original_is_drawn_once_for_all_gates(tmp_path: Path) -> None:
    lowering = lower(planned_stream(tmp_path))
    original = original_graph(lowering)
    assert original.gate is lowering.plan.gate and original.edges() is original.edges()
    assert [len(stream) for stream in original.streams()] == [8, 7]


def test_source_lines_ship_only_where_they_may(tmp_path: Path) -> None:
    lowering = lower(planned_stream(tmp_path))
    loaded, folder = load_recipe(str(tmp_path / "stream.yaml")), tmp_path / "bundle"
    built = emit(lowering)
    write_files(folder, built.files)
    shipped = shipped_graph(lowering, lowering.plan.target.plan, built, folder, tmp_path, loaded)
    parts = graph_parts(shipped, lowering, source_lines=True)
    assert parts.buckets == {"batch": (1, 2)} and parts.target == "onnx_static"
    assert parts.certificate and parts.golden and parts.proofs
    assert graph_parts(shipped, lowering, source_lines=False).certificate
