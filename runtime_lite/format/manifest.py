"""Defines the manifest of a bundle as frozen records, with the meaning of every field.

A shape lists integers and axis names, e.g. `("batch", 67, 80)`. A dimension of an output may also be a formula over
axis names, e.g. `("batch", "(time - 1) // 2 + 1", 30)`. `manifest_json.py` reads and writes the records.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from runtime_lite.format.cache_axis import CacheAxis
from runtime_lite.format.formula import parse_formula
from runtime_lite.format.initial_value import Initial
from runtime_lite.format.sampling import Sampling
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
        shape: integers and axis names, e.g. `("batch", 67, 80)`; in outputs of role `data` also formulas. For the sizes
            of a bucket they give the shape of the array, for the true lengths of a row the shape of its valid part.
        dtype: NumPy name, one of `DTYPES`.
        role: `data` is fed by the caller; `length`, `mask` and `state` are filled by the runtime.
        range: the smallest and the largest number that callers may feed, for which the graph was proved; None for any
            number.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    role: str
    range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Axis:
    """An axis whose size is chosen per artifact.

    An axis with a length input is padded at the end: every row has its own true length, and the padding reaches no
    valid output. Free rows of the batch axis are filled and removed from the outputs, too. Along any other axis the
    size of a feed must equal a bucket.

    Attributes:
        buckets: the sizes that were built, ascending.
        length_input: graph input (role `length`) that takes the true length per row; None if padding is not proved.
        minimum: smallest length that was proved, at most the smallest bucket; 1 without `length_input`.
        is_held: whether states have this axis, in the size of its largest bucket; then all calls of a stream must have
            the length of the first.
    """

    buckets: tuple[int, ...]
    length_input: str | None = None
    minimum: int = 1
    is_held: bool = False


@dataclass(frozen=True)
class State:
    """A value that a stream passes from one push to the next.

    Attributes:
        name: name in the recipe, or the name given by a packing pass.
        input: graph input that takes the value.
        output: graph output that returns the next value.
        shape: shape of both; if calls return new frames alone, the output has only these frames.
        dtype: dtype of both.
        initial: the number that fills the state of a new stream, or numbers that differ along its axes
            (`initial_value.py`); always one number for a cache.
        frames_axis: index of the axis of cached frames in `shape`; None for states of a fixed shape (convolution
            contexts), which every push replaces.
        cache: name of that cache axis; None together with `frames_axis`.
        parts: names of the checkpoint's caches that are packed in this state, in order; may be empty.
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
        file: the graph file in the bundle; its shapes are static except for rows: artifacts that differ only in their
            number of rows may share a file in which the batch axis is open.
        files: further files that it reads (external weights), possibly shared with other artifacts.
    """

    sizes: Mapping[str, int]
    file: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Engine:
    """The engines that a vendor's compiler makes of the files of one graph, for the device that runs them.

    Attributes:
        status: `built` or `not built`.
        reason: why it is not built; None if it is.
        plan: file with all options of the compiler.
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
    """A graph's latency, among several of the same model.

    Attributes:
        of: common name of the graphs of the model; no graph of the bundle has this name.
        name: name of the latency, different for each graph of the model.
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
        states: the states of a stream; empty for a graph that is run directly.
        caches: the axes along which states cache frames, and how valid frames are counted along each.
        artifacts: one per combination of buckets.
        golden: `.npz` file of recorded feeds and outputs.
        rows_independent: whether it is proved that a row of every output depends on that row of the inputs only.
            Without it no bucket of the batch axis is larger than 1.
        certificate: file that holds the proofs.
        batch_axis: name of the axis of rows, one of `axes`; None for a graph without one.
        engine: the engines of a target with a vendor's compiler; None if the graph files are run.
        flush: number of entries that complete the outputs of a stream at its end, by input of role `data`; empty if
            outputs do not lag.
        flush_values: value of these entries, by input; 0 for inputs that are not listed.
        options: options for the executor of the target, such as the precision to compute in, as scalars by name.
        latency: the latency of this graph if the bundle has its model at several latencies; else None.
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
        """Numbers of rows that were built; (1,) without a batch axis."""
        return (1,) if self.batch_axis is None else self.axes[self.batch_axis].buckets

    @cached_property
    def row_steps(self) -> tuple[int, ...]:
        """Numbers of rows of a run, ascending: the buckets, and steps between them if graph files leave rows open.

        At most a ninth of the rows of a step are free, and there are few steps.
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
        """The artifacts; where files leave the number of rows open, also one entry per row step between the buckets."""
        between = [rows for rows in self.row_steps if rows not in self.row_buckets]
        like = [each for each in self.artifacts if each.sizes.get(str(self.batch_axis)) == self.row_buckets[-1]]
        return self.artifacts + tuple(
            Artifact({**each.sizes, str(self.batch_axis): rows}, each.file, each.files)
            for each in like
            for rows in between
        )

    def rows_at(self, tensor: Tensor) -> int | None:
        """Return the index of the batch axis in an input or output, or None."""
        return tensor.shape.index(self.batch_axis) if self.batch_axis in tensor.shape else None

    def kind_of(self, state: State) -> StateKind:
        """Return the kind of a state."""
        return next((cache.kind for cache in self.caches if cache.axis == state.cache), FIXED)

    def sizes_in_file(self, artifact: Artifact) -> Mapping[str, int]:
        """Return the sizes that are fixed in an artifact's file: all, except rows if several artifacts share it."""
        if sum(each.file == artifact.file for each in self.artifacts) == 1:
            return artifact.sizes
        return {axis: size for axis, size in artifact.sizes.items() if axis != self.batch_axis}

    def shape_in_file(self, tensor: Tensor, artifact: Artifact) -> list[int | str]:
        """Return the shape that an artifact's file states: numbers, and the batch axis by name if it is open."""
        sizes = self.sizes_in_file(artifact)
        is_open = self.batch_axis not in sizes
        return [
            size if is_open and size == self.batch_axis else static_shape((size,), sizes)[0] for size in tensor.shape
        ]


@dataclass(frozen=True)
class Wire:
    """An output of a graph that is an input of another one, as from an encoder to a rescorer, or from prefill to step.

    Attributes:
        from_graph: graph that the wire starts from.
        output: its output, of role `data`; or of role `state`, as the initial state of a stream of the other graph.
        to_graph: graph that the wire leads to.
        input: its input, of the same role.
    """

    from_graph: str
    output: str
    to_graph: str
    input: str


@dataclass(frozen=True)
class FrameLimit:
    """The most frames of a voice by the length of its text: `per_entry` times its entries, and `more`.

    Attributes:
        input: input of the step that takes the text; the size of its axis other than that of rows is the length.
        per_entry: frames of an entry, at least 0.
        more: frames of a text without entries, at least 1.
    """

    input: str
    per_entry: float
    more: int


@dataclass(frozen=True)
class Voice:
    """How two graphs make sound of a text: a step scores the next token, and a codec makes sound of tokens.

    Attributes:
        step: graph with states of one step.
        tokens: its integer input, `[rows, count]`, that takes the prompt and then every token that was drawn.
        scores: its output whose last row has the scores of the next token.
        start: token that is fed behind the prompt; None for none.
        codec: graph with states that takes tokens chunk by chunk, each of them a frame. Where its outputs lag, they
            do so by the frames of its `flush`.
        codes: its integer input of tokens; its sizes but those of rows and frames are 1.
        noise: its input of float32 that takes normal random numbers; None for none.
        sound: its output, with `samples_per_frame` numbers for every frame.
        samples_per_frame: samples that a token becomes.
        sample_rate_hz: samples per second.
        frames: the most frames of a voice by its text; None for the most tokens of `sampling` whatever the text.
        sampling: how tokens are drawn where a caller does not say; its `stop` are the tokens that are no frames, and
            end a voice.
    """

    step: str
    tokens: str
    scores: str
    start: int | None
    codec: str
    codes: str
    noise: str | None
    sound: str
    samples_per_frame: int
    sample_rate_hz: int
    frames: FrameLimit | None
    sampling: Sampling


@dataclass(frozen=True)
class Sources:
    """SHA-256 hashes of all sources of the bundle, in lower-case hex.

    Attributes:
        checkpoint: hash of each checkpoint file, by a name without a path of the machine.
        recipe: hash of the effective recipe text.
        data: hash of each data file or generator.
    """

    checkpoint: Mapping[str, str]
    recipe: str
    data: Mapping[str, str]


@dataclass(frozen=True)
class FileEntry:
    """Size and hash of one file of the bundle.

    Attributes:
        bytes: size in bytes.
        sha256: SHA-256 in lower-case hex.
    """

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """All data about a bundle.

    Attributes:
        name: name of the recipe.
        graphs: the graphs by name.
        front_end: parameters of the caller's preprocessing, as scalars by name (sample rate, feature parameters).
        sha256: hashes of its sources.
        tools: versions of tools by name.
        receipts: file with the measurements of the build.
        recipe: file with the effective recipe.
        files: every file of the bundle except `manifest.json` and `costs.json`.
        wiring: connections from outputs to inputs of other graphs; a graph runs after those whose outputs it takes.
        voice: how its graphs make sound of a text; None if they do not.
        schema_version: schema of the file that it was read from.
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
    voice: Voice | None = None
    schema_version: int = field(default=SCHEMA_VERSION)


def tensor_bytes(shape: Iterable[int], dtype: str) -> int:
    """Return the size in bytes of a tensor with this static shape and dtype."""
    return math.prod(shape) * ITEM_BYTES[dtype]


def static_shape(shape: tuple[int | str, ...], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return a shape with every axis name and formula replaced by its size.

    Raises:
        BundleRefused: a formula has no value for these sizes.
    """
    return tuple(size if isinstance(size, int) else parse_formula(size).value(sizes) for size in shape)


def bucket_name(sizes: Mapping[str, int]) -> str:
    """Return the name of a bucket in messages and `costs.json`, e.g. `batch=4`; `static` without axes."""
    return ",".join(f"{axis}={size}" for axis, size in sorted(sizes.items())) or "static"
