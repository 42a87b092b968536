"""Slices states inside a graph to the newest frames that fit their cache's slots, before anything is proved.

Before:
    next_cache [batch, cache + chunk, W] = Concat(cache, new)
After:
    next_cache [batch, Min(cache + chunk, 128), W] = Slice(Concat(cache, new), -128:)

Where chunks have a length per row, the newest frames end elsewhere in every row: what keeps them is proved like every
other node of the graph.
"""

from collections.abc import Mapping

import onnx_ir as ir

from compiler.graph import model as graphs

STAMP = "capture"


def keep_newest(model: ir.Model, slots: int, axes: Mapping[str, int]) -> None:
    """Slice states to at most `slots` newest frames.

    Args:
        model: the graph, which is changed in place.
        slots: number of slots of the cache.
        axes: the frames axis of each output.
    """
    for output, axis in axes.items():
        value = graphs.outputs_named(model)[output]
        insert = graphs.Inserter(model, STAMP, source=graphs.source_of(value.producer()))
        bounds = [insert.int64s(-slots), insert.int64s(graphs.END), insert.int64s(axis)]
        newest = insert.op("Slice", [value, *bounds], name=f"{output}_newest", dtype=value.dtype)
        graphs.take_over(model, value, newest, except_in=graphs.consumers_of(value))
    graphs.infer_shapes(model)
