"""Finds what Qualcomm's HTP is known not to compute as ONNX defines it, before the vendor is asked.

The provider refuses what the device lacks, and names it; what it always refuses stands here, too, so that it is known
where the toolchain is not installed. The rest it compiles, and computes otherwise: the simulator of onnxruntime-qnn
2.7.0 has shown it on small graphs, beside ONNX Runtime.
"""

from collections.abc import Callable, Mapping

import onnx_ir as ir

from compiler.errors import Location, Refused
from compiler.graph import model as graphs

MOST_AXES = 5

INTEGER_IMAGES = frozenset({ir.DataType.UINT8, ir.DataType.INT8})


LEFT_TO_CPU = ("DFT", "Erf", "If", "Softsign", "Trilu")
"""Operators that the provider of onnxruntime-qnn 2.7.0 refuses in every form that was tried."""

OF_INTEGERS = ("DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear")
"""Operators that passes write for CPUs around products alone, which the provider refuses."""


def _pads_with_edges(node: ir.Node) -> str:
    mode = graphs.attribute(node, "mode")
    return "" if mode in (None, "constant") else f"Pad with mode {mode}, which the HTP computes as zeros"


def _casts_bytes(node: ir.Node) -> str:
    source = node.inputs[0]
    if source is None or source.dtype not in INTEGER_IMAGES:
        return ""
    return f"Cast from {source.dtype.name}, whose numbers come back as 0 and 1"


def _rounds(node: ir.Node) -> str:
    return "Round, which the HTP computes with another neighbour for some numbers"


MISCOMPILED: Mapping[str, Callable[[ir.Node], str]] = {
    "Cast": _casts_bytes,
    "Pad": _pads_with_edges,
    "Round": _rounds,
}
"""By operator what says why a node is not computed as it is written; an empty text where it is."""


def require_taken(model: ir.Model, graph: str) -> None:
    """Refuse the first node that the device does not compute as it is written.

    Args:
        model: a graph with types and shapes on all values.
        graph: name of the graph.

    Raises:
        Refused: names operator, node and source line.
    """
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        wrong = _wrong_with(node)
        if wrong:
            raise Refused(
                f"expected what the HTP computes as it is written, got {wrong}",
                cure="write it with other operators in the model, or build for another target",
                place=Location(
                    stage="qnn", graph=graph, node=str(node.name), op=node.op_type, source=graphs.source_of(node)
                ),
            )


def _wrong_with(node: ir.Node) -> str:
    for value in (*node.inputs, *node.outputs):
        if value is None:
            continue
        if value.dtype == ir.DataType.DOUBLE:
            return f"float64 in {value.name}"
        if value.shape is not None and len(value.shape) > MOST_AXES:
            return f"{len(value.shape)} axes of {value.name}, where it has {MOST_AXES} at most"
    if graphs.is_op(node, *LEFT_TO_CPU):
        return f"{node.op_type}, which the vendor leaves to the CPU"
    if graphs.is_op(node, *OF_INTEGERS):
        return f"{node.op_type}: 8-bit integers are not written for this target"
    return MISCOMPILED[node.op_type](node) if graphs.is_op(node, *MISCOMPILED) else ""
