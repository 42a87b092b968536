"""Rewrites Where on booleans as And, Or and Not, because ONNX defines a boolean Where and runtimes lack it.

Before:
    y = Where(condition, a, b)                                       # a and b of type bool
After:
    y = Or(And(condition, a), And(Not(condition), b))
"""

import onnx_ir as ir

from compiler.graph import model as graphs

STAMP = "capture"


def select_truths(model: ir.Model) -> None:
    """Rewrite every Where of booleans by And and Or, in place."""
    for node in graphs.nodes_of(model):
        output = node.outputs[0]
        if not graphs.is_op(node, "Where") or output.dtype != ir.DataType.BOOL:
            continue
        insert = graphs.Inserter(model, STAMP, before=node)
        condition, first, second = node.inputs
        name = str(output.name)
        chosen = insert.op("And", [condition, first], name=f"{name}_chosen")
        others = insert.op("Not", [condition], name=f"{name}_others")
        left = insert.op("And", [others, second], name=f"{name}_left")
        graphs.take_over(model, output, insert.op("Or", [chosen, left], name=f"{name}_selected", shape=output.shape))
        model.graph.remove(node, safe=True)
