"""The manifest of a bundle as frozen records; what every field means stands here.

A shape lists integers and axis names, e.g. `("batch", 67, 80)`. A dim of an output may be a formula over axis names,
e.g. `("batch", "(time - 1) // 2 + 1", 30)`. `manifest_json.py` reads and writes the records.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from runtime_lite.format.cache_axis import CacheAxis
from runtime_lite.format.formula import parse_formula
from runtime_lite.format.initial_value import Initial
from runtime_lite.states import FIXED
from runtime_lite.states.kind import StateKind

SCHEMA_VERSION = 4
MANIFEST_FILE = "manifest.json"
COSTS_FILE = "costs.json"

DTYPES = (
    "bool",
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
)
ITEM_BYTES = {"bool": 1, **{name: int(re.sub(r"\D", "", name)) // 8 for name in DTYPES if name != "bool"}}
INPUT_ROLES = ("data", "length", "mask", "state")
OUTPUT_ROLES = ("data", "state")
ENGINE_STATUSES = ("built", "not built")

Scalar = bool | int | float | str


@dataclass(frozen=True)
class Tensor:
    """An input or output of a graph.

    Attributes:
        name: value name in the graph file.
        shape: integers and axis names, e.g. `("batch", 67, 80)`; in outputs of role `data` also formulas. At a bucket
            they give the size of the array, at the true length of a row how much of it is valid.
        dtype: NumPy name, one of `DTYPES`.
        role: `data` is the caller's; `length`, `mask` and `state` are filled by the runtime.
        range: the smallest and the largest number that callers feed, for which the graph was proved; None of what may
            be any number.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    role: str
    range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Axis:
    """An axis whose size is chosen per artifact.

    The places of an axis with a length input are padded at the end: every row has a true length of its own, and what
    lies behind it reaches no valid output. Free places of the batch axis are filled and cut, too. Of any other axis a
    feed needs exactly a bucket.

    Attributes:
        buckets: the sizes that were built, ascending.
        length_input: graph input (role `length`) that takes the true length per row, None where padding is not proved.
        minimum: smallest length that was proved, at most the smallest bucket; 1 without `length_input`.
        is_held: whether states lie along it, in as many places as the largest bucket has: all calls of a stream have
            the length of its first.
    """

    buckets: tuple[int, ...]
    length_input: str | None = None
    minimum: int = 1
    is_held: bool = False


@dataclass(frozen=True)
class State:
    """A value that a stream carries from one push to the next.

    Attributes:
        name: what the recipe or a packing pass calls it.
        input: graph input that takes the carried value.
        output: graph output that yields the next value.
        shape: shape of both; where calls give new frames alone, the output has these.
        dtype: dtype of both.
        initial: the number that fills the state of a new stream, or numbers that differ along its axes
            (`initial_value.py`); a number where frames are cached.
        frames_axis: position of the cached frames in `shape`, None for states of fixed extent (convolution contexts),
            which every push replaces.
        cache: name of the cache axis that lies there, None together with `frames_axis`.
        parts: names of the checkpoint's own caches that are packed in this state, in order; may be empty.
    """

    name: str
    input: str
    output: str
    shape: tuple[int | str, ...]
    dtype: str
    initial: Initial
    frames_axis: int | None
    cache: str | None
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Artifact:
    """One graph at one combination of buckets.

    Attributes:
        sizes: the bucket of every axis, e.g. `{"batch": 4}`.
        file: the graph file in the bundle, static but for its rows: artifacts that differ in their bucket of the batch
            axis alone may share one, in which that axis is open.
        files: further files it reads (external weights), possibly shared with other artifacts.
    """

    sizes: Mapping[str, int]
    file: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Engine:
    """What a vendor's compiler makes of the graph files of one graph, for the device that runs them.

    Attributes:
        status: `built` or `not built`.
        reason: why it is not built; None when it is.
        plan: file with everything that the compiler is told.
        files: engine file by graph file, one per artifact; empty while it is not built.
        built_with: versions and device by name; empty while it is not built.
    """

    status: str
    reason: str | None
    plan: str
    files: Mapping[str, str]
    built_with: Mapping[str, str]


@dataclass(frozen=True)
class Latency:
    """Which of several latencies of one model a graph is.

    Attributes:
        of: what the graphs of the model are called together; no graph of the bundle is called so.
        name: of the latency; no two graphs of the model have the same.
    """

    of: str
    name: str


@dataclass(frozen=True)
class Graph:
    """One graph of the bundle with all its buckets.

    Attributes:
        target: target that produced it, e.g. `onnx_static`.
        opset: default-domain opset version of its files.
        ir_version: ONNX IR version of its files.
        inputs: in the order of the graph files.
        outputs: in the order of the graph files.
        axes: axis name to buckets; every axis name in a shape is a key.
        states: what a stream carries; empty for a graph that is run directly.
        caches: the axes along which states keep frames, and how valid frames are counted along each.
        artifacts: one per combination of buckets.
        golden: `.npz` file of recorded feeds and outputs.
        rows_independent: whether it is proved that a row of every output depends on that row of the inputs only.
            Without it no bucket of the batch axis is larger than 1.
        certificate: file that holds the proofs.
        batch_axis: the axis of rows, one of `axes`, whatever it is called; None for a graph without one.
        engine: for a target with a compiler of its vendor, what came of it; None where the graph files are run.
        flush: entries that complete the outputs of a stream at its end, by input of role `data`; none where nothing
            lags.
        flush_values: the number that these entries are, by input; 0 for others.
        options: what the executor of the target is told about its graph files, e.g. what they compute in; free scalars.
        latency: of a model that the bundle holds at several latencies, which of them this graph is; None of others.
    """

    target: str
    opset: int
    ir_version: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    axes: Mapping[str, Axis]
    states: tuple[State, ...]
    caches: tuple[CacheAxis, ...]
    artifacts: tuple[Artifact, ...]
    golden: str
    rows_independent: bool
    certificate: str
    batch_axis: str | None
    engine: Engine | None = None
    flush: Mapping[str, int] = field(default_factory=dict)
    flush_values: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Scalar] = field(default_factory=dict)
    latency: Latency | None = None

    @property
    def row_buckets(self) -> tuple[int, ...]:
        """Numbers of rows that were built for; 1 without a batch axis."""
        return (1,) if self.batch_axis is None else self.axes[self.batch_axis].buckets

    @cached_property
    def row_steps(self) -> tuple[int, ...]:
        """Numbers of rows that a run may have, ascending: the buckets, and steps between where files leave rows open.

        A run of a step leaves no more than a ninth of its rows free, and there are few of them.
        """
        buckets = self.row_buckets
        files = [artifact.file for artifact in self.artifacts]
        if self.engine is not None or len(set(files)) * len(buckets) > len(files):
            return buckets
        steps, rows = list(buckets), buckets[0]
        while rows < buckets[-1]:
            steps.append(rows)
            rows += max(1, 2 ** (rows.bit_length() - 4))
        return tuple(sorted(set(steps)))

    @cached_property
    def runnable(self) -> tuple[Artifact, ...]:
        """The artifacts; and, where their files leave rows open, those files at the steps between."""
        between = [rows for rows in self.row_steps if rows not in self.row_buckets]
        like = [each for each in self.artifacts if each.sizes.get(str(self.batch_axis)) == self.row_buckets[-1]]
        return self.artifacts + tuple(
            Artifact({**each.sizes, str(self.batch_axis): rows}, each.file, each.files)
            for each in like
            for rows in between
        )

    def rows_at(self, tensor: Tensor) -> int | None:
        """Where an input or output has its rows, or None."""
        return tensor.shape.index(self.batch_axis) if self.batch_axis in tensor.shape else None

    def kind_of(self, state: State) -> StateKind:
        """What a state is."""
        return next((cache.kind for cache in self.caches if cache.axis == state.cache), FIXED)

    def sizes_in_file(self, artifact: Artifact) -> Mapping[str, int]:
        """The sizes that an artifact's file is fixed to: all, but for the rows where several artifacts share it."""
        if sum(each.file == artifact.file for each in self.artifacts) == 1:
            return artifact.sizes
        return {axis: size for axis, size in artifact.sizes.items() if axis != self.batch_axis}

    def shape_in_file(self, tensor: Tensor, artifact: Artifact) -> list[int | str]:
        """The shape that an artifact's file states: numbers, and the name of the batch axis where that is open."""
        sizes = self.sizes_in_file(artifact)
        is_open = self.batch_axis not in sizes
        return [
            size if is_open and size == self.batch_axis else static_shape((size,), sizes)[0] for size in tensor.shape
        ]


@dataclass(frozen=True)
class Wire:
    """An output that another graph of the bundle takes: what an encoder gives to a rescorer, a prefill to a step.

    Attributes:
        from_graph: graph that gives it.
        output: its output, of role `data`; or of role `state`, with which a stream of the other graph starts.
        to_graph: graph that takes it.
        input: its input, of the same role.
    """

    from_graph: str
    output: str
    to_graph: str
    input: str


@dataclass(frozen=True)
class Sources:
    """SHA-256 of everything the bundle was made from, in lower-case hex.

    Attributes:
        checkpoint: per checkpoint file, by a name that holds no machine path.
        recipe: of the effective recipe text.
        data: per data file or generator.
    """

    checkpoint: Mapping[str, str]
    recipe: str
    data: Mapping[str, str]


@dataclass(frozen=True)
class FileEntry:
    """Size and hash of one file of the bundle.

    Attributes:
        bytes: exact size.
        sha256: lower-case hex.
    """

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Everything a bundle says about itself.

    Attributes:
        name: of the recipe.
        graphs: by graph name.
        front_end: what the caller must do before feeding, as free scalars (sample rate, feature parameters).
        sha256: where it came from.
        tools: tool name to version.
        receipts: file that holds what the build measured.
        recipe: file that holds the effective recipe.
        files: every file of the bundle except `manifest.json` and `costs.json`.
        wiring: which outputs of graphs other graphs take; none runs before those that it takes from.
        schema_version: of the format that it was read from.
    """

    name: str
    graphs: Mapping[str, Graph]
    front_end: Mapping[str, Scalar]
    sha256: Sources
    tools: Mapping[str, str]
    receipts: str
    recipe: str
    files: Mapping[str, FileEntry]
    wiring: tuple[Wire, ...] = ()
    schema_version: int = field(default=SCHEMA_VERSION)


def tensor_bytes(shape: Iterable[int], dtype: str) -> int:
    """Return the size in bytes of a tensor with this static shape and dtype."""
    return math.prod(shape) * ITEM_BYTES[dtype]


def static_shape(shape: tuple[int | str, ...], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape with every axis name and formula replaced by its size.

    Raises:
        BundleRefused: a formula has no value for these sizes.
    """
    return tuple(size if isinstance(size, int) else parse_formula(size).value(sizes) for size in shape)


def bucket_name(sizes: Mapping[str, int]) -> str:
    """Return how messages and `costs.json` name an artifact's sizes, e.g. `batch=4`; `static` when there is no axis."""
    return ",".join(f"{axis}={size}" for axis, size in sorted(sizes.items())) or "static"
