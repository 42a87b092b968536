"""Replaces an If on a constant condition by the nodes of its branch, with new names for nodes and weights.

    y, z = If(True)<then_branch = {a = Neg(x)  b = Abs(a)  -> a, b}>     ->  a = Neg(x)  b = Abs(a)  y = a  z = b

The other branch goes with the If, and with it what nothing else reads.
"""

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.rewriting.simplification.rules import Candidate


def chosen_branch(candidate: Candidate) -> list[ir.Value] | None:
    """Return the values that an If's outputs equal when its condition is constant; None for every other node.

    The nodes of the branch are moved in front of the If, and its weights to the graph.
    """
    node = candidate.node
    chosen = candidate.constant(0) if graphs.is_op(node, "If") else None
    if chosen is None or chosen.size != 1:
        return None
    branch = node.attributes["then_branch" if chosen.reshape(-1)[0] else "else_branch"].as_graph()
    results = list(branch.outputs)
    branch.outputs.clear()
    _move_weights(candidate, branch)
    _move_nodes(candidate, branch)
    return results


def _move_weights(candidate: Candidate, branch: ir.Graph) -> None:
    graph = candidate.model.graph
    for name in list(branch.initializers):
        value = branch.initializers.pop(name)
        value.name = graphs.fresh_name(graph, name)
        graph.register_initializer(value)


def _move_nodes(candidate: Candidate, branch: ir.Graph) -> None:
    graph, around = candidate.model.graph, candidate.node
    nodes = list(branch)
    branch.remove(nodes)
    for node in nodes:
        for output in node.outputs:
            output.name = output.name and graphs.fresh_name(graph, output.name)
        node.name = f"{around.name}_{node.name or f'{node.op_type}_{node.outputs[0].name}'}"
        if source := graphs.source_of(around):
            node.metadata_props.setdefault(graphs.SOURCE_KEY, source)
        graph.insert_before(around, node)
