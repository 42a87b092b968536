"""Times one decode step of a large decoder by cached frames, with and without merged heads, and its floor.

    python -m benchmarks.decoder_step --folder /tmp/decoder --write docs/decoder_step.svg
    python -m benchmarks.decoder_step --folder /tmp/decoder --layers 3 --coded

The decoder is written as a graph over whole sequences: 12 layers of width 1024, 16 heads, rotary positions, random
weights. Its steps are derived, lowered by the standard passes and frozen to one frame per call, as a recipe with
`derive_steps` and `time: {buckets: [1]}` has them; states are not packed. With fewer heads of keys and values it has
the form that `merge_kv_heads` gives. A graph gives its caches whole, or, behind `append_states`, the new frame alone:
then writing that frame behind the others, as the runtime does, is part of the step. All graphs are asked in turn, round
after round, in one process on one thread; ratios are per round, the table shows their median and their 10th and 90th
percentile. The floor (`floor.py`) is the larger of its arithmetic at the peak of this machine and of weights and valid
frames of caches read once, at rates measured in the same run. What a step moves is counted in a profile: the bytes that
nodes write which only move, where they write a whole cache, and the frames that are appended.

With `--coded`, steps that append to caches of 8-bit integers, as `quantize_states` makes them, run beside those of
float32.
"""

import argparse
import dataclasses
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
from rich.console import Console
from rich.table import Table

from benchmarks import command
from benchmarks.floor import Machine, Work, to_floor
from compiler.base.pieces import write_files
from compiler.graph import model as graphs
from compiler.graph.stages import Feed, Lowered, PaddedAxis, State
from compiler.passes import make_pass
from compiler.passes.quantize_states import QuantizeStates
from compiler.passes.simplify import simplify_model
from compiler.proof.derivation.derive import derive
from compiler.recipe.tree.standard_passes import STANDARD_PASSES
from compiler.states.kept_frames import keep_newest
from compiler.targets.onnx_static import OnnxStatic
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.calibration import with_streams

LABELS = 1024
ROUNDS, CALLS = 12, 3
How = tuple[bool, bool]
"""Whether a step appends, and whether its caches are coded."""

MOVING = frozenset({"Concat", "Gather", "GatherND", "Slice", "Split", "Transpose", "Where", "Expand", "ScatterND"})
"""Operators whose results are counted as moved, where they are as large as a cache."""


@dataclasses.dataclass(frozen=True)
class Size:
    """The sizes of a decoder.

    Attributes:
        layers: number of layers of attention and a feed-forward part of four times the width.
        width: channels of a frame.
        heads: heads of queries.
        groups: heads of keys and values.
    """

    layers: int = 12
    width: int = 1024
    heads: int = 16
    groups: int = 16


@dataclasses.dataclass(frozen=True)
class Form:
    """A decoder and the form of its step.

    Attributes:
        size: the decoder.
        slots: frames that a cache holds.
        appends: whether a step returns the new frames alone.
        coded: whether caches hold 8-bit integers.
    """

    size: Size
    slots: int
    appends: bool
    coded: bool = False

    @property
    def entry_bytes(self) -> int:
        """Bytes of an entry of a cache."""
        return 1 if self.coded else 4


class _Writer:
    """Writes a decoder over whole sequences: tokens [batch, time] to scores [batch, time, 1024]."""

    def __init__(self, size: Size) -> None:
        self.size, self.random = size, np.random.default_rng(0)
        tokens = ir.Value(name="tokens", shape=ir.Shape(["batch", "time"]), type=ir.TensorType(ir.DataType.INT64))
        graph = ir.Graph([tokens], [], nodes=[], opset_imports={"": 20}, name="decoder")
        self.model = ir.Model(graph, ir_version=10)
        self.insert = graphs.Inserter(self.model, "decoder_step")
        self.weights_made = 0
        self._write(tokens)
        graphs.infer_shapes(self.model)

    def op(
        self, kind: str, *operands: ir.Value, dtype: ir.DataType | None = None, **attributes: int | Sequence[int]
    ) -> ir.Value:
        return self.insert.op(kind, list(operands), attributes, name=kind.lower(), dtype=dtype)

    def weights(self, rows: int, columns: int) -> ir.Value:
        self.weights_made += 1
        drawn = self.random.standard_normal((rows, columns), dtype=np.float32) / np.float32(np.sqrt(rows))
        return self.insert.constant(drawn, f"weights_{self.weights_made}")

    def number(self, value: float) -> ir.Value:
        return self.insert.constant(np.array(value, np.float32), "number")

    def _write(self, tokens: ir.Value) -> None:
        ints, op = self.insert.int64s, self.op
        length = op("Squeeze", op("Shape", tokens, dtype=ir.DataType.INT64, start=1, end=2))
        zero, one = (self.insert.constant(np.array(value, np.int64), "count") for value in (0, 1))
        places = op("Range", zero, length, one)
        rows, columns = op("Unsqueeze", places, ints(1)), op("Unsqueeze", places, ints(0))
        seen = op("LessOrEqual", columns, rows, dtype=ir.DataType.BOOL)
        half = self.size.width // self.size.heads // 2
        rates = self.insert.constant((1e4 ** (-np.arange(half) / half)).astype(np.float32)[np.newaxis], "rates")
        angles = op("Mul", op("Cast", rows, to=1), rates)
        turned = op("Cos", angles), op("Sin", angles)
        width = self.size.width
        x = op("Gather", self.weights(LABELS, width), tokens, dtype=ir.DataType.FLOAT, axis=0)
        for _ in range(self.size.layers):
            x = op("Add", x, self._attention(self._norm(x), turned, seen))
            wide = op("Gelu", op("MatMul", self._norm(x), self.weights(width, 4 * width)))
            x = op("Add", x, op("MatMul", wide, self.weights(4 * width, width)))
        scores = op("MatMul", self._norm(x), self.weights(width, LABELS))
        scores.name = "scores"
        self.model.graph.outputs.append(scores)

    def _norm(self, x: ir.Value) -> ir.Value:
        ones = self.insert.constant(np.ones(self.size.width, np.float32), "ones")
        return self.op("LayerNormalization", x, ones, axis=-1)

    def _attention(self, x: ir.Value, turned: tuple[ir.Value, ir.Value], seen: ir.Value) -> ir.Value:
        size, ints, op = self.size, self.insert.int64s, self.op
        channels = size.width // size.heads
        query, key = (self._turned(self._heads(x, count), *turned) for count in (size.heads, size.groups))
        value = self._heads(x, size.groups)
        key = op("Transpose", key, perm=(0, 1, 3, 2))
        if size.groups < size.heads:  # as merge_kv_heads writes it
            query = op("Reshape", query, ints(0, size.groups, size.heads // size.groups, -1, channels))
            key, value = op("Unsqueeze", key, ints(2)), op("Unsqueeze", value, ints(2))
        scores = op("Mul", op("MatMul", query, key), self.number(channels**-0.5))
        masked = op("Where", seen, scores, self.number(-np.inf), dtype=ir.DataType.FLOAT)
        context = op("MatMul", op("Softmax", masked, axis=-1), value)
        if size.groups < size.heads:
            context = op("Reshape", context, ints(0, size.heads, -1, channels))
        flat = op("Reshape", op("Transpose", context, perm=(0, 2, 1, 3)), ints(0, 0, size.width))
        return op("MatMul", flat, self.weights(size.width, size.width))

    def _heads(self, x: ir.Value, count: int) -> ir.Value:
        channels = self.size.width // self.size.heads
        product = self.op("MatMul", x, self.weights(self.size.width, count * channels))
        return self.op(
            "Transpose", self.op("Reshape", product, self.insert.int64s(0, 0, count, channels)), perm=(0, 2, 1, 3)
        )

    def _turned(self, x: ir.Value, cos: ir.Value, sin: ir.Value) -> ir.Value:
        ints, op = self.insert.int64s, self.op
        channels = self.size.width // self.size.heads
        first, second = (op("Slice", x, ints(at), ints(at + channels // 2), ints(3)) for at in (0, channels // 2))
        left = op("Sub", op("Mul", first, cos), op("Mul", second, sin))
        right = op("Add", op("Mul", second, cos), op("Mul", first, sin))
        return op("Concat", left, right, axis=3)


def whole_decoder(size: Size) -> ir.Model:
    """Return the decoder over whole sequences."""
    return _Writer(size).model


def lowered_step(model: ir.Model, slots: int, passes: Sequence[str]) -> Lowered:
    """Return the derived steps of a decoder, lowered by some passes.

    Args:
        model: the decoder over whole sequences; it is changed.
        slots: frames that a cache holds.
        passes: names of the passes in order.
    """
    simplify_model(model)
    derived = derive(model, "time", "past", slots)
    keep_newest(derived.model, slots, {each.output: each.axis for each in derived.cached})
    lowered = Lowered(
        "decoder",
        derived.model,
        states=tuple(State(each.input, each.output, each.axis, "past") for each in derived.cached),
        caches=(CacheAxis("past", slots, 1, "past_length", None, added="time", is_whole=True),),
        batch_axis="batch",
        data_outputs=("scores",),
        padded_axes=(PaddedAxis("time", "time_length"),),
    )
    for name in passes:
        lowered = make_pass(name, {}).apply(lowered).lowered
    return lowered


def passes_of(form: Form) -> list[str]:
    """Return the passes that a recipe lists for a form."""
    names = [name for name in STANDARD_PASSES if name != "pack_states"]
    return [*names, "append_states", "simplify"] if form.appends else names


def write_step(folder: Path, form: Form, rows: Sequence[int]) -> Path:
    """Return the file of a step of one frame; it is written unless an earlier run has written it."""
    size, how = form.size, f"{'_appended' if form.appends else ''}{'_coded' if form.coded else ''}"
    file = folder / f"{size.layers}x{size.width}_{size.heads}to{size.groups}_{form.slots}{how}" / "graphs"
    if not list(file.glob("*.onnx")):
        lowered = lowered_step(whole_decoder(size), form.slots, passes_of(form))
        if form.coded:
            lowered = QuantizeStates().apply(with_streams(lowered, _drawn_tokens(form.slots))).lowered
        built = OnnxStatic().emit(lowered, {"batch": tuple(rows), "time": (1,)})
        write_files(file.parent, built.files)
    (found,) = file.glob("*.onnx")
    return found


def _drawn_tokens(slots: int) -> list[Feed]:
    """Return a stream to choose grids with, no longer than a cache."""
    tokens = np.random.default_rng(0).integers(0, LABELS, (min(24, slots), 1, 1))
    return [{"tokens": each, "time_length": np.ones(1, np.int64)} for each in tokens]


class Contender:
    """One graph with buffers for every number of rows; a step reads its states from the buffers of the last one."""

    def __init__(self, form: Form, file: Path, rows: Sequence[int], profile: str = "") -> None:
        self.form, self.size, self.slots = form, form.size, form.slots
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        if profile:
            options.enable_profiling, options.profile_file_prefix = True, profile
        self.session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self.arrays: dict[tuple[int, str], Any] = {}
        self.bindings = {count: self._bound(count) for count in rows}

    def _bound(self, rows: int) -> Any:
        """Bind the inputs and outputs of the graph to buffers."""
        random, binding = np.random.default_rng(1), self.session.io_binding()
        for given in self.session.get_inputs():
            shape = [each if isinstance(each, int) else rows for each in given.shape]
            numbers = {"tokens": 7, "time_length": 1, "past_length": self.slots - 1}
            if given.name in numbers:
                array = np.full(shape, numbers[given.name], np.int64 if "int64" in given.type else np.int32)
            elif self.form.coded:
                array = random.integers(-127, 128, shape, np.int8)
            else:
                array = random.standard_normal(shape, dtype=np.float32)
            self.arrays[rows, given.name] = array
            binding.bind_input(given.name, "cpu", 0, array.dtype, shape, array.ctypes.data)
        for made in self.session.get_outputs():
            shape = [each if isinstance(each, int) else rows for each in made.shape]
            kind = np.int8 if "int8" in made.type else np.float32
            array = self.arrays[rows, made.name] = np.zeros(shape, kind)
            binding.bind_output(made.name, "cpu", 0, array.dtype, shape, array.ctypes.data)
        return binding

    def step(self, rows: int) -> None:
        """Run one step; new frames are written to the last slot of every row."""
        self.session.run_with_iobinding(self.bindings[rows])
        if self.form.appends:
            for given in self.session.get_inputs():
                if not given.name.startswith("cache"):
                    continue
                cache, new = (self.arrays[rows, name] for name in (given.name, f"next_{given.name}"))
                axis = next(at for at, size in enumerate(cache.shape) if size != new.shape[at])
                place = (slice(None),) * (axis - 1)
                for row in range(rows):
                    cache[row][(*place, self.slots - 1)] = new[row][(*place, 0)]

    def ms(self, rows: int) -> float:
        """Return the median milliseconds of some steps."""
        self.step(rows)
        found = []
        for _ in range(CALLS):
            started = time.perf_counter()
            self.step(rows)
            found.append(time.perf_counter() - started)
        return 1e3 * statistics.median(found)

    @property
    def weights(self) -> int:
        """Return the number of weights of all products."""
        size = self.size
        projected = size.width * (2 * size.width + 2 * size.groups * size.width // size.heads)
        return size.layers * (projected + 8 * size.width**2) + size.width * LABELS

    def work(self, rows: int) -> Work:
        """Return the work of a step, in which every weight and every cached frame is read once."""
        attended = 2 * self.size.layers * self.slots * self.size.width
        return Work({"float32": rows * (self.weights + attended)}, 4 * self.weights + self.cache_bytes(rows))

    def cache_bytes(self, rows: int) -> int:
        """Return the bytes of all valid frames, which a step reads once."""
        entries = rows * self.size.layers * 2 * self.slots * self.size.width * self.size.groups // self.size.heads
        return self.form.entry_bytes * entries


def moved_bytes(form: Form, file: Path) -> int:
    """Return the bytes that a step of one row writes in nodes that only copy at least a whole cache.

    If frames are appended, the frame that is written to every cache counts, too.
    """
    with tempfile.TemporaryDirectory() as folder:
        contender = Contender(form, file, [1], profile=str(Path(folder) / "step"))
        contender.step(1)
        events = json.loads(Path(contender.session.end_profiling()).read_text())
    least = contender.cache_bytes(1) // (2 * form.size.layers)
    appended = contender.cache_bytes(1) // form.slots if form.appends else 0
    told = [each["args"] for each in events if each.get("cat") == "Node" and each["name"].endswith("_kernel_time")]
    written = [int(each.get("output_size", 0)) for each in told if each.get("op_name") in MOVING]
    return appended + sum(each for each in written if each >= least)


def measured(contenders: Sequence[Contender], rows: Sequence[int], rounds: int) -> dict[str, list[float]]:
    """Return milliseconds by contender and rows, round by round."""
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        for count in rows:
            for each in contenders:
                with command.contender(_name(each.form, count)):
                    times.setdefault(_name(each.form, count), []).append(each.ms(count))
    return times


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description="A decode step against cached frames, heads merged or not.")
    parser.add_argument("--folder", type=Path, required=True, help="where the graphs are kept, some gigabytes")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--slots", type=int, nargs="+", default=[512])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--coded", action="store_true", help="appended caches alone, of 8-bit integers beside float32")
    parser.add_argument("--only-write", action="store_true", help="write the graphs and measure nothing")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument("--write", type=Path, help="draw the times here")
    options = parser.parse_args()
    sizes = [Size(options.layers, options.width, groups=groups) for groups in (16, 4)]
    hows = [(True, False), (True, True)] if options.coded else [(False, False), (True, False)]
    forms = [Form(size, slots, *how) for slots in options.slots for how in hows for size in sizes]
    files = {form: write_step(options.folder, form, options.rows) for form in forms}
    if options.only_write:
        return
    contenders = [Contender(form, file, options.rows) for form, file in files.items()]
    machine = Machine()
    found: dict[str, Any] = {"ms": measured(contenders, options.rows, options.rounds)}
    found["floor_ms"] = {
        _name(each.form, rows): 1e3 * machine.floor_s(each.work(rows)) for each in contenders for rows in options.rows
    }
    found["moved_mb"] = {_name(form, 1): moved_bytes(form, file) / 1e6 for form, file in files.items()}
    Console(width=150).print(_table(found, sizes, options.slots, options.rows, hows))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    if options.write is not None:
        options.write.write_text(picture(found, sizes, options.slots, options.rows), encoding="utf-8")


def _name(form: Form, rows: int) -> str:
    how = f"{'appended' if form.appends else 'whole'}{', coded' if form.coded else ''}"
    return f"{form.size.groups} heads, {how}, {form.slots} frames, {rows} rows"


def _table(
    found: dict[str, Any], sizes: Sequence[Size], slots: Sequence[int], rows: Sequence[int], hows: Sequence[How]
) -> Table:
    heads = [f"{size.groups} heads, ms" for size in sizes]
    first = _words(hows[0])
    table = Table(
        "frames", "rows", "caches", *heads, "4 to 16", f"to 16 {first}", f"each to {first}", "floors, ms",
        "each to its floor", "moved for a row, MB",
    )  # fmt: skip
    for frames in slots:
        for count in rows:
            bases = [found["ms"][_name(Form(size, frames, *hows[0]), count)] for size in sizes]
            for how in hows:
                forms = [Form(size, frames, *how) for size in sizes]
                times = [found["ms"][_name(form, count)] for form in forms]
                shown = [f"{statistics.median(each):.1f}" for each in times]
                floors = [found["floor_ms"][_name(form, count)] for form in forms]
                to_floors = ", ".join(to_floor(one, floor) for one, floor in zip(times, floors, strict=True))
                moved = ", ".join(f"{found['moved_mb'][_name(form, 1)]:.1f}" for form in forms)
                each = ", ".join(_ratio(one, base) for one, base in zip(times, bases, strict=True))
                ratios = (_ratio(times[1], times[0]), _ratio(times[1], bases[0]), each)
                told = ", ".join(f"{floor:.1f}" for floor in floors)
                table.add_row(str(frames), str(count), _words(how), *shown, *ratios, told, to_floors, moved)
    return table


def _words(how: How) -> str:
    appends, coded = how
    return f"{'appended' if appends else 'given whole'}{', 8 bits' if coded else ''}"


def _ratio(times: Sequence[float], others: Sequence[float]) -> str:
    low, middle, high = np.quantile([one / other for one, other in zip(times, others, strict=True)], [0.1, 0.5, 0.9])
    return f"{middle:.2f} ({low:.2f}..{high:.2f})"


WIDTH, HEIGHT, MARGIN = 420, 400, 60
COLOURS = {16: "#d62728", 4: "#1f77b4"}


def picture(found: dict[str, Any], sizes: Sequence[Size], slots: Sequence[int], rows: Sequence[int]) -> str:
    """Return an SVG of milliseconds over cached frames, with a panel per number of rows; floors are dashed.

    Thin lines are steps that return whole caches.
    """
    frames = sorted(slots)
    most = 1.1 * max(statistics.median(each) for each in found["ms"].values())
    least = 0.8 * min(found["floor_ms"].values())
    panels = []
    for panel, count in enumerate(rows):
        left = panel * WIDTH + MARGIN

        def at(slot: int, ms: float, left: int = left) -> tuple[float, float]:
            x = left + (WIDTH - 1.5 * MARGIN) * slot / frames[-1]
            y = HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * np.log(ms / least) / np.log(most / least)
            return round(float(x), 1), round(float(y), 1)

        panels.append(
            f'<path d="M{left} {MARGIN / 2}V{HEIGHT - MARGIN}h{WIDTH - 1.5 * MARGIN}" fill="none" stroke="#333"/>'
            f'<text x="{left + WIDTH / 3}" y="{HEIGHT - 12}" text-anchor="middle">cached frames, rows: {count}</text>'
        )
        panels += [
            f'<text x="{at(slot, least)[0]}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{slot}</text>'
            for slot in frames
        ]
        for size in sizes:
            groups, colour = size.groups, COLOURS[size.groups]
            names = [_name(Form(size, slot, appends=True), count) for slot in frames]
            whole = [_name(Form(size, slot, appends=False), count) for slot in frames]
            drawn = ((found["ms"], names, "2"), (found["ms"], whole, "1"),
                     (found["floor_ms"], names, '2" stroke-dasharray="4'))  # fmt: skip
            for told, shown_names, width in drawn:
                points = [
                    at(slot, float(np.median(told[each]))) for slot, each in zip(frames, shown_names, strict=True)
                ]
                line = " ".join(f"{x},{y}" for x, y in points)
                panels.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
                if width != "2":
                    continue
                for (x, y), name in zip(points, names, strict=True):
                    shown = f"{statistics.median(told[name]):.0f} ms"
                    panels.append(f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"/>')
                    panels.append(f'<text x="{x}" y="{y - 9}" text-anchor="middle" fill="{colour}">{shown}</text>')
            x, y = at(frames[0], float(np.median(found["floor_ms"][names[0]])))
            panels.append(f'<text x="{left + 6}" y="{y - 6}" fill="{colour}">{groups} heads, floor</text>')
    wide = WIDTH * len(rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{HEIGHT}" viewBox="0 0 {wide} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12"><rect width="{wide}" height="{HEIGHT}" fill="white"/>'
        f"{''.join(panels)}</svg>\n"
    )


if __name__ == "__main__":
    command.run(main)
