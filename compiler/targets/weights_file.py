"""The weights of graph files in a file beside them, each content once."""

import hashlib
from collections.abc import Iterable, Iterator

import onnx
import onnx_ir as ir

INLINE_BYTES = 256
"""Smaller constants stay in the graph file, where shape inference and folding can read them."""

ALIGNMENT_BYTES = 4096
"""Offsets of large tensors in the weights file: a page, so that ONNX Runtime can map them instead of copying."""

LARGE_BYTES = 16 * ALIGNMENT_BYTES
"""Smaller tensors are copied; a page of its own for each would be more than many of them hold."""

SMALL_ALIGNMENT_BYTES = 64
"""Offsets of the other tensors: a cache line."""


def places_read(graph: bytes) -> Iterator[tuple[int, int]]:
    """Offset and length of every weight that a graph file reads from its weights file."""
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
        self.content = bytearray()
        self.offsets: dict[str, int] = {}

    @classmethod
    def read_by(cls, name: str, content: bytes, graphs: Iterable[bytes]) -> "WeightsFile":
        """A file as it is: what some graphs read of it is where it is, whatever else the file holds."""
        weights = cls(name)
        weights.content.extend(content)
        for offset, length in sorted({place for graph in graphs for place in places_read(graph)}):
            weights.offsets.setdefault(hashlib.sha256(content[offset : offset + length]).hexdigest(), offset)
        return weights

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
