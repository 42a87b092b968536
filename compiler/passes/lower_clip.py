"""Rewrites Clip over integers as Max and Min.

Before:
    y = Clip(x, least, most)
After:
    y = Min(Max(x, least), most)

Some parsers document Clip for floating point only, but Max and Min for integers, too. Models clip lengths and
positions.

Requires: nothing.
Ensures: no Clip over INT32 or INT64.
Keeps: Clip over other types.
Numerics: exact; where the bounds contradict each other both give the upper one.
Source: definition of Clip, ONNX specification.
"""

import dataclasses
from typing import ClassVar

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Outcome

WHOLE = frozenset({ir.DataType.INT32, ir.DataType.INT64})


@dataclasses.dataclass(frozen=True)
class LowerClip:
    """What Clip computes over whole numbers, by other operators."""

    name: ClassVar[str] = "lower_clip"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Rewrite Clip of integers as Max and Min, in place."""
        nodes = ir.traversal.RecursiveGraphIterator(lowered.model.graph)
        found = [node for node in nodes if graphs.is_op(node, "Clip") and node.outputs[0].dtype in WHOLE]
        for node in found:
            self._write(lowered.model, node)
        return Outcome(lowered, len(found), len(found))

    def _write(self, model: ir.Model, node: ir.Node) -> None:
        """Write Max and Min for the bounds of a Clip; the node itself becomes the last of them."""
        data, old = node.inputs[0], node.outputs[0]
        assert data is not None
        bounds = zip(("Max", "Min"), [*node.inputs[1:], None, None], strict=False)
        steps = [(name, bound) for name, bound in bounds if bound is not None]
        insert = graphs.Inserter(model, self.name, before=node)
        for name, bound in steps[:-1]:
            data = insert.op(name, [data, bound], name=f"{old.name}_{name.lower()}", shape=old.shape)
        name, operands = (steps[-1][0], [data, steps[-1][1]]) if steps else ("Identity", [data])
        node.metadata_props[graphs.PASS_KEY] = self.name
        node.op_type = name
        node.resize_inputs(len(operands))
        for index, value in enumerate(operands):
            node.replace_input_with(index, value)
