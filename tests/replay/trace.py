"""What the compiler says and makes of one graph, as text that two states of the code can be compared by.

values      of the graph before the first pass: the numbers that follow from lengths, entry by entry
facts       of the graph before padding: what padding and rows do to every value, and what is refused
<pass>      its certificates, the graph behind it node by node, and a digest of that graph's bytes; or its refusal
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import onnx_ir as ir

from compiler.errors import SlipwayError
from compiler.graph import model as graphs
from compiler.graph.lengths.symbolic_entries import SymbolicEntries, Unknown
from compiler.graph.lengths.symbolic_values import symbolic_values_of
from compiler.graph.stages import Lowered
from compiler.passes import make_pass
from compiler.passes.pad_axes import PadAxes, derive_tolerantly
from compiler.proof.propagation.certificate import fact_record

Record: TypeAlias = dict[str, str]
"""Text by part, in the order in which it came to be."""


def traced(start: Lowered, passes: Sequence[str]) -> Record:
    """What comes of a graph, pass by pass, up to the first refusal.

    Args:
        start: the graph before the first pass; it is changed.
        passes: by name.
    """
    graphs.infer_shapes(start.model)
    record, lowered = {"values": "\n".join(_values(start.model))}, start
    for name in passes:
        if name == PadAxes.name:
            record["facts"] = "\n".join(_facts(dataclasses.replace(lowered, model=graphs.clone(lowered.model))))
        try:
            outcome = make_pass(name, {}).apply(lowered)
        except SlipwayError as error:
            record[name] = told(error)
            return record
        lowered = outcome.lowered
        refusals = [f"left alone: {each}" for each in outcome.refused]
        proofs = [line for each in outcome.records for line in certificate_lines(each)]
        record[name] = "\n".join([*refusals, *proofs, *graph_lines(lowered.model)])
    return record


def told(error: SlipwayError) -> str:
    """A refusal in full: the kind, where it is, what is wrong and what to do."""
    return f"{type(error).__name__}: {error}"


def certificate_lines(certificate: Mapping[str, Any]) -> Iterator[str]:
    """One line for each entry of a certificate, and for each entry of its lists."""
    for name, content in sorted(certificate.items()):
        for part in content if isinstance(content, list | tuple) else [content]:
            yield f"{name} {json.dumps(part, sort_keys=True, default=str)}"


def graph_lines(model: ir.Model) -> Iterator[str]:
    """One line for each input, node and output, with shapes; and a digest of all bytes, weights included."""
    for value in model.graph.inputs:
        yield f"input {_typed(value)}"
    for node in model.graph.all_nodes():
        attributes = " ".join(f"{name}={_short(each)}" for name, each in sorted(node.attributes.items()))
        given = ", ".join("" if value is None else str(value.name) for value in node.inputs)
        yield f"{node.domain}::{node.op_type}({given}) {attributes} -> {', '.join(map(_typed, node.outputs))}"
    for value in model.graph.outputs:
        yield f"output {_typed(value)}"
    yield f"bytes {hashlib.sha256(graphs.serialized(model)).hexdigest()}"


def _typed(value: ir.Value) -> str:
    return f"{value.name} {value.dtype} {None if value.shape is None else [str(dim) for dim in value.shape]}"


def _short(attribute: ir.Attr) -> str:
    """An attribute; of tensors and graphs the kind alone, for their bytes are in the digest."""
    is_long = attribute.type in (ir.AttributeType.TENSOR, ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    return attribute.type.name if is_long else str(attribute.value)


def _values(model: ir.Model) -> Iterator[str]:
    """What every value of the main graph holds that follows from lengths: its numbers, and its entry in symbols."""
    entries = SymbolicEntries()
    for value in _all_values(model):
        numbers = symbolic_values_of(value)
        try:
            entry = str(entries.of(value))
        except Unknown:
            entry = ""
        if numbers is not None or entry:
            yield f"{value.name}: {numbers or ''} {entry}"


def _all_values(model: ir.Model) -> Iterator[ir.Value]:
    yield from model.graph.inputs
    for node in model.graph:
        yield from node.outputs


def _facts(lowered: Lowered) -> Iterator[str]:
    """What padding and rows do to every value, in the order of the graph, and what is refused on the way."""
    try:
        derivation, _ = derive_tolerantly(lowered)
    except SlipwayError as error:
        yield told(error)
        return
    for value, fact in derivation.facts.items():
        yield f"{value.name}: {json.dumps(fact_record(fact), sort_keys=True)}"
    for refused in derivation.refusals:
        yield f"refused: {told(refused)}"
