"""Refuses ONNX files on which a library would fail without a clear message, exhaust the memory, or never end."""

import math
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from compiler.errors import Location, RecipeError, Refused

MAX_BYTES = 4 * 2**30
"""Of one constant that a node makes."""

MAX_TRIPS = 1_000_000


def check_limits(model: onnx.ModelProto, shown: str, place: Location) -> None:
    """Require that a model has nothing that later steps cannot handle.

    Raises:
        RecipeError: external data has a negative offset, or nodes form a cycle.
        Refused: there are sparse initializers, unbounded constants, or loops without a constant trip count.
    """
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key in ("offset", "length") and not entry.value.isdecimal():
                raise RecipeError(
                    f"expected weights of {tensor.name!r} at an {entry.key} from 0 in {shown}, got {entry.value!r}",
                    cure="export the model again",
                    place=place,
                )
    if model.graph.sparse_initializer:
        name = model.graph.sparse_initializer[0].values.name
        raise Refused(
            f"expected dense weights in {shown}, got the sparse initializer {name!r}",
            cure="store it densely before exporting",
            place=place,
        )
    _check_order(model.graph, shown, place)
    for node, constants in _nodes(model.graph, {}):
        named = node.name or (node.output[0] if node.output else node.op_type)
        if node.op_type == "ConstantOfShape":
            sizes = constants.get(node.input[0], np.zeros(0))
            if sizes.size and math.prod(int(size) for size in sizes.flat) * 4 > MAX_BYTES:
                raise Refused(
                    f"expected constants of at most {MAX_BYTES} bytes, got shape {[int(size) for size in sizes.flat]}",
                    cure="make it smaller, or let it broadcast",
                    place=place,
                ).at(node=named, op=node.op_type)
        if node.op_type == "Loop":
            trips = constants.get(node.input[0])
            if trips is None or trips.size != 1 or int(trips.flat[0]) > MAX_TRIPS:
                got = "one that may run without end" if trips is None or trips.size != 1 else f"{int(trips.flat[0])}"
                raise Refused(
                    f"expected a Loop with a constant number of trips, at most {MAX_TRIPS}, got {got}",
                    cure="give it a constant number of trips, or unroll it before exporting",
                    place=place,
                ).at(node=named, op=node.op_type)


def _check_order(graph: onnx.GraphProto, shown: str, place: Location) -> None:
    """Refuse a graph with a cycle, naming a node of it."""
    makers = {name: number for number, node in enumerate(graph.node) for name in node.output if name}
    done: set[int] = set()
    for start in range(len(graph.node)):
        trail, stack = set[int](), [(start, False)]
        while stack:
            number, is_left = stack.pop()
            if is_left:
                trail.discard(number)
                done.add(number)
                continue
            if number in done:
                continue
            node = graph.node[number]
            if number in trail:
                raise RecipeError(
                    f"expected nodes in an order in {shown}, got a cycle through node "
                    f"{node.name or node.output[0]!r} ({node.op_type}), which waits for itself",
                    cure="export the model again",
                    place=place,
                )
            trail.add(number)
            stack.append((number, True))
            stack += [(makers[name], False) for name in node.input if name in makers]


def _nodes(
    graph: onnx.GraphProto,
    around: dict[str, np.ndarray],
) -> Iterator[tuple[onnx.NodeProto, dict[str, np.ndarray]]]:
    """Yield every node, those of subgraphs included, with the small integer constants in scope."""
    known = dict(around)
    for tensor in graph.initializer:
        if tensor.data_type == onnx.TensorProto.INT64 and not tensor.external_data and math.prod(tensor.dims) <= 64:
            known[tensor.name] = numpy_helper.to_array(tensor)
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            tensor = node.attribute[0].t
            if tensor.data_type == onnx.TensorProto.INT64 and math.prod(tensor.dims) <= 64:
                known[node.output[0]] = numpy_helper.to_array(tensor)
        yield node, known
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _nodes(inner, known)
