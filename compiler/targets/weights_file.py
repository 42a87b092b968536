"""Writes the weights of graph files into one external data file, in which equal weights are stored once."""

import hashlib
from collections.abc import Iterable, Iterator

import onnx
import onnx_ir as ir

from compiler.base.pieces import Pieces, flat
from compiler.graph.runners.structure import split, with_weights_placed
from compiler.graph.stages import Array

INLINE_BYTES = 256
"""Smaller constants stay in the graph file, where shape inference and folding can read them."""

ALIGNMENT_BYTES = 4096
"""Offsets of large tensors in the weights file: a page, so that ONNX Runtime can map them instead of copying."""

LARGE_BYTES = 16 * ALIGNMENT_BYTES
"""Smaller tensors are copied; a page of its own for each would be more than many of them hold."""

SMALL_ALIGNMENT_BYTES = 64
"""Offsets of the other tensors: a cache line."""


def places_read(graph: bytes) -> Iterator[tuple[int, int]]:
    """Yield offset and length of every weight that a graph file reads from its weights file."""
    for tensor in onnx.load_model_from_string(graph).graph.initializer:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if entries:
            yield int(entries["offset"]), int(entries["length"])


class WeightsFile:
    """The weights of all buckets of a graph, or of all graphs of a model with several latencies, each content once.

    Args:
        name: of the file, beside the graphs that read it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.offsets: dict[str, int] = {}
        self._parts: list[memoryview] = []
        self._end = 0

    @classmethod
    def read_by(cls, name: str, content: bytes, graphs: Iterable[bytes]) -> "WeightsFile":
        """Return a weights file of existing content in which the weights that graphs read keep their offsets."""
        weights = cls(name)
        weights._append(memoryview(content))
        for offset, length in sorted({place for graph in graphs for place in places_read(graph)}):
            weights.offsets.setdefault(hashlib.sha256(content[offset : offset + length]).hexdigest(), offset)
        return weights

    @property
    def content(self) -> Pieces:
        """Return the content that has been written until now."""
        return Pieces(self._parts, {offset: digest for digest, offset in self.offsets.items()})

    def externalise(self, model: ir.Model) -> bytes:
        """Serialize a model with its large initializers moved to this file."""
        return with_weights_placed(split(model), self._place, INLINE_BYTES)

    def _place(self, digest: str, array: Array, tensor: onnx.TensorProto) -> dict[str, str]:
        data = flat(array)
        if digest not in self.offsets:
            alignment = ALIGNMENT_BYTES if data.nbytes >= LARGE_BYTES else SMALL_ALIGNMENT_BYTES
            self._append(memoryview(bytes(-self._end % alignment)))
            self.offsets[digest] = self._end
            self._append(data)
        return {"location": self.name, "offset": str(self.offsets[digest]), "length": str(data.nbytes)}

    def _append(self, data: memoryview) -> None:
        self._parts.append(data)
        self._end += data.nbytes
