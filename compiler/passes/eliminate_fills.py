"""Removes Where nodes that fill free cache slots with zeros, where no valid output depends on the fill.

Before:
    keys = Concat(Where(valid, cache, 0), new);  shares = Softmax(Where(seen, MatMul(queries, keys), lowest))
After:
    keys = Concat(cache, new);  shares = Softmax(Where(seen, MatMul(queries, keys), lowest))

The pass pad_axes fills free cache slots with zeros at the input. The softmax gives masked keys a weight of 0; and
quantised values are finite, so that weights of zero remove them from the sum.

Requires: caches whose free slots follow from lengths or masks.
Ensures: the valid entries of every output are as before, whatever free slots contain.
Keeps: selections in front of sums over slots of real numbers, as 0 times NaN is NaN; of frames that a chunk may lack.
Numerics: exact.
Source: evaluation of conditions at every length, and compiler/states/free_slots.py.
"""

import dataclasses
from typing import ClassVar

from compiler.graph import model as graphs
from compiler.graph.lengths.every_length import EveryLength
from compiler.graph.stages import Lowered, Outcome
from compiler.states.free_slots import fills


@dataclasses.dataclass(frozen=True)
class EliminateFills:
    """No selection that another one makes needless."""

    name: ClassVar[str] = "eliminate_fills"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("pad_axes",)
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Drop the fills of free cache slots that no valid output reads, in place."""
        model, matched, rewritten = lowered.model, 0, 0
        graphs.infer_shapes(model)
        for cache in lowered.caches if lowered.is_padded else ():
            for node, is_needless in fills(lowered, EveryLength(model, cache, {})):
                matched += 1
                if is_needless and node.inputs[1] is not None and not node.outputs[0].is_graph_output():
                    graphs.take_over(model, node.outputs[0], node.inputs[1])
                    rewritten += 1
        if rewritten:
            graphs.prune(model)
        return Outcome(lowered, matched, rewritten)
