"""Writes and reads a graph as ONNX files: its structure, and its large weights in a file beside it."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from compiler.base.pieces import Content, Pieces, flat
from compiler.graph.runners.mapped_weights import mapped
from compiler.graph.runners.structure import Structure, with_weights_placed
from compiler.graph.stages import Array

INLINE_BYTES = 2**20
"""Smaller constants that the structure holds stay in it."""

ALIGNMENT_BYTES = 64
"""Of the offset of every weight, so that it can be read where it is mapped."""


def stored(structure: Structure, name: str) -> dict[str, Content]:
    """Return the files of a graph by name: `<name>.onnx`, and `<name>.weights` where it has large weights."""
    parts, offsets, end = list[memoryview](), dict[str, int](), 0

    def place(digest: str, array: Array, tensor: onnx.TensorProto) -> dict[str, str]:
        nonlocal end
        data = flat(array)
        if digest not in offsets:
            gap = -end % ALIGNMENT_BYTES
            parts.extend((memoryview(bytes(gap)), data))
            offsets[digest] = end + gap
            end = offsets[digest] + data.nbytes
        return {"location": f"{name}.weights", "offset": str(offsets[digest]), "length": str(data.nbytes)}

    content = with_weights_placed(structure, place, INLINE_BYTES)
    return {f"{name}.onnx": content, **({f"{name}.weights": Pieces(parts)} if parts else {})}


def read_stored(path: Path) -> ir.Model:
    """Return the graph that `stored` wrote; its large weights are mapped, and stay readable without the files."""
    proto = onnx.load(path, load_external_data=False)
    model = ir.from_proto(proto)
    external = {tensor.name: tensor for tensor in proto.graph.initializer if tensor.external_data}
    if not external:
        return model
    with path.with_suffix(".weights").open("rb") as file:
        content = np.frombuffer(mapped(file), np.uint8)
    for name, tensor in external.items():
        told = {entry.key: entry.value for entry in tensor.external_data}
        start, kind = int(told["offset"]), ir.DataType(tensor.data_type).numpy()
        array = content[start : start + int(told["length"])].view(kind).reshape(tuple(tensor.dims))
        model.graph.initializers[name].const_value = ir.tensor(array, name=name)
    return model
