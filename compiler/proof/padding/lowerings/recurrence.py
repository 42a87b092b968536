"""Passes the true length of every row to a recurrent network (lowering "sequence_lens").

Before:
    Y, Y_h = LSTM(X [time, batch, features], W, R, B)
After:
    Y, Y_h = LSTM(X, W, R, B, time_length)      # outputs behind it are zero, reverse directions begin at it
"""

import onnx_ir as ir

from compiler.proof.facts.layout import has_rows, size_of
from compiler.proof.padding.lowerings.row_layout import rows_of, spread_rows
from compiler.proof.padding.lowerings.site import NodeLowering, Site


def sequence_lens(site: Site) -> None:
    """Set input 4, sequence_lens, int32 [batch axis of X]."""
    frames = site.fact().frames(0)
    assert frames is not None
    insert, places = site.insert, site.valid_slots
    lengths = places.count(frames.size, 1, 0, ir.DataType.INT32)
    _, layout = rows_of(site)
    if has_rows(layout):
        lengths = spread_rows(site, lengths, 1, layout)
    else:  # one row, of which X may hold several sequences of the same length
        batch = site.fact().axis(1)
        size = places.slot_count(size_of(batch) if batch is not None else site.dims()[1])
        shape = insert.op("Reshape", [size, insert.int64s(1)], name="sequences", dtype=ir.DataType.INT64)
        lengths = insert.op("Expand", [lengths, shape], name="lengths", dtype=ir.DataType.INT32)
    if len(site.node.inputs) < 5:
        site.node.resize_inputs(5)
    site.node.replace_input_with(4, lengths)


NODE_LOWERINGS: dict[str, NodeLowering] = {"sequence_lens": sequence_lens}
