"""Graphs of the zoo on disk: the structure and its constants; trained weights are drawn when the graph is loaded.

What differs between two exports of one model with different parameters follows from them; it is kept as shape, mean,
deviation and range only, and drawn with a seed of its name. Everything else (tables of positions, buckets, masks,
frequencies, windows) is kept as it is.
"""

import json
import lzma
import zlib
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.stages import Array

GRAPHS = Path(__file__).parent / "graphs"

DRAWN_KEY = "zoo.drawn"
"""Metadata of the graph: the weights to draw, as JSON."""


def path_of(name: str) -> Path:
    """The file of a family's graph."""
    return GRAPHS / f"{name}.onnx.xz"


def pack(model: ir.Model, other: ir.Model) -> bytes:
    """A file's content.

    Args:
        model: the graph of a module.
        other: the graph of the same module with other parameters.

    Raises:
        ValueError: the two differ in more than the contents of float weights.
    """
    graph, weights = model.graph, {}
    others = {name: graphs.array_of(value) for name, value in other.graph.initializers.items()}
    if [(node.op_type, len(node.inputs)) for node in graph] != [(n.op_type, len(n.inputs)) for n in other.graph]:
        raise ValueError("expected one structure for any parameters, got two; do not branch on the values of weights")
    for name, value in list(graph.initializers.items()):
        array, twin = graphs.array_of(value), others.get(name)
        assert array is not None
        if twin is None or twin.shape != array.shape or twin.dtype != array.dtype:
            raise ValueError(f"expected the weight {name} in both graphs, got it in one")
        if np.array_equal(array, twin, equal_nan=True):
            continue
        if array.dtype != np.float32:
            raise ValueError(f"expected trained weights in float32, got {name} in {array.dtype}")
        statistics = (array.mean(), array.std(), array.min(), array.max())
        weights[name] = [list(array.shape), *(float(f"{number:.4g}") for number in statistics)]
    structure = graphs.clone(model)
    for name in weights:
        value = structure.graph.initializers.pop(name)
        value.const_value = None
        structure.graph.inputs.append(value)
    graphs.forget_shapes(structure)
    for output in structure.graph.outputs:
        output.shape = None
    structure.metadata_props[DRAWN_KEY] = json.dumps(weights)
    return lzma.compress(graphs.serialized(structure), format=lzma.FORMAT_XZ, preset=9)


def unpack(content: bytes) -> ir.Model:
    """The graph of a file, with its weights drawn. Its values have no shapes yet."""
    model = ir.from_proto(onnx.load_model_from_string(lzma.decompress(content)))
    drawn = json.loads(model.metadata_props.pop(DRAWN_KEY))
    for name, (shape, *statistics) in drawn.items():
        value = next(value for value in model.graph.inputs if value.name == name)
        model.graph.inputs.remove(value)
        array = draw(name, tuple(shape), *statistics)
        value.const_value = ir.tensor(array, name=name)
        value.shape, value.dtype = ir.Shape(array.shape), ir.DataType.FLOAT
        model.graph.register_initializer(value)
    return model


def draw(name: str, shape: tuple[int, ...], mean: float, deviation: float, low: float, high: float) -> Array:
    """A weight of the given mean and deviation, inside the range of the original, the same on every machine."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    drawn = mean + deviation * rng.standard_normal(shape)
    return np.clip(drawn, low, high).astype(np.float32)


def load(name: str) -> ir.Model:
    """The graph of a family."""
    return unpack(path_of(name).read_bytes())
