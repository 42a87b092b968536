"""Rewrites a Range of a fixed number of integers as its start plus the constant 0, 1, 2, ...

    r = Range(n - 3, n, 1)     ->  r = Add(n - 3, [0, 1, 2])

Positions of a chunk behind a cache are counted so; what is added follows from a length, what is counted does not.
"""

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.rewriting.simplification.rules import Candidate, Rule


def fixed_range(candidate: Candidate) -> ir.Value | None:
    """Rewrite a Range of a fixed number of integers whose start is not known."""
    output, start = candidate.node.outputs[0], candidate.value(0)
    dims, step = graphs.dims_of(output), candidate.constant(2)
    if dims is None or start is None or step is None or int(step) != 1 or candidate.constant(0) is not None:
        return None
    if output.dtype != ir.DataType.INT64 or not isinstance(dims[0], int):
        return None
    insert = candidate.insert
    counted = insert.constant(np.arange(dims[0], dtype=np.int64), "counted")
    return insert.op("Add", [start, counted], name="range", shape=dims, dtype=output.dtype)


COUNTS: dict[str, Rule] = {"Range": fixed_range}
"""The rules that apply to one operator."""
