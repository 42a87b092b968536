"""Layers whose states are no plain caches: strides, overlap-add tails, rolled buffers, lengths of the model's own."""

from collections.abc import Callable

import onnx_ir as ir

from tests.property.stream_grower import BATCH, END, WIDTH, Grower
from tests.property.stream_layers import Layer, attend, by_distance, hidden, joined_frames, one_recurrence

MOST = 6
"""Frames up to which a chunk is made longer."""


def _through(g: Grower, value: ir.Value, frames_of: Callable[[int], int]) -> bool:
    """The frames that layers behind this one take, unless a whole chunk gave none."""
    before = g.frames_of
    if frames_of(before(g.chunk)) < 1:
        return False
    g.value, g.frames_of = value, lambda entries: frames_of(before(entries))
    return True


def strided_convolution(g: Grower) -> None:
    """A convolution of every second or third frame, whose context keeps its phase."""
    stride = int(g.rng.integers(2, 4))
    if g.frames_of(g.chunk) < stride:
        return
    kernel, x = stride + int(g.rng.integers(0, 3)), g.value
    context = kernel - stride
    joined = x
    if context:
        state = g.state([BATCH, context, WIDTH])
        joined = g.op("Concat", [state.before, x], axis=1)
        state.after = g.cut(joined, -context, END, 1)
    heard = g.op("Conv", [g.channels_first(joined), g.weights(WIDTH, WIDTH, kernel)], strides=[stride])
    _through(g, g.channels_first(heard), lambda frames: frames // stride)


def stacked_frames(g: Grower) -> None:
    """Pairs of frames beside each other, made one frame again."""
    if g.is_ragged or g.frames_of(g.chunk) % 2:
        return
    pairs = g.op("Reshape", [g.value, g.integers(0, -1, 2 * WIDTH)])
    _through(g, g.op("MatMul", [pairs, g.weights(2 * WIDTH, WIDTH)]), lambda frames: frames // 2)


def every_second(g: Grower) -> None:
    """Every second frame of a chunk."""
    cut = [g.integers(each) for each in (0, END, 1, 2)]
    _through(g, g.op("Slice", [g.value, *cut]), lambda frames: (frames + 1) // 2)


def overlap_add(g: Grower) -> None:
    """A transposed convolution; what reaches beyond a chunk is added to the next."""
    stride = 1 if g.frames_of(g.chunk) > MOST else int(g.rng.integers(1, 3))
    kernel, x = stride + int(g.rng.integers(1, 4)), g.value
    over = kernel - stride
    state = g.state([BATCH, WIDTH, over])
    made = g.op("ConvTranspose", [g.channels_first(x), g.weights(WIDTH, WIDTH, kernel)], strides=[stride])
    first = g.op("Add", [g.cut(made, 0, over, 2), state.before])
    added = g.op("Concat", [first, g.cut(made, over, END, 2)], axis=2)
    state.after = g.cut(added, -over, END, 2)
    _through(g, g.channels_first(g.cut(added, 0, -over, 2)), lambda frames: frames * stride)


def rolled_buffer(g: Grower) -> None:
    """A buffer of the newest frames, looked at as a whole."""
    x = g.value
    slots = g.frames_of(g.chunk) + int(g.rng.integers(0, 6))
    state = g.state([BATCH, slots, WIDTH])
    left = g.op("Slice", [state.before, g.size(x, 1), g.integers(END), g.integers(1)])
    state.after = g.op("Concat", [left, x], axis=1)
    drawn = g.rng.random()
    if drawn < 0.4:
        seen = g.op("ReduceMean", [state.after, g.integers(1)], keepdims=1)
    elif drawn < 0.7:
        seen = g.op("MatMul", [g.op("Reshape", [state.after, g.integers(0, 1, -1)]), g.weights(slots * WIDTH, WIDTH)])
    else:
        seen = g.op("ReduceMax", [state.after, g.integers(1)], keepdims=1)
    g.value = g.op("Add", [x, g.op("Tanh", [seen])])


def own_length(g: Grower) -> None:
    """Attention over a buffer of one size, of which the model counts the valid frames itself."""
    x = g.value
    slots = g.frames_of(g.chunk) + int(g.rng.integers(0, 6))
    state, count = g.state([BATCH, slots, WIDTH]), g.state([BATCH], "int64")
    joined = g.op("Concat", [state.before, x], axis=1)
    state.after = g.cut(joined, -slots, END, 1)
    count.after = g.op("Min", [g.op("Add", [count.before, g.size(x, 1)]), g.whole(slots)])
    behind = g.op("Sub", [g.whole(slots), g.op("Unsqueeze", [count.before, g.integers(1, 2)])])
    at = g.op("Range", [g.whole(0), g.length(joined), g.whole(1)])
    seen = g.op("GreaterOrEqual", [g.op("Unsqueeze", [at, g.integers(0, 1)]), behind], dtype=ir.DataType.BOOL)
    scores = g.op("MatMul", [g.linear(x), g.channels_first(g.linear(joined))])
    attend(g, hidden(g, seen, scores), g.linear(joined))


def memory(g: Grower) -> None:
    """A matrix that every chunk adds to and reads from (linear attention)."""
    state, x = g.state([BATCH, WIDTH, WIDTH]), g.value
    keys, values = g.op("Sigmoid", [g.linear(x)]), g.linear(x)
    added = g.op("MatMul", [g.channels_first(keys), values])
    state.after = g.op("Add", [g.op("Mul", [state.before, g.number(0.6)]), g.op("Mul", [added, g.number(0.1)])])
    g.value = g.op("Add", [x, g.op("MatMul", [g.linear(x), state.after])])


def both_directions(g: Grower) -> None:
    """A recurrence that also goes backwards through each chunk, from where it ended in the last."""
    x = g.op("Transpose", [g.value], perm=[1, 0, 2])
    op = str(g.rng.choice(["GRU", "LSTM", "RNN"]))
    heard = g.op("Add", [one_recurrence(g, op, x), one_recurrence(g, op, x, "reverse")])
    g.value = g.op("Add", [g.value, g.op("Transpose", [heard], perm=[1, 0, 2])])


def heads(g: Grower) -> None:
    """Attention of two heads, whose keys and values are cached in one tensor, beside each other or one by one."""
    x, window, half = g.value, g.window(), WIDTH // 2
    pairs = g.op("Concat", [g.linear(x), g.linear(x)], axis=2)
    if g.chance(0.5):
        state = g.state([BATCH, window.axis, 2 * WIDTH])
        joined = g.op("Concat", [state.before, pairs], axis=1)
        state.after = g.kept(window, joined, 1)
        parts = g.op("Reshape", [joined, g.integers(0, -1, 2, 2, half)])
        parts = g.op("Transpose", [parts], perm=[2, 0, 3, 1, 4])
    else:
        parts = g.op("Transpose", [g.op("Reshape", [pairs, g.integers(0, -1, 2, 2, half)])], perm=[0, 2, 3, 1, 4])
        state = g.state([BATCH, 2, 2, window.axis, half])
        parts = g.op("Concat", [state.before, parts], axis=3)
        state.after = g.kept(window, parts, 3)
        parts = g.op("Transpose", [parts], perm=[1, 0, 2, 3, 4])
    keys, values = (g.op("Gather", [parts, g.whole(number)], axis=0) for number in (0, 1))
    queries = g.op("Transpose", [g.op("Reshape", [g.linear(x), g.integers(0, -1, 2, half)])], perm=[0, 2, 1, 3])
    scores = g.op("Softmax", [g.op("MatMul", [queries, g.op("Transpose", [keys], perm=[0, 1, 3, 2])])], axis=-1)
    seen = g.op("Transpose", [g.op("MatMul", [scores, values])], perm=[0, 2, 1, 3])
    g.value = g.op("Add", [x, g.op("Reshape", [seen, g.integers(0, -1, WIDTH)])])


def halves(g: Grower) -> None:
    """Attention whose keys and values are cached in one tensor that is cut in two, and perhaps joined again."""
    x, window = g.value, g.window()
    if g.chance(0.5):
        state, new = g.state([BATCH, window.axis, 2 * WIDTH]), g.linear(x, 2 * WIDTH)
        at, frames = 2, 1
    else:
        state, new = g.state([BATCH, 2 * WIDTH, window.axis]), g.channels_first(g.linear(x, 2 * WIDTH))
        at, frames = 1, 2
    joined = g.op("Concat", [state.before, new], axis=frames)
    parts = g.pieces(joined, at, WIDTH, 2)
    state.after = g.kept(window, g.op("Concat", parts, axis=at) if g.chance(0.3) else joined, frames)
    keys, values = parts if at == 2 else map(g.channels_first, parts)
    attend(g, g.op("MatMul", [g.linear(x), g.channels_first(keys)]), values)


def projected(g: Grower) -> None:
    """Keys and values that are computed anew of all cached frames, counted on the keys, and cut to the newest."""
    x, window = g.value, g.window()
    keys = g.op("Tanh", [g.linear(joined_frames(g, x, window))])
    newest = x if g.is_ragged else g.cut(keys, -g.frames_of(g.chunk), END, 1)
    scores = g.op("MatMul", [g.linear(newest), g.channels_first(keys)])
    attend(g, by_distance(g, scores, x, keys, masked=g.chance(0.5)), g.linear(keys))


def pieces_of_chunk(g: Grower) -> None:
    """A chunk in pieces of its frames, each of which hears the one before; of chunks of any length, the longest."""
    count, frames = int(g.rng.integers(1, 4)), g.frames_of(g.chunk)
    if g.is_ragged or frames % count:
        count = 1
    if frames < 2:  # a single frame would be taken for a row
        return
    parts = g.pieces(g.value, 1, frames // count, count)
    means = [g.op("ReduceMean", [each, g.integers(1)], keepdims=1) for each in parts]
    heard = [parts[0], *(g.op("Add", [each, mean]) for each, mean in zip(parts[1:], means, strict=False))]
    g.value = g.op("Concat", heard, axis=1)


FORMS: dict[str, Layer] = {
    layer.__name__: layer
    for layer in (
        strided_convolution,
        stacked_frames,
        every_second,
        overlap_add,
        rolled_buffer,
        own_length,
        memory,
        both_directions,
        heads,
        halves,
        projected,
        pieces_of_chunk,
    )
}
