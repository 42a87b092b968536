"""Writes static ONNX graphs, one file per combination of bucket sizes, with one shared weights file per graph.

Every target that runs or compiles fixed shapes starts from these files.
"""

import dataclasses
import hashlib
import itertools
from collections.abc import Mapping

import onnx
import onnx_ir as ir

from compiler import ir as house
from compiler.stages import Lowered
from compiler.targets.base import Built, Emitted, Target

INLINE_BYTES = 256
"""Smaller constants stay in the graph file, where shape inference and folding can read them."""

ALIGNMENT_BYTES = 4096
"""Offsets of large tensors in the weights file: a page, so that ONNX Runtime can map them instead of copying."""

LARGE_BYTES = 16 * ALIGNMENT_BYTES
"""Smaller tensors are copied; a page of its own for each would be more than many of them hold."""

SMALL_ALIGNMENT_BYTES = 64
"""Offsets of the other tensors: a cache line."""


def write_static(target: Target, lowered: Lowered, buckets: Mapping[str, tuple[int, ...]]) -> Built:
    """Run the target's own passes for every combination of bucket sizes, let it look at the graphs, and write them.

    Writes `graphs/<graph>.<sizes>.onnx` and `graphs/<graph>.weights`.

    Raises:
        Refused: the target does not take a graph.
    """
    graphs = [(sizes, _frozen(target, lowered, sizes)) for sizes in _combinations(buckets)]
    target.accept([frozen for _, frozen in graphs])
    weights = _Weights(f"{lowered.graph}.weights")
    artifacts, files = [], {}
    for sizes, frozen in graphs:
        label = "".join(f".{axis}{size}" for axis, size in sizes.items()) or ".static"
        file = f"graphs/{lowered.graph}{label}.onnx"
        files[file] = weights.externalise(frozen.model)
        artifacts.append(Emitted(sizes, file, (f"graphs/{weights.name}",), frozen))
    files[f"graphs/{weights.name}"] = bytes(weights.content)
    model = lowered.model
    versions = {"opset": model.opset_imports[""], "ir_version": model.ir_version}
    return Built(tuple(artifacts), files, versions)


def _frozen(target: Target, lowered: Lowered, sizes: Mapping[str, int]) -> Lowered:
    frozen = dataclasses.replace(lowered, model=house.clone(lowered.model))
    for each in target.passes(sizes):
        frozen = each.apply(frozen).lowered
    return frozen


def _combinations(buckets: Mapping[str, tuple[int, ...]]) -> list[dict[str, int]]:
    axes = list(buckets)
    return [dict(zip(axes, sizes, strict=True)) for sizes in itertools.product(*buckets.values())]


class _Weights:
    """The weights of all buckets of a graph, each content once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.content = bytearray()
        self.offsets: dict[str, int] = {}

    def externalise(self, model: ir.Model) -> bytes:
        """Serialise a model with its large initializers moved here."""
        proto = ir.serde.serialize_model(model)
        for tensor in proto.graph.initializer:
            data = tensor.raw_data
            if len(data) <= INLINE_BYTES:
                continue
            offset = self._place(data)
            length = len(data)
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", self.name), ("offset", str(offset)), ("length", str(length))):
                tensor.external_data.add(key=key, value=value)
        return bytes(proto.SerializeToString(deterministic=True))

    def _place(self, data: bytes) -> int:
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self.offsets:
            alignment = ALIGNMENT_BYTES if len(data) >= LARGE_BYTES else SMALL_ALIGNMENT_BYTES
            self.content.extend(bytes(-len(self.content) % alignment))
            self.offsets[digest] = len(self.content)
            self.content.extend(data)
        return self.offsets[digest]
