"""run_passes: what stays of the graph, its proofs and its reports, run, recalled and applied again."""

from pathlib import Path

import onnx_ir as ir
import pytest

from compiler.build.lowering.pass_parity import PassParity
from compiler.build.lowering.run_passes import apply_passes, copy_of, recall_passes, run_passes
from compiler.graph.stages import Lowered
from tests.kit.models.planned import planned_stream


def bytes_of(lowered: Lowered) -> bytes:
    content: bytes = ir.to_proto(lowered.model).SerializeToString(deterministic=True)
    return content


def test_passes_applied_again_give_the_same_graph_and_proofs(tmp_path: Path) -> None:
    plan = planned_stream(tmp_path)
    passed, reports = run_passes(plan)
    again = apply_passes(planned_stream(tmp_path))
    assert bytes_of(again.final) == bytes_of(passed.final) == bytes_of(again.exact)
    assert list(again.proofs) == list(passed.proofs) and passed.proofs
    assert [report.stage for report in reports] == [planned.made.name for planned in plan.passes]


def test_nothing_is_compared_that_an_earlier_build_has_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first = run_passes(planned_stream(tmp_path))
    monkeypatch.setattr(PassParity, "compare", lambda *_, **__: pytest.fail("compared again"))
    _, second = run_passes(planned_stream(tmp_path))
    assert all(report.cached for report in second) and not any(report.cached for report in first)
    assert [report.max_abs for report in recall_passes(planned_stream(tmp_path))] == [each.max_abs for each in first]


def test_the_exact_graph_is_the_one_in_front_of_the_first_pass_that_rounds(tmp_path: Path) -> None:
    plan = planned_stream(tmp_path, rounds=True)
    passed, _ = run_passes(plan)
    kinds = {value.dtype for node in passed.exact.model.graph for value in node.outputs}
    assert ir.DataType.FLOAT16 not in kinds
    assert ir.DataType.FLOAT16 in {value.dtype for node in passed.final.model.graph for value in node.outputs}


def test_a_copy_shares_no_graph(tmp_path: Path) -> None:
    passed, _ = run_passes(planned_stream(tmp_path))
    before = bytes_of(passed.final)
    copied = passed.copy()
    copied.final.model.graph[0].name = copied.exact.model.graph[0].name = "renamed"
    assert bytes_of(passed.final) == before == bytes_of(copy_of(passed.final))
