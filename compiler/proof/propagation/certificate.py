"""Writes a derivation as a certificate: plain data, one record per node, for people, the checker and the bundle.

A record holds the facts of the node's inputs before anything is inserted, what the node needs, and the facts of its
outputs after. Infinities are written as "inf" and "-inf", sizes as text over axis names.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import onnx_ir as ir

from compiler.graph.model import Dim, dims_of, expression, source_of
from compiler.proof.facts.facts import Clamp, Fact, Fill, Index, Need, Rewrite
from compiler.proof.facts.interval import LONGEST, Interval
from compiler.proof.facts.layout import Factor, Frames, Plain, Rows, Segment, Side
from compiler.proof.facts.lookup_ranges import Ranges, assumed_ranges, told_ranges
from compiler.proof.propagation.propagate import Axes, Derivation, Judged

SCHEMA = 1


def records(derivation: Derivation) -> tuple[dict[str, Any], ...]:
    """Return one record per judged node, in graph order."""
    return tuple(_record(each) for each in derivation.judged)


def certificate(
    axes: Axes,
    steps: Sequence[Mapping[str, Any]],
    length_inputs: Mapping[str, str],
    mask_inputs: Mapping[str, tuple[str, str]],
    minimum: Mapping[str, int],
    becomes: Mapping[str, str],
    states: Sequence[Mapping[str, Any]] = (),
    replaced: Sequence[Mapping[str, str]] = (),
    ranges: Ranges | None = None,
    maximum: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the whole certificate of one graph.

    Args:
        axes: the tracked axes.
        steps: records, in an order in which facts come before their readers.
        length_inputs: per padded axis, the graph input with its true lengths.
        mask_inputs: graph inputs that are 1 at valid slots: the size they cover, and on which side valid slots lie.
        minimum: per padded axis, the smallest length that is proved.
        becomes: new names of values that a rewrite computes, by their old names.
        states: the states along caches: `input`, `output`, `axis`, `cache`, `slots`, and the frames that a call `adds`.
        replaced: the other states, each of which has one size: `input` and `output`.
        ranges: the least and largest integer of inputs, where known.
        maximum: per padded axis, the largest number of slots that is proved, where something in the graph limits it.
    """
    return {
        "schema": SCHEMA,
        "batch": axes.batch,
        "sides": {name: side.value for name, side in sorted(axes.sides.items())},
        "length_inputs": dict(sorted(length_inputs.items())),
        "mask_inputs": {name: list(covers) for name, covers in sorted(mask_inputs.items())},
        "minimum": dict(sorted(minimum.items())),
        **({"maximum": dict(sorted(maximum.items()))} if maximum else {}),
        "becomes": dict(sorted(becomes.items())),
        "states": [dict(state) for state in states],
        "replaced": [dict(state) for state in replaced],
        "ranges": told_ranges(ranges or {}),
        "assumes": [
            f"minimum <= true length <= slots <= {LONGEST:.0f} for every row and axis",
            *(f"slots of {axis} <= {most}" for axis, most in sorted(maximum.items())),
            *_assumed(steps),
            *assumed_ranges(ranges or {}),
        ],
        "records": list(steps),
    }


def _assumed(steps: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return, as text, which inputs of nodes are assumed to be finite or free of NaN."""
    return [
        f"{'no valid entry is NaN' if what == 'no NaN' else 'all valid entries are finite'} in "
        f"{step['inputs'][operand]!r}, which {step['node']!r} ({step['op']}) reads"
        for step in steps
        for operand, what in step["assumes"]
    ]


def _record(judged: Judged) -> dict[str, Any]:
    node, verdict = judged.node, judged.verdict
    chain = {"chain": [str(node.name) for node in judged.chain]} if judged.chain else {}
    return {
        "node": str(node.name),
        "op": f"{node.domain}::{node.op_type}" if node.domain else node.op_type,
        "rule": verdict.rule,
        "reason": verdict.reason,
        "inputs": [None if value is None else str(value.name) for value in judged.inputs],
        "outputs": [str(value.name) for value in node.outputs],
        "in_shapes": [None if value is None else _shape(value) for value in judged.inputs],
        "out_shapes": [_shape(value) for value in node.outputs],
        "in": [None if fact is None else fact_record(fact) for fact in judged.given],
        "needs": [_need(need) for need in verdict.needs],
        "out": [fact_record(fact) for fact in verdict.outputs],
        "at_least_one": [str(size) for size in verdict.at_least_one],
        "assumes": [[assumption.operand, assumption.what] for assumption in verdict.assumes],
        "source": source_of(node),
        **chain,
    }


def _shape(value: ir.Value) -> list[int | str]:
    return [dim if isinstance(dim, int) else _text(dim) for dim in dims_of(value) or ()]


@functools.lru_cache(maxsize=100_000)
def _text(size: Dim) -> str:
    return str(size)


def fact_record(fact: Fact) -> dict[str, Any]:
    """Return a fact as plain data."""
    record: dict[str, Any] = {
        "axes": {str(at): [_factor(factor) for factor in axis] for at, axis in fact.axes},
        "contents": [[sorted(region), *_interval(content)] for region, content in fact.contents],
    }
    if fact.is_number:
        record["number"] = True
    if fact.index is not None:
        record["index"] = {"axis": fact.index.axis, "offset": str(fact.index.offset)}
    return record


def fact_of(record: Mapping[str, Any]) -> Fact:
    """Return the fact that `fact_record` wrote."""
    index = record.get("index")
    return Fact(
        axes=tuple((int(at), tuple(map(_read_factor, factors))) for at, factors in record["axes"].items()),
        contents=tuple(
            (frozenset(region), Interval(float(low), float(high), nan)) for region, low, high, nan in record["contents"]
        ),
        is_number=bool(record.get("number", False)),
        index=None if index is None else Index(index["axis"], _read_size(index["offset"])),
    )


def _read_factor(record: Mapping[str, Any]) -> Factor:
    if "frames" in record:
        return Frames(tuple(Segment(_read_size(size), Side(side)) for size, side in record["frames"]))
    return Rows(_read_size(record["rows"])) if "rows" in record else Plain(_read_size(record["plain"]))


def _read_size(text: str) -> Dim:
    return int(text) if text.lstrip("-").isdigit() else expression(text)


def _factor(factor: Factor) -> dict[str, Any]:
    if isinstance(factor, Frames):
        return {"frames": [[_text(segment.size), segment.side.value] for segment in factor.segments]}
    return {"rows" if isinstance(factor, Rows) else "plain": _text(factor.size)}


def _interval(content: Interval) -> list[Any]:
    return [_number(content.low), _number(content.high), content.nan]


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _need(need: Need) -> dict[str, Any]:
    match need:
        case Fill():
            return {"fill": need.operand, "axis": need.axis, "value": _number(need.value)}
        case Clamp():
            return {"clamp": need.operand, "low": need.low, "high": need.high}
        case Rewrite():
            return {"rewrite": need.kind, "details": [str(detail) for detail in need.details]}
