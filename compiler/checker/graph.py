"""Reads an ONNX graph by value names, and runs selected nodes of it on their own."""

import dataclasses
import functools
import hashlib
import itertools
import json
import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import helper, numpy_helper  # noqa: TID251 - nothing of the prover's vocabulary
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state  # type: ignore[import-untyped, unused-ignore]

Array = npt.NDArray[Any]
Record = Mapping[str, Any]


class Rejected(Exception):
    """The certificate does not hold; the message names node, step and what differs.

    Attributes:
        cure: what to do about it.
    """

    cure: ClassVar[str] = "report it: the prover and the checker disagree; nothing unproved is shipped"


class NoKernel(Rejected):
    """A step cannot be run here, so that nothing is known of its certificate."""

    cure = "compute it in float32, which has a kernel for every operator; what cannot be replayed is not shipped"


class Unanswered(Rejected):
    """A graph gives no answer to a feed, so nothing can be concluded about its certificate."""

    cure = "write at every input the numbers that callers feed, as in range: [0, 1023]; all of them must be answered"


class DoesNotRun(Exception):
    """A kernel fails on its inputs: an index beyond a table, sizes that do not fit."""


STOPPED = (ort_state.Fail, ort_state.InvalidArgument, ort_state.RuntimeException)


Weights = Mapping[str, Array]
"""What graphs refer to in the place of their large weights: content by the location that they name."""


class Graph:
    """A graph by names.

    Args:
        model: the graph.
        weights: content of the initializers that lie elsewhere.
    """

    def __init__(self, model: onnx.ModelProto, weights: Weights = MappingProxyType({})) -> None:
        self.weights = weights
        self.nodes = {node.name: node for node in model.graph.node}
        self.position = {node.name: position for position, node in enumerate(model.graph.node)}
        self.producers = {output: node for node in model.graph.node for output in node.output if output}
        self.initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        self.inputs = {value.name: value for value in model.graph.input if value.name not in self.initializers}
        self.outputs = [value.name for value in model.graph.output]
        self.types = {
            value.name: value.type
            for value in itertools.chain(model.graph.value_info, model.graph.input, model.graph.output)
        }
        self.opsets = list(model.opset_import)

    def constant(self, name: str) -> Array | None:
        """Return the content of an initializer or Constant node; None for other values."""
        if name in self.initializers:
            return numbers_of(self.initializers[name], self.weights)
        node = self.producers.get(name)
        if node is not None and node.op_type == "Constant" and node.attribute[0].HasField("t"):
            return numpy_helper.to_array(node.attribute[0].t)
        return None

    def dims(self, name: str) -> list[str | int]:
        """Return the shape of an input or output of the graph."""
        return [dim.dim_param or dim.dim_value for dim in self.types[name].tensor_type.shape.dim]

    @functools.cached_property
    def sizes(self) -> set[str]:
        """Return the axis names, and expressions of them, in the shapes of all values."""
        shapes = (each.tensor_type.shape for each in self.types.values() if each.HasField("tensor_type"))
        return {dim.dim_param for shape in shapes for dim in shape.dim if dim.dim_param}

    def part(self, wanted: Sequence[str], given: Mapping[str, int]) -> "Part":
        """Return the nodes that compute `wanted` from graph inputs and `given` values (name to element type).

        Raises:
            Rejected: the graph has no such value.
        """
        seen: set[str] = set()
        nodes: dict[str, onnx.NodeProto] = {}
        sources: dict[str, int] = {}
        constants: list[onnx.TensorProto] = []
        stack = list(wanted)
        while stack:
            name = stack.pop()
            if not name or name in seen:
                continue
            seen.add(name)
            if name in given or name in self.inputs:
                sources[name] = given[name] if name in given else self.inputs[name].type.tensor_type.elem_type
            elif name in self.initializers:
                constants.append(self.initializers[name])
            elif name in self.producers:
                node = self.producers[name]
                nodes[node.name] = node
                stack += read_by(node)
            else:
                raise Rejected(f"value {name!r} does not exist in the graph")
        order = sorted(nodes.values(), key=lambda node: self.position[node.name])
        return Part(order, dict(sorted(sources.items())), constants, list(wanted), self.opsets, self.weights)


def numbers_of(tensor: onnx.TensorProto, weights: Weights) -> Array:
    """Return the content of an initializer, embedded or external, in its declared type."""
    if not tensor.external_data:
        return numpy_helper.to_array(tensor)
    array = weights[tensor.external_data[0].value]
    kind, shape = helper.tensor_dtype_to_np_dtype(tensor.data_type), tuple(tensor.dims)
    if array.nbytes != math.prod(shape) * kind.itemsize:
        raise Rejected(f"constant {tensor.name!r} has the shape {list(shape)}, and its numbers {array.shape}")
    if (array.dtype, array.shape) == (kind, shape):
        return array
    return np.ascontiguousarray(array).reshape(-1).view(kind).reshape(shape)


def read_by(node: onnx.NodeProto) -> list[str]:
    """Return the values that a node reads, including those that its bodies read from the outer graph."""
    bodies = [body for each in node.attribute for body in ([each.g] if each.HasField("g") else each.graphs)]
    names = list(node.input)
    for body in bodies:
        own = {each.name for each in (*body.input, *body.initializer)} | {o for each in body.node for o in each.output}
        inside = [*(name for each in body.node for name in read_by(each)), *(each.name for each in body.output)]
        names += [name for name in inside if name not in own]
    return names


@dataclasses.dataclass(frozen=True)
class Opened:
    """A session that is fed large weights with every call, so that it reads them where they lie.

    Attributes:
        session: of the graph, whose large weights are inputs.
        outputs: names of the results.
        weights: by name.
    """

    session: onnxruntime.InferenceSession
    outputs: Sequence[str]
    weights: Weights

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Array]) -> list[Array]:
        """Run the graph and return results in the order of `names`."""
        return list(self.session.run(names, {**feeds, **self.weights}))


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """Some nodes of a graph that run by themselves.

    Attributes:
        nodes: in order.
        sources: element type per value that is read.
        constants: initializers that are read.
        wanted: values that are computed.
        opsets: of the graph.
        weights: content of the constants that lie elsewhere.
    """

    nodes: Sequence[onnx.NodeProto]
    sources: Mapping[str, int]
    constants: Sequence[onnx.TensorProto]
    wanted: Sequence[str]
    opsets: Sequence[onnx.OperatorSetIdProto]
    weights: Weights

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Run on the CPU, unoptimized and on one thread; feeds that are not read are ignored.

        Raises:
            DoesNotRun: a kernel fails; the message is the kernel's.
            NoKernel: there is no kernel for an operator with these element types.
            Rejected: these nodes form no valid graph.
        """
        session, feed = self._session, {name: feeds[name] for name in self.sources}
        try:
            results = session.run(None, feed)
        except STOPPED as error:
            raise DoesNotRun(str(error)) from None
        return [np.asarray(array) for array in results]

    def model(self, widened: Collection[str] = ()) -> onnx.ModelProto:
        """Return a model of these nodes, with references to its large weights and without declared shapes.

        Args:
            widened: wanted values that are given in float32.
        """
        inputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in self.sources.items()]
        names = {name: f"{name} in float32" if name in widened else name for name in self.wanted}
        casts = [helper.make_node("Cast", [name], [names[name]], to=onnx.TensorProto.FLOAT) for name in widened]
        results = [onnx.ValueInfoProto(name=names[name]) for name in self.wanted]
        graph = helper.make_graph([*self.nodes, *casts], "part", inputs, results, self.constants)
        return helper.make_model(graph, opset_imports=self.opsets, ir_version=10)

    @functools.cached_property
    def content(self) -> bytes:
        """Return the serialized model, with names in place of large weights."""
        return bytes(self.model().SerializeToString(deterministic=True))

    @functools.cached_property
    def _session(self) -> Opened:
        """Return the session, opened once for all draws, as that takes longer than to run a step.

        Results in bfloat16, a type that NumPy lacks, are given in float32, which holds all its numbers.
        """
        try:
            session = opened(self.model(), self.weights)
            results = zip(self.wanted, session.session.get_outputs(), strict=True)
            widened = {name for name, result in results if result.type == BFLOAT16}
            return opened(self.model(widened), self.weights) if widened else session
        except ort_state.NotImplemented as error:
            raise NoKernel(f"node {self.nodes[-1].name!r} cannot be run: {error}") from None
        except (*STOPPED, ort_state.InvalidGraph) as error:
            raise Rejected(f"ONNX Runtime does not open {sorted({n.op_type for n in self.nodes})}: {error}") from None

    def integers(self) -> set[int]:
        """Return the integers among small constants."""
        tensors = [*self.constants, *(each.t for node in self.nodes for each in node.attribute if each.HasField("t"))]
        arrays = [numpy_helper.to_array(each) for each in tensors if math.prod(each.dims) < SMALL]
        found = {float(number) for array in arrays if array.dtype.kind in "iuf" for number in array.reshape(-1)}
        found |= {float(each.i) for node in self.nodes for each in node.attribute if each.name == "value_int"}
        return {int(number) for number in found if number.is_integer()}

    def digest(self, record: Record) -> bytes:
        """Return a digest of a step: operators, attributes, wiring, small constants, facts; no names, no weights.

        Layers of one form differ in their weights alone, and so in the bounds of these. Where a record bounds the
        results, weights' bounds are included; else only their signs and whether they are finite.
        """
        names: dict[str, str] = {}
        hasher = hashlib.sha256()
        constants = {tensor.name: tensor for tensor in self.constants}
        for node in self.nodes:
            hasher.update(f"{node.domain}:{node.op_type}".encode())
            for attribute in sorted(node.attribute, key=lambda attribute_proto: attribute_proto.name):
                hasher.update(attribute.SerializeToString())
            for name in [*node.input, "|", *node.output]:
                if name in constants:
                    tensor = constants[name]
                    is_small = math.prod(tensor.dims) < SMALL
                    hasher.update(repr((list(tensor.dims), tensor.data_type)).encode())
                    hasher.update(numpy_helper.to_array(tensor).tobytes() if is_small else b"")
                else:
                    hasher.update(names.setdefault(name, str(len(names))).encode())
        weights = {tensor.name for tensor in self.constants if math.prod(tensor.dims) >= SMALL}
        facts_in = record["in"]
        if not any(map(_is_bounded, record["out"])):
            told = zip(record["inputs"], record["in"], strict=True)
            facts_in = [_without_sizes(fact) if fact and name in weights else fact for name, fact in told]
        facts = [facts_in, record["out"], record["needs"], record["in_shapes"], record["out_shapes"]]
        hasher.update(json.dumps(facts, sort_keys=True, default=str).encode())
        return hasher.digest()


BFLOAT16 = "tensor(bfloat16)"
"""As ONNX Runtime calls the type."""

SMALL = 64
"""Elements from which on a constant is a weight."""


def opened(model: onnx.ModelProto, weights: Weights) -> Opened:
    """Return a session on the CPU, unoptimized and on one thread, for a graph that may refer to weights."""
    fed, graph = onnx.ModelProto(), model.graph
    fed.CopyFrom(model)
    del fed.graph.initializer[:]
    fed.graph.initializer.extend(tensor for tensor in graph.initializer if not tensor.external_data)
    elsewhere = {tensor.name: tensor for tensor in graph.initializer if tensor.external_data}
    for tensor in elsewhere.values():
        fed.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.enable_cpu_mem_arena = False  # a step runs a few times; what it needed is not kept for more
    session = onnxruntime.InferenceSession(fed.SerializeToString(), options, providers=["CPUExecutionProvider"])
    held = {name: np.ascontiguousarray(numbers_of(tensor, weights)) for name, tensor in elsewhere.items()}
    return Opened(session, [value.name for value in graph.output], held)


def _is_bounded(fact: Record) -> bool:
    """Whether a record bounds results or their padding."""
    return any(math.isfinite(float(bound)) for _, low, high, _ in fact["contents"] for bound in (low, high))


def _without_sizes(fact: Record) -> Record:
    """Return a fact of a weight without its magnitudes: signs, infinities, NaN, whether it is constant."""
    contents = [[axes, _sign(low), _sign(high), low == high, nan] for axes, low, high, nan in fact["contents"]]
    return {**fact, "contents": contents}


def _sign(bound: float | str) -> float:
    number = float(bound)
    return number if math.isinf(number) else (number > 0) - (number < 0)
