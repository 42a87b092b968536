"""Layers of random step graphs: attention over caches, convolutions with contexts, recurrences, running numbers."""

from collections.abc import Callable

import onnx_ir as ir

from tests.property.stream_grower import BATCH, CHUNK, END, WIDTH, Grower, Window

TABLE_ROWS = 64

Layer = Callable[[Grower], None]


def attention(g: Grower) -> None:
    """Queries of the new frames over cached ones: of inputs, or of keys and values, which lie this way or that."""
    x, window = g.value, g.window()
    if g.chance(0.5):
        joined = joined_frames(g, x, window)
        keys, values = (g.linear(joined) for _ in range(2))
    else:
        made = g.pieces(g.linear(x, 2 * WIDTH), 2, WIDTH, 2) if g.chance(0.4) else [g.linear(x) for _ in range(2)]
        keys, values = (joined_frames(g, each, window) for each in made)
    if g.chance(0.15):
        keys = g.op("Add", [keys, _table_rows(g, keys)])
    scores = g.op("MatMul", [g.linear(x), g.channels_first(keys)])
    drawn = g.rng.random()
    if drawn < 0.2:
        scores = by_distance(g, scores, x, keys, masked=drawn < 0.1)
    attend(g, scores, values)


def attend(g: Grower, scores: ir.Value, values: ir.Value) -> None:
    """Values [batch, keys, width] by scores [batch, queries, keys], beside what the queries are made of."""
    g.value = g.op("Add", [g.value, g.op("MatMul", [g.op("Softmax", [scores], axis=-1), values])])


def joined_frames(g: Grower, new: ir.Value, window: Window) -> ir.Value:
    """Cached frames and new ones, [batch, frames, width]; the state lies as drawn, and is whole or cut."""
    if g.chance(0.5):
        state = g.state([BATCH, window.axis, WIDTH])
        joined = g.op("Concat", [state.before, new], axis=1)
        state.after = g.kept(window, joined, 1)
        return joined
    state = g.state([BATCH, WIDTH, window.axis])
    joined = g.op("Concat", [state.before, g.channels_first(new)], axis=2)
    state.after = g.kept(window, joined, 2)
    return g.channels_first(joined)


def _table_rows(g: Grower, joined: ir.Value) -> ir.Value:
    """Rows of a table by the position in the window."""
    table = g.weights(1, TABLE_ROWS, WIDTH)
    if g.chance(0.5):
        return g.op("Slice", [table, g.integers(0), g.size(joined, 1), g.integers(1)])
    places = g.op("Range", [g.whole(0), g.length(joined), g.whole(1)])
    return g.op("Gather", [table, places], axis=1)


def by_distance(g: Grower, scores: ir.Value, x: ir.Value, keys: ir.Value, *, masked: bool) -> ir.Value:
    """Scores less by the distance of key and query, or without keys behind the query."""
    whole = g.length(keys)
    cached = g.op("Sub", [whole, g.length(x)])
    keys_at = g.op("Unsqueeze", [g.op("Range", [g.whole(0), whole, g.whole(1)]), g.integers(0)])
    queries_at = g.op("Unsqueeze", [g.op("Range", [cached, whole, g.whole(1)]), g.integers(1)])
    if masked:
        return hidden(g, g.op("LessOrEqual", [keys_at, queries_at], dtype=ir.DataType.BOOL), scores)
    return g.op("Sub", [scores, g.op("Mul", [g.real(g.op("Sub", [queries_at, keys_at])), g.number(0.1)])])


def hidden(g: Grower, seen: ir.Value, scores: ir.Value) -> ir.Value:
    """Scores of what is not seen are out of the way."""
    return g.op("Where", [seen, scores, g.number(-1e9)], dtype=ir.DataType.FLOAT)


def convolution(g: Grower) -> None:
    """A causal convolution with dilation; its context is what it reads of frames before, or what that is made of."""
    if g.chance(0.4):
        gated_convolution(g)
        return
    kernel, dilation = int(g.rng.integers(2, 4)), int(g.rng.integers(1, 4))
    context, is_grouped = (kernel - 1) * dilation, g.chance(0.5)
    x, lies_in_channels = g.value, g.chance(0.5)
    at = 2 if lies_in_channels else 1
    state = g.state([BATCH, WIDTH, context] if lies_in_channels else [BATCH, context, WIDTH])
    joined = g.op("Concat", [state.before, g.channels_first(x) if lies_in_channels else x], axis=at)
    state.after = g.cut(joined, -context, END, at)
    weights = g.weights(WIDTH, 1 if is_grouped else WIDTH, kernel)
    read = joined if lies_in_channels else g.channels_first(joined)
    heard = g.op("Conv", [read, weights], dilations=[dilation], group=WIDTH if is_grouped else 1)
    g.value = g.op("Add", [x, g.channels_first(heard)])


def gated_convolution(g: Grower) -> None:
    """A convolution whose context lies in front of what works on single frames: a product with a bias, and a gate."""
    kernel, lies_in_channels = int(g.rng.integers(2, 6)), g.chance(0.5)
    context, at = kernel - 1, 2 if lies_in_channels else 1
    x = g.value
    state = g.state([BATCH, WIDTH, context] if lies_in_channels else [BATCH, context, WIDTH])
    joined = g.op("Concat", [state.before, g.channels_first(x) if lies_in_channels else x], axis=at)
    state.after = g.cut(joined, -context, END, at)
    if lies_in_channels:
        wide = g.op("Conv", [joined, g.weights(2 * WIDTH, WIDTH, 1), g.weights(2 * WIDTH)])
    else:
        wide = g.op("Add", [g.linear(joined, 2 * WIDTH), g.weights(2 * WIDTH)])
    first, second = g.pieces(wide, 1 if lies_in_channels else 2, WIDTH, 2)
    gated = g.op("Mul", [first, g.op("Sigmoid", [second])])
    if g.chance(0.2):
        gated = g.op("Add", [gated, joined])
    read = gated if lies_in_channels else g.channels_first(gated)
    heard = g.op("Conv", [read, g.weights(WIDTH, 1, kernel)], group=WIDTH)
    g.value = g.op("Add", [x, g.channels_first(heard)])


def delay(g: Grower) -> None:
    """An output that lags: what is ahead of a frame is heard before it is answered."""
    lag, x = int(g.rng.integers(1, 4)), g.value
    state = g.state([BATCH, lag, WIDTH])
    joined = g.op("Concat", [state.before, x], axis=1)
    state.after = g.cut(joined, -lag, END, 1)
    g.value = g.op("Add", [g.cut(joined, 0, -lag, 1), g.op("Mul", [x, g.number(0.5)])])


GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}


def recurrence(g: Grower) -> None:
    """GRU, LSTM or RNN of one or two layers, whose states are [batch, 1, width]."""
    op, x = str(g.rng.choice(list(GATES))), g.value
    heard = g.op("Transpose", [x], perm=[1, 0, 2])
    for _ in range(1 if g.chance(0.6) else 2):
        heard = one_recurrence(g, op, heard)
    g.value = g.op("Add", [x, g.op("Transpose", [heard], perm=[1, 0, 2])])


def one_recurrence(g: Grower, op: str, frames: ir.Value, direction: str = "forward") -> ir.Value:
    """Frames [frames, batch, width] through one layer with its states."""
    states = [g.state([BATCH, 1, WIDTH]) for _ in range(2 if op == "LSTM" else 1)]
    before = [g.op("Transpose", [state.before], perm=[1, 0, 2]) for state in states]
    weights = [g.weights(1, GATES[op] * WIDTH, WIDTH) for _ in range(2)]
    more = {"linear_before_reset": 1} if op == "GRU" and g.chance(0.5) else {}
    inputs = [frames, *weights, None, None, *before]
    heard, *after = g.ops(op, inputs, 1 + len(states), hidden_size=WIDTH, direction=direction, **more)
    for state, each in zip(states, after, strict=True):
        state.after = g.op("Transpose", [each], perm=[1, 0, 2])
    return g.op("Squeeze", [heard, g.integers(1)])


def running_sum(g: Grower) -> None:
    """A sum over all frames so far, with which each chunk is shifted."""
    state, x = g.state([BATCH, 1, WIDTH]), g.value
    added = g.op("ReduceSum", [x, g.integers(1)], keepdims=1)
    total = g.op("Add", [g.op("Mul", [state.before, g.number(0.5)]), g.op("Mul", [added, g.number(0.1)])])
    state.after = total
    g.value = g.op("Add", [x, total])


def running_count(g: Grower) -> None:
    """The number of frames so far, as a real number per row."""
    state, x = g.state([BATCH, 1, 1]), g.value
    state.after = g.op("Add", [state.before, g.real(g.length(x))])
    g.value = g.op("Add", [x, g.op("Sin", [state.after])])


def running_mean(g: Grower) -> None:
    """Every frame less the mean of all so far: a sum and a whole number are carried."""
    total, count, x = g.state([BATCH, 1, WIDTH]), g.state([BATCH, 1, 1], "int64"), g.value
    total.after = g.op("Add", [total.before, g.op("ReduceSum", [x, g.integers(1)], keepdims=1)])
    count.after = g.op("Add", [count.before, g.length(x)])
    mean = g.op("Div", [total.after, g.op("Max", [g.real(count.after), g.number(1)])])
    g.value = g.op("Sub", [x, mean])


def decayed_sum(g: Grower) -> None:
    """A running sum within the chunk on top of what was carried."""
    state, x = g.state([BATCH, 1, WIDTH]), g.value
    total = g.op("Add", [g.op("CumSum", [g.op("Mul", [x, g.number(0.1)]), g.whole(1)]), state.before])
    state.after = g.op("Tanh", [g.cut(total, -1, END, 1)])
    g.value = g.op("Add", [x, total])


def last_frame(g: Grower) -> None:
    """The difference to the frame before, which for the first one is carried."""
    state, x = g.state([BATCH, 1, WIDTH]), g.value
    joined = g.op("Concat", [state.before, x], axis=1)
    state.after = g.cut(x, -1, END, 1)
    g.value = g.op("Sub", [x, g.cut(joined, 0, -1, 1)])


def linear(g: Grower) -> None:
    """A matrix product of every frame."""
    g.value = g.op("Tanh", [g.linear(g.value)])


def norm(g: Grower) -> None:
    """The norm of every frame."""
    g.value = g.op("LayerNormalization", [g.value, g.weights(WIDTH), g.weights(WIDTH)], axis=-1)


def mean_of_chunk(g: Grower) -> None:
    """Every frame less the mean of its chunk."""
    g.value = g.op("Sub", [g.value, g.op("ReduceMean", [g.value, g.integers(1)], keepdims=1)])


def squeezed_gate(g: Grower) -> None:
    """Every channel by a gate of its mean over the chunk (squeeze and excitation), or over all frames so far."""
    x = g.value
    if g.chance(0.5):
        mean = g.op("GlobalAveragePool", [g.channels_first(x)])
        g.value = g.op("Mul", [x, g.op("Sigmoid", [g.linear(g.channels_first(mean))])])
        return
    state = g.state([BATCH, WIDTH])
    mean = g.op("ReduceMean", [x, g.integers(1)], keepdims=0)
    state.after = g.op("Add", [g.op("Mul", [state.before, g.number(0.5)]), mean])
    g.value = g.op("Mul", [x, g.op("Unsqueeze", [g.op("Sigmoid", [state.after]), g.integers(1)])])


def norm_of_chunk(g: Grower) -> None:
    """Every channel by its mean and variance over the chunk."""
    heard = g.op("InstanceNormalization", [g.channels_first(g.value), g.weights(WIDTH), g.weights(WIDTH)])
    g.value = g.op("Add", [g.value, g.channels_first(heard)])


def gate(g: Grower) -> None:
    """Half of the channels by the other half."""
    left, right = g.pieces(g.linear(g.value, 2 * WIDTH), 2, WIDTH, 2)
    g.value = g.op("Mul", [left, g.op("Sigmoid", [right])])


def held_frames(g: Grower) -> None:
    """Numbers for every place of a chunk, which are carried: a stream has chunks of one length."""
    x = g.value
    state = g.state([BATCH, CHUNK, WIDTH])
    g.value = g.op("Add", [x, state.before])
    state.after = g.op("Tanh", [g.value])


LAYERS: dict[str, Layer] = {
    layer.__name__: layer
    for layer in (
        attention,
        convolution,
        delay,
        recurrence,
        running_sum,
        running_count,
        running_mean,
        decayed_sum,
        last_frame,
        linear,
        norm,
        mean_of_chunk,
        squeezed_gate,
        norm_of_chunk,
        gate,
    )
}

STATELESS = ("linear", "norm", "mean_of_chunk", "squeezed_gate", "norm_of_chunk", "gate")
