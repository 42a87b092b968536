"""What random graphs write in place: numbers behind frames, and what is chosen by the place of a frame."""

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from tests.property.graph_builder import WIDTH, GraphBuilder, Kinds, since

BOOL = ir.DataType.BOOL


@since(11)
def _number_behind(builder: GraphBuilder) -> None:
    """Frames, as many of them cut off or not, and one number behind them, as often as frames are missing."""
    found = builder.pick()
    axis, count = 2 if found.frames_last else 1, int(builder.rng.integers(1, 3))
    ends = builder.insert.int64s
    is_moved = bool(builder.rng.integers(0, 2))
    kept = builder.op("Slice", [found.value, ends(count), ends(graphs.END), ends(axis)]) if is_moved else found.value
    number = builder.scalar(float(builder.rng.choice([0.0, 0.0, -0.0, 1.5, -np.inf])), ir.DataType.FLOAT)
    sizes = [builder.size(found.value, 0), ends(WIDTH, count) if found.frames_last else ends(count, WIDTH)]
    behind = builder.op("Expand", [number, builder.whole("Concat", sizes, axis=0)])
    joined = builder.op("Concat", [kept, behind], {"axis": axis})
    if is_moved and builder.rng.integers(0, 2):
        joined = builder.op("Add", [joined, found.value])
    if not builder.rng.integers(0, 3):
        joined = builder.op("Reciprocal", [joined])  # tells 0.0 from -0.0
    builder.keep(joined, found.frames_last)


@since(12)
def _chosen_by_place(builder: GraphBuilder) -> None:
    """A number, or one per channel, at a run of places that is counted from either end."""
    found = builder.pick(False)
    size = builder.length(found.value, False)
    places = builder.whole("Range", [builder.scalar(0), builder.whole("Squeeze", [size]), builder.scalar(1)])
    first, last = (int(each) for each in builder.rng.choice([-3, -2, -1, 0, 1, 2, 4], 2))
    bounds = [builder.insert.int64s(each) if each >= 0 else builder.whole("Add", [size, builder.insert.int64s(each)])
              for each in (first, last)]  # fmt: skip
    tests = [
        builder.op("GreaterOrEqual", [places, bounds[0]], dtype=BOOL),
        builder.op("Less", [places, bounds[1]], dtype=BOOL),
    ]
    is_written = builder.op("Unsqueeze", [builder.op("And", tests, dtype=BOOL), builder.insert.int64s(1)], dtype=BOOL)
    new = (
        builder.weights(WIDTH)
        if builder.rng.integers(0, 2)
        else builder.scalar(float(builder.rng.choice([0.0, -np.inf])), ir.DataType.FLOAT)
    )
    builder.keep(builder.op("Where", [is_written, new, found.value]), False)


WRITE_KINDS: Kinds = ((_number_behind, 5), (_chosen_by_place, 3))
"""What grows of assignments to slices."""
