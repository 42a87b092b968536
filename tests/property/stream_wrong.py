"""Layers that are wrong, or that a recipe takes for what they are not: each must be refused or answer as it would.

What its author's loop answers is the truth, however odd it is.
"""

import onnx_ir as ir

from tests.property.stream_grower import BATCH, CHUNK, END, WIDTH, Grower
from tests.property.stream_layers import Layer, attend, hidden, joined_frames
from tests.property.stream_positions import both_places


def _attend_all(g: Grower, joined: ir.Value) -> None:
    scores = g.op("MatMul", [g.linear(g.value), g.channels_first(g.linear(joined))])
    attend(g, scores, g.linear(joined))


def newest_first(g: Grower) -> None:
    """New frames lie in front of the cached ones."""
    window = g.window()
    state = g.state([BATCH, window.axis, WIDTH], apart=True)
    joined = g.op("Concat", [g.value, state.before], axis=1)
    state.after = joined if g.chance(0.5) else g.cut(joined, 0, window.slots, 1)
    _attend_all(g, joined)


def loses_a_frame(g: Grower) -> None:
    """The newest, the oldest or one slot is not kept."""
    window, drawn = g.window(), g.rng.random()
    state = g.state([BATCH, window.axis, WIDTH], apart=True)
    joined = g.op("Concat", [state.before, g.value], axis=1)
    if drawn < 0.6:
        state.after = g.cut(joined, 0, -1, 1) if drawn < 0.3 else g.cut(joined, 1, END, 1)
        # What counts along the window counts the frames that it is given: one fewer.
        g.adds(window, tuple(count - 1 for count in window.frames))
    else:
        state.after = g.cut(joined, -max(window.slots - 1, 1), END, 1)
    _attend_all(g, joined)


def stale(g: Grower) -> None:
    """The cache is never moved on, or it is the new frames alone."""
    window, x = g.window(), g.value
    state = g.state([BATCH, window.axis, WIDTH], apart=True)
    joined = g.op("Concat", [state.before, x], axis=1)
    state.after = state.before if g.chance(0.5) else x
    _attend_all(g, joined)


def changed_cache(g: Grower) -> None:
    """Cached frames are not fed back as they are: scaled, turned round, or mixed with their neighbours."""
    window, drawn = g.window(), g.rng.random()
    state = g.state([BATCH, window.axis, WIDTH], apart=True)
    joined = g.op("Concat", [state.before, g.value], axis=1)
    if drawn < 0.4:
        state.after = g.op("Mul", [joined, g.number(0.9)])
    elif drawn < 0.7:
        cut = [g.integers(each) for each in (-1, -END, 1, -1)]
        state.after = g.op("Slice", [joined, *cut])
    else:
        state.after = g.op("Sub", [joined, g.op("ReduceMean", [joined, g.integers(1)], keepdims=1)])
    _attend_all(g, joined)


def whole_chunk(g: Grower) -> None:
    """What came in with the last call is kept as a whole: of one size, or as long as a chunk may be."""
    is_along = g.is_ragged and g.chance(0.5)
    state = g.state([BATCH, CHUNK if is_along else g.frames_of(g.chunk), WIDTH], apart=True)
    joined = g.op("Concat", [state.before, g.value], axis=1)
    state.after = g.value
    _attend_all(g, joined)


def swapped(g: Grower) -> None:
    """Keys are fed back as values, and values as keys."""
    window = g.window()
    keys, values = (g.state([BATCH, window.axis, WIDTH], apart=True) for _ in range(2))
    joined = [g.op("Concat", [each.before, g.linear(g.value)], axis=1) for each in (keys, values)]
    values.after, keys.after = joined
    scores = g.op("MatMul", [g.linear(g.value), g.channels_first(joined[0])])
    attend(g, scores, joined[1])


def mixed_rows(g: Grower) -> None:
    """Rows of a call are seen in each other; alone, a row is its own mean."""
    x, drawn = g.value, g.rng.random()
    if drawn < 0.5:
        mean = g.op("ReduceMean", [x, g.integers(0)], keepdims=1)
        g.value = g.op("Add", [x, mean])
    elif drawn < 0.75:
        flat = g.op("ReduceMax", [g.op("Reshape", [x, g.integers(1, -1, WIDTH)]), g.integers(1)], keepdims=1)
        g.value = g.op("Sub", [x, flat])
    else:
        g.value = g.op("Add", [x, g.op("CumSum", [x, g.whole(0)])])


def centred_convolution(g: Grower) -> None:
    """A convolution that pads every chunk at both ends."""
    heard = g.op("Conv", [g.channels_first(g.value), g.weights(WIDTH, WIDTH, 3)], pads=[1, 1])
    g.value = g.op("Add", [g.value, g.channels_first(heard)])


def turned_round(g: Grower) -> None:
    """Every chunk, or cache and chunk, back to front."""
    if g.chance(0.5):
        cut = [g.integers(each) for each in (-1, -END, 1, -1)]
        g.value = g.op("Add", [g.value, g.op("Slice", [g.value, *cut])])
        return
    joined = joined_frames(g, g.value, g.window())
    cut = [g.integers(each) for each in (-1, -END, 1, -1)]
    scores = g.op("MatMul", [g.linear(g.value), g.channels_first(g.linear(joined))])
    attend(g, scores, g.linear(g.op("Slice", [joined, *cut])))


def length_as_number(g: Grower) -> None:
    """The frames of a cache, or of a call, as a factor."""
    joined = joined_frames(g, g.value, g.window())
    count = g.length(joined if g.chance(0.6) else g.value)
    if g.chance(0.3):
        count = g.op("Max", [g.op("Sub", [g.length(joined), g.length(g.value)]), g.whole(1)])
    count = g.real(count)
    _attend_all(g, joined)
    g.value = g.op("Mul", [g.value, g.op("Sin", [count])])


def wrong_places(g: Grower) -> None:
    """Keys are told the places from 0 on, one too far, or of another stream, and those behind the query are hidden."""
    joined, drawn = joined_frames(g, g.value, g.window()), g.rng.random()
    queries_at, keys_at = both_places(g, g.value, joined)
    if drawn < 0.3:
        keys_at = g.op("Add", [keys_at, g.whole(-1)])
    elif drawn < 0.6:
        at = g.op("Range", [g.whole(0), g.length(joined), g.whole(1)])
        keys_at = g.op("Unsqueeze", [at, g.integers(0, 1)])
    else:
        queries_at = g.op("Sub", [queries_at, g.length(g.value)])
    seen = g.op("LessOrEqual", [keys_at, queries_at], dtype=ir.DataType.BOOL)
    scores = g.op("MatMul", [g.linear(g.value), g.channels_first(g.linear(joined))])
    attend(g, hidden(g, seen, scores), g.linear(joined))


def short_context(g: Grower) -> None:
    """A context of one frame too few or too many for its convolution, the first or last of which are heard."""
    kernel, x = int(g.rng.integers(2, 4)), g.value
    kept = max(kernel - 1 + (1 if g.chance(0.5) else -1), 1)
    state = g.state([BATCH, kept, WIDTH], apart=True)
    joined = g.op("Concat", [state.before, x], axis=1)
    state.after = g.cut(joined, -kept, END, 1) if g.chance(0.7) else g.cut(joined, 0, kept, 1)
    heard = g.op("Conv", [g.channels_first(joined), g.weights(WIDTH, WIDTH, kernel)], pads=[kernel - 1, 0])
    last = g.op("Slice", [g.channels_first(heard), g.op("Neg", [g.size(x, 1)]), g.integers(END), g.integers(1)])
    g.value = g.op("Add", [x, last])


WRONG: dict[str, Layer] = {
    layer.__name__: layer
    for layer in (
        newest_first,
        loses_a_frame,
        stale,
        changed_cache,
        whole_chunk,
        swapped,
        mixed_rows,
        centred_convolution,
        turned_round,
        length_as_number,
        wrong_places,
        short_context,
    )
}
