"""Reads a vendor's table of test results, which says which operators the vendor's toolchain computes correctly.

    {"toolchain": "vendor 1.0", "rows": [{"idiom": "pad_edge", "op": "Pad", "case": "mode=edge",
                                          "float16": {"verdict": "wrong", "sqnr_db": -82.2}, ...}, ...]}

A case is what of an operator was tried, where that is not its plain form: conditions with spaces between them, which
hold together. `mode=edge` is an attribute, `type=UINT8` the type of the data, `rank=6` that a value has as many axes or
more, `computed=1` that the operand is no constant. The operator `*` stands for every one.
"""

import dataclasses
import json
from pathlib import Path

import onnx_ir as ir

from compiler.graph import model as graphs

TAKEN, REFUSED, WRONG = "taken", "refused", "wrong"

ANY = "*"


@dataclasses.dataclass(frozen=True)
class Row:
    """One idiom in one precision.

    Attributes:
        idiom: its name.
        op: the operator that was tried.
        case: what of it; empty for the plain form.
        verdict: taken, refused by the vendor, or wrong: computed otherwise in the vendor's simulator.
        sqnr_db: of the answer, in dB; None where there is none, or no error.
        why: why it was refused or is wrong, in the vendor's words.
    """

    idiom: str
    op: str
    case: str
    verdict: str
    sqnr_db: float | None = None
    why: str = ""


def read_rows(path: Path, precision: str) -> tuple[Row, ...]:
    """Return the rows of a table for one precision.

    Args:
        path: the table in the vendor's folder.
        precision: as the target's option names it.
    """
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return tuple(Row(row["idiom"], row["op"], row["case"], **row[precision]) for row in rows)


def why_not(node: ir.Node, rows: tuple[Row, ...]) -> str:
    """Return why a vendor does not compute a node as it is written; an empty text where nothing is known against it.

    A form is not computed where no idiom of it was taken; the plain form says nothing of one that was tried apart.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.op in (ANY, node.op_type) and _is_case(node, row.case):
            groups.setdefault((row.op, row.case), []).append(row)
    if any(op == node.op_type and case for op, case in groups):
        groups.pop((node.op_type, ""), None)
    for (_, case), group in groups.items():
        if all(row.verdict != TAKEN for row in group):
            form = f"{node.op_type} with {case.replace(' ', ' and ')}" if case else node.op_type
            return f"{form}, {_words(group[0])}"
    return ""


def _words(row: Row) -> str:
    if row.verdict == REFUSED:
        return "which the vendor does not take" if "CPU" not in row.why else "which the vendor leaves to the CPU"
    measured = f" ({row.sqnr_db:g} dB)" if row.sqnr_db is not None else ""
    return f"which the vendor computes otherwise than it is written{measured}"


def _is_case(node: ir.Node, case: str) -> bool:
    return all(_holds(node, *condition.split("=")) for condition in case.split())


def _holds(node: ir.Node, what: str, wanted: str) -> bool:
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    if what == "type":
        data = next(iter(node.inputs), None)
        return data is not None and data.dtype is not None and data.dtype.name == wanted
    if what == "rank":
        return any(value.shape is not None and len(value.shape) >= int(wanted) for value in values)
    if what == "computed":
        operand = node.inputs[int(wanted)] if int(wanted) < len(node.inputs) else None
        return operand is not None and graphs.array_of(operand) is None
    return str(graphs.attribute(node, what, "")) == wanted
