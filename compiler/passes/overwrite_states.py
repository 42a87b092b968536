"""Makes a call return only the new frames of a window, which are written over the oldest frames of the cache.

Before:
    joined = Concat(Where(valid, cache, 0), new);  next_cache = newest 128 frames of joined
    y = MatMul(Softmax(mask + MatMul(q, joined_keys)), joined_values)
After:
    next_cache = new; whoever runs the graph writes it where the oldest frames lie, and moves no other
    scores = Concat(MatMul(q, cache_keys), MatMul(q, new_keys));  p, p_new = Softmax(mask + scores), split
    y = MatMul(p, cache_values) + MatMul(p_new, new_values)

A step then writes its own frames, where it wrote the whole window.

Requires: one cache whose oldest frames make room; rows proved; states that are not packed yet. What lies beside cached
    frames, such as a mask or a bias, is the same for all slots of a full cache.
Ensures: a cache whose slots are written in turn; free slots hold zeros, as the runtime keeps them.
Keeps: states without frames, and everything that does not touch cached frames.
Numerics: order of summation.
Source: cached frames may lie in any order where all that lies beside them does, as for `append_states`. Until a cache
    is full frame s lies in slot s, as in one that is appended to; in a full one the order is any, and what lies beside
    the slots is run to show that it is one number for all of them (`compiler.states.appending.evidence`).
"""

import dataclasses
from typing import ClassVar

from compiler.graph.stages import Lowered, Outcome
from compiler.passes.append_states import give_new_frames, require, what_new_frames_need
from runtime_lite.states import RING


@dataclasses.dataclass(frozen=True)
class OverwriteStates:
    """Windows whose oldest frames are overwritten."""

    name: ClassVar[str] = "overwrite_states"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("pad_axes", "window_states")
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Rewrite a graph to write new frames over the oldest ones of its cache; see the module docstring.

        Raises:
            Refused: caches have another form, or a node depends on the order of cached frames.
        """
        if not lowered.caches:
            return Outcome(lowered)
        (cache, *_) = lowered.caches
        kept = "a cache whose oldest frames make room; append_states is for one that keeps every frame"
        require(lowered, {**what_new_frames_need(lowered), kept: cache.is_whole})
        return give_new_frames(lowered, RING, self.name)
