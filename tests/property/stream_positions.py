"""Layers that know how far a stream has come: tables, angles and distances at an offset that every row has of its own.

Offsets are counted by the bundle, carried by the graph or fed by callers; what is computed of them is drawn here.
"""

import numpy as np
import onnx_ir as ir

from tests.property.stream_grower import BATCH, END, WIDTH, Grower
from tests.property.stream_layers import Layer, attend, hidden, joined_frames

ROWS = 160
"""Of a table: more than the frames of any stream that is drawn."""


def places(g: Grower, x: ir.Value) -> ir.Value:
    """The place of every new frame, int64 [batch, frames]."""
    return _from(g, g.offset(), x)


def _from(g: Grower, first: ir.Value, frames: ir.Value) -> ir.Value:
    """As many places as there are frames, from a first one per row on."""
    steps = g.op("Range", [g.whole(0), g.length(frames), g.whole(1)])
    return g.op("Add", [g.op("Unsqueeze", [first, g.integers(1)]), g.op("Unsqueeze", [steps, g.integers(0)])])


def both_places(g: Grower, x: ir.Value, keys: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The places of queries [batch, queries, 1] and of cached and new keys [batch, 1, keys]."""
    offset = g.offset()
    cached = g.op("Sub", [g.length(keys), g.length(x)])
    first = g.op("Sub", [offset, cached])
    queries_at, keys_at = _from(g, offset, x), _from(g, first, keys)
    if g.chance(0.2):
        queries_at, keys_at = (g.op("Add", [each, g.whole(7)]) for each in (queries_at, keys_at))
    return g.op("Unsqueeze", [queries_at, g.integers(2)]), g.op("Unsqueeze", [keys_at, g.integers(1)])


def table_at_offset(g: Grower) -> None:
    """Rows of a table by the place in the stream, which may begin again."""
    at, drawn = places(g, g.value), g.rng.random()
    if drawn < 0.3:
        at = g.op("Mod", [at, g.whole(int(g.rng.integers(3, 20)))])
    elif drawn < 0.5:
        at = g.op("Min", [at, g.whole(int(g.rng.integers(3, 20)))])
    g.value = g.op("Add", [g.value, g.op("Gather", [g.weights(ROWS, WIDTH), at], axis=0)])


def table_cut_at_offset(g: Grower) -> None:
    """`table[offset:offset + n]` of a graph for one row; of others, the rows by their places."""
    if g.form != "one row":
        return table_at_offset(g)
    first = g.offset()
    behind = g.op("Add", [first, g.size(g.value, 1)])
    rows = g.op("Slice", [g.weights(ROWS, WIDTH), first, behind, g.integers(0)])
    g.value = g.op("Add", [g.value, rows])
    return None


def range_at_offset(g: Grower) -> None:
    """`arange(offset, offset + n)` of a graph for one row, looked up; of others, as waves."""
    if g.form != "one row":
        return waves(g)
    first = g.op("Squeeze", [g.offset(), g.integers(0)])
    at = g.op("Range", [first, g.op("Add", [first, g.length(g.value)]), g.whole(1)])
    g.value = g.op("Add", [g.value, g.op("Gather", [g.weights(ROWS, WIDTH), at], axis=0)])
    return None


def _angles(g: Grower, at: ir.Value, width: int) -> ir.Value:
    """Places [batch, frames] by some frequencies."""
    speeds = g.insert.constant((0.7 ** np.arange(width)).astype(np.float32), "speeds")
    return g.op("Mul", [g.real(g.op("Unsqueeze", [at, g.integers(2)])), speeds])


def waves(g: Grower) -> None:
    """Sines of the places."""
    g.value = g.op("Add", [g.value, g.op("Sin", [_angles(g, places(g, g.value), WIDTH)])])


def _turned(g: Grower, value: ir.Value, at: ir.Value) -> ir.Value:
    """Halves of the channels turned by angles that grow with the place."""
    angles = _angles(g, at, WIDTH // 2)
    cos, sin = g.op("Cos", [angles]), g.op("Sin", [angles])
    one, other = g.ops("Split", [value], 2, axis=-1, num_outputs=2)
    first = g.op("Sub", [g.op("Mul", [one, cos]), g.op("Mul", [other, sin])])
    second = g.op("Add", [g.op("Mul", [one, sin]), g.op("Mul", [other, cos])])
    return g.op("Concat", [first, second], axis=-1)


def rotary(g: Grower) -> None:
    """Attention with turned queries and keys; keys are turned before they are cached, or afterwards."""
    x, window = g.value, g.window()
    keys, values = g.linear(x), joined_frames(g, g.linear(x), window)
    if g.chance(0.5):
        at = places(g, x)
        keys, queries = joined_frames(g, _turned(g, keys, at), window), _turned(g, g.linear(x), at)
    else:
        keys = joined_frames(g, keys, window)
        queries_at, keys_at = both_places(g, x, keys)
        keys = _turned(g, keys, g.op("Squeeze", [keys_at, g.integers(1)]))
        queries = _turned(g, g.linear(x), g.op("Squeeze", [queries_at, g.integers(2)]))
    attend(g, g.op("MatMul", [queries, g.channels_first(keys)]), values)


def by_places(g: Grower) -> None:
    """Attention by distances of places: a slope, a table of them, a band, or blocks of places."""
    x, window = g.value, g.window()
    joined = joined_frames(g, x, window)
    scores = g.op("MatMul", [g.linear(x), g.channels_first(g.linear(joined))])
    queries_at, keys_at = both_places(g, x, joined)
    distance, drawn = g.op("Sub", [queries_at, keys_at]), g.rng.random()
    if drawn < 0.25:
        scores = g.op("Sub", [scores, g.op("Mul", [g.op("Abs", [g.real(distance)]), g.number(0.1)])])
    elif drawn < 0.5:
        scores = g.op("Add", [scores, _by_table(g, distance)])
    elif drawn < 0.75:
        reach = g.whole(int(g.rng.integers(1, 6)))
        scores = hidden(g, g.op("LessOrEqual", [g.op("Abs", [distance]), reach], dtype=ir.DataType.BOOL), scores)
    else:
        size = g.whole(int(g.rng.integers(2, 5)))
        blocks = [g.op("Div", [g.op("Add", [each, g.whole(60)]), size]) for each in (keys_at, queries_at)]
        scores = hidden(g, g.op("LessOrEqual", blocks, dtype=ir.DataType.BOOL), scores)
    attend(g, scores, g.linear(joined))


def _by_table(g: Grower, distance: ir.Value) -> ir.Value:
    """A bias of every distance up to some limit."""
    limit = int(g.rng.integers(2, 8))
    near = g.op("Min", [g.op("Max", [distance, g.whole(-limit)]), g.whole(limit)])
    return g.op("Gather", [g.weights(2 * limit + 1), g.op("Add", [near, g.whole(limit)])], axis=0)


def relative_shift(g: Grower) -> None:
    """Scores of every distance, shifted into their columns by a pad, a reshape and a cut (Transformer-XL)."""
    x, window = g.value, g.window()
    joined = joined_frames(g, x, window)
    queries, count = g.linear(x), g.length(joined)
    first = g.op("Sub", [g.whole(ROWS), g.op("Unsqueeze", [count, g.integers(0)])])
    rows = g.op("Slice", [g.weights(1, ROWS, WIDTH), first, g.integers(END), g.integers(1)])
    by_distance = g.op("MatMul", [queries, g.channels_first(rows)])
    padded = g.op("Pad", [by_distance, g.integers(0, 0, 1, 0, 0, 0)])
    size = [g.size(x, 0), g.op("Add", [g.size(joined, 1), g.integers(1)]), g.size(x, 1)]
    turned = g.op("Reshape", [padded, g.op("Concat", size, axis=0)])
    shape = g.op("Concat", [g.size(x, 0), g.size(x, 1), g.size(joined, 1)], axis=0)
    shifted = g.op("Reshape", [g.cut(turned, 1, END, 1), shape])
    scores = g.op("Add", [g.op("MatMul", [queries, g.channels_first(g.linear(joined))]), shifted])
    at = [g.op("Unsqueeze", [_counted(g, each), g.integers(axis)]) for axis, each in ((0, joined), (1, x))]
    seen = g.op("LessOrEqual", [at[0], g.op("Add", [at[1], g.op("Sub", [count, g.length(x)])])], dtype=ir.DataType.BOOL)
    attend(g, hidden(g, seen, scores), g.linear(joined))


def _counted(g: Grower, frames: ir.Value) -> ir.Value:
    return g.op("Range", [g.whole(0), g.length(frames), g.whole(1)])


def ring(g: Grower) -> None:
    """Keys of a fixed number, written to where their place leaves them; those not written yet are not seen."""
    x, offset = g.value, g.offset()
    slots = g.frames_of(g.chunk) + int(g.rng.integers(0, 6))
    state, at = g.state([BATCH, slots, WIDTH], apart=True), _from(g, offset, x)
    index = g.op("Mod", [at, g.whole(slots)])
    if g.chance(0.6) or g.form == "one row":
        shape = g.op("Concat", [g.size(x, 0), g.size(x, 1), g.integers(WIDTH)], axis=0)
        spread = g.op("Expand", [g.op("Unsqueeze", [index, g.integers(2)]), shape])
        state.after = g.op("ScatterElements", [state.before, spread, x], axis=1)
    else:
        state.after = _put(g, state.before, index, x)
    slot = g.insert.constant(np.arange(slots).reshape(1, 1, slots), "slots")
    seen = g.op("LessOrEqual", [slot, g.op("Unsqueeze", [at, g.integers(2)])], dtype=ir.DataType.BOOL)
    scores = g.op("MatMul", [g.linear(x), g.channels_first(g.linear(state.after))])
    attend(g, hidden(g, seen, scores), g.linear(state.after))


def _put(g: Grower, whole: ir.Value, index: ir.Value, new: ir.Value) -> ir.Value:
    """`whole[arange(batch)[:, None], index] = new`."""
    rows = g.op("Range", [g.whole(0), g.length(new, 0), g.whole(1)])
    rows = g.op("Expand", [g.op("Unsqueeze", [rows, g.integers(1)]), g.op("Shape", [index], dtype=ir.DataType.INT64)])
    pairs = [g.op("Unsqueeze", [each, g.integers(2)]) for each in (rows, index)]
    return g.op("ScatterND", [whole, g.op("Concat", pairs, axis=2), new])


POSITIONED: dict[str, Layer] = {
    layer.__name__: layer
    for layer in (
        table_at_offset,
        table_cut_at_offset,
        range_at_offset,
        waves,
        rotary,
        by_places,
        relative_shift,
        ring,
    )
}
