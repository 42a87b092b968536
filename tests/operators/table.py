"""Writes what a sweep found: the table in the vendor's folder, which the lint reads, and the page that people read."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from compiler.targets.operator_table import TAKEN, WRONG
from tests.operators.idioms import Idiom
from tests.operators.sweep import LEAST_DB
from tests.operators.vendors import VENDORS, Vendor

PAGES = Path(__file__).parents[2] / "docs/generated"


def merged(vendor: Vendor, idioms: Iterable[Idiom], found: Mapping[tuple[str, str], Mapping[str, Any]]) -> str:
    """Return the text of a table: what was found just now, and of the other idioms what the old table says."""
    old = json.loads(vendor.table.read_text(encoding="utf-8"))["rows"] if vendor.table.is_file() else []
    before = {row["idiom"]: row for row in old}
    rows = []
    for idiom in idioms:
        verdicts = {
            precision: found.get((idiom.name, precision)) or before.get(idiom.name, {}).get(precision)
            for precision in vendor.precisions
        }
        rows.append({"idiom": idiom.name, "op": idiom.op, "case": idiom.case, **verdicts})
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    return f'{{"toolchain": {json.dumps(vendor.environment.version)}, "rows": [\n{lines}\n]}}\n'


def page_of(name: str) -> Path:
    """Return the path of a vendor's page."""
    return PAGES / f"operators_{name}.md"


def page(name: str) -> str:
    """Return the page of a vendor's table."""
    vendor = VENDORS[name]
    table = json.loads(vendor.table.read_text(encoding="utf-8"))
    rows, precisions = table["rows"], list(vendor.precisions)
    counts = {p: sum(row[p]["verdict"] == TAKEN for row in rows) for p in precisions}
    limits = ", ".join(f"{LEAST_DB[precision]:g} dB in {precision}" for precision in precisions)
    head = [
        f"# Operators: `{name}`",
        "",
        f"Written by `python -m tests.operators {name}`, which asks {table['toolchain']} about",
        f"{len(rows)} [idioms](../../tests/operators/idioms.txt), graphs of one operator each, and compares what its",
        "simulator answers with ONNX Runtime in float32, in dB of signal to noise. *Wrong* is what the vendor compiles",
        f"without a word and computes otherwise: below {limits}.",
        "The lint of the target refuses a form of an operator of which no idiom is taken.",
        "",
        "Taken: " + ", ".join(f"{counts[precision]} in {precision}" for precision in precisions) + ".",
        "",
        f"| idiom | operator | {' | '.join(precisions)} |",
        "|---|---|" + "---|" * len(precisions),
    ]
    body = []
    for row in rows:
        case = f", `{row['case']}`" if row["case"] else ""
        op = "any" if row["op"] == "*" else f"`{row['op']}`"
        body.append(f"| {row['idiom']} | {op}{case} | {' | '.join(_words(row[p]) for p in precisions)} |")
    return "\n".join([*head, *body, ""])


def _words(verdict: Mapping[str, Any]) -> str:
    if verdict["verdict"] == TAKEN:
        return f"{verdict['sqnr_db']:g}" if "sqnr_db" in verdict else "exact"
    if verdict["verdict"] == WRONG:
        return f"**wrong**, {verdict['sqnr_db']:g}" if "sqnr_db" in verdict else f"**wrong**, {verdict['why']}"
    return "refused: on the CPU" if "CPU" in verdict["why"] else "refused: not compiled"
