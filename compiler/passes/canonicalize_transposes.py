"""Replaces each chain Reshape, Transpose, Reshape that swaps the last two axes by one Transpose.

Before:
    a = Reshape(x [batch, heads, time, 16], [-1, time, 16]); b = Transpose(a, (0, 2, 1))
    y = Reshape(b, [batch, heads, 16, time])
After:
    y = Transpose(x, (0, 1, 3, 2))

Requires: symbolic shapes.
Ensures: exported attention no longer merges the batch axis with the heads.
Keeps: any other chain of reshapes and transposes, and chains whose middle is read elsewhere.
Numerics: exact; only movement.
Source: the torch exporter's decomposition of scaled dot-product attention; merging leading axes commutes with
    swapping the last two.
"""

import dataclasses
from typing import ClassVar

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.axes import perm_of
from compiler.graph.stages import Lowered, Outcome
from compiler.passes.window_states import rename_output


@dataclasses.dataclass(frozen=True)
class CanonicalizeTransposes:
    """One spelling for swapping the last two axes."""

    name: ClassVar[str] = "canonicalize_transposes"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Rewrite transposes of the last two axes through a merged leading axis as one Transpose."""
        count = 0
        for model in lowered.models:
            graphs.infer_shapes(model)
            for node in graphs.nodes_of(model):
                value = _swapped(node)
                if value is not None:
                    _write(model, node, value)
                    count += 1
            if count:
                graphs.prune(model)
        return Outcome(lowered, matched=count, rewritten=count)


def _swapped(last: ir.Node) -> ir.Value | None:
    """Return the value whose last two axes the chain ending in `last` swaps; None for other chains."""
    turn = _only_producer(last, "Reshape")
    if turn is None or not graphs.is_op(turn, "Transpose") or perm_of(turn, 3) != (0, 2, 1):
        return None
    merge = _only_producer(turn, "Transpose")
    if merge is None or not graphs.is_op(merge, "Reshape"):
        return None
    value = merge.inputs[0]
    before = None if value is None else graphs.dims_of(value)
    merged, after = graphs.dims_of(merge.outputs[0]), graphs.dims_of(last.outputs[0])
    if before is None or merged is None or after is None or len(before) < 3 or len(merged) != 3:
        return None
    same = merged[1:] == before[-2:] and after == (*before[:-2], before[-1], before[-2])
    return value if same else None


def _only_producer(node: ir.Node, op: str) -> ir.Node | None:
    """Return the producer of the first input of a node of this type, if nothing else reads that input."""
    value = node.inputs[0] if graphs.is_op(node, op) else None
    if value is None or len(value.uses()) != 1 or value.is_graph_output():
        return None
    return value.producer()


def _write(model: ir.Model, last: ir.Node, value: ir.Value) -> None:
    assert value.shape is not None
    rank = len(value.shape)
    output = last.outputs[0]
    insert = graphs.Inserter(model, CanonicalizeTransposes.name, before=last)
    perm = (*range(rank - 2), rank - 1, rank - 2)
    dims = list(value.shape)
    transposed = insert.op(
        "Transpose",
        [value],
        {"perm": perm},
        name=f"{output.name}_turned",
        shape=[*dims[:-2], dims[-1], dims[-2]],
        dtype=output.dtype,
    )
    if output.is_graph_output():
        rename_output(model, output, transposed, str(output.name))
    ir.convenience.replace_all_uses_with(output, transposed)
