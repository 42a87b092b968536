"""A build as tables: what is shown of it, and how much."""

import dataclasses
import io

from rich.console import Console

from compiler.base.records.build_report import (
    BuildReport,
    StageReport,
)
from compiler.base.records.compression import Compression, Cut, Point
from compiler.base.records.findings import at_most
from compiler.base.records.precision import Pin
from compiler.build.report.tables import SHOWN_FINDINGS, tables_of
from tests.kit.build_report import REPORT


def test_nodes_that_stay_precise_are_listed_the_costliest_first_and_not_without_end() -> None:
    pins = tuple(
        Pin(f"n{i}", "Exp", f"reaches {i}", "t", 1.0, f"m.py:{i} in forward: x", float(i), "us") for i in range(20)
    )
    console = Console(file=io.StringIO(), width=160)
    for table in tables_of(BuildReport("r", "b", (StageReport("net", "lower", 0.1, precision=pins),))):
        console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "float32: reaches 19" in text and "19 us" in text and "m.py:19 in forward" in text
    assert "reaches 3" not in text and "and 4 more in the report" in text


def test_channels_that_were_taken_out_are_listed_by_product() -> None:
    cuts = (Cut("reduce", "m.py:3 in forward: x", 64, 48, 0.25, 31.5, 33.0, 28.1), Cut("other", "", 64, 64))
    record = Compression(cuts, (Point(1.0, 300.0), Point(0.8, 28.1)), Point(0.79, 27.0))
    console = Console(file=io.StringIO(), width=160)
    for table in tables_of(BuildReport("r", "b", (StageReport("net", "compress", 0.1, compression=record),))):
        console.print(table)
    rows = [line.split() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert ["net", "reduce", "64", "48", "0.250", "31.5", "33.0", "28.1", "m.py:3", "in", "forward"] in rows
    assert ["net", "other", "64", "64", "0.000"] in rows


def test_a_build_has_the_tables_that_it_has_rows_for() -> None:
    assert list(tables_of(BuildReport("r.yaml", "dist/x"))) == []
    titles = [str(table.title) for table in tables_of(REPORT)]
    assert len(titles) == len(set(titles)) == 5


def test_of_several_targets_a_row_each_is_shown_and_not_the_tables_of_one() -> None:
    one = dataclasses.replace(REPORT, target="npu", failure=None)
    report = BuildReport("r.yaml", "dist/x", gates=REPORT.gates, targets=(one, dataclasses.replace(one, target="cpu")))
    (table,) = tables_of(report)
    assert (table.title, table.row_count) == ("Targets", 2)


def test_of_many_findings_those_that_use_most_of_their_limits_are_shown() -> None:
    found = tuple(
        at_most("buckets", "net", f"batch={at}", limit=1.0, measured=at / 100) for at in range(SHOWN_FINDINGS + 3)
    )
    console = Console(file=io.StringIO(), width=160)
    for table in tables_of(BuildReport("r", "b", gates=found)):
        console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "batch=14 " in text and "batch=3 " in text
    assert "batch=2 " not in text and "and 3 more in the report" in text
