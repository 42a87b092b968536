"""Refuses nodes that Qualcomm's HTP is known not to compute as ONNX defines them, before the vendor is called.

Source: `operators.json`, what onnxruntime-qnn 2.7.0 made of single operators, beside ONNX Runtime; a command asks it
about all of them again. The provider refuses some; others it compiles, and its simulator computes them otherwise.
"""

from pathlib import Path

import onnx_ir as ir

from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.targets.operator_table import read_rows, why_not

TABLE = Path(__file__).with_name("operators.json")

OF_INTEGERS = ("DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear")
"""Operators that passes write for CPUs around products alone, which the provider refuses."""


def require_taken(model: ir.Model, graph: str, precision: str) -> None:
    """Refuse the first node that the device does not compute as it is written.

    Args:
        model: a graph in float32 with types and shapes on all values.
        graph: name of the graph.
        precision: what the device computes it in.

    Raises:
        Refused: names operator, node and source line.
    """
    rows = read_rows(TABLE, precision)
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        wrong = why_not(node, rows)
        if graphs.is_op(node, *OF_INTEGERS):
            wrong = f"{node.op_type}, written for a CPU; a precision of the target rounds the whole graph"
        if wrong:
            raise Refused(
                f"expected what the HTP computes in {precision} as it is written, got {wrong}",
                cure="write it with other operators in the model, or build for another target",
                place=Location(
                    stage="qnn", graph=graph, node=str(node.name), op=node.op_type, source=graphs.source_of(node)
                ),
            )
