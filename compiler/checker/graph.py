"""A graph by names, and parts of it that run by themselves."""

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import helper, numpy_helper  # noqa: TID251 - nothing of the prover's vocabulary

Array = npt.NDArray[Any]
Record = Mapping[str, Any]


class Rejected(Exception):
    """The certificate does not hold; the message names node, step and what differs."""


class Graph:
    """A graph by names."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.nodes = {node.name: node for node in model.graph.node}
        self.position = {node.name: at for at, node in enumerate(model.graph.node)}
        self.producers = {output: node for node in model.graph.node for output in node.output if output}
        self.initializers = {each.name: each for each in model.graph.initializer}
        self.inputs = {each.name: each for each in model.graph.input if each.name not in self.initializers}
        self.outputs = [each.name for each in model.graph.output]
        self.types = {
            each.name: each.type
            for each in itertools.chain(model.graph.value_info, model.graph.input, model.graph.output)
        }
        self.opsets = list(model.opset_import)

    def constant(self, name: str) -> Array | None:
        """The content of an initializer or Constant node."""
        if name in self.initializers:
            return numpy_helper.to_array(self.initializers[name])
        node = self.producers.get(name)
        if node is not None and node.op_type == "Constant" and node.attribute[0].HasField("t"):
            return numpy_helper.to_array(node.attribute[0].t)
        return None

    def dims(self, name: str) -> list[str | int]:
        """The shape of a graph input."""
        return [dim.dim_param or dim.dim_value for dim in self.inputs[name].type.tensor_type.shape.dim]

    def part(self, wanted: Sequence[str], given: Mapping[str, int]) -> tuple[onnx.ModelProto, list[str]]:
        """The nodes that compute `wanted` from graph inputs and `given` values (name to element type); its inputs."""
        seen: set[str] = set()
        nodes: dict[str, onnx.NodeProto] = {}
        sources: list[str] = []
        constants: list[onnx.TensorProto] = []
        stack = list(wanted)
        while stack:
            name = stack.pop()
            if not name or name in seen:
                continue
            seen.add(name)
            if name in given or name in self.inputs:
                sources.append(name)
            elif name in self.initializers:
                constants.append(self.initializers[name])
            elif name in self.producers:
                node = self.producers[name]
                nodes[node.name] = node
                stack += node.input
            else:
                raise Rejected(f"value {name!r} does not exist in the graph")
        order = sorted(nodes.values(), key=lambda node: self.position[node.name])
        inputs = [
            helper.make_tensor_value_info(
                name, given[name] if name in given else self.inputs[name].type.tensor_type.elem_type, None
            )
            for name in sorted(sources)
        ]
        graph = helper.make_graph(order, "part", inputs, [onnx.ValueInfoProto(name=name) for name in wanted], constants)
        return helper.make_model(graph, opset_imports=self.opsets, ir_version=10), sorted(sources)


def run_model(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Run a model on the CPU, unoptimised and on one thread."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(each) for each in session.run(None, dict(feeds))]


def digest(model: onnx.ModelProto, record: Record) -> bytes:
    """What makes a step distinct: operators, attributes, wiring, small constants, facts; no names and no weights."""
    names: dict[str, str] = {}
    hasher = hashlib.sha256()
    constants = {each.name: each for each in model.graph.initializer}
    for node in model.graph.node:
        hasher.update(f"{node.domain}:{node.op_type}".encode())
        for attribute in sorted(node.attribute, key=lambda each: each.name):
            hasher.update(attribute.SerializeToString())
        for name in [*node.input, "|", *node.output]:
            if name in constants:
                tensor = constants[name]
                content = numpy_helper.to_array(tensor)
                hasher.update(repr(content.shape).encode() + (content.tobytes() if content.size < 64 else b""))
            else:
                hasher.update(names.setdefault(name, str(len(names))).encode())
    facts = [record["in"], record["out"], record["needs"], record["in_shapes"], record["out_shapes"]]
    hasher.update(json.dumps(facts, sort_keys=True, default=str).encode())
    return hasher.digest()
