"""build_record: what is known when a build ends, however it ends."""

import errno
import io
import json

import pytest
from rich.console import Console

from compiler.errors import GateFailed, Place, RecipeError, Refused
from compiler.recipe.gates import BudgetGate, Gates, ParityGate
from compiler.records.gate_rows import GateRow, at_most
from compiler.report.build_record import BuildRecord
from compiler.report.progress import Progress
from runtime_lite.errors import EngineAbsent

GATES = Gates(
    parity={"a": ParityGate(max_abs=1e-5, chained_steps=2), "b": ParityGate(max_abs=1e-4, sqnr_db=20, chained_steps=2)},
    budget=BudgetGate(size_mb=3),
)


@pytest.fixture
def record() -> BuildRecord:
    return BuildRecord("r.yaml", GATES, "dist/x", Progress(Console(file=io.StringIO())))


def test_a_build_that_ends_well_lists_what_it_measured(record: BuildRecord) -> None:
    record.gates.append(at_most("budget.size_mb", "", "", 3.0, 2.0))
    report = record.report()
    assert (report.verdict, report.failure) == ("all gates hold", None)
    assert report.gates == (GateRow("budget.size_mb", "", "", 3.0, 2.0, True),)


@pytest.mark.parametrize(
    ("error", "verdict", "code"),
    [
        (Refused("no", cure="do"), "refused", 3),
        (RecipeError("no"), "wrong input", 2),
        (KeyError("x"), "ended by a bug of Slipway", 1),
        (OSError(errno.ENOSPC, "No space left on device"), "wrong input", 2),
        (MemoryError(), "wrong input", 2),
        (EngineAbsent("no device"), "a toolchain is absent", 5),
        (KeyboardInterrupt(), "interrupted", 130),
    ],
)
def test_every_ending_has_its_verdict(record: BuildRecord, error: BaseException, verdict: str, code: int) -> None:
    report = record.report(error)
    assert report.failure is not None
    assert (report.verdict, report.failure.exit_code) == (verdict, code)
    assert {row.holds for row in report.gates} == {None}
    content = json.loads(report.to_json())
    assert content["schema_version"] == 1


def test_a_gate_that_fails_has_bound_and_value_and_the_others_were_not_reached(record: BuildRecord) -> None:
    failed = at_most("parity.max_abs", "b", "logits", 1e-4, 0.5)
    record.gates.append(at_most("parity.max_abs", "a", "logits", 1e-5, 1e-6))
    report = record.report(GateFailed("too far", place=Place("verify", "b"), rows=[failed]))
    assert [row.holds for row in report.gates[:2]] == [True, False]
    assert report.gates[1] == failed
    left = {(row.gate, row.graph) for row in report.gates[2:]}
    graphs = {(gate, graph) for gate in ("edges", "buckets", "invariance") for graph in "ab"}
    assert left == graphs | {("parity.sqnr_db", "b"), ("budget.size_mb", "")}


def test_a_failure_without_figures_is_known_by_its_stage(record: BuildRecord) -> None:
    report = record.report(GateFailed("disagree", place=Place("pad_axes", "a")))
    assert report.gates[0] == GateRow("pad_axes", "a", holds=False)


def test_stages_are_those_that_have_ended(record: BuildRecord) -> None:
    with pytest.raises(KeyError), record.progress.stage("a", "capture"):
        raise KeyError("x")
    (stage,) = record.report(KeyError("x")).stages
    assert (stage.graph, stage.stage, stage.detail) == ("a", "capture", "failed")
