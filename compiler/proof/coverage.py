"""Writes docs/generated/coverage.md, which lists all operators and their rules: `python -m compiler.proof.coverage`."""

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx.defs

from compiler.proof.facts.registry import Versioned
from compiler.proof.rules import MODULES

OPSETS = range(17, 24)
"""The opsets of ai.onnx that the rules are written for."""

PAGE = Path("docs/generated/coverage.md")

WRITTEN_BY = {
    "Attention": "canonicalize_attention",
    "Constant": "simplify",
    "SequenceAt": "simplify",
    "SplitToSequence": "simplify",
}
"""The pass that writes an operator as others, before rules are asked."""

INTRODUCTION = """\
# Operators

Written by `python -m compiler.proof.coverage` from the rule table; a test compares the two.

An operator has a rule, which proves a node or says why it cannot, or it is refused by name: the reason is in the last
column, and the message of a build adds node, source line and what to do. Where nothing padded and no batch reaches a
node, it computes the same in the padded graph, and no rule is asked. Some operators are written as others by a pass
before rules are asked; what a pass cannot write meets the rule or the refusal."""


@dataclasses.dataclass(frozen=True)
class Covered:
    """One operator.

    Attributes:
        domain: its domain, empty for ai.onnx.
        op: its name.
        opsets: those of `OPSETS` that define it; empty for other domains, and for operators that are out of date.
        module: the module of its rule, or empty.
        lacking: those of `opsets` that neither a rule nor a refusal covers.
        refusal: why it is refused by name, or empty.
    """

    domain: str
    op: str
    opsets: tuple[int, ...]
    module: str
    lacking: tuple[int, ...]
    refusal: str


def covered() -> list[Covered]:
    """Return all operators of the opsets and of the rule table, by domain and name."""
    defined = defined_operators()
    entries = {key: (module, entry) for module in MODULES for key, entry in module.TABLE.items()}
    operators = []
    for domain, op in sorted({*entries, *(("", op) for op in defined)}):
        opsets = () if domain else defined.get(op, ())
        module, entry = entries.get((domain, op), (None, None))
        versioned = entry if isinstance(entry, Versioned) else None
        lacks = versioned.covers if versioned is not None else lambda opset, entry=entry: entry is not None
        operators.append(
            Covered(
                domain=domain,
                op=op,
                opsets=opsets,
                module="" if module is None else module.__name__.rsplit(".", 1)[-1],
                lacking=tuple(opset for opset in opsets if not lacks(opset)),
                refusal="" if versioned is None else versioned.refusal,
            )
        )
    return operators


def defined_operators() -> dict[str, tuple[int, ...]]:
    """Return the operators of ai.onnx with the opsets of `OPSETS` that define them without deprecating them."""
    schemas = [schema for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain]
    opsets: dict[str, list[int]] = {}
    for opset in OPSETS:
        newest: dict[str, onnx.defs.OpSchema] = {}
        for schema in schemas:
            if schema.since_version <= opset and schema.since_version >= newest.get(schema.name, schema).since_version:
                newest[schema.name] = schema
        for name, schema in newest.items():
            if not schema.deprecated:
                opsets.setdefault(name, []).append(opset)
    return {name: tuple(versions) for name, versions in opsets.items()}


def page() -> str:
    """Return the text of docs/generated/coverage.md."""
    operators = covered()
    standard = [operator for operator in operators if not operator.domain]
    counts = [
        sum(not operator.refusal and bool(operator.module) for operator in standard if operator.opsets),
        sum(bool(operator.refusal) for operator in standard if operator.opsets),
    ]
    lines = [
        INTRODUCTION,
        "",
        f"## ai.onnx, opsets {OPSETS[0]} to {OPSETS[-1]}: {counts[0]} with a rule, {counts[1]} refused by name",
        "",
        *_table(standard),
    ]
    for domain in dict.fromkeys(operator.domain for operator in operators if operator.domain):
        members = [operator for operator in operators if operator.domain == domain]
        refused = sum(bool(operator.refusal) for operator in members)
        lines += ["", f"## {domain}: {len(members) - refused} with a rule, {refused} refused by name", ""]
        lines += _table(members)
    return "\n".join(lines) + "\n"


def _table(members: Sequence[Covered]) -> Iterator[str]:
    """Yield the lines of a table, one per operator."""
    yield "| operator | opsets | rule | refused, because it |"
    yield "|---|---|---|---|"
    for each in members:
        before = f"written by `{WRITTEN_BY[each.op]}`" if not each.domain and each.op in WRITTEN_BY else ""
        rule = "" if each.refusal or not each.module else f"`{each.module}`"
        place = _range(each.opsets) or ("any" if each.domain else "none of these")
        yield f"| {each.op} | {place} | {'; '.join(filter(None, (before, rule)))} | {each.refusal} |"


def _range(opsets: Sequence[int]) -> str:
    """Return consecutive opsets as a range, such as `17-23`."""
    return f"{opsets[0]}-{opsets[-1]}" if len(opsets) > 1 else "".join(map(str, opsets))


def main(arguments: Sequence[str] | None = None) -> None:
    """Write docs/generated/coverage.md."""
    parser = argparse.ArgumentParser(prog="python -m compiler.proof.coverage", description=__doc__)
    parser.add_argument("--write", type=Path, default=PAGE, help="the file to write")
    parser.parse_args(arguments).write.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
