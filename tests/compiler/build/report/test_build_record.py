"""build_record: what is known when a build ends, however it ends."""

import errno
import io
import json

import pytest
from rich.console import Console

from compiler.base.records.findings import Finding, at_most
from compiler.build.report.build_record import BuildRecord
from compiler.build.report.progress import Progress
from compiler.errors import GateFailed, Location, RecipeError, Refused
from runtime_lite.errors import EngineAbsent

PROMISED = (
    *(Finding(gate, graph) for gate in ("edges", "buckets", "invariance") for graph in "ab"),
    *(Finding("parity.max_abs", graph, limit=1e-5) for graph in "ab"),
    Finding("parity.sqnr_db", "b", limit=20.0, is_least=True),
    Finding("budget.size_mb", limit=3.0),
)


@pytest.fixture
def record() -> BuildRecord:
    return BuildRecord("r.yaml", PROMISED, "dist/x", Progress(Console(file=io.StringIO())))


def test_a_build_that_ends_well_lists_what_it_measured_and_what_nobody_has_looked_at(record: BuildRecord) -> None:
    found = at_most("budget.size_mb", limit=3.0, measured=2.0)
    record.findings.append(found)
    report = record.report()
    assert (report.verdict, report.failure) == ("all gates hold", None)
    assert report.gates[0] == found and found.holds is True
    assert report.gates[1:] == PROMISED[:-1]


def test_of_two_findings_about_one_thing_the_later_counts(record: BuildRecord) -> None:
    first, second = (at_most("task.max_increase", "a", "wer", limit=1.0, measured=value) for value in (0.5, 0.25))
    record.findings += [first, second]
    assert [each for each in record.report().gates if each.gate == "task.max_increase"] == [second]


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
    assert content["schema_version"] == 2


def test_a_gate_that_fails_has_bound_and_value_and_the_others_were_not_reached(record: BuildRecord) -> None:
    failed = at_most("parity.max_abs", "b", "logits", limit=1e-4, measured=0.5)
    record.findings.append(at_most("parity.max_abs", "a", "logits", limit=1e-5, measured=1e-6))
    report = record.report(GateFailed("too far", place=Location("verify", "b"), findings=[failed]))
    assert [row.holds for row in report.gates[:2]] == [True, False]
    assert report.gates[1] == failed
    left = {(row.gate, row.graph) for row in report.gates[2:]}
    graphs = {(gate, graph) for gate in ("edges", "buckets", "invariance") for graph in "ab"}
    assert left == graphs | {("parity.sqnr_db", "b"), ("budget.size_mb", "")}


def test_a_failure_without_figures_is_known_by_its_stage(record: BuildRecord) -> None:
    report = record.report(GateFailed("disagree", place=Location("pad_axes", "a")))
    assert report.gates[0] == Finding("pad_axes", "a", holds=False, detail="disagree")


def test_stages_are_those_that_have_ended(record: BuildRecord) -> None:
    with pytest.raises(KeyError), record.progress.stage("a", "capture"):
        raise KeyError("x")
    (stage,) = record.report(KeyError("x")).stages
    assert (stage.graph, stage.stage, stage.detail) == ("a", "capture", "failed")
