"""Removes the lines of the model's source code from a bundle's files, where the recipe says `source_lines: false`.

Every node carries the line of code that it comes from, in its ONNX metadata: file, function, module and the text of the
line. It serves messages. Graph files, the graphs of proofs and the records of certificates have it, too, unless the
recipe says `source_lines: false`: no proof and no replay depends on it.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import onnx

from compiler.base.pieces import Content
from compiler.build.bundle.proof_files import Derivation, Proof
from compiler.graph import model as graphs
from compiler.graph.runners.structure import Structure, written
from compiler.targets.base import Built


def built_without_lines(built: Built) -> Built:
    """Return artefacts without source lines in their files; the graphs in memory keep theirs for messages."""
    graphs = {artifact.file for artifact in built.artifacts}
    files: dict[str, Content] = {name: content for name, content in built.files.items() if name not in graphs}
    for name in graphs:
        proto = onnx.load_model_from_string(bytes(built.files[name]))
        files[name] = written(_without_lines(proto))
    return dataclasses.replace(built, files={name: files[name] for name in built.files})


def proof_without_lines(proof: Proof) -> Proof:
    """Return a proof without source lines in its graphs and records."""
    records = tuple(map(_record_without_lines, proof.records))
    before, after = map(_structure_without_lines, (proof.before, proof.after))
    return dataclasses.replace(proof, records=records, before=before, after=after)


def derivation_without_lines(derivation: Derivation) -> Derivation:
    """Return a derivation without source lines in its graphs; its certificate has none."""
    whole, steps = map(_structure_without_lines, (derivation.whole, derivation.steps))
    return dataclasses.replace(derivation, whole=whole, steps=steps)


def _record_without_lines(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a certificate without source lines in its records of nodes."""
    steps = record.get("records")
    return dict(record) if steps is None else {**record, "records": [{**step, "source": ""} for step in steps]}


def _structure_without_lines(structure: Structure) -> Structure:
    proto = onnx.ModelProto()
    proto.CopyFrom(structure.proto)
    return dataclasses.replace(structure, proto=_without_lines(proto))


def _without_lines(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the same model, with source lines removed in place."""
    _strip(proto.graph.node)
    for function in proto.functions:
        _strip(function.node)
    return proto


def _strip(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        kept = [entry for entry in node.metadata_props if entry.key != graphs.SOURCE_KEY]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
        for attribute in node.attribute:
            _strip(attribute.g.node)
            for graph in attribute.graphs:
                _strip(graph.node)
