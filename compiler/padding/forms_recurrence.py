"""The form "sequence_lens": a recurrent network is told the true length of every row.

Before:
    Y, Y_h = LSTM(X, W, R, B)
After:
    Y, Y_h = LSTM(X, W, R, B, time_length)      # outputs behind it are zero, reverse directions begin at it
"""

import onnx_ir as ir

from compiler.padding.site import Form, Site


def sequence_lens(site: Site) -> None:
    """Set input 4, int32 [batch]."""
    frames = site.fact().frames(0)
    assert frames is not None
    lengths = site.places.count(frames.size, 1, 0, ir.DataType.INT32)

    if len(site.node.inputs) < 5:
        site.node.resize_inputs(5)

    site.node.replace_input_with(4, lengths)


FORMS: dict[str, Form] = {"sequence_lens": sequence_lens}
