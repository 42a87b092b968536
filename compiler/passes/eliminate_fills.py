"""Drop the fills of free cache slots that no valid output reads.

Before:
    keys = Concat(Where(valid, cache, 0), new);  shares = Softmax(Where(seen, MatMul(queries, keys), lowest))
After:
    keys = Concat(cache, new);  shares = Softmax(Where(seen, MatMul(queries, keys), lowest))

Padding cleans every cache at the input, so that states are zero wherever they are free. What a key gives that is not
seen, the softmax does not read; and values that are codes are finite, so that shares of zero take nothing of them.

Requires: caches whose free slots follow from lengths or masks.
Ensures: what is valid of every output is as before, whatever free slots hold.
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
