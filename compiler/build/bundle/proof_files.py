"""Writes the graphs that a certificate refers to as files of a bundle, so that others can replay the proof.

`certificates/<graph>.json` holds the records of every proof, in the order of the passes, and names for each the graph
before and after it, `proofs/<graph>.<number>.before.onnx` and `.after.onnx`, with axis names in the place of buckets.
`derivation` tells why the graph may be called chunk by chunk, of which graph of whole sequences, where its steps are
derived: `proofs/<graph>.whole.onnx` and `.steps.onnx`.
Weights that ship anyway are read from `graphs/<graph>.weights`. Others are in `proofs/<graph>.weights`; those of a
graph that is rounded later would make the bundle several times as large, so that large finite ones are left out: in
their place stand their bounds, and the replay draws numbers between them. A proof speaks of operators and shapes, not
of weights, and so holds for those, too; but for one that only one side of a proof has, which was cut or moved between.
"""

import dataclasses
import hashlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from compiler.base.pieces import Content, Pieces, flat
from compiler.graph import model as graphs
from compiler.graph.runners.structure import Structure, split, with_weights_placed
from compiler.graph.stages import Lowered, Outcome
from compiler.proof.propagation.rows_alone import AFTER
from compiler.targets.base import Built
from compiler.targets.weights_file import places_read
from runtime_lite.format.canonical_json import canonical_json

INLINE_BYTES = 256
LEFT_OUT_BYTES = 2**16
"""Larger finite weights of a graph that is rounded later are left out."""

LEFT_OUT = "left out"
"""In the place of the file of a weight that does not ship."""


@dataclasses.dataclass(frozen=True)
class Proof:
    """What one pass proved, and of what.

    Attributes:
        stage: name of the pass.
        records: its certificates.
        before: the graph that the pass was given, with the types of all values.
        after: the graph that it made.
        lowered: what is known of the graph after it besides the model, as plain data.
    """

    stage: str
    records: tuple[dict[str, Any], ...]
    before: Structure
    after: Structure
    lowered: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Derivation:
    """What steps were derived of, and why they may be.

    Attributes:
        whole: the stateless graph.
        steps: the graph of a call, as it was handed to the passes.
        certificate: the claims about it.
    """

    whole: Structure
    steps: Structure
    certificate: Mapping[str, Any]


def proof_of(stage: str, before: Lowered, outcome: Outcome) -> Proof | None:
    """Return the proof that a pass has made, or None; infers shapes in the graph before the pass."""
    if not outcome.records:
        return None
    graphs.infer_shapes(before.model)
    split_before, split_after = split(before.model), split(outcome.lowered.model)
    return Proof(stage, outcome.records, split_before, split_after, _plain(outcome.lowered))


def _plain(lowered: Lowered) -> dict[str, Any]:
    return {
        "states": [dataclasses.asdict(each) for each in lowered.states],
        "caches": [dataclasses.asdict(each) for each in lowered.caches],
        "batch_axis": lowered.batch_axis,
        "data_outputs": list(lowered.data_outputs),
        "padded_axes": [dataclasses.asdict(each) for each in lowered.padded_axes],
        "is_padded": lowered.is_padded,
        "rows_independent": lowered.rows_independent,
    }


def proof_files(
    graph: str, proofs: Sequence[Proof], built: Built, derivation: Derivation | None = None, *, lossy: bool
) -> tuple[bytes, dict[str, Content]]:
    """Return the certificate of a graph, and the files that it names.

    Args:
        graph: name in the recipe.
        proofs: proofs in the order of the passes.
        built: the artefacts that ship.
        derivation: derivation of the graph, where its steps are derived.
        lossy: whether a pass has rounded since.
    """
    weights = _ProofWeights(graph, _shipped(built), lossy=lossy)
    files: dict[str, Content] = {}
    records = []
    for number, proof in enumerate(proofs):
        sides = {"before": proof.before, "after": proof.after}
        speaks_of_both = not all(record.get(AFTER) for record in proof.records)
        models = {f"{number}.{side}": model for side, model in sides.items()}
        named = _named(weights, files, models, graph, speaks_of_both=speaks_of_both)
        told = {"pass": proof.stage, "graphs": named, "lowered": dict(proof.lowered)}
        records += [{**told, **record} for record in proof.records]
    content: dict[str, Any] = {"graph": graph, "records": records}
    if derivation is not None:
        sides = {"whole": derivation.whole, "steps": derivation.steps}
        named = _named(weights, files, sides, graph, speaks_of_both=True)
        content["derivation"] = {"graphs": named, "certificate": dict(derivation.certificate)}
    if weights.parts:
        files[f"proofs/{weights.name}"] = Pieces(weights.parts)
    return canonical_json(content), files


def _named(
    weights: "_ProofWeights",
    files: dict[str, Content],
    models: Mapping[str, Structure],
    graph: str,
    *,
    speaks_of_both: bool,
) -> dict[str, dict[str, str]]:
    """Write graphs as files; return how a certificate names each, by the last part of its name.

    Weights of one side alone are left out only where no record compares both: else the other side would draw them
    differently.
    """
    named, contents = {}, [_contents(model) for model in models.values()]
    may_go = frozenset.intersection(*contents) if speaks_of_both else frozenset.union(*contents)
    for name, model in models.items():
        content, file = weights.externalise(model, may_go), f"proofs/{graph}.{name}.onnx"
        files[file] = content
        named[name.rpartition(".")[2]] = {"file": file, "sha256": hashlib.sha256(content).hexdigest()}
    return named


def _contents(model: Structure) -> frozenset[str]:
    """Return the hashes of the weights of a graph."""
    inside = (tensor for tensor in model.proto.graph.initializer if not tensor.external_data)
    return frozenset(model.weights) | {hashlib.sha256(tensor.raw_data).hexdigest() for tensor in inside}


def _shipped(built: Built) -> dict[str, tuple[str, int]]:
    """Return the location of every external tensor of the artefacts, by its hash."""
    found: dict[str, tuple[str, int]] = {}
    for emitted in built.artifacts:
        weights = built.files[emitted.files[0]]
        assert isinstance(weights, Pieces)
        for offset, _ in places_read(bytes(built.files[emitted.file])):
            found[weights.digests[offset]] = (f"../{emitted.files[0]}", offset)
    return found


class _ProofWeights:
    """The weights of the graphs of a proof that do not ship anyway, each content once."""

    def __init__(self, graph: str, known: dict[str, tuple[str, int]], *, lossy: bool) -> None:
        self.name, self.known, self.lossy = f"{graph}.weights", dict(known), lossy
        self.parts: list[memoryview] = []
        self.end = 0

    def externalise(self, model: Structure, may_go: frozenset[str]) -> bytes:
        """Serialize a graph with its large initializers elsewhere, or left out where allowed."""

        def place(digest: str, array: np.ndarray[Any, Any], tensor: onnx.TensorProto) -> dict[str, str]:
            goes = self.lossy and array.nbytes > LEFT_OUT_BYTES and digest in may_go
            if digest not in self.known:
                numbers = array if tensor.external_data else numpy_helper.to_array(tensor)
                if goes and numbers.dtype.kind == "f" and np.isfinite(numbers).all():
                    return {"location": LEFT_OUT, "low": repr(float(numbers.min())), "high": repr(float(numbers.max()))}
                self._append(digest, flat(array))
            location, offset = self.known[digest]
            return {"location": location, "offset": str(offset), "length": str(array.nbytes)}

        return with_weights_placed(model, place, INLINE_BYTES)

    def _append(self, digest: str, data: memoryview) -> None:
        self.known[digest] = (self.name, self.end)
        self.parts.append(data)
        self.end += data.nbytes


def drawn(tensor: onnx.TensorProto, low: float, high: float) -> np.ndarray[Any, Any]:
    """Return random numbers for a weight that was left out, equal for equal weights and including both bounds."""
    dtype = ir.DataType(tensor.data_type).numpy()
    seed = zlib.crc32(repr((low, high, tuple(tensor.dims))).encode())
    array = np.random.default_rng(seed).uniform(low, high, tuple(tensor.dims)).astype(dtype)
    array.flat[0], array.flat[-1] = low, high
    return array
