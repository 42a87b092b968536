"""Targets beside each other: what was verified how, what it loses, what a call moves, and what was refused."""

import dataclasses

from compiler.base.records.build_report import BuildReport, EngineRow, Failure
from compiler.base.records.findings import Finding, at_most
from compiler.base.records.target_rows import COLUMNS, target_rows


def parity(gate: str, tensor: str, sqnr_db: float | None) -> Finding:
    return at_most(gate, "net", tensor, limit=1.0, measured=0.1, figures={"sqnr_db": sqnr_db})


CPU = BuildReport(
    "r.yaml",
    "out/cpu",
    target="cpu",
    gates=(
        parity("parity.max_abs", "logits", 120.0),
        parity("parity.max_abs", "cache", 110.0),
        parity("parity.max_abs", "exact", None),
        at_most("task.max_increase", "net", "wer", limit=1.0, measured=0.0, detail="original 0.1, bundle 0.1"),
    ),
    sizes={"a": 1_500_000, "b": 1_000_000},
    call_bytes={"net": 1200, "head": 34},
)
NPU = dataclasses.replace(
    CPU,
    target="npu",
    gates=(
        parity("parity.max_abs", "logits", 20.0),
        parity("simulator.max_abs", "logits", 41.26),
        Finding("simulator.argmax", "net", "logits", 0.75, holds=True),
        CPU.gates[-1],
    ),
    engines=(EngineRow("net", "built", reached="simulated", by="artefact executed in the vendor's simulator"),),
)
REFUSED = dataclasses.replace(
    CPU,
    target="other",
    gates=(),
    verdict="refused",
    failure=Failure("expected less", "take another", 3, {"stage": "other", "node": "y_mod", "op": "Mod"}),
)
SEVERAL = BuildReport("r.yaml", "out", targets=(CPU, NPU, REFUSED))


def test_a_build_for_one_target_has_no_rows() -> None:
    assert target_rows(CPU) == ()


def test_a_target_that_this_machine_executes_has_its_least_ratio_and_its_task() -> None:
    row = target_rows(SEVERAL)[0]
    assert (row.verified, row.sqnr_db, row.tensor) == ("executed natively", 110.0, "cache")
    assert (row.task, row.call_bytes, row.size_bytes) == ("original 0.1, bundle 0.1", 1234, 2_500_000)
    assert row.argmax is None
    assert row.cells() == (
        *("cpu", "executed natively", "110.0", "cache", "", "original 0.1, bundle 0.1", "1,234", "2.5"),
        *("all gates hold", ""),
    )
    assert len(row.cells()) == len(COLUMNS)


def test_what_ran_in_a_simulator_counts_before_the_graphs_in_float32() -> None:
    row = target_rows(SEVERAL)[1]
    assert (row.verified, row.sqnr_db, row.argmax) == ("artefact executed in the vendor's simulator", 41.26, 0.75)
    assert row.cells()[2:6] == ("41.3", "logits", "75.0 %", ""), "a task that ran on graphs is not the artefact's"


def test_a_target_that_refuses_has_its_operator_and_no_bundle() -> None:
    row = target_rows(SEVERAL)[2]
    assert row.cells() == ("other", "", "", "", "", "", "", "", "refused", "Mod y_mod")


def test_where_nothing_differs_there_is_no_ratio() -> None:
    same = dataclasses.replace(CPU, gates=(parity("parity.max_abs", "logits", None),))
    (row,) = target_rows(BuildReport("r.yaml", "out", targets=(same,)))
    assert (row.sqnr_db, row.tensor) == (None, "")
