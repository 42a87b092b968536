"""Grows a random step graph: inputs, states and outputs as authors lay them out, and the recipe that says so.

Layers see every input with the batch in front, [batch, ...]. How the author has it is drawn here, once for the graph:
the batch in front, the batch anywhere, or one row, with a 1 for the batch or without it; and states of one shape may
lie in one tensor. The recipe gives the batch buckets, fixes it, writes its size as a number, or has none.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.stages import Feed
from compiler.recipe.graph import Graph
from runtime_lite.format.initial_value import initial_of_lists
from tests.property.stream_misdeclared import misdeclare

WIDTH = 4
OPSET = 20
END = 2**63 - 1

BATCH, CHUNK = "batch", "chunk"

BUCKETED = 0.7
"""Graphs whose batch has buckets."""

MISDECLARED = 0.06
"""Recipes that say what the graph is not."""

BEGUN = 0.5
"""States of one size that begin with other numbers than 0."""

TYPES = {"float32": ir.DataType.FLOAT, "int64": ir.DataType.INT64}


@dataclasses.dataclass(frozen=True)
class Window:
    """A cache axis.

    Attributes:
        axis: its name.
        slots: how many frames are kept.
        cut: how the author cuts caches along it: `whole` leaves that to the recipe, `last` takes the last frames,
            `from` those from a computed place on.
        more: frames that the author keeps beyond the slots.
        frames: what a chunk of 1, 2, 3 and so on entries adds.
    """

    axis: str
    slots: int
    cut: str
    more: int
    frames: tuple[int, ...]


@dataclasses.dataclass
class Drawn:
    """A state while the graph grows: what layers read of it and what it becomes, [batch, ...] both.

    Attributes:
        shape: with the batch and perhaps a window in it.
        dtype: element type.
        before: what layers read.
        after: what it becomes.
        is_apart: whether it may not share a tensor with others.
    """

    shape: tuple[int | str, ...]
    dtype: str
    before: ir.Value
    after: ir.Value | None = None
    is_apart: bool = False


@dataclasses.dataclass
class Grown:
    """A random step graph.

    Attributes:
        model: the graph as its author exports it.
        spec: what a recipe says of it.
        chunk: entries of a whole chunk.
        shortest: entries of the shortest chunk that is drawn.
        is_ragged: whether chunks may be shorter than a whole one.
        rows: where the scores have the batch as the author gives them; None where they have none.
        positions: inputs that callers feed with positions: `so far`, how far the stream has come, or `anywhere`.
        counts: by input that the bundle counts, what a chunk of 1, 2, 3 and so on entries adds.
        layers: names of the layers.
        first: the call that starts a stream, where it is a graph of its own.
        whole: where the batch has no buckets, how callers feed it.
    """

    model: ir.Model
    spec: Graph
    chunk: int
    shortest: int
    is_ragged: bool
    rows: int | None
    positions: dict[str, str]
    counts: dict[str, tuple[int, ...]]
    layers: tuple[str, ...]
    first: ir.Model | None = None
    whole: "Whole | None" = None

    def fed(self, feed: Feed) -> Feed:
        """A feed of one row, the batch in front, as callers give it."""
        return feed if self.whole is None else self.whole.fed(feed)

    def length_of(self, feed: Feed) -> int:
        """The entries of a chunk, as callers give it."""
        return int(feed["features"].shape[self.spec.inputs["features"].shape.index(CHUNK)])


@dataclasses.dataclass(frozen=True)
class Whole:
    """A graph whose recipe has no axis of rows: a call is given whole, as the author has it.

    Attributes:
        rows: of every call.
        places: where every input has the batch; None where it has none.
    """

    rows: int
    places: Mapping[str, int | None]

    def fed(self, feed: Feed) -> Feed:
        """A feed of one row, the batch in front, as callers give it: in every row once more, each a little other."""
        found = {}
        for name, array in feed.items():
            rows = np.concatenate([array if array.dtype.kind != "f" else array + row for row in range(self.rows)])
            place = self.places[name]
            found[name] = np.asarray(rows[0]) if place is None else np.moveaxis(rows, 0, place)
        return found


class Grower:
    """Grows one graph.

    Attributes:
        rng: draws all of it.
        begun: draws what states begin with.
        is_plain: whether the batch is in front, chunks are of one size and states are joined to frames as they come in.
        chunk: entries of a whole chunk.
        is_ragged: whether chunks may be shorter.
        form: `front`, `anywhere` or `one row`: where the author has the batch.
        kind: `buckets`, `fixed`, or `number`, where the recipe names no batch.
        rows: how many there are where the batch has no buckets.
        least: entries of the shortest chunk that the layers so far take.
        value: frames [batch, frames, width], which the next layer takes.
        frames_of: returns the frames of `value` for a number of entries of a chunk.
    """

    def __init__(self, rng: np.random.Generator, *, is_plain: bool = False) -> None:
        self.rng, self.is_plain = rng, is_plain
        self.chunk, self.is_ragged = int(rng.integers(1, 7)), bool(rng.random() < 0.7) and not is_plain
        self.form = str(rng.choice(["front", "anywhere", "one row"], p=[0.5, 0.25, 0.25])) if not is_plain else "front"
        self.model = ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": OPSET}, name="grown"), ir_version=10)
        self.insert = graphs.Inserter(self.model, "grown")
        self.inputs: dict[str, dict[str, Any]] = {}
        apart, self.begun = rng.spawn(2)
        self.kind = "buckets" if apart.random() < BUCKETED else str(apart.choice(["fixed", "number"]))
        if self.form == "one row" and self.kind == "fixed":
            self.kind = "number"
        self.rows = 1 if self.form == "one row" else int(apart.choice([1, 1, 3]))
        self.least = 1
        self.axes: dict[str, dict[str, Any]] = {CHUNK: {"fixed": self.chunk}}
        if self.kind != "number":
            self.axes[BATCH] = {"buckets": (1, 3)} if self.kind == "buckets" else {"fixed": self.rows}
        self.row_axes: dict[str, int | None] = {}
        if self.is_ragged:
            self.axes[CHUNK] = {"buckets": (self.chunk,), "length_input": "chunk_length"}
        self.windows: list[Window] = []
        self.states: list[Drawn] = []
        self.positions: dict[str, str] = {}
        self.counts: dict[str, tuple[int, ...]] = {}
        self.place: ir.Value | None = None
        self.value = self.input("features", [BATCH, CHUNK, WIDTH])
        self.frames_of: Callable[[int], int] = lambda entries: entries

    def chance(self, share: float) -> bool:
        """Return True with probability `share`."""
        return bool(self.rng.random() < share)

    # Nodes

    def op(self, op_type: str, inputs: Sequence[ir.Value | None], **attributes: Any) -> ir.Value:
        """One node."""
        dtype = attributes.pop("dtype", None)
        return self.insert.op(op_type, inputs, attributes, name=op_type.lower(), dtype=dtype)

    def ops(self, op_type: str, inputs: Sequence[ir.Value | None], count: int, **attributes: Any) -> list[ir.Value]:
        """One node with several results."""
        kind = next(value.type for value in inputs if value is not None)
        names = [graphs.fresh_name(self.model.graph, op_type.lower()) for _ in range(count)]
        values = [ir.Value(name=name, type=kind) for name in names]
        self.insert.place(ir.node(op_type, inputs, attributes, outputs=values, name=f"{names[0]}_node"))
        return values

    def weights(self, *shape: int) -> ir.Value:
        """Random numbers that keep values small."""
        numbers = self.rng.standard_normal(shape) / np.sqrt(max(shape[-1], 1))
        return self.insert.constant(numbers.astype(np.float32), "w")

    def linear(self, value: ir.Value, width: int = WIDTH) -> ir.Value:
        """A matrix product, from the width of all frames."""
        return self.op("MatMul", [value, self.weights(WIDTH, width)])

    def number(self, value: float) -> ir.Value:
        """A real constant."""
        return self.insert.constant(np.array(value, np.float32), "c")

    def whole(self, value: int) -> ir.Value:
        """A whole number, int64 []."""
        return self.insert.constant(np.array(value, np.int64), "bound")

    def integers(self, *numbers: int) -> ir.Value:
        """A list of whole numbers."""
        return self.insert.int64s(*numbers)

    def length(self, value: ir.Value, axis: int = 1) -> ir.Value:
        """The size of an axis, int64 []."""
        return self.op("Squeeze", [self.size(value, axis), self.integers(0)])

    def size(self, value: ir.Value, axis: int) -> ir.Value:
        """The size of an axis, int64 [1]."""
        return self.op("Shape", [value], start=axis, end=axis + 1, dtype=ir.DataType.INT64)

    def cut(self, value: ir.Value, start: int, end: int, axis: int) -> ir.Value:
        """Entries of an axis."""
        return self.op("Slice", [value, self.integers(start), self.integers(end), self.integers(axis)])

    def pieces(self, value: ir.Value, axis: int, size: int, count: int) -> list[ir.Value]:
        """So many entries of an axis each, as `chunk` and `split` are exported: Split, a list of pieces, or slices."""
        drawn = self.rng.random()
        if drawn < 0.2:
            return self.ops("Split", [value], count, axis=axis, num_outputs=count)
        if drawn < 0.4:
            return self.ops("Split", [value, self.integers(*[size] * count)], count, axis=axis)
        if drawn < 0.6:
            return self._listed(value, count, self.whole(size), axis=axis)
        if drawn < 0.8:
            return self._listed(value, count, self.integers(*[size] * count), axis=axis)
        return [self.cut(value, size * place, size * (place + 1), axis) for place in range(count)]

    def _listed(self, value: ir.Value, count: int, *sizes: ir.Value, **attributes: int) -> list[ir.Value]:
        """The pieces of a list, of which some are counted from its end."""
        [pieces] = self.ops("SplitToSequence", [value, *sizes], 1, **attributes)
        assert isinstance(value.type, ir.TensorType)
        pieces.type = ir.SequenceType(value.type)
        places = [self.whole(place - count if self.chance(0.2) else place) for place in range(count)]
        return [self.op("SequenceAt", [pieces, place], dtype=value.dtype) for place in places]

    def real(self, value: ir.Value) -> ir.Value:
        """Whole numbers as real ones."""
        return self.op("Cast", [value], to=ir.DataType.FLOAT)

    def channels_first(self, value: ir.Value) -> ir.Value:
        """[batch, frames, width] as [batch, width, frames], and back."""
        return self.op("Transpose", [value], perm=[0, 2, 1])

    # Inputs, states, positions

    def input(self, name: str, shape: Sequence[int | str], dtype: str = "float32", **said: Any) -> ir.Value:
        """A new input, as layers see it; how the author has it is drawn."""
        at, is_absent = self._row_axis(len(shape))
        rest = list(shape[1:])
        row: list[int | str] = [1 if self.form == "one row" else self.rows if self.kind == "number" else BATCH]
        own = rest if is_absent else [*rest[:at], *row, *rest[at:]]
        self.row_axes[name] = None if is_absent else at
        value = ir.Value(name=name, shape=self._shape(own))
        value.dtype = TYPES[dtype]
        self.model.graph.inputs.append(value)
        graphs.names_taken(self.model.graph).add(name)
        original = {} if self.form == "front" or self.kind != "buckets" else {"original": tuple(own)}
        shape = shape if self.kind == "buckets" else own
        self.inputs[name] = {"shape": tuple(shape), "dtype": dtype, **original, **said}
        if is_absent:
            return self.op("Unsqueeze", [value, self.integers(0)])
        return value if at == 0 else self.op("Transpose", [value], perm=[at, *(i for i in range(len(own)) if i != at)])

    def _shape(self, own: Sequence[int | str]) -> ir.Shape:
        """The sizes of an input in the graph, as its author has it."""
        fixed = {axis: each["fixed"] for axis, each in self.axes.items() if "fixed" in each}
        return ir.Shape([fixed.get(size, size) for size in own])  # type: ignore[arg-type]

    def _row_axis(self, rank: int) -> tuple[int, bool]:
        """Where an input has the batch, and whether it has none."""
        if self.form == "front":
            return 0, False
        return int(self.rng.integers(0, rank)), self.form == "one row" and self.chance(0.4)

    def state(self, shape: Sequence[int | str], dtype: str = "float32", *, apart: bool = False) -> Drawn:
        """A new state; layers set what it becomes."""
        before = ir.Value(name=graphs.fresh_name(self.model.graph, "before"), type=ir.TensorType(TYPES[dtype]))
        drawn = Drawn(tuple(shape), dtype, before, is_apart=apart)
        self.states.append(drawn)
        return drawn

    def window(self, frames: tuple[int, ...] | None = None) -> Window:
        """A cache axis: a new one, or one that other caches have, where as many frames come.

        Args:
            frames: that a chunk of 1, 2, 3 and so on entries adds; all that come, where nothing is said.
        """
        frames = frames or tuple(map(self.frames_of, range(1, self.chunk + 1)))
        alike = [window for window in self.windows if window.frames == frames]
        if alike and self.chance(0.4):
            return alike[int(self.rng.integers(0, len(alike)))]
        slots = int(self.rng.integers(frames[-1], frames[-1] + 7))
        cut = str(self.rng.choice(["whole", "last", "from"], p=[0.6, 0.3, 0.1]))
        made = Window(f"cache_{len(self.windows)}", slots, cut, int(self.rng.integers(0, 3)), frames)
        self.windows.append(made)
        self.axes[made.axis] = {"window": slots, "length_input": f"{made.axis}_length"}
        return made

    def adds(self, window: Window, frames: tuple[int, ...]) -> None:
        """Say that a chunk of 1, 2, 3 and so on entries adds others to a window than come in."""
        self.windows[self.windows.index(window)] = dataclasses.replace(window, frames=frames)

    def kept(self, window: Window, joined: ir.Value, axis: int) -> ir.Value:
        """What a cache becomes, of cached and new frames."""
        most = window.slots + window.more
        if window.cut == "whole":
            return joined
        if window.cut == "last":
            return self.cut(joined, -most, END, axis)
        behind = self.op("Sub", [self.size(joined, axis), self.integers(most)])
        start = self.op("Max", [behind, self.integers(0)])
        return self.op("Slice", [joined, start, self.integers(END), self.integers(axis)])

    def offset(self) -> ir.Value:
        """How far the stream has come, or any place: int64 [batch]; counted, carried by the graph, or fed."""
        if self.place is None or self.chance(0.2):
            self.place = self._offset()
        return self.place

    def _offset(self) -> ir.Value:
        drawn, name = self.rng.random(), f"offset_{len(self.positions) + len(self.counts)}"
        if drawn < (0 if self.is_plain else 0.03 if self.is_ragged else 0.5):
            window = self.windows[0] if self.windows and self.chance(0.4) else None
            self.counts[name] = tuple(range(1, self.chunk + 1)) if window is None else window.frames
            return self.input(name, [BATCH], "int64", counts=CHUNK if window is None else window.axis)
        if drawn < 0.7 and not self.is_plain:
            state = self.state([BATCH], "int64")
            state.after = self.op("Add", [state.before, self.size(self.value, 1)])
            return state.before
        self.positions[name] = "so far" if self.chance(0.7) else "anywhere"
        return self.input(name, [BATCH], "int64")

    # The end

    def finish(self, layers: Sequence[str]) -> Grown:
        """The graph."""
        scores = self.op("MatMul", [self.value, self.weights(WIDTH, 3)])
        rows = self._give("scores", scores, is_absent=self.form == "one row" and self.is_ragged and self.chance(0.3))
        for number, group in enumerate(self._groups()):
            self._carry(f"state_{number}", group)
        if not self.is_plain and self.chance(MISDECLARED) and self.kind == "buckets":
            misdeclare(self.inputs, self.axes, self.rng)
            for value in self.model.graph.inputs:
                given = self.inputs[str(value.name)]
                value.shape = self._shape(given.get("original", given["shape"]))
        spec = Graph.model_validate(
            {
                "source": {"factory": "grown:graph"},
                "inputs": self.inputs,
                "outputs": tuple(str(value.name) for value in self.model.graph.outputs),
                "axes": {name: axis for name, axis in self.axes.items() if self._is_used(name)},
            }
        )
        graphs.infer_shapes(self.model)
        shortest = next(entries for entries in range(self.least, self.chunk + 1) if self.frames_of(entries) > 0)
        whole = None if self.kind == "buckets" else Whole(self.rows, self.row_axes)
        drawn = (self.chunk, shortest, self.is_ragged, rows if whole is None else 0, self.positions, self.counts)
        return Grown(self.model, spec, *drawn, layers=tuple(layers), whole=whole)

    def _is_used(self, axis: str) -> bool:
        return any(axis in given["shape"] for given in self.inputs.values())

    def _groups(self) -> Iterator[list[Drawn]]:
        """The states, those together that lie in one tensor."""
        alike: dict[tuple[Any, ...], list[Drawn]] = {}
        for number, each in enumerate(self.states):
            alike.setdefault((number,) if each.is_apart else (each.shape, each.dtype), []).append(each)
        for group in alike.values():
            if len(group) > 1 and not self.is_plain and self.chance(0.6):
                yield group
            else:
                yield from ([each] for each in group)

    def _carry(self, name: str, group: Sequence[Drawn]) -> None:
        """One input for some states, and the output that feeds it."""
        shape, dtype = list(group[0].shape), group[0].dtype
        behind, at = self.insert, 0
        self.insert = graphs.Inserter(self.model, "grown", before=next(iter(self.model.graph)))
        if len(group) > 1:
            at = int(self.rng.integers(1, len(shape) + 1))
            shape.insert(at, len(group))
        whole = self.input(name, shape, dtype, state=f"next_{name}")
        self._begin(self.inputs[name])
        parts = [whole] if len(group) == 1 else self._parts(whole, at, len(group))
        for part, each in zip(parts, group, strict=True):
            each.before.replace_all_uses_with(part)
        self.insert = behind
        found = []
        for part, each in zip(parts, group, strict=True):
            assert each.after is not None
            found.append(part if each.after is each.before else each.after)
        if len(group) > 1:
            found = [self.op("Unsqueeze", [each, self.integers(at)]) for each in found]
            found = [self.op("Concat", found, axis=at)]
        self._give(f"next_{name}", found[0], like=name)

    def _begin(self, given: dict[str, Any]) -> None:
        """Say that a state of one size begins with a number, or with numbers that differ along some of its axes."""
        own = given.get("original", given["shape"])
        if self.is_plain or any("window" in self.axes.get(size, {}) for size in own):
            return
        drawn = self.begun.random()
        if drawn < BEGUN:
            sizes = [size if isinstance(size, int) else self.axes[size].get("fixed", 1) for size in own]
            alike = drawn < BEGUN / 2
            shape = [] if alike else [size if self.begun.random() < 0.7 else 1 for size in sizes]
            whole = given["dtype"] == "int64"
            numbers = self.begun.integers(-1, 4, shape) if whole else self.begun.integers(-8, 9, shape) / 4
            given["initial"] = initial_of_lists(numbers.tolist())

    def _parts(self, whole: ir.Value, at: int, count: int) -> list[ir.Value]:
        """Every state of those in one tensor."""
        drawn = self.rng.random()
        if drawn < 0.3:
            return [self.op("Gather", [whole, self.whole(layer)], axis=at) for layer in range(count)]
        if drawn < 0.5:
            return self._listed(whole, count, axis=at, keepdims=0)
        return [self.op("Squeeze", [each, self.integers(at)]) for each in self.pieces(whole, at, 1, count)]

    def _give(self, name: str, value: ir.Value, *, like: str | None = None, is_absent: bool = False) -> int | None:
        """An output, laid out as its input is, or as drawn; where it has the batch."""
        place = self.row_axes[like] if like is not None else 0
        if like is None and self.form == "anywhere":
            place = int(self.rng.integers(0, 3))
        is_absent, at = is_absent or place is None, place or 0
        if is_absent:
            value = self.op("Squeeze", [value, self.integers(0)])
        elif at:
            rank = 3 if like is None else len(self.inputs[like]["shape"])
            value = self.op("Transpose", [value], perm=[*range(1, at + 1), 0, *range(at + 1, rank)])
        if value in self.model.graph.outputs or value.producer() is None:
            value = self.op("Identity", [value])
        value.name = name
        self.model.graph.outputs.append(value)
        return None if is_absent else at
