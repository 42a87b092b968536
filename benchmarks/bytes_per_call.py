"""Computes the bytes that one call of a graph reads and writes, from its file and the manifest alone.

weights   all constants of the file, each once: those of a large graph are in no cache from one call to the next
states    what is fed, and what comes back, in all rows
values    what every node reads of other nodes' results, and writes; a runtime that fuses nodes moves less. Of two
          branches it is the one that moves less, as that of a stream that has begun, and of full caches
"""

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operator_costs import Sizes, bytes_moved, bytes_of
from runtime_lite.format.manifest import Graph, Tensor, bucket_name, static_shape, tensor_bytes


@dataclasses.dataclass(frozen=True)
class Moved:
    """The bytes of one call.

    Attributes:
        bucket: sizes of the bucket.
        fed: states that the call reads.
        returned: states that it returns.
        weights: constants.
        values: inputs and outputs of nodes.
    """

    bucket: str
    fed: int
    returned: int
    weights: int
    values: int


def bytes_per_call(bundle: Path, graph: Graph) -> Iterator[Moved]:
    """Yield the bytes of every bucket of a graph, in the order of the manifest.

    Args:
        bundle: folder of a bundle.
        graph: one of its graphs.
    """
    for artifact in graph.artifacts:
        model = ir.load(bundle / artifact.file)
        graphs.infer_shapes(model)
        yield Moved(
            bucket_name(artifact.sizes),
            _of_states(graph.inputs, artifact.sizes),
            _of_states(graph.outputs, artifact.sizes),
            bytes_of(model.graph.initializers.values(), {}),
            _of_nodes(model.graph, artifact.sizes),
        )


def _of_nodes(graph: Iterable[ir.Node], sizes: Sizes) -> int:
    total = 0
    for node in graph:
        branches = [held.as_graph() for held in node.attributes.values() if held.type == ir.AttributeType.GRAPH]
        total += min((_of_nodes(branch, sizes) for branch in branches), default=bytes_moved(node, sizes))
    return total


def _of_states(tensors: Iterable[Tensor], sizes: Sizes) -> int:
    states = (each for each in tensors if each.role == "state")
    return sum(tensor_bytes(static_shape(each.shape, sizes), each.dtype) for each in states)
