"""Replaces the names of bucketed axes by sizes, so that no dimension of the graph is symbolic.

Before:
    features [batch, 67, 80]
After:
    features [4, 67, 80], and every other value likewise

Requires: no window left to pad.
Ensures: every dimension is a number.
Keeps: structure and weights; buckets of one graph share their weights by content.
Numerics: exact.
Source: static shapes, ONNX specification.
"""

import dataclasses
from typing import ClassVar

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Outcome
from compiler.passes.simplify import simplify_model


@dataclasses.dataclass(frozen=True)
class FreezeAxes:
    """Replace axis names by sizes.

    Attributes:
        sizes: (axis, size) pairs.
    """

    name: ClassVar[str] = "freeze_axes"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False
    sizes: tuple[tuple[str, int], ...] = ()

    def apply(self, lowered: Lowered) -> Outcome:
        """Replace named axes by fixed sizes, in place."""
        sizes, frozen = dict(self.sizes), 0
        for value in lowered.model.graph.inputs:
            if value.shape is None:
                continue
            dims = [sizes.get(str(dim), dim) for dim in value.shape]
            frozen += dims != list(value.shape)
            value.shape = ir.Shape(dims)
        if frozen:
            graphs.forget_shapes(lowered.model)
            graphs.infer_shapes(lowered.model)
            graphs.fold_sizes(lowered.model)
            simplify_model(lowered.model)
        return Outcome(lowered, matched=len(lowered.model.graph.inputs), rewritten=frozen)
