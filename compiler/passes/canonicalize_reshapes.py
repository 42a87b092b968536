"""Rewrites the target shape of every Reshape as a constant whose zeros copy the dimensions that it keeps.

Before:
    size = Shape(x)[1] + 16; target = Concat(batch, size, 4, 64); y = Reshape(x, target)
After:
    y = Reshape(x, [0, 0, 4, 64])      # 0 copies the input's dimension

Requires: symbolic shapes.
Ensures: the targets it rewrote name no axis length, so shape arithmetic that only served them disappears, and a leading
    axis may change its size.
Keeps: reshapes whose target cannot be written with copies, numbers and one -1.
Numerics: exact.
Source: Reshape in the ONNX operator specification (0 copies when allowzero is 0).
"""

import dataclasses
from typing import ClassVar

import onnx_ir as ir

from compiler.errors import Location
from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.operators.reshapes import copies_zeros
from compiler.graph.stages import Lowered, Outcome, Refusal


@dataclasses.dataclass(frozen=True)
class CanonicalizeReshapes:
    """One spelling for reshapes."""

    name: ClassVar[str] = "canonicalize_reshapes"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Rewrite every Reshape of the graph and of the first-call graph."""
        matched = rewritten = 0
        refused: list[Refusal] = []
        for model in lowered.models:
            graphs.infer_shapes(model)
            for node in graphs.nodes_of(model):
                if not graphs.is_op(node, "Reshape"):
                    continue
                matched += 1
                target = _target(node)
                if target is None:
                    place = Location(node=str(node.name), op="Reshape", source=graphs.source_of(node))
                    refused.append(Refusal("the target needs more than copies and one inferred dimension", place))
                elif _current(node) != target:
                    _write(model, node, target)
                    rewritten += 1
            if rewritten:
                graphs.prune(model)
        return Outcome(lowered, matched, rewritten, tuple(refused))


def _target(node: ir.Node) -> tuple[int, ...] | None:
    before = graphs.dims_of(node.inputs[0]) if node.inputs[0] is not None else None
    after = graphs.dims_of(node.outputs[0])
    if before is None or after is None:
        return None
    target: list[int] = []
    for index, dim in enumerate(after):
        if index < len(before) and before[index] == dim and before[index] != 0 and _agree(before, after, index):
            target.append(0)
        elif isinstance(dim, int) and dim > 0:
            target.append(dim)
        else:
            target.append(-1)
    return tuple(target) if target.count(-1) <= 1 else None


def _agree(before: tuple[Dim, ...], after: tuple[Dim, ...], index: int) -> bool:
    """Whether all dimensions in front of an index are equal, so that this one is a factor group of its own."""
    return before[:index] == after[:index]


def _current(node: ir.Node) -> tuple[int, ...] | None:
    array = graphs.array_of(node.inputs[1])
    return tuple(int(x) for x in array) if array is not None and copies_zeros(node) else None


def _write(model: ir.Model, node: ir.Node, target: tuple[int, ...]) -> None:
    insert = graphs.Inserter(model, CanonicalizeReshapes.name, before=node)
    node.replace_input_with(1, insert.int64s(*target))
    node.attributes.pop("allowzero", None)
