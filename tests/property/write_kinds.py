"""What random graphs write in place: numbers behind frames, and what is chosen by the place of a frame."""

import numpy as np
import onnx_ir as ir

from compiler import ir as graphs
from tests.property.garden import WIDTH, Garden, Kinds, since

BOOL = ir.DataType.BOOL


@since(11)
def _number_behind(garden: Garden) -> None:
    """Frames, as many of them cut off or not, and one number behind them, as often as frames are missing."""
    found = garden.pick()
    axis, count = 2 if found.frames_last else 1, int(garden.rng.integers(1, 3))
    ends = garden.insert.int64s
    is_moved = bool(garden.rng.integers(0, 2))
    kept = garden.op("Slice", [found.value, ends(count), ends(graphs.END), ends(axis)]) if is_moved else found.value
    number = garden.scalar(float(garden.rng.choice([0.0, 0.0, -0.0, 1.5, -np.inf])), ir.DataType.FLOAT)
    sizes = [garden.size(found.value, 0), ends(WIDTH, count) if found.frames_last else ends(count, WIDTH)]
    behind = garden.op("Expand", [number, garden.whole("Concat", sizes, axis=0)])
    joined = garden.op("Concat", [kept, behind], {"axis": axis})
    if is_moved and garden.rng.integers(0, 2):
        joined = garden.op("Add", [joined, found.value])
    if not garden.rng.integers(0, 3):
        joined = garden.op("Reciprocal", [joined])  # tells 0.0 from -0.0
    garden.keep(joined, found.frames_last)


@since(12)
def _chosen_by_place(garden: Garden) -> None:
    """A number, or one per channel, at a run of places that is counted from either end."""
    found = garden.pick(False)
    size = garden.length(found.value, False)
    places = garden.whole("Range", [garden.scalar(0), garden.whole("Squeeze", [size]), garden.scalar(1)])
    first, last = (int(each) for each in garden.rng.choice([-3, -2, -1, 0, 1, 2, 4], 2))
    bounds = [garden.insert.int64s(each) if each >= 0 else garden.whole("Add", [size, garden.insert.int64s(each)])
              for each in (first, last)]  # fmt: skip
    tests = [
        garden.op("GreaterOrEqual", [places, bounds[0]], dtype=BOOL),
        garden.op("Less", [places, bounds[1]], dtype=BOOL),
    ]
    is_written = garden.op("Unsqueeze", [garden.op("And", tests, dtype=BOOL), garden.insert.int64s(1)], dtype=BOOL)
    new = (
        garden.weights(WIDTH)
        if garden.rng.integers(0, 2)
        else garden.scalar(float(garden.rng.choice([0.0, -np.inf])), ir.DataType.FLOAT)
    )
    garden.keep(garden.op("Where", [is_written, new, found.value]), False)


WRITE_KINDS: Kinds = ((_number_behind, 5), (_chosen_by_place, 3))
"""What grows of assignments to slices."""
