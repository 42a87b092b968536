"""Extends a graph that returns only the new frames of a cache, so that it returns the whole cache.

Before:
    new_keys [batch, chunk, W] is an output, which whoever runs the model joins to his cache
After:
    new_keys [batch, cache + chunk, W] = Concat(cache, new of [batch, chunk, W])

Everything behind the capture knows states that are replaced by an output.
"""

from collections.abc import Sequence

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.stages import State
from compiler.recipe.graph import Graph

STAMP = "capture"


def is_appended(spec: Graph, state: State) -> bool:
    """Whether a state is the previous one followed by the frames of its output."""
    return state.cache is not None and spec.caches[state.cache].gives_new_frames


def append_frames(model: ir.Model, spec: Graph, states: Sequence[tuple[State, int | None]]) -> None:
    """Make the graph output every state in the form that the next call takes.

    Args:
        model: the captured graph; changed.
        spec: the graph's record.
        states: states, each with its frames axis in the captured graph.
    """
    inputs, outputs = graphs.inputs_named(model), graphs.outputs_named(model)
    for state, axis in states:
        if axis is None or not is_appended(spec, state):
            continue
        cache, new = inputs[state.input], outputs[state.output]
        insert = graphs.Inserter(model, STAMP, source=graphs.source_of(new.producer()))
        whole = insert.op("Concat", [cache, new], {"axis": axis}, name=f"{state.output}_whole", dtype=new.dtype)
        graphs.take_over(model, new, whole, except_in=graphs.consumers_of(new))
        graphs.infer_shapes(model)
