"""Random step graphs: layers over a stream, each with states of its own make, and chunks of one size or of any.

A graph takes features [batch, chunk, width] and the states of its layers, and gives scores and the next states. Every
layer takes and gives [batch, frames, width]; what it keeps from call to call is drawn with it.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from compiler import ir as house
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Axis, Input, Source
from compiler.stages import Array

WIDTH = 4
OPSET = 20
END = 2**63 - 1
TABLE_ROWS = 64

BATCH, CHUNK = "batch", "chunk"


@dataclasses.dataclass(frozen=True)
class Cache:
    """A state along which frames are cached.

    Attributes:
        input: the state.
        output: what feeds it.
        frames_axis: where the frames lie.
        axis: name of the cache axis.
    """

    input: str
    output: str
    frames_axis: int
    axis: str


@dataclasses.dataclass
class Grown:
    """A random step graph.

    Attributes:
        model: the graph as its author exports it.
        spec: what a recipe says of it.
        caches: its states along cache axes.
        chunk: entries of a whole chunk.
        is_ragged: whether chunks may be shorter.
        layers: names of the layers.
    """

    model: ir.Model
    spec: Graph
    caches: tuple[Cache, ...]
    chunk: int
    is_ragged: bool
    layers: tuple[str, ...]


class Grower:
    """Grows one graph.

    Args:
        rng: draws all of it.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.chunk, self.is_ragged = int(rng.integers(1, 7)), bool(rng.random() < 0.75)
        self.frames: str | int = CHUNK if self.is_ragged else self.chunk
        features = _input("features", [BATCH, self.frames, WIDTH])
        graph = ir.Graph([features], [], nodes=[], opset_imports={"": OPSET}, name="grown")
        self.model = ir.Model(graph, ir_version=10)
        self.insert = house.Inserter(self.model, "grown")
        self.inputs: dict[str, Input] = {"features": Input(shape=(BATCH, self.frames, WIDTH), dtype="float32")}
        self.axes: dict[str, Axis] = {BATCH: Axis(buckets=(1, 3))}
        if self.is_ragged:
            self.axes[CHUNK] = Axis(buckets=(self.chunk,), length_input="chunk_length")
        self.caches: list[Cache] = []
        self.outputs: list[ir.Value] = []
        self.value: ir.Value = features

    def op(self, op_type: str, inputs: Sequence[ir.Value | None], **attributes: Any) -> ir.Value:
        """One node."""
        dtype = attributes.pop("dtype", None)
        return self.insert.op(op_type, inputs, attributes, name=op_type.lower(), dtype=dtype)

    def ops(self, op_type: str, inputs: Sequence[ir.Value | None], count: int, **attributes: Any) -> list[ir.Value]:
        """One node with several results."""
        values = [
            ir.Value(name=house.fresh_name(self.model.graph, op_type.lower()), type=self.value.type)
            for _ in range(count)
        ]
        node = ir.node(op_type, inputs, attributes, outputs=values, name=f"{values[0].name}_node")
        self.insert.place(node)
        return values

    def weights(self, *shape: int) -> ir.Value:
        """Random numbers that keep values small."""
        numbers = self.rng.standard_normal(shape) / np.sqrt(max(shape[-1], 1))
        return self.insert.constant(numbers.astype(np.float32), "w")

    def number(self, value: float) -> ir.Value:
        """A real constant."""
        return self.insert.constant(np.array(value, np.float32), "c")

    def integers(self, *numbers: int) -> ir.Value:
        """A list of whole numbers."""
        return self.insert.int64s(*numbers)

    def state(self, shape: Sequence[int | str], cached: tuple[int, str] | None = None) -> ir.Value:
        """A new state; `give` says what feeds it."""
        name = f"state_{len(self.inputs)}"
        value = _input(name, shape)
        self.model.graph.inputs.append(value)
        house.names_taken(self.model.graph).add(name)
        self.inputs[name] = Input(shape=tuple(shape), dtype="float32", state=f"next_{name}")
        if cached is not None:
            self.caches.append(Cache(name, f"next_{name}", *cached))
        return value

    def give(self, state: ir.Value, following: ir.Value) -> None:
        """What a state becomes."""
        if following in self.outputs or following.producer() is None:
            following = self.op("Identity", [following])
        following.name = f"next_{state.name}"
        self.outputs.append(following)

    def window(self, slots: int) -> str:
        """A new cache axis."""
        name = f"cache_{len(self.axes)}"
        self.axes[name] = Axis(window=slots, length_input=f"{name}_length")
        return name

    def length(self, value: ir.Value, axis: int) -> ir.Value:
        """The size of an axis, int64 []."""
        size = self.op("Shape", [value], start=axis, end=axis + 1, dtype=ir.DataType.INT64)
        return self.op("Squeeze", [size, self.integers(0)])

    def cut(self, value: ir.Value, start: int, end: int, axis: int) -> ir.Value:
        """Entries of an axis."""
        return self.op("Slice", [value, self.integers(start), self.integers(end), self.integers(axis)])

    def finish(self, layers: Sequence[str]) -> Grown:
        """The graph."""
        scores = self.op("MatMul", [self.value, self.weights(WIDTH, 3)])
        scores.name = "scores"
        self.model.graph.outputs.extend([scores, *self.outputs])
        spec = Graph(
            source=Source(factory="grown:graph"),
            inputs=self.inputs,
            outputs=tuple(str(value.name) for value in self.model.graph.outputs),
            axes=self.axes,
        )
        house.infer_shapes(self.model)
        return Grown(self.model, spec, tuple(self.caches), self.chunk, self.is_ragged, tuple(layers))


def _input(name: str, shape: Sequence[int | str]) -> ir.Value:
    value = ir.Value(name=name, shape=ir.Shape(list(shape)))
    value.dtype = ir.DataType.FLOAT
    return value


def _attention(g: Grower) -> None:
    """Queries of the new frames over cached ones: of inputs, or of keys and values, which lie this way or that."""
    x, slots = g.value, int(g.rng.integers(g.chunk, g.chunk + 7))
    axis = g.window(slots)
    if g.rng.random() < 0.5:
        joined = _joined(g, x, axis, slots)
        keys, values = (g.op("MatMul", [joined, g.weights(WIDTH, WIDTH)]) for _ in range(2))
    else:
        made = [g.op("MatMul", [x, g.weights(WIDTH, WIDTH)]) for _ in range(2)]
        keys, values = (_joined(g, each, axis, slots) for each in made)
    if g.rng.random() < 0.3:
        keys = g.op("Add", [keys, _table_rows(g, keys)])
    queries = g.op("MatMul", [x, g.weights(WIDTH, WIDTH)])
    scores = g.op("MatMul", [queries, g.op("Transpose", [keys], perm=[0, 2, 1])])
    drawn = g.rng.random()
    if drawn < 0.4:
        scores = _by_distance(g, scores, x, keys, masked=drawn < 0.2)
    weights = g.op("Softmax", [scores], axis=-1)
    g.value = g.op("Add", [x, g.op("MatMul", [weights, values])])


def _joined(g: Grower, new: ir.Value, axis: str, slots: int) -> ir.Value:
    """Cached frames and new ones, [batch, frames, width]; the state lies as drawn, and is whole or cut."""
    drawn = int(g.rng.integers(0, 4))
    at = 1 if drawn < 2 else 2
    shape: list[int | str] = [BATCH, axis, WIDTH] if at == 1 else [BATCH, WIDTH, axis]
    state = g.state(shape, (at, axis))
    if at == 2:
        new = g.op("Transpose", [new], perm=[0, 2, 1])
    joined = g.op("Concat", [state, new], axis=at)
    kept = joined
    if drawn % 2:
        kept = g.cut(joined, -slots - int(g.rng.integers(0, 3)), END, at)
    g.give(state, kept)
    return joined if at == 1 else g.op("Transpose", [joined], perm=[0, 2, 1])


def _table_rows(g: Grower, joined: ir.Value) -> ir.Value:
    """Rows of a table by the position in the window."""
    table = g.weights(1, TABLE_ROWS, WIDTH)
    if g.rng.random() < 0.5:
        count = g.op("Unsqueeze", [g.length(joined, 1), g.integers(0)])
        return g.op("Slice", [table, g.integers(0), count, g.integers(1)])
    zero, one = (g.insert.constant(np.array(number, np.int64), "bound") for number in (0, 1))
    places = g.op("Range", [zero, g.length(joined, 1), one])
    return g.op("Gather", [table, places], axis=1)


def _by_distance(g: Grower, scores: ir.Value, x: ir.Value, keys: ir.Value, *, masked: bool) -> ir.Value:
    """Scores less by the distance of key and query, or without keys behind the query."""
    zero, one = (g.insert.constant(np.array(number, np.int64), "bound") for number in (0, 1))
    whole = g.length(keys, 1)
    cached = g.op("Sub", [whole, g.length(x, 1)])
    keys_at = g.op("Unsqueeze", [g.op("Range", [zero, whole, one]), g.integers(0)])
    queries_at = g.op("Unsqueeze", [g.op("Range", [cached, whole, one]), g.integers(1)])
    if masked:
        seen = g.op("LessOrEqual", [keys_at, queries_at], dtype=ir.DataType.BOOL)
        return g.op("Where", [seen, scores, g.number(-1e9)], dtype=ir.DataType.FLOAT)
    distance = g.op("Cast", [g.op("Sub", [queries_at, keys_at])], to=ir.DataType.FLOAT)
    return g.op("Sub", [scores, g.op("Mul", [distance, g.number(0.1)])])


def _convolution(g: Grower) -> None:
    """A causal convolution with dilation; its context is what it reads of the frames before."""
    kernel, dilation = int(g.rng.integers(2, 4)), int(g.rng.integers(1, 3))
    context, is_grouped = (kernel - 1) * dilation, bool(g.rng.integers(0, 2))
    channels = bool(g.rng.integers(0, 2))
    state = g.state([BATCH, WIDTH, context] if channels else [BATCH, context, WIDTH])
    at, x = (2 if channels else 1), g.value
    new = g.op("Transpose", [x], perm=[0, 2, 1]) if channels else x
    joined = g.op("Concat", [state, new], axis=at)
    g.give(state, g.cut(joined, -context, END, at))
    read = joined if channels else g.op("Transpose", [joined], perm=[0, 2, 1])
    weights = g.weights(WIDTH, 1 if is_grouped else WIDTH, kernel)
    heard = g.op("Conv", [read, weights], dilations=[dilation], group=WIDTH if is_grouped else 1)
    g.value = g.op("Add", [x, g.op("Transpose", [heard], perm=[0, 2, 1])])


def _delay(g: Grower) -> None:
    """An output that lags: what is ahead of a frame is heard before it is answered."""
    lag, x = int(g.rng.integers(1, 4)), g.value
    state = g.state([BATCH, lag, WIDTH])
    joined = g.op("Concat", [state, x], axis=1)
    g.give(state, g.cut(joined, -lag, END, 1))
    g.value = g.op("Add", [g.cut(joined, 0, -lag, 1), g.op("Mul", [x, g.number(0.5)])])


def _recurrence(g: Grower) -> None:
    """GRU, LSTM or RNN, whose state is [batch, 1, width]."""
    op, x = str(g.rng.choice(["GRU", "LSTM", "RNN"])), g.value
    gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[op]
    states = [g.state([BATCH, 1, WIDTH]) for _ in range(2 if op == "LSTM" else 1)]
    before = [g.op("Transpose", [state], perm=[1, 0, 2]) for state in states]
    weights = [g.weights(1, gates * WIDTH, WIDTH) for _ in range(2)]
    inputs = [g.op("Transpose", [x], perm=[1, 0, 2]), *weights, None, None, *before]
    heard, *after = g.ops(op, inputs, 1 + len(states), hidden_size=WIDTH)
    for state, each in zip(states, after, strict=True):
        g.give(state, g.op("Transpose", [each], perm=[1, 0, 2]))
    frames = g.op("Transpose", [g.op("Squeeze", [heard, g.integers(1)])], perm=[1, 0, 2])
    g.value = g.op("Add", [x, frames])


def _running_sum(g: Grower) -> None:
    """A sum over all frames so far, with which each chunk is shifted."""
    state, x = g.state([BATCH, 1, WIDTH]), g.value
    added = g.op("ReduceSum", [x, g.integers(1)], keepdims=1)
    total = g.op("Add", [g.op("Mul", [state, g.number(0.5)]), g.op("Mul", [added, g.number(0.1)])])
    g.give(state, total)
    g.value = g.op("Add", [x, total])


def _running_count(g: Grower) -> None:
    """The number of frames so far, as a real number per row."""
    state, x = g.state([BATCH, 1, 1]), g.value
    count = g.op("Cast", [g.length(x, 1)], to=ir.DataType.FLOAT)
    total = g.op("Add", [state, count])
    g.give(state, total)
    g.value = g.op("Add", [x, g.op("Sin", [total])])


def _decayed_sum(g: Grower) -> None:
    """A running sum within the chunk on top of what was carried."""
    state, x = g.state([BATCH, 1, WIDTH]), g.value
    axis = g.insert.constant(np.array(1, np.int64), "axis")
    total = g.op("Add", [g.op("CumSum", [g.op("Mul", [x, g.number(0.1)]), axis]), state])
    g.give(state, g.op("Tanh", [g.cut(total, -1, END, 1)]))
    g.value = g.op("Add", [x, total])


def _last_frame(g: Grower) -> None:
    """The difference to the frame before, which for the first one is carried."""
    state, x = g.state([BATCH, 1, WIDTH]), g.value
    joined = g.op("Concat", [state, x], axis=1)
    g.give(state, g.cut(x, -1, END, 1))
    g.value = g.op("Sub", [x, g.cut(joined, 0, -1, 1)])


def _linear(g: Grower) -> None:
    g.value = g.op("Tanh", [g.op("MatMul", [g.value, g.weights(WIDTH, WIDTH)])])


def _norm(g: Grower) -> None:
    g.value = g.op("LayerNormalization", [g.value, g.weights(WIDTH), g.weights(WIDTH)], axis=-1)


def _mean_of_chunk(g: Grower) -> None:
    """Every frame less the mean of its chunk."""
    g.value = g.op("Sub", [g.value, g.op("ReduceMean", [g.value, g.integers(1)], keepdims=1)])


def _gate(g: Grower) -> None:
    both = g.op("MatMul", [g.value, g.weights(WIDTH, 2 * WIDTH)])
    left, right = g.ops("Split", [both], 2, axis=-1, num_outputs=2)
    g.value = g.op("Mul", [left, g.op("Sigmoid", [right])])


LAYERS: dict[str, Callable[[Grower], None]] = {
    "attention": _attention,
    "convolution": _convolution,
    "delay": _delay,
    "recurrence": _recurrence,
    "running_sum": _running_sum,
    "running_count": _running_count,
    "decayed_sum": _decayed_sum,
    "last_frame": _last_frame,
    "linear": _linear,
    "norm": _norm,
    "mean_of_chunk": _mean_of_chunk,
    "gate": _gate,
}

WITH_STATES = ("attention", "convolution", "delay", "recurrence", "running_sum", "running_count", "decayed_sum",
               "last_frame")  # fmt: skip


def grow(seed: int) -> Grown:
    """The graph of a seed; at least one layer has states."""
    rng = np.random.default_rng(seed)
    grower = Grower(rng)
    names = [str(rng.choice(WITH_STATES)), *map(str, rng.choice(list(LAYERS), int(rng.integers(0, 4))))]
    for name in names:
        LAYERS[name](grower)
    return grower.finish(names)


def chunks_of(grown: Grown, rng: np.random.Generator, calls: int) -> list[Array]:
    """Random chunks of one row, [1, length, width]: some whole, some of any length."""
    lengths = [
        int(rng.integers(1, grown.chunk + 1)) if grown.is_ragged and rng.random() < 0.6 else grown.chunk
        for _ in range(calls)
    ]
    return [rng.standard_normal((1, length, WIDTH)).astype(np.float32) for length in lengths]
