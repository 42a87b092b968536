"""Opens ONNX Runtime sessions on the CPU, by default without optimization, and runs models or single nodes in them."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from compiler.graph import model as graphs
from compiler.graph.runners.half_precision import with_rounding
from compiler.graph.runners.structure import Structure, outside, split, written
from compiler.graph.stages import Array

PROVIDERS = ["CPUExecutionProvider"]

MOST_PACKED_BYTES = 2**30
"""Weights that are larger together are read where they lie; of others a session holds a copy, as kernels read them."""

UNPACKED = ("session.disable_prepacking", "1")
"""The option of a session that reads weights where they lie."""


class Session(Protocol):
    """What runs one graph: the shape of `onnxruntime.InferenceSession`."""

    def run(self, names: Sequence[str] | None, feeds: dict[str, Array]) -> list[Array]:
        """Return outputs in the order of `names`."""
        ...


def open_session(
    model: bytes | str, *, optimize: bool = False, threads: int = 1, keeps_memory: bool = True
) -> onnxruntime.InferenceSession:
    """Return a CPU session of a model.

    Args:
        model: serialized model, or the path of a model file.
        optimize: whether ONNX Runtime may rewrite the graph. Off when passes are compared, on for what ships.
        threads: intra-op threads.
        keeps_memory: whether memory of a run is kept for the next one.
    """
    options = _options(optimize=optimize, threads=threads, keeps_memory=keeps_memory)
    return onnxruntime.InferenceSession(model, options, providers=PROVIDERS)


def _options(*, optimize: bool, threads: int = 1, keeps_memory: bool = True) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.enable_cpu_mem_arena = options.enable_mem_pattern = keeps_memory
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what it raises says it as well
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
    return options


@dataclasses.dataclass(frozen=True)
class _Fed:
    """A session that is fed the weights of its graph in every call: it reads them where they lie and holds none.

    Attributes:
        session: of the graph, whose large weights are inputs.
        weights: by name.
    """

    session: onnxruntime.InferenceSession
    weights: Mapping[str, Array]

    def run(self, names: Sequence[str] | None, feeds: dict[str, Array]) -> list[Array]:
        found: list[Array] = self.session.run(names, {**feeds, **self.weights})
        return found


def open_model(model: ir.Model, *, optimize: bool = False) -> Session:
    """Return a CPU session of a model in memory, on one thread; `optimize` as in `open_session`."""
    return open_structure(split(model), optimize=optimize)


def open_structure(structure: Structure, *, optimize: bool = False) -> Session:
    """Return a CPU session of a graph with separate weights, on one thread; `optimize` as in `open_session`."""
    if structure.nbytes > MOST_PACKED_BYTES and not optimize:
        return _fed(structure)
    options = _options(optimize=optimize)
    tensors = outside(structure.proto)
    values = [
        onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(structure.array_of(tensor))) for tensor in tensors
    ]
    options.add_external_initializers([tensor.name for tensor in tensors], values)
    if structure.nbytes > MOST_PACKED_BYTES:
        options.add_session_config_entry(*UNPACKED)
    session: Session = onnxruntime.InferenceSession(structure.content, options, providers=PROVIDERS)
    return session


def _fed(structure: Structure) -> Session:
    proto, tensors = onnx.ModelProto(), outside(structure.proto)
    proto.CopyFrom(structure.proto)
    names = {tensor.name for tensor in tensors}
    remaining = [tensor for tensor in proto.graph.initializer if tensor.name not in names]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(remaining)
    for tensor in tensors:
        kind = ir.TensorType(ir.DataType(tensor.data_type))
        proto.graph.input.append(ir.to_proto(ir.Value(name=tensor.name, type=kind, shape=ir.Shape(tensor.dims))))
    options = _options(optimize=False, keeps_memory=False)
    session = onnxruntime.InferenceSession(written(proto), options, providers=PROVIDERS)
    return _Fed(session, {tensor.name: np.ascontiguousarray(structure.array_of(tensor)) for tensor in tensors})


def session_of(model: ir.Model, *, optimize: bool = False) -> Session:
    """Return a session that rounds half precision as the graph says; `optimize` as in `open_session`."""
    prepared = model if optimize else with_constants_dequantized(model)
    return open_model(with_rounding(prepared), optimize=optimize)


def run_model(model: ir.Model, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Run a model and return all outputs by name."""
    names = [str(output.name) for output in model.graph.outputs]
    return dict(zip(names, open_model(model).run(names, dict(feeds)), strict=True))


def evaluate_node(node: ir.Node, operands: Sequence[Array]) -> list[Array]:
    """Return the outputs of one node for constant operands."""
    inputs = [
        ir.val(f"x{i}", ir.DataType.from_numpy(x.dtype), x.shape) for i, x in enumerate(map(np.asarray, operands))
    ]
    outputs = [ir.Value(name=f"y{i}", type=value.type) for i, value in enumerate(node.outputs)]
    copy = ir.Node(
        node.domain, node.op_type, inputs, list(node.attributes.values()), outputs=outputs, version=node.version
    )
    opsets = dict(node.graph.opset_imports) if node.graph is not None else {"": 20}
    graph = ir.Graph(inputs, outputs, nodes=[copy], opset_imports=opsets, name="one_node")
    result = run_model(ir.Model(graph, ir_version=10), {f"x{i}": np.asarray(x) for i, x in enumerate(operands)})
    return [result[f"y{i}"] for i in range(len(outputs))]


def with_constants_dequantized(model: ir.Model) -> ir.Model:
    """Return the graph with dequantized constants in place of integer ones; unchanged where it has none.

    ONNX Runtime without optimization dequantizes them again in every call.
    """
    if not any(_dequantizes_a_constant(node) for node in model.graph):
        return model
    copy = graphs.clone(model)
    for node in [node for node in copy.graph if _dequantizes_a_constant(node)]:
        operands = [array for array in map(graphs.array_of, node.inputs) if array is not None]
        insert = graphs.Inserter(copy, "with_constants_dequantized", before=node)
        graphs.take_over(copy, node.outputs[0], insert.constant(evaluate_node(node, operands)[0], "dequantized"))
    graphs.prune(copy)
    return copy


def _dequantizes_a_constant(node: ir.Node) -> bool:
    return graphs.is_op(node, "DequantizeLinear") and all(
        graphs.array_of(value) is not None for value in node.inputs if value is not None
    )
