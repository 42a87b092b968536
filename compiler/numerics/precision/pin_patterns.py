"""Matches the patterns by which recipes pin nodes: by node name, by operator, or by module of the model."""

import fnmatch
from collections.abc import Sequence

import onnx_ir as ir

from compiler.base.did_you_mean import did_you_mean
from compiler.errors import RecipeError
from compiler.graph import model as graphs


def pinned_by(nodes: Sequence[ir.Node], patterns: Sequence[str], option: str) -> dict[str, str]:
    """Return the pattern that pins each node, by node name; nodes that no pattern matches are absent.

    Args:
        nodes: the nodes of the graph.
        patterns: a name with wildcards, `op:Softmax`, or `scope:layers.0.*` for a module and everything below it.
        option: name of the pass's option, for messages.

    Raises:
        RecipeError: a pattern is malformed or matches no node.
    """
    patterns_of: dict[str, str] = {}
    for pattern in patterns:
        key, _, wanted = pattern.rpartition(":")
        if key not in ("", "op", "scope"):
            raise RecipeError(f"{option}: expected name, op:... or scope:..., got {pattern!r}", cure="mend the pattern")
        fitting = [node for node in nodes if _fits(node, key, wanted)]
        if not fitting:
            known = {
                node.op_type if key == "op" else graphs.scope_of(node) if key else str(node.name) for node in nodes
            }
            near = did_you_mean(wanted, known).split(" known:")[0]
            raise RecipeError(f"{option}: expected a pattern that fits a node, got {pattern!r}", cure=near[:300])
        patterns_of |= {str(node.name): pattern for node in fitting}
    return patterns_of


def _fits(node: ir.Node, key: str, wanted: str) -> bool:
    if key == "op":
        return node.op_type == wanted
    if key == "scope":
        scope = graphs.scope_of(node)
        return fnmatch.fnmatchcase(scope, wanted) or fnmatch.fnmatchcase(scope, f"{wanted}.*")
    return fnmatch.fnmatchcase(str(node.name), wanted)
