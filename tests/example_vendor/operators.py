"""What the vendor's device computes, and a linter that says so before the vendor is called."""

import onnx_ir as ir

from compiler.errors import Location, Refused
from compiler.graph.model import source_of

RANKS = {"Add": (2, 1), "MatMul": (2, 2), "Relu": (2,)}
"""Operators, and the most axes that their inputs may have."""


def require_supported(model: ir.Model, graph: str) -> None:
    """Refuse the first node that the device does not compute.

    Raises:
        Refused: names operator, node and source line.
    """
    for node in model.graph:
        ranks = RANKS.get(node.op_type, ())
        shapes = [value.shape for value in node.inputs if value is not None]
        if len(ranks) == len(shapes) and all(
            shape is not None and len(shape) <= rank for shape, rank in zip(shapes, ranks, strict=True)
        ):
            continue
        raise Refused(
            f"expected one of {', '.join(RANKS)} on matrices, got {node.op_type} of {list(map(str, shapes))}",
            cure="keep it out of the graph, or build for another target",
            place=Location(stage="abacus", graph=graph, node=str(node.name), op=node.op_type, source=source_of(node)),
        )
