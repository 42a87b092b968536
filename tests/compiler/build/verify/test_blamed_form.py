"""blamed_form: builds whose target has forms; the form that breaks a gate is named, and what forms did is told."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import pytest

from compiler.build.verify.blamed_form import run_blaming
from compiler.build.verify.gate import Checked, Gate, Shipped, ShippedGraph
from compiler.errors import GateFailed, Location
from compiler.graph.runners.stream import Advance
from compiler.targets import TARGETS
from tests.kit.formed import ToyStatic
from tests.kit.models.project import Ended, Project, digest_of, stream_project
from tests.kit.shipped import emitted, relu, shipped, silent


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A graph of one screen, for a target with toy forms."""
    monkeypatch.setitem(TARGETS, "onnx_static", ToyStatic)
    return stream_project(tmp_path / "project", tmp_path / "cache")


def build(project: Project, forms: str, *options: str, out: str = "bundle", cached: bool = True) -> Ended:
    settings = ["--set", f"targets.0.forms={forms}", *options]
    return project.build(*settings, recipe="stream.yaml", out=out, cached=cached)


LOSSY = ("--set", "gates.parity.net.lossy={max_abs: 1.0e-2}")


def lines_of(ended: Ended, names: Sequence[str]) -> list[dict[str, object]]:
    return [stage for stage in ended.report["stages"] if stage["stage"] in names]


def test_what_each_form_did_is_told_in_terminal_json_and_page_and_again_from_the_cache(stream: Project) -> None:
    names = ["swap_operands", "refuse_all"]
    ended = build(stream, "[swap_operands, refuse_all]", "--report-html", "page.html")
    assert ended.code == 0, ended.err
    page = (stream.folder / "page.html").read_text()
    for name in names:
        assert f"net: {name} " in ended.out
        assert name in page
    first, second = lines_of(ended, names)
    assert (first["matched"], first["rewritten"], first["detail"]) == (2, 1, "swap_operands has been here")
    assert (second["rewritten"], second["refused"]) == (0, ["expected something else"])
    again = build(stream, "[swap_operands, refuse_all]", out="again")
    assert [each["detail"] for each in lines_of(again, names)] == [first["detail"], ""]
    assert all(each["cached"] for each in lines_of(again, names))
    assert digest_of(stream.folder / "again") == digest_of(stream.folder / "bundle")


def test_a_plan_that_is_another_is_built_anew_and_the_same_plan_by_another_way_is_not(stream: Project) -> None:
    assert build(stream, "standard").code == 0
    other = build(stream, "[swap_operands]")
    assert "net:onnx_static" in other.stages(cached=False)
    graphs = [f"bundle/graphs/{name}" for name in ("net.batch.onnx", "net.weights")]
    before = [(stream.folder / name).read_bytes() for name in graphs]
    assert build(stream, "{net: [scale_operand.by_one, swap_operands]}", out="bundle").code == 0
    assert build(stream, "standard", out="again").code == 0
    written = [(stream.folder / name.replace("bundle", "again")).read_bytes() for name in graphs]
    assert [(stream.folder / name).read_bytes() for name in graphs] == written != before


def test_the_form_that_breaks_parity_is_named_with_its_node(stream: Project) -> None:
    ended = build(stream, "[swap_operands, refuse_all, scale_operand, scale_operand.by_one]")
    assert ended.code == 4, ended.err
    assert "before the form scale_operand it holds" in ended.message
    assert "stage scale_operand, graph net, node " in ended.message
    assert "as in forms: [swap_operands, refuse_all, scale_operand.by_one]" in ended.message
    found = json.loads((stream.folder / "bundle.failure/findings.json").read_text())
    assert len(found["culprits"]) == 1


@pytest.mark.parametrize(
    ("breaks_from", "said"),
    [
        (0, "it does not hold of 0"),
        (1, "it does not hold of 1; before the form a it holds"),
        (2, "it does not hold of 2; before the form b it holds"),
        (3, "it does not hold of everything"),
    ],
)
def test_the_gate_runs_with_more_and_more_forms_until_it_fails(breaks_from: int, said: str, tmp_path: Path) -> None:
    def check(looked_at: Shipped, advance: Advance) -> Checked:
        count = len(looked_at.graph.forms) if looked_at.folder == tmp_path else "everything"
        if count == "everything" or int(count) >= breaks_from:
            raise GateFailed(f"it does not hold of {count}", place=Location(stage="verify", graph="net"))
        return Checked([])

    @contextlib.contextmanager
    def with_variants(names: Sequence[str]) -> Iterator[tuple[Path, ShippedGraph]]:
        yield tmp_path, dataclasses.replace(whole.graph, forms=names)

    first = emitted(tmp_path, relu(1), {"batch": 1})
    whole = shipped(tmp_path / "elsewhere", mock.Mock(), [first])
    graph = dataclasses.replace(whole.graph, forms=("a", "b"), with_variants=with_variants)
    whole = dataclasses.replace(whole, graphs={"net": graph})
    with pytest.raises(GateFailed) as caught:
        run_blaming(Gate("planted", check), whole, silent)
    assert caught.value.message == said
    blamed = {1: "a", 2: "b"}.get(breaks_from)
    assert caught.value.place.stage == (blamed or "verify")
    if blamed is not None:
        assert f"forms: [{'b' if blamed == 'a' else 'a'}]" in caught.value.cure


def test_a_form_that_rounds_is_on_and_held_to_the_lossy_limits_where_there_are_some(stream: Project) -> None:
    exact, lossy = build(stream, "standard"), build(stream, "standard", *LOSSY)
    assert lines_of(exact, ["round_operand"]) == []
    assert len(lines_of(lossy, ["round_operand"])) == 1
    limits = [
        max(row["limit"] for row in ended.report["gates"] if row["gate"] == "parity.max_abs")
        for ended in (exact, lossy)
    ]
    assert limits[0] < 1e-3 < limits[1]


def test_an_illegal_graph_ends_the_build_with_the_name_of_the_form(stream: Project) -> None:
    ended = build(stream, "[swap_operands, forget_shape]")
    assert (ended.code, "stage forget_shape, graph net" in ended.message) == (1, True)
