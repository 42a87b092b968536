"""A build as tables: what is shown of it, and how much."""

import io

from rich.console import Console

from compiler.records.build_report import (
    BuildReport,
    StageReport,
)
from compiler.records.precision import Pin
from compiler.report.tables import tables_of
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


def test_a_build_has_the_tables_that_it_has_rows_for() -> None:
    assert list(tables_of(BuildReport("r.yaml", "dist/x"))) == []
    titles = [str(table.title) for table in tables_of(REPORT)]
    assert len(titles) == len(set(titles)) == 6
